"""The generator behind its Triton model: which one it is, and requests read from JSON."""

from __future__ import annotations

from contextlib import AsyncExitStack

from pydantic import TypeAdapter, ValidationError

from revelator.config import find_first_fault
from revelator.errors import InvalidRequest
from serving.models.embedded import EmbeddedGenerator
from serving.models.generators import EndpointGenerator
from serving.protocols import GenerateRequest, Generator
from serving.triton.repository import EMBEDDED

_REQUEST = TypeAdapter(GenerateRequest)


def open_generator(endpoint: str, model: str, stack: AsyncExitStack) -> Generator:
    """The embedded reader, or the model `model` at an OpenAI-compatible `endpoint` (its key: OPENAI_API_KEY)."""
    if endpoint == EMBEDDED:
        return EmbeddedGenerator()
    generator = EndpointGenerator(endpoint, model)
    stack.push_async_callback(generator.close)
    return generator


def read_request(text: str) -> GenerateRequest:
    """The request in its JSON. Raises InvalidRequest that names the first field that is wrong."""
    try:
        return _REQUEST.validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        field, reason = find_first_fault(error)
        raise InvalidRequest(f"this is no generator request: {reason}", where=field or "request") from error
