"""Callers who bring a token that an issuer has signed (a JWT, RFC 7519), and the groups that it names.

    callers:                                                 # of serving.yaml
      issuer: https://login.example.com/realms/acme          # as the tokens name it (`iss`)
      audience: revelator                                    # whom they are for (`aud`): one for others does not let in
      jwks: https://login.example.com/realms/acme/certs      # the issuer's public keys, or a file of them
      groups_claim: groups                                   # a list of names; a token without it has no groups

A token counts from its `nbf` to its `exp`, which it must have. Its signature must be RS256 or ES256, by a key of the
issuer that the token names (`kid`). Keys are kept in memory, read again after `FRESH_SECONDS`, and at once for a name
that is not among them, but never more often than each `PAUSE_SECONDS`: tokens of strangers cannot flood the issuer.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

import jwt
from pydantic import Field, model_validator

from revelator.config import Strict
from revelator.endpoints import LOOPBACK, check_url
from revelator.errors import ConfigError, RevelatorError, Unauthenticated, Unavailable
from serving.knowledge.http import HttpEndpoint
from serving.protocols import GROUP

ALGORITHMS = ("RS256", "ES256")  # of public keys alone: with an HMAC, whoever can check a token could make one
CHECKS: Any = {"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True}
LEEWAY = 30.0  # seconds by which clocks may differ
FRESH_SECONDS = 300.0  # after which keys are read again: a key that was withdrawn counts so long
LONGEST_SECONDS = 3_600.0  # that keys count while the issuer cannot be reached
PAUSE_SECONDS = 10.0  # between two readings
TIMEOUT = 5.0  # seconds of one reading
MOST_GROUPS = 1_000  # of a caller
HINT = "get a token from the issuer that this service names in serving.yaml: callers"
REASONS: dict[type[jwt.PyJWTError], str] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another audience",
    jwt.InvalidIssuerError: "the token is of another issuer",
    jwt.MissingRequiredClaimError: "exp, iss or aud is missing from the token",
    jwt.InvalidSignatureError: "the token's signature is wrong",
    jwt.InvalidKeyError: "the key of its issuer is too short",
    jwt.InvalidAlgorithmError: f"the token is not signed with {' or '.join(ALGORITHMS)}",
}
log = logging.getLogger(__name__)
Text = Annotated[str, Field(min_length=1)]


class TokenIssuer(Strict):
    """Whose signed tokens (JWT) let callers in, and where they name the caller's groups."""

    issuer: Text  # the `iss` of its tokens
    audience: Text  # the `aud` of those for this service
    jwks: Text  # URL or file of its public keys, a JSON Web Key Set; https, unless it is on this machine
    groups_claim: Text = "groups"  # that lists the caller's groups; without it a token has none

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_web:
            check_url(self.jwks)
            if self.jwks.startswith("http://") and urlsplit(self.jwks).hostname not in LOOPBACK:
                hint = "https://…, or a file: who changes the keys on their way can name any groups"
                raise ConfigError("public keys come over https", where="jwks", hint=hint)
        return self

    @property
    def is_web(self) -> bool:
        return self.jwks.startswith(("http://", "https://"))


def read_keys(data: bytes, where: str) -> dict[str, jwt.PyJWK]:
    """The keys of a JSON Web Key Set with which tokens are signed, by their ids. Raises ConfigError for a text that
    holds none."""
    hint = "a JSON Web Key Set of public keys, each with its kid, such as an issuer shows at its jwks_uri"
    try:
        entries = json.loads(data)["keys"]
        if any("d" in entry for entry in entries):
            raise ConfigError("a private key stands there", where=where, hint=hint)
        keys = jwt.PyJWKSet(entries).keys
        found = {
            str(key.key_id): key
            for key in keys
            if key.key_id and key.public_key_use in (None, "sig") and key.algorithm_name in ALGORITHMS
        }
    except (jwt.PyJWTError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise ConfigError("the text is no set of keys", where=where, hint=hint) from error
    if not found:
        raise ConfigError(f"no key signs with {' or '.join(ALGORITHMS)}", where=where, hint=hint)
    return found


class Keys:
    """An issuer's public keys, as its address or file holds them."""

    def __init__(self, known: TokenIssuer, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._clock = clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at = self._tried_at = -math.inf
        self._reading = asyncio.Lock()

    async def find(self, id: str) -> jwt.PyJWK:
        """Raises Unauthenticated for a key that the issuer does not have, and Unavailable while its keys cannot be
        read."""
        if self._is_due(id):
            async with self._reading:
                if self._is_due(id):
                    await self._read()
        if self._clock() - self._read_at > LONGEST_SECONDS:
            raise Unavailable("the keys of the tokens' issuer cannot be read", hint="the service's log says why")
        if id not in self._keys:
            raise Unauthenticated("the issuer has no key such as the token names", hint=HINT)
        return self._keys[id]

    def _is_due(self, id: str) -> bool:
        now = self._clock()
        is_known = id in self._keys and now - self._read_at < FRESH_SECONDS
        return not is_known and now - self._tried_at >= PAUSE_SECONDS

    async def _read(self) -> None:
        try:
            self._keys = read_keys(await self._fetch(), self._known.jwks)
            self._read_at = self._clock()
        except (RevelatorError, OSError) as error:
            log.warning("the issuer's keys cannot be read: %s", error)
        self._tried_at = self._clock()

    async def _fetch(self) -> bytes:
        if not self._known.is_web:
            return await asyncio.to_thread(Path(self._known.jwks).read_bytes)
        endpoint = HttpEndpoint(self._known.jwks, timeout=TIMEOUT)
        try:
            return await endpoint.get({})
        finally:
            await endpoint.close()


class SignedTokens:
    """Checks the tokens of one issuer."""

    def __init__(self, known: TokenIssuer, clock: Callable[[], float] = time.monotonic) -> None:
        self._known = known
        self._keys = Keys(known, clock)

    async def find_groups(self, token: str) -> frozenset[str]:
        """The groups that a token names. Raises Unauthenticated with the reason, and never with a part of the token,
        for one that does not let in; Unavailable where that cannot be told now."""
        key = await self._keys.find(_read_key_id(token))
        known = self._known
        try:
            claims = jwt.decode(
                token, key, ALGORITHMS, CHECKS, audience=known.audience, issuer=known.issuer, leeway=LEEWAY
            )
        except jwt.PyJWTError as error:
            reason = next((said for kind, said in REASONS.items() if isinstance(error, kind)), "the token is malformed")
            raise Unauthenticated(reason, hint=HINT) from None
        return self._read_groups(claims.get(self._known.groups_claim, []))

    def _read_groups(self, names: Any) -> frozenset[str]:
        """Names that no document can have in `allowed` are left out: a directory has such groups, too."""
        if not isinstance(names, list) or len(names) > MOST_GROUPS or not all(isinstance(name, str) for name in names):
            reason = f"the token's claim of groups is no list of at most {MOST_GROUPS:,} names"
            raise Unauthenticated(reason, hint=HINT)
        return frozenset(name for name in names if re.fullmatch(GROUP, name))


def _read_key_id(token: str) -> str:
    """The name of the key, which nothing vouches for yet."""
    try:
        id = jwt.get_unverified_header(token).get("kid")
    except (jwt.PyJWTError, ValueError, RecursionError):
        raise Unauthenticated("the token is malformed", hint=HINT) from None
    if not id:
        raise Unauthenticated("the token does not name its key (kid)", hint=HINT)
    return str(id)
