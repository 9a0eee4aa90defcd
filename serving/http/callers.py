"""Who asks: the token that a request brings, and the groups that its caller is in.

    clients:                                                  # the file that `clients` of serving.yaml names
      - {name: wiki, sha256: 9f86d081…}                       # printf %s "$REVELATOR_TOKEN" | sha256sum
      - {name: personnel, sha256: 60303ae2…, groups: [hr, board]}
    groups_header: X-Groups                                   # only behind a gateway that sets it: see below

A caller's groups are those of its token, which that file knows or an issuer has signed (`serving.http.issuer`). Where
the file names a `groups_header`, a gateway in front of the service knows its users, and says in that header which
groups each is in: then the header alone counts. Without that line such a header means nothing. Groups are never read
from a question.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from revelator.channels import AUTHORIZATION, TOKEN
from revelator.config import Strict, read_config
from revelator.errors import ConfigError, InvalidRequest, Unauthenticated
from serving.http.issuer import MOST_GROUPS, SignedTokens, TokenIssuer
from serving.protocols import GROUP

HeaderName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$")]
Group = Annotated[str, Field(pattern=f"^{GROUP}$")]
Sent = Iterable[tuple[str, str]]  # names in lower case, and values


class Client(Strict):
    """A token, by its digest, and the groups of whoever sends it."""

    name: Annotated[str, Field(min_length=1, max_length=100)]  # for people
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]  # of the token
    groups: tuple[Group, ...] = ()  # that it is in


class Clients(Strict):
    """The file that `clients` of serving.yaml names."""

    clients: tuple[Client, ...] = ()  # who may ask, beside whoever sends REVELATOR_TOKEN
    groups_header: HeaderName | None = None  # in which a gateway in front names the groups of its users

    @model_validator(mode="after")
    def _check(self) -> Clients:
        for kind in ("name", "sha256"):
            given = [getattr(client, kind) for client in self.clients]
            if len(set(given)) < len(given):
                raise ConfigError(f"two clients have the same {kind}", where="clients", hint="give each its own")
        if self.groups_header and any(client.groups for client in self.clients):
            hint = "leave out the `groups` of the clients, or groups_header"
            raise ConfigError("the header alone would say the groups", where="groups_header", hint=hint)
        return self


def read_clients(path: Path) -> Clients:
    """Raises ConfigError that names the field, and never its value."""
    return read_config(path, Clients, show_values=False)


@dataclass(frozen=True)
class Callers:
    """Who is let in: whoever sends `token`, which has no groups, that of one of the `clients`, or one that is `signed`;
    everybody where there is none of these."""

    token: str | None = None
    clients: tuple[Client, ...] = ()
    header: str = ""
    signed: SignedTokens | None = None

    @classmethod
    def of(cls, token: str | None, known: Clients, issuer: TokenIssuer | None = None) -> Callers:
        signed = SignedTokens(issuer) if issuer else None
        return cls(token, known.clients, (known.groups_header or "").lower(), signed)

    @property
    def need_token(self) -> bool:
        return self.token is not None or bool(self.clients) or self.signed is not None

    async def find_groups(self, sent: Sent) -> frozenset[str]:
        """The groups of who sent these headers. Raises Unauthenticated for a caller that is not let in, InvalidRequest
        for a header of groups that cannot be read or that stands twice, and Unavailable where the issuer of a token
        has to be asked and does not answer."""
        sent = list(sent)
        groups = await self._find_own_groups([value for name, value in sent if name == AUTHORIZATION])
        return self._read_header([value for name, value in sent if name == self.header]) if self.header else groups

    async def _find_own_groups(self, authorizations: list[str]) -> frozenset[str]:
        if not self.need_token:
            return frozenset()
        hint = f"send Authorization: Bearer …, as clients do of {TOKEN}"
        given = authorizations[0].removeprefix("Bearer ") if len(authorizations) == 1 else ""
        if not given or not authorizations[0].startswith("Bearer "):
            raise Unauthenticated("the bearer token is missing or wrong", hint=hint)
        found = self._find_known(given)
        if found is None and self.signed is not None and given.count(".") == 2:
            found = await self.signed.find_groups(given)
        if found is None:
            raise Unauthenticated("the bearer token is missing or wrong", hint=hint)
        return found

    def _find_known(self, given: str) -> frozenset[str] | None:
        digest = hashlib.sha256(given.encode(errors="replace")).hexdigest()
        found = None
        for client in self.clients:
            if secrets.compare_digest(digest, client.sha256):
                found = frozenset(client.groups)
        if found is None and self.token is not None and secrets.compare_digest(given.encode(), self.token.encode()):
            found = frozenset()
        return found

    def _read_header(self, values: list[str]) -> frozenset[str]:
        """Groups, separated by commas. A header that stands twice was not written by the gateway alone."""
        if len(values) > 1:
            hint = "let the gateway take away what its clients send under that name"
            raise InvalidRequest("the header of groups stands twice", where=self.header, hint=hint)
        names = [name.strip() for value in values for name in value.split(",") if name.strip()]
        if wrong := [name for name in names if not re.fullmatch(GROUP, name)]:
            hint = "names of letters, digits and . @ : / + - _, separated by commas"
            raise InvalidRequest(f"the header names no group: {wrong[0]!r:.60}", where=self.header, hint=hint)
        if len(names) > MOST_GROUPS:
            raise InvalidRequest(f"the header names {len(names):,} groups; {MOST_GROUPS:,} are read", where=self.header)
        return frozenset(names)


EVERYBODY = Callers()
