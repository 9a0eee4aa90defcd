"""What requests carry: JSON objects of a known shape and a bounded size."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from revelator.errors import InvalidRequest

BODY_BYTES = 1 << 18  # a question and a plan, or a conversation
SECONDS = 10.0  # in which a body has to arrive
APART = 1 << 16  # bytes beyond which a body is read beside the event loop

Body = TypeVar("Body", bound=BaseModel)


async def read_body(request: Request, kind: type[Body], most: int = BODY_BYTES) -> Body:
    """Raises InvalidRequest, whose `where` names the field, and HTTPException for a body that is too large or late."""
    body = bytearray()
    try:
        async with asyncio.timeout(SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413, f"the body has more than {most:,} bytes")
    except TimeoutError as error:
        raise HTTPException(408, f"the body did not arrive within {SECONDS:g} s") from error
    try:
        if len(body) > APART:
            return await asyncio.to_thread(kind.model_validate_json, body)
        return kind.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or None
        raise InvalidRequest(first["msg"][:1].lower() + first["msg"][1:], where=where) from error
