"""Checks addresses and keys of services that are asked over HTTP."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from revelator.errors import ConfigError

LOOPBACK = ("127.0.0.1", "localhost", "::1")  # what this machine calls itself


def check_url(url: str) -> str:
    """Returns the url. Raises ConfigError unless it is http or https with a host, without user, query or fragment."""
    hint = "scheme, host and path, such as https://query.wikidata.org/sparql; keys come from the environment"
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine:
        raise ConfigError("not an http or https address", where="url", hint=hint)
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError("an endpoint has no user, query or fragment", where=f"url {parts.hostname}", hint=hint)
    return url


def _read_address(url: str) -> str:
    try:
        return check_url(url).rstrip("/")
    except ConfigError as error:
        raise ValueError(error.message) from error


Address = Annotated[str, AfterValidator(_read_address)]
"""An address in a configuration: what `check_url` takes, without a slash at its end."""


def check_key(key: str, variable: str) -> str:
    """Returns the key without the white space around it, such as the line break of a secret in a file.

    Raises ConfigError that names the environment variable and never shows the key: a header holds printable ASCII, and
    an HTTP client that is given anything else says so together with the header.
    """
    key = key.strip()
    if not key or not (key.isascii() and key.isprintable()):
        hint = f"export {variable}=…; a key is read from the environment alone"
        raise ConfigError("no key, or one that no header can hold", where=variable, hint=hint)
    return key


def mask_key(text: str, key: str | None) -> str:
    """Blanks the key in a text, in upper and lower case: a host name, for one, is printed in lower case."""
    return re.sub(re.escape(key), "***", text, flags=re.IGNORECASE) if key else text
