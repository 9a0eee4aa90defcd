"""The generator behind its Triton model: which one it is, and requests read from JSON."""

from __future__ import annotations

from contextlib import AsyncExitStack

from pydantic import TypeAdapter, ValidationError

from revelator.config import find_first_fault
from revelator.errors import InvalidRequest
from serving.models.embedded import EmbeddedGenerator
from serving.models.generators import EndpointGenerator
from serving.protocols import GenerateRequest, Generator, Reading
from serving.triton.repository import EMBEDDED

READING_BYTES = 8_388_608  # question and passages
_REQUEST = TypeAdapter(GenerateRequest)


class ReadingService:
    """The embedded reader, or the model `model` at an OpenAI-compatible `endpoint` (its key: OPENAI_API_KEY)."""

    def __init__(self, endpoint: str, model: str) -> None:
        self.endpoint = endpoint
        self.model = model

    async def open(self, stack: AsyncExitStack) -> None:
        self._generator: Generator
        if self.endpoint == EMBEDDED:
            self._generator = EmbeddedGenerator()
        else:
            self._generator = generator = EndpointGenerator(self.endpoint, self.model)
            stack.push_async_callback(generator.close)

    async def answer(self, text: str) -> Reading:
        return await self._generator.answer(read_request(text))


def read_request(text: str) -> GenerateRequest:
    """The request in its JSON. Raises InvalidRequest that names the first field that is wrong."""
    try:
        return _REQUEST.validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        field, reason = find_first_fault(error)
        raise InvalidRequest(f"this is no generator request: {reason}", where=field or "request") from error
