"""Calls to a server: when a question is sent again, and how a client notices that the server's process died.

Retries. A question changes nothing on a server, so a retry costs time alone. A client retries after UNAVAILABLE (the
server was full, restarting or not there), unless the error is `final`; never after what another attempt would meet
again, or after a deadline. It waits as long as the server asked for, or `FIRST_PAUSE` and then twice as long each time,
and up to as much again, so that many clients that were refused do not return at once.

Probes. Triton 2.51 never answers a request that was inside a process which died, and of those that it hands to the dead
process, until another takes its place, it refuses one a second. So a client that has waited for a second sends a probe
every half second: an empty question with the parameter `probe`, which the executor answers at once and beside its
admission, with the seconds for which processes have taken requests, and the calls that it holds (their parameter
`call`). A call that began before that, and that it does not hold, is lost. A server that knows no probes takes one for
an empty question; then the client sends no more.
"""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tritonclient.utils import InferenceServerException

from revelator.errors import InvalidRequest, Overloaded, RevelatorError, Unavailable
from revelator.wire import make_text_input, read_error

FIRST_PAUSE = 0.1  # seconds
PROBE, CALL = "probe", "call"  # parameters of a request
PROBE_AFTER = 1.0  # seconds of a call before the first probe
PROBE_EVERY = 0.5
PROBE_TIMEOUT = 1.5  # a model whose process is dead refuses the first request after one


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
    """A call in flight. `cancel` ends the wait when its process has `died`."""

    model: str
    cancel: Callable[[], object]
    began: float = field(default_factory=time.monotonic)
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    died: bool = False

    def add_id(self, request: dict[str, Any]) -> dict[str, Any]:
        """Adds this call's id to the arguments of `infer`."""
        return {**request, "parameters": {**request.get("parameters", {}), CALL: self.id}}


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
        for call in self._calls:
            if call.began <= before and call.model not in self._unprobed:
                found.setdefault(call.model, []).append(call)
        return found

    def handle_reply(self, calls: Iterable[Call], text: str, sent: float) -> None:
        """Ends the calls that are lost, according to the reply to a probe that was `sent` (time.monotonic). After a
        reload, an older process may still answer."""
        try:
            reply = json.loads(text)
            oldest, held = sent - float(reply["age"]), set(reply["held"])
        except (ValueError, KeyError, TypeError):
            self._unprobed.update(call.model for call in calls)
            return
        self._end(call for call in calls if call.began < oldest and call.id not in held)

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


def build_probe(model: str) -> dict[str, Any]:
    """Builds the arguments of `infer` for a probe."""
    inputs = [make_text_input(name, "") for name in ("question", "options")]
    return {"model_name": model, "inputs": inputs, "parameters": {PROBE: True}}


def make_death_error(url: str) -> Unavailable:
    hint = "ask again: `revelator serve` starts it anew, within seconds"
    return Unavailable("the executor's process died while it was at work on the question", where=url, hint=hint)
