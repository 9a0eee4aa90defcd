"""Tensors of KServe's protocol, version 2: inputs, checked against the model's config.pbtxt, and outputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelInferResponse
from tritonclient.utils import np_to_triton_dtype, serialize_byte_tensor

from revelator.errors import InvalidRequest

TYPES = {"FP32": np.dtype("<f4"), "INT32": np.dtype("<i4"), "BOOL": np.dtype("?")}
CONTENTS = {"BYTES": "bytes_contents", "FP32": "fp32_contents"}
OPTIONAL = ("temperature",)


def name_type(data_type: int) -> str:
    """What the protocol calls a type of config.pbtxt."""
    name = DataType.Name(data_type).removeprefix("TYPE_")
    return "BYTES" if name == "STRING" else name


def read_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a request's parameters."""
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "bool_param") for name, value in parameters.items()
    }


def read_inputs(request: ModelInferRequest, config: ModelConfig) -> dict[str, list[Any]]:
    """The values of each input: strings, or numbers. Raises InvalidRequest for tensors that the model does not take."""
    known = {tensor.name: name_type(tensor.data_type) for tensor in config.input}
    names = f"inputs are {', '.join(known)}"
    if len(request.inputs) > len(known):
        raise InvalidRequest(f"{len(request.inputs)} inputs; the model has {len(known)}", where="inputs", hint=names)
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        hint = "send one for each input, or none and the data in the inputs' own contents"
        raise InvalidRequest(f"{len(request.inputs)} inputs have {len(raw)} raw contents", where="inputs", hint=hint)
    found: dict[str, list[Any]] = {}
    for place, tensor in enumerate(request.inputs):
        if tensor.name not in known or tensor.name in found:
            raise InvalidRequest(f"unexpected input {tensor.name!r:.60}", hint=f"{names}, each once")
        where = f"input {tensor.name}"
        if tensor.datatype != known[tensor.name]:
            raise InvalidRequest(f"data-type {tensor.datatype!r:.20}, not {known[tensor.name]}", where=where)
        if tensor.parameters:
            message = "parameters of an input are not taken, such as shared memory"
            raise InvalidRequest(message, where=where, hint="send the data in the request itself")
        count = _count_rows(tensor.shape, config.max_batch_size, where)
        found[tensor.name] = (
            _split(raw[place], tensor.datatype, count, where) if raw else _read_contents(tensor, count, where)
        )
    if missing := [name for name in known if name not in found and name not in OPTIONAL]:
        raise InvalidRequest(f"missing required input {missing[0]}", where="inputs", hint=names)
    if len({len(values) for values in found.values()}) > 1:
        hint = "each row is a prompt of its own: give every input as many rows"
        raise InvalidRequest("the inputs have different numbers of rows", where="inputs", hint=hint)
    return {name: _decode(values, name) if known[name] == "BYTES" else values for name, values in found.items()}


def _count_rows(shape: Sequence[int], most: int, where: str) -> int:
    """Rows of a tensor [1], or [rows, 1] of a model that takes batches."""
    wanted = f"[1 to {most}, 1]" if most else "[1]"
    rows = shape[0] if most and len(shape) == 2 and shape[1] == 1 else 1 if list(shape) == [1] and not most else 0
    if not 1 <= rows <= max(most, 1):
        raise InvalidRequest(f"unexpected shape {list(shape[:8])}, not {wanted}", where=where)
    return rows


def _split(raw: bytes, data_type: str, count: int, where: str) -> list[Any]:
    if data_type != "BYTES":
        if len(raw) != count * TYPES[data_type].itemsize:
            raise InvalidRequest(f"{len(raw)} bytes are not {count} values of {data_type}", where=where)
        return np.frombuffer(raw, TYPES[data_type]).tolist()
    values, place = [], 0
    for _ in range(count):
        size = int.from_bytes(raw[place : place + 4], "little")
        values.append(raw[place + 4 : place + 4 + size])
        place += 4 + size
    if place != len(raw):
        hint = "before each string write the number of its bytes, in four bytes, the lowest first"
        raise InvalidRequest(f"{len(raw)} bytes are not {count} strings, each after its length", where=where, hint=hint)
    return values


def _read_contents(tensor: ModelInferRequest.InferInputTensor, count: int, where: str) -> list[Any]:
    contents = CONTENTS[tensor.datatype]
    values = getattr(tensor.contents, contents)
    if len(values) != count:
        hint = f"write them to {contents}, or send raw_input_contents"
        raise InvalidRequest(f"{len(values)} values, not {count}", where=where, hint=hint)
    return list(values)


def _decode(values: Sequence[bytes], name: str) -> list[str]:
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError as error:
        fault = f"the input {name} is not UTF-8: {error.reason} at byte {error.start}"
    raise InvalidRequest(fault, hint="encode the text as UTF-8")  # not from the error, whose frames hold the request


def choose_outputs(request: ModelInferRequest, config: ModelConfig, without: Collection[str] = ()) -> list[str]:
    """The outputs that are asked for, or all but those `without`. Raises InvalidRequest."""
    known = [tensor.name for tensor in config.output if tensor.name not in without]
    if len(request.outputs) > len(known):
        message = f"{len(request.outputs)} outputs; the model has {len(known)}"
        raise InvalidRequest(message, where="outputs", hint=f"outputs are {', '.join(known)}")
    for output in request.outputs:
        if output.name not in known:
            raise InvalidRequest(f"unexpected output {output.name!r:.60}", hint=f"outputs are {', '.join(known)}")
        if output.parameters:
            hint = "ask for the output as it is: no classification, no shared memory"
            raise InvalidRequest("parameters of an output are not taken", where=f"output {output.name}", hint=hint)
    return [output.name for output in request.outputs] or known


def make_strings(*values: str) -> np.ndarray:
    """A lone surrogate, which JSON can write and UTF-8 cannot, goes out as a question mark."""
    return np.array([value.encode(errors="replace") for value in values], dtype=np.object_)


def write_outputs(response: ModelInferResponse, outputs: Mapping[str, np.ndarray], wanted: Sequence[str]) -> None:
    for name in wanted:
        value = outputs[name]
        kind = np_to_triton_dtype(value.dtype)
        response.outputs.add(name=name, datatype=kind, shape=value.shape)
        content = serialize_byte_tensor(value).item() if kind == "BYTES" else value.tobytes()
        response.raw_output_contents.append(content)
