"""Reads a request's deadline, options and earlier trace, which anybody may have written."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, FailFast, TypeAdapter, ValidationError
from pydantic_core import from_json

from revelator.config import FewKeys, find_first_fault
from revelator.errors import DataError, DeadlineExceeded, InvalidRequest
from revelator.limits import Limits
from revelator.tasks import Step
from revelator.trace import Trace
from serving.knowledge.graph import ROWS
from serving.latency import count_values, offload

REUSED_NODES = 2_000  # of an earlier trace: 32 leaves, each asked for 8 values, on a chain of some stages
REUSED_ANSWERS = 20_000  # of all nodes of an earlier trace together
REUSED_CHARACTERS = 500_000  # of the JSON of a node that is taken over; each leaf that asks the same has a copy
HISTORY_STEPS = 10_000  # of a conversation, of which the last few are read
ASKED_ANEW = "leave out nodes: what they asked is asked anew"
REUSED_VALUES = 5_000  # in that JSON: an event about them keeps the event loop for a millisecond


class Options(BaseModel):
    """What the JSON of a question's options may hold."""

    model_config = ConfigDict(extra="forbid", strict=True)

    plan: str | None = None
    strategy: str | None = None
    limits: dict[str, Any] | None = None
    reuse: dict[str, Any] | None = None
    history: list[Any] | None = None
    style: str | None = None
    fresh: bool | None = None
    where: str | None = None


@dataclass
class _Detail:
    """The fields that the executor reads in `detail` of an earlier trace's nodes."""

    key: str = ""
    ids: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    count: int = 0


_DETAIL = TypeAdapter(_Detail)
_OPTIONS: TypeAdapter[Options] = TypeAdapter(Annotated[Options, FewKeys])
_HISTORY: TypeAdapter[tuple[Step, ...]] = TypeAdapter(Annotated[tuple[Step, ...], FailFast()])


async def read_wanted(question: str, options: str, deadline_ms: float | None, limits: Limits) -> dict[str, Any]:
    """What the options say, as the arguments of `Executor.run`; a trace of 4 MB takes 50 ms to read. Raises
    DeadlineExceeded and InvalidRequest, also for a question that is too long."""
    limits.check_question(question)
    milliseconds = min(deadline_ms or math.inf, limits.deadline_ms)
    try:
        async with asyncio.timeout(milliseconds / 1000):
            wanted = await offload(len(options), partial(_parse, options, limits))
    except TimeoutError as error:
        message = f"the options were not read within {milliseconds:g} ms, the question's deadline"
        raise DeadlineExceeded(message, hint="allow more time (deadline_ms), or send a shorter trace") from error
    return {**wanted, "deadline_ms": deadline_ms}


def _parse(options: str, limits: Limits) -> dict[str, Any]:
    wanted = read_options(options, limits.options_bytes)
    wanted["limits"] = limits.lower(wanted.pop("limits", {}))
    if "reuse" in wanted:
        wanted["reuse"] = read_trace(wanted["reuse"])
    if "history" in wanted:
        wanted["history"] = read_history(wanted["history"])
    return wanted


def read_deadline(value: Any) -> float | None:
    """The parameter `deadline_ms`, a number or a text that spells one; None without it. Raises InvalidRequest."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        message = f"deadline_ms must be a positive number of milliseconds, not {value!r:.60}"
        raise InvalidRequest(message, hint="leave it out for the service's own deadline")
    return number


def read_options(text: str, most_bytes: int) -> dict[str, Any]:
    """Reads `plan`, `strategy`, `limits`, `reuse`, `history`, `style`, `fresh` and `where`; an empty text has none of
    them. Raises InvalidRequest."""
    if len(text) > most_bytes or len(text.encode()) > most_bytes:
        message = f"the options are too large; the limit options_bytes is {most_bytes}"
        raise InvalidRequest(message, hint="leave out `reuse`, or the earliest entries of `history`")
    try:
        wanted = _OPTIONS.validate_python(from_json(text or "{}", allow_inf_nan=False))
    except ValidationError as error:
        field, reason = find_first_fault(error)
        hint = f"options are {', '.join(Options.model_fields)}"
        raise InvalidRequest(reason, where=f"options.{field}".rstrip("."), hint=hint) from error
    except ValueError as error:
        hint = 'they are one JSON object, such as {"strategy": "auto"}, or an empty text'
        raise InvalidRequest(f"the options are not JSON: {error}", hint=hint) from error
    return {name: given for name, given in wanted if given is not None}


def read_trace(value: Mapping[str, Any]) -> Trace:
    """Reads the earlier trace of a request, without the nodes that are too large to be copied. Raises
    InvalidRequest."""
    nodes = value.get("nodes")
    if isinstance(nodes, list) and len(nodes) > REUSED_NODES:
        message = f"option reuse: the trace has {len(nodes)} nodes; at most {REUSED_NODES} are read"
        raise InvalidRequest(message, hint=ASKED_ANEW)
    try:
        trace = Trace.from_json(dict(value))
        if longest := next((node for node in trace.nodes if len(node.answers) > ROWS), None):
            message = f"option reuse: a node has {len(longest.answers)} answers; at most {ROWS} are read"
            raise InvalidRequest(message, hint=ASKED_ANEW)
        if sum(len(node.answers) for node in trace.nodes) > REUSED_ANSWERS:
            raise InvalidRequest(f"option reuse: the trace has more than {REUSED_ANSWERS} answers", hint=ASKED_ANEW)
        trace.nodes = [node for node, written in zip(trace.nodes, nodes or (), strict=True) if _is_small(written)]
        for node in trace.nodes:
            _DETAIL.validate_python(node.detail)
        return trace
    except DataError as error:
        raise InvalidRequest(f"option reuse: {error.message}", hint=error.hint) from error
    except ValidationError as error:
        field, reason = find_first_fault(error)
        hint = "send the trace as the service gave it"
        raise InvalidRequest(f"option reuse: {field}: {reason}", hint=hint) from error


def read_history(value: list[Any]) -> tuple[Step, ...]:
    """Reads what was asked and answered before. Raises InvalidRequest."""
    if len(value) > HISTORY_STEPS:
        message = f"option history: {len(value):,} entries; at most {HISTORY_STEPS:,} are read"
        raise InvalidRequest(message, hint="send the last ones: only a few of them are read")
    try:
        return _HISTORY.validate_python(value)
    except ValidationError as error:
        field, reason = find_first_fault(error)
        hint = 'each entry is {"question": "…", "answers": ["…"]}'
        raise InvalidRequest(f"option history: {field}: {reason}", hint=hint) from error


def _is_small(node: Any) -> bool:
    return count_values(node, REUSED_VALUES) <= REUSED_VALUES and len(json.dumps(node)) <= REUSED_CHARACTERS
