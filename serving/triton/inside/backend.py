"""What the models share inside Triton's Python backend: parameters, text tensors, limits, responses, errors.

Imported by model_repo/*/model.py only: `triton_python_backend_utils` exists in the stub process and nowhere else.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

from revelator.errors import InvalidRequest, RevelatorError, ServingError
from revelator.wire import choose_grpc_code, write_error
from serving.models.triton import SECRET_PARAMETER
from serving.triton.access import INNER, read_secret
from serving.triton.config import ServingConfig
from serving.triton.inside.processes import start_heartbeat
from serving.triton.repository import SERVING

log = logging.getLogger(__name__)
start_heartbeat()


def read_parameters(args: dict[str, str]) -> dict[str, str]:
    """Reads the parameters of config.pbtxt from the arguments of `initialize`."""
    config = json.loads(args["model_config"])
    return {name: value["string_value"] for name, value in config["parameters"].items()}


def read_serving_config(args: dict[str, str]) -> ServingConfig:
    """Reads what the home folder serves from the arguments of `initialize`."""
    return ServingConfig.model_validate_json(read_parameters(args)[SERVING])


def read_device(args: dict[str, str]) -> str | None:
    """The card of this instance, `cuda:1`; None where config.pbtxt names none, from the arguments of `initialize`."""
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


def read_text(request: Any, name: str) -> str:
    """The one string of an input STRING[1]. Raises InvalidRequest as `read_texts` does."""
    return read_texts(request, name)[0]


def read_parameter(request: Any, name: str) -> object:
    """The request's parameter of this name, as the client sent it; None without one."""
    return json.loads(request.parameters() or "{}").get(name)


class SecretCheck:
    """What an inner model asks of each request: the secret of the home folder that it is served from."""

    def __init__(self, args: dict[str, str]) -> None:
        self._model = args["model_name"]
        self._secret = read_secret(Path(args["model_repository"]).parents[1], INNER)

    def check(self, request: Any) -> None:
        """Raises InvalidRequest, before anything of the request is looked at."""
        sent = read_parameter(request, SECRET_PARAMETER)
        if not (isinstance(sent, str) and hmac.compare_digest(sent.encode(errors="replace"), self._secret.encode())):
            hint = "put the question to the model `executor`, as revelator.client does"
            raise InvalidRequest("this model answers the executor alone", where=f"model {self._model}", hint=hint)


def make_strings(*values: str) -> np.ndarray:
    """A lone surrogate, which JSON can write and UTF-8 cannot, goes out as a question mark."""
    return np.array([value.encode(errors="replace") for value in values], dtype=np.object_)


def make_response(**outputs: np.ndarray) -> Any:
    return pb_utils.InferenceResponse([pb_utils.Tensor(name, value) for name, value in outputs.items()])


def make_failure(error: BaseException) -> Any:
    """The response for an error. One that is not ours is a fault of this program: it is logged and sent as INTERNAL."""
    if not isinstance(error, RevelatorError):
        log.exception("unexpected error", exc_info=error)
        error = ServingError(f"{type(error).__name__}: {error}", hint="the server's log holds the traceback")
    codes = {"INVALID_ARGUMENT": "INVALID_ARG", "DEADLINE_EXCEEDED": "CANCELLED"}
    code = codes.get(choose_grpc_code(error), choose_grpc_code(error))
    return pb_utils.InferenceResponse(
        error=pb_utils.TritonError(write_error(error), getattr(pb_utils.TritonError, code))
    )


def answer_together(
    requests: Sequence[Any],
    inner: SecretCheck,
    read: Callable[[Any], Sequence[Any]],
    run: Callable[[list[Any]], Sequence[Any]],
    reply: Callable[[list[Any]], Any],
) -> list[Any]:
    """The response to each request of a batch to an inner model: `read` gives its rows, `run` an outcome for each row
    of all requests. A request that cannot be read, or one of whose outcomes is an error, is answered with that
    error."""
    rows: list[Any] = []
    parts: list[slice | RevelatorError] = []
    for request in requests:
        try:
            inner.check(request)
            own = read(request)
        except RevelatorError as error:
            parts.append(error.with_traceback(None))  # whose frames hold the request
            continue
        parts.append(slice(len(rows), len(rows) + len(own)))
        rows += own
    outcomes = run(rows)
    responses = []
    for part in parts:
        found = [part] if isinstance(part, RevelatorError) else list(outcomes[part])
        failure = next((outcome for outcome in found if isinstance(outcome, Exception)), None)
        responses.append(make_failure(failure) if failure else reply(found))
    return responses


def send_last(sender: Any, answer: Any) -> None:
    """Sends the last response of a request, the only one of a model that is not decoupled; None: only that it ended."""
    sender.send(answer, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
