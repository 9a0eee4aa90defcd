"""What the client of Milvus reports, as our errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from revelator.artifact import DISK_FULL_SIGNS
from revelator.errors import ArtifactError, ConfigError, DeadlineExceeded, RevelatorError, ServingError, Unavailable

TOKEN = "MILVUS_TOKEN"  # the variable of the environment
NOT_CONNECTED, NO_COLLECTION, NOT_LOADED, BAD_TOKEN = 2, 100, 101, 1800  # codes of the client and of servers


@contextmanager
def explain_faults(where: str, seconds: float) -> Iterator[None]:
    """Raises what the client reports as our errors: Unavailable, DeadlineExceeded, ConfigError for a token, and
    ArtifactError where there is no collection."""
    from grpc import RpcError
    from pymilvus.exceptions import MilvusException

    try:
        yield
    except (RpcError, MilvusException, ValueError) as error:  # ValueError: of a channel that was closed
        raise _explain(error, where, seconds) from error


def _explain(error: Exception, where: str, seconds: float) -> RevelatorError:
    code, said = _read_fault(error)
    name, token = getattr(code, "name", ""), os.environ.get(TOKEN, "")
    said = said.replace(token, "…") if token else said
    if name == "DEADLINE_EXCEEDED":
        return DeadlineExceeded(f"Milvus did not answer within {seconds:g} s", where=where)
    codes = {getattr(_read_fault(one)[0], "name", "") for one in _list_causes(error)}
    if code == BAD_TOKEN or "UNAUTHENTICATED" in codes:
        problem = "the server refuses the token of" if token else "the server wants a token, and there is none in"
        return ConfigError(f"{problem} {TOKEN}", where=where, hint=f"export {TOKEN}=user:password")
    if code == NO_COLLECTION:
        hint = f"revelator index build FILES --to {where}"
        return ArtifactError("there is no such collection", where=where, hint=hint)
    if name == "UNAVAILABLE" or code == NOT_CONNECTED or isinstance(error, ValueError):
        hint = "is it running there, and may this machine reach it?"
        return Unavailable("Milvus does not answer", where=where, hint=hint)
    if "Open local milvus failed" in said:
        hint = "another process may have it open: run `milvus-lite server` for several"
        return Unavailable("Milvus Lite cannot open its files", where=where, hint=hint, final=True)
    if any(sign in said for sign in DISK_FULL_SIGNS):
        hint = "free space there, then start the command again: it goes on where it was"
        return ServingError(f"Milvus has no room: {said}", where=where, hint=hint)
    return ServingError(f"Milvus refuses the call: {said}", where=where)


def _read_fault(error: BaseException | None) -> tuple[Any, str]:
    """Code and message of a fault of gRPC, or of the client."""
    code = getattr(error, "code", None)
    details = getattr(error, "details", None)
    said = details() if callable(details) else getattr(error, "message", error)
    return code() if callable(code) else code, str(said).partition("\n")[0]


def _list_causes(error: BaseException) -> list[BaseException]:
    """The fault and those that led to it; the client raises some faults from themselves."""
    found: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in found:
        found.append(cause)
        cause = cause.__cause__ or cause.__context__
    return found
