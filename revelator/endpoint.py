"""What every client of a configured endpoint needs: its address and key checked, and the key out of every message."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from revelator.errors import ConfigError


def checked_url(url: str) -> str:
    """The url as it is, or ConfigError: only http and https, a host, and no user, query or fragment."""
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


def checked_key(key: str, variable: str) -> str:
    """The key without the white space around it, such as the line break at the end of a secret that is kept in a file.

    Raises ConfigError that names the environment variable and never shows the key: a header holds printable ASCII, and
    an HTTP client that is given anything else says so together with the header.
    """
    key = key.strip()
    if not key or not (key.isascii() and key.isprintable()):
        hint = f"export {variable}=…; a key is read from the environment alone"
        raise ConfigError("no key, or one that no header can hold", where=variable, hint=hint)
    return key


def without_key(text: str, key: str | None) -> str:
    """The key blanked in upper and lower case alike: a host name, for one, is written in lower case."""
    return re.sub(re.escape(key), "***", text, flags=re.IGNORECASE) if key else text
