"""The generator behind its Triton model: which one it is, and requests read from JSON."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

from revelator.errors import InvalidRequest
from revelator.tasks import Step
from revelator.trace import Passage
from serving.generators import EmbeddedGenerator, EndpointGenerator
from serving.protocols import GenerateRequest, Generator, Reading
from serving.triton.repository import EMBEDDED


class Readings:
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
    """The request in its JSON. Raises InvalidRequest."""
    try:
        value = json.loads(text)
        passages = tuple(Passage(**p) for p in value.pop("passages", ()))
        steps = tuple(Step(**s) for s in value.pop("steps", ()))
        return GenerateRequest(**value, passages=passages, steps=steps)
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidRequest(f"this is no generator request: {error}") from error
