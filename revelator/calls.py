"""Calls to a server: when a question is sent again, and how a client notices that the server's process died.

Retries. A question changes nothing on a server, so a retry costs time alone. A client retries after UNAVAILABLE (the
server was full, restarting or not there), unless the error is `final`; never after what another attempt would meet
again, or after a deadline. It waits as long as the server asked for, or `FIRST_PAUSE` and then twice as long each time,
and up to as much again, so that many clients that were refused do not return at once.

Probes. Triton 2.51 never answers a request that was inside a process which died. So a client that has waited for a
second sends a probe every half second: a tiny request for all its calls together, which the executor answers at once
and beside its admission. A call has an id (parameter `call`); the answer to a probe that names ids (parameter
`in_flight`) says which of them the process has seen, and which processes of its model are alive. A server that knows no
probes takes one for an empty question; then the client sends no more.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.utils import InferenceServerException

from revelator.errors import InvalidRequest, Overloaded, RevelatorError, Unavailable
from revelator.wire import make_text_input, read_error

FIRST_PAUSE = 0.1  # seconds
CALL = "call"  # parameters of a request
PROBE = "in_flight"
MOST_CALLS = 200  # that one probe names, the oldest: a server reads 8,192 characters of it
PROBE_AFTER = 1.0  # seconds of a call before the first probe
PROBE_EVERY = 0.5
PROBE_TIMEOUT = 3.0  # a model whose process is dead refuses after one


class Attempts:
    """The attempts of one call: at most `retries` after the first, all within `seconds`."""

    def __init__(
        self,
        retries: int,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = random.random,
    ) -> None:
        self._left = retries
        self._clock = clock
        self._random = random
        self._ends = clock() + seconds
        self._pause = FIRST_PAUSE

    @property
    def seconds(self) -> float:
        """The seconds that are left for the next attempt."""
        return self._ends - self._clock()

    def choose_pause(self, error: RevelatorError) -> float:
        """Seconds to wait before the next attempt. Raises `error` if there is no next attempt."""
        may_pass = isinstance(error, Overloaded) or (isinstance(error, Unavailable) and not error.final)
        if not may_pass or self._left <= 0:
            raise error
        self._left -= 1
        pause = self._pause
        if isinstance(error, Overloaded) and error.retry_after_ms:
            pause = error.retry_after_ms / 1000
        self._pause *= 2
        wait = pause * (1 + self._random())
        if wait >= self.seconds:
            raise error
        return wait


@dataclass(eq=False)
class Call:
    """A call in flight. `cancel` ends the wait when its process has `died`; `holder` is that process, if known."""

    model: str
    cancel: Callable[[], object]
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    began: float = field(default_factory=time.monotonic)
    died: bool = False
    holder: int | None = None


class OpenCalls:
    """The calls of one client that are in flight. It decides which to probe for, and what the answers mean."""

    def __init__(self) -> None:
        self._calls: set[Call] = set()
        self._unprobed: set[str] = set()  # models that know no probes

    def begin(self, model: str, cancel: Callable[[], object]) -> Call:
        call = Call(model, cancel)
        self._calls.add(call)
        return call

    def finish(self, call: Call) -> None:
        self._calls.discard(call)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def find_due(self) -> dict[str, list[Call]]:
        """Finds the calls to probe for, by model."""
        found: dict[str, list[Call]] = {}
        before = time.monotonic() - PROBE_AFTER
        for call in sorted(self._calls, key=lambda call: call.began):
            calls = found.setdefault(call.model, [])
            if call.began <= before and call.model not in self._unprobed and len(calls) < MOST_CALLS:
                calls.append(call)
        return {model: calls for model, calls in found.items() if calls}

    def handle_reply(self, calls: Iterable[Call], text: str) -> None:
        """Ends the calls that are lost, according to a probe's reply: the process that gave it (`pid`), its `age` in
        seconds, the calls that it has seen (`known`), and all live processes of its model (`alive`).

        A call is lost when the process that holds it is dead. If no process is known to hold it, it is lost only if the
        model has one process and that is younger than the call: after a reload, an older process may still answer."""
        try:
            value = json.loads(text)
            pid, age, known, alive = value["pid"], value["age"], set(value["known"]), set(value["alive"])
        except (ValueError, KeyError, TypeError):
            self._unprobed.update(call.model for call in calls)
            return
        now = time.monotonic()
        for call in calls:
            if call.id in known:
                call.holder = pid
            elif (call.holder not in alive) if call.holder else (alive == {pid} and age < now - call.began):
                self._end([call])

    def handle_missing_reply(self, calls: Iterable[Call], error: InferenceServerException) -> None:
        """Ends the calls if the failed probe shows that their process is dead, and stops probing a server that knows no
        probes. Any other error says nothing: a model that is being unloaded still answers what it has begun."""
        code = (error.status() or "").removeprefix("StatusCode.")
        found = read_error(code, error.message())
        if isinstance(found, InvalidRequest):
            self._unprobed.update(call.model for call in calls)
        elif "Stub process" in found.message:
            self._end(calls)

    def _end(self, calls: Iterable[Call]) -> None:
        for call in calls:
            if call in self._calls:
                call.died = True
                call.cancel()


def add_call_id(request: Mapping[str, Any], call: Call) -> dict[str, Any]:
    """Adds the call's id to the arguments of `infer`."""
    return {**request, "model_name": call.model, "parameters": {**request.get("parameters", {}), CALL: call.id}}


def build_probe(model: str, calls: Iterable[Call]) -> dict[str, Any]:
    """Builds the arguments of `infer` for a probe."""
    inputs = [make_text_input(name, "") for name in ("question", "options")]
    return {"model_name": model, "inputs": inputs, "parameters": {PROBE: ",".join(call.id for call in calls)}}


def make_death_error(url: str) -> Unavailable:
    hint = "ask again: `revelator serve` starts it anew, within seconds"
    return Unavailable("the executor's process died while it was at work on the question", where=url, hint=hint)
