"""What model_repo/*/model.py share inside Triton's Python backend: parameters, tensors, responses, errors, and batches
whose rows fail one by one. `triton_python_backend_utils` exists in the processes of that backend and nowhere else."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import triton_python_backend_utils as pb_utils

from revelator.errors import Cancelled, InvalidRequest, RevelatorError, ServingError
from revelator.wire import choose_grpc_code, write_error

LOOK_SECONDS = 0.02
Row = TypeVar("Row")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


def read_parameter(args: dict[str, str], name: str) -> str:
    """Reads a parameter of the model's configuration from the arguments of `initialize`."""
    value: str = json.loads(args["model_config"])["parameters"][name]["string_value"]
    return value


def read_device(args: dict[str, str]) -> str | None:
    """The card of this instance, `cuda:1`; None where the configuration names none."""
    if args["model_instance_kind"] != "GPU":
        return None
    return f"cuda:{args['model_instance_device_id']}"


def read_array(request: Any, name: str) -> np.ndarray:
    """A copy of an input: the request's memory is the server's again as soon as `execute` returns."""
    return pb_utils.get_input_tensor_by_name(request, name).as_numpy().copy()


def read_texts(request: Any, name: str) -> list[str]:
    """The strings of an input. Raises InvalidRequest for bytes that are not UTF-8."""
    try:
        return [value.decode() for value in read_array(request, name).ravel()]
    except UnicodeDecodeError as error:
        fault = f"the input {name} is not UTF-8: {error.reason} at byte {error.start}"
    raise InvalidRequest(fault)  # not from the error, whose frames hold the request


class Caller:
    """Who waits for a request. Looked at between tokens, and seldom: a look costs 0.15 ms of message passing."""

    def __init__(self, request: Any) -> None:
        self._is_cancelled = request.is_cancelled
        self._next_look = 0.0
        self._left = False

    def has_left(self) -> bool:
        now = time.monotonic()
        if not self._left and now >= self._next_look:
            self._left = self._is_cancelled()
            self._next_look = now + LOOK_SECONDS
        return self._left


def make_strings(*values: str) -> np.ndarray:
    """A column, a string a row. A lone surrogate, which JSON can write and UTF-8 cannot, becomes a question mark."""
    return np.array([[value.encode(errors="replace")] for value in values], dtype=np.object_)


def make_response(**outputs: np.ndarray) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])


def make_failure(error: RevelatorError) -> Any:
    codes = {"INVALID_ARGUMENT": "INVALID_ARG", "DEADLINE_EXCEEDED": "CANCELLED"}
    code = choose_grpc_code(error)
    code = getattr(pb_utils.TritonError, codes.get(code, code))
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(write_error(error), code))


def answer_together(
    requests: Sequence[Any],
    read: Callable[[Any], Sequence[Row]],
    choose_group: Callable[[Row], tuple[Hashable, ...]],
    work: Callable[..., Sequence[Result]],
    reply: Callable[[list[Result]], Any],
) -> list[Any]:
    """The response to each request of a batch. `read` gives a request's rows, `choose_group` a row's group,
    `work(*group, rows)` a result for each row of a group, `reply` the response of a request's results. A request that
    cannot be read, or one of whose rows fails, is answered with that error."""
    rows: list[Row] = []
    parts: list[slice | RevelatorError] = []
    for request in requests:
        try:
            own = read(request)
        except RevelatorError as error:
            parts.append(error.with_traceback(None))  # whose frames hold the request
            continue
        parts.append(slice(len(rows), len(rows) + len(own)))
        rows += own
    outcomes = run_groups(rows, choose_group, work)
    responses = []
    for part in parts:
        found = [part] if isinstance(part, RevelatorError) else outcomes[part]
        failure = next((outcome for outcome in found if isinstance(outcome, RevelatorError)), None)
        responses.append(make_failure(failure) if failure else reply(cast(list[Result], found)))
    return responses


def run_groups(
    rows: Sequence[Row],
    choose_group: Callable[[Row], tuple[Hashable, ...]],
    work: Callable[..., Sequence[Result]],
) -> list[Result | RevelatorError]:
    """A result or an error for each row, in order.

    If `work` fails, it is run on each row alone, so that a row that is wrong fails by itself. Cancelled ends all rows
    of a group at once; an error that is not ours is logged and becomes ServingError. Errors lose their tracebacks,
    whose frames would keep all that the pass had in memory.
    """
    outcomes: dict[int, Result | RevelatorError] = {}
    groups: dict[tuple[Hashable, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(choose_group(row), []).append(i)
    for group, members in groups.items():
        found = _run_together([rows[i] for i in members], partial(work, *group), str(group[0]))
        outcomes.update(zip(members, found, strict=True))
    return [outcomes[i] for i in range(len(rows))]


def _run_together(
    rows: Sequence[Row], work: Callable[[Sequence[Row]], Sequence[Result]], what: str
) -> Sequence[Result | RevelatorError]:
    try:
        return work(rows)
    except RevelatorError as error:
        failed = error.with_traceback(None)
    except Exception as error:
        log.exception("%s, %d rows", what, len(rows))
        failed = ServingError(f"{type(error).__name__}: {error}".splitlines()[0], where=what)
    if len(rows) == 1 or isinstance(failed, Cancelled):
        return [failed] * len(rows)
    return [outcome for row in rows for outcome in _run_together([row], work, what)]
