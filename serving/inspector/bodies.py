"""What requests carry: JSON objects of a known shape and a bounded size."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.requests import Request

from revelator.errors import InvalidRequest

BODY_BYTES = 1 << 18  # a question and a plan, or a conversation

Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, kind: type[Body]) -> Body:
    """Raises InvalidRequest, whose `where` names the field."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > BODY_BYTES:
            raise InvalidRequest(f"the body has more than {BODY_BYTES:,} bytes")
    try:
        return kind.model_validate_json(bytes(body))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or None
        raise InvalidRequest(first["msg"].lower(), where=where) from error
