"""Whether the process that works on a question still lives.

Triton 2.51 never answers a request that was inside a process which died. So a client that has waited for a second looks
every half second: a tiny request, of all its calls together, which the executor answers at once and beside its
admission. A call has an id (parameter `call`); a look names ids (parameter `in_flight`) and hears which of them the
process has seen, and which processes of its model live. A server that knows of no looks takes one for an empty
question; then there are no more.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.utils import InferenceServerException

from revelator._calls import text_input
from revelator._wire import read_error
from revelator.errors import InvalidRequest, Unavailable

CALL, LOOK = "call", "in_flight"  # parameters of a request
PATIENCE = 1.0  # seconds of a call before the first look
EVERY = 0.5
LOOK_SECONDS = 3.0  # a model whose process is dead refuses after one
MOST_CALLS = 200  # that one look names, the oldest: a server reads 8,192 characters of it


@dataclass(eq=False)
class Call:
    """A call under way. `end` ends the wait for it, and it `died`; `holder` is the process that has it, once known."""

    model: str
    end: Callable[[], object]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    died: bool = False
    holder: int | None = None


@dataclass(frozen=True)
class Sight:
    """What a look saw: the process that answered, its age in seconds, the calls that it has seen, all live processes
    of its model."""

    pid: int
    age: float
    known: frozenset[str]
    alive: frozenset[int]

    @classmethod
    def read(cls, text: str) -> Sight:
        value = json.loads(text)
        return cls(value["pid"], value["age"], frozenset(value["known"]), frozenset(value["alive"]))

    def shows_death_of(self, call: Call, now: float) -> bool:
        """Whether the process that had the call is gone. One that another process took in may still be answered by it
        where a model was loaded anew; then it is alive."""
        if call.id in self.known:
            call.holder = self.pid
            return False
        if call.holder is not None:
            return call.holder not in self.alive
        return self.alive == {self.pid} and self.age < now - call.began


class Looks:
    """The calls of one client that are under way. The client looks; this decides."""

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._blind: set[str] = set()  # models that know of no looks

    def begin(self, model: str, end: Callable[[], object]) -> Call:
        call = Call(model, end)
        self._calls.add(call)
        return call

    def finish(self, call: Call) -> None:
        self._calls.discard(call)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def due(self) -> dict[str, list[Call]]:
        """By model, the calls to look for."""
        found: dict[str, list[Call]] = {}
        before = time.monotonic() - PATIENCE
        for call in sorted(self._calls.copy(), key=lambda call: call.began):
            calls = found.setdefault(call.model, [])
            if call.began <= before and call.model not in self._blind and len(calls) < MOST_CALLS:
                calls.append(call)
        return {model: calls for model, calls in found.items() if calls}

    def saw(self, calls: Iterable[Call], text: str) -> None:
        """Takes in the answer to a look for these calls."""
        try:
            sight = Sight.read(text)
        except (ValueError, KeyError, TypeError):
            self._blind.update(call.model for call in calls)
            return
        now = time.monotonic()
        self._end(call for call in calls if sight.shows_death_of(call, now))

    def failed(self, calls: Iterable[Call], error: InferenceServerException) -> None:
        """Takes in that a look for these calls had no answer: the model's process is dead, the server knows of
        no looks, or nothing can be said, as while a model is unloaded and still answers what it has begun."""
        code = (error.status() or "").removeprefix("StatusCode.")
        found = read_error(code, error.message())
        if isinstance(found, InvalidRequest):
            self._blind.update(call.model for call in calls)
        elif "Stub process" in found.message:
            self._end(calls)

    def _end(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call in self._calls:
                call.died = True
                call.end()


def with_call(request: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """The arguments of `infer` with the call's id."""
    return {**request, "model_name": call.model, "parameters": {**request.get("parameters", {}), CALL: call.id}}


def look_for(model: str, calls: Iterable[Call]) -> dict[str, Any]:
    """The arguments of `infer` for a look."""
    inputs = [text_input(name, "") for name in ("question", "options")]
    return {"model_name": model, "inputs": inputs, "parameters": {LOOK: ",".join(call.id for call in calls)}}


def death(url: str) -> Unavailable:
    hint = "ask again: `revelator serve` starts it anew, within seconds"
    return Unavailable("the executor's process died while it was at work on the question", where=url, hint=hint)
