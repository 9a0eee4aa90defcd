"""The executor behind its Triton model: a request's strings in, a trace out."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

from pydantic_core import from_json

from revelator.errors import InvalidRequest
from revelator.trace import Trace
from serving.executor import Executor
from serving.triton.remote import RemoteGenerator, RemoteRetriever, RemoteRevelator, TritonModels

OPTIONS = {"plan": str, "strategy": str, "limits": dict}


class Questions:
    """Answers questions with the three other models of the server at `url`."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def open(self, stack: AsyncExitStack) -> None:
        self._models = await stack.enter_async_context(TritonModels(self.url))
        services = RemoteRevelator(self._models), RemoteRetriever(self._models), RemoteGenerator(self._models)
        self._executor = Executor(*services)

    async def answer(self, question: str, options: str, deadline_ms: object) -> Trace:
        """One question's trace. Raises InvalidRequest for options or a deadline that are not what they should be."""
        wanted = read_options(options)
        limits = self._executor.limits.lowered(wanted.pop("limits", {}))
        trace = await self._executor.run(question, deadline_ms=_milliseconds(deadline_ms), limits=limits, **wanted)
        return replace(trace, versions={**trace.versions, **self._models.versions})


def read_options(text: str) -> dict[str, Any]:
    """`plan`, `strategy` and `limits` from JSON; an empty text has none of them."""
    try:
        value = from_json(text or "{}")  # unlike json.loads it refuses what is nested too deep, and lone surrogates
    except ValueError as error:
        raise InvalidRequest(f"the options are not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("the options must be a JSON object", hint=f"with any of {', '.join(OPTIONS)}")
    for name, given in value.items():
        if name not in OPTIONS:
            raise InvalidRequest(f"there is no option {name!r}", hint=f"options are {', '.join(OPTIONS)}")
        if given is not None and not isinstance(given, OPTIONS[name]):
            raise InvalidRequest(f"option {name} must be a JSON {OPTIONS[name].__name__}, not {given!r}")
    return {name: given for name, given in value.items() if given is not None}


def _milliseconds(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise InvalidRequest(f"deadline_ms must be a number of milliseconds, not {value!r}")
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < float("inf"):
        raise InvalidRequest(f"deadline_ms must be a positive number of milliseconds, not {value!r}")
    return number
