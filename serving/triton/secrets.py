"""The two secrets of a home folder: what the server wants to hear before it changes, an inner model before it answers.

    .control-token   loads and unloads models, registers shared memory, sets traces and logs: `deploy`, `serve`'s watch
    .inner-token     asks `revelator`, `retriever` and `generator`: the executor, and the smoke questions of a deploy

Each is drawn when it is first wanted, into a file that its owner alone may read. `REVELATOR_CONTROL_TOKEN` in the
environment stands for the first, where a deploy runs on another machine than the server.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path
from typing import Literal

from revelator.endpoints import find_control_token
from revelator.errors import ConfigError, InvalidRequest
from revelator.files import sync_folder

Name = Literal[".control-token", ".inner-token"]
CONTROL: Name = ".control-token"
INNER: Name = ".inner-token"
PARAMETER = "inner"  # of a request to an inner model


def control_secret(home: Path) -> str:
    """The control token: the environment's, or the one of the home folder."""
    return find_control_token() or secret(home, CONTROL)


def secret(home: Path, name: Name) -> str:
    """The secret in the file `name` of a home folder, drawn where there is none; of two that draw it, one does.

    Raises ConfigError for a file that others may read or that holds no secret, and for a folder that cannot be written.
    """
    path = home / name
    try:
        if not path.exists():
            _draw(path)
        mode, text = path.stat().st_mode, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"no secret can be kept here: {error}", where=str(path)) from error
    if stat.S_IMODE(mode) & 0o077:
        hint = f"others may have read it: rm {path}, and start `revelator serve` again, which draws another"
        raise ConfigError(f"the file has mode {stat.S_IMODE(mode):o}, not 600", where=str(path), hint=hint)
    if len(text) < 32:
        hint = f"rm {path}, and start `revelator serve` again, which draws another"
        raise ConfigError("the file holds no secret", where=str(path), hint=hint)
    return text


def _draw(path: Path) -> None:
    aside = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(secrets.token_hex(32) + "\n")
            opened.flush()
            os.fsync(opened.fileno())
        if not path.exists():
            os.link(aside, path)  # fails where another drew one meanwhile, and then that one holds
    except FileExistsError:
        pass
    finally:
        aside.unlink()
    sync_folder(path.parent)


def require(wanted: str, sent: object, model: str) -> None:
    """Raises InvalidRequest where a request to an inner model does not carry its secret."""
    if not (isinstance(sent, str) and hmac.compare_digest(sent.encode(errors="replace"), wanted.encode())):
        hint = "put the question to the model `executor`, as revelator.client does"
        raise InvalidRequest("this model answers the executor alone", where=f"model {model}", hint=hint)
