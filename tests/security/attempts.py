"""The requests of the fuzzer. Number n of a seed is the same in each run, whatever was sent before it.

A target is a function that draws one request; `TARGETS` holds them with their share, and every 20th request is one of
`RARE` in turn. A request is kept as the bytes that go over the wire, so that what is printed of one that did harm is
the request itself.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import grpc
import h11
from tritonclient.grpc import service_pb2

from revelator.channels import AUTHORIZATION
from tests.security import hostile

SERVICE = "/inference.GRPCInferenceService/"
MODELS = ["executor", "revelator"]
UNSERVED = ["executor_stream", "retriever", "generator"]
QUESTIONS = ["Where is Sarnath?", "Who directed Lantern Row?", "Where was the director of Lantern Row born?"]
PARAMETERS = ["deadline_ms", "probe", "traceparent", "tracestate", "timeout", "priority", "headers", "binary_data", ""]
PARAMETERS += ["sequence_id", "sequence_start", "sequence_end", "triton_enable_empty_final_response"]
PATHS = [
    "/",
    "/metrics",
    "/health",
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/executor",
    "/v2/models/revelator",
]
PATHS += ["/v2/models/executor/infer", "/v2/models/revelator/infer", "/v2/repository/models/x/load", "/v2/logging"]
PATHS += ["/api/check", "/api/runs", "/api/servers", "/api/runs/../../release.json", "/api/runs/%2e%2e%2f%00"]
PATHS += [
    "/v1/models",
    "/v1/chat/completions",
    "/web/%2e%2e/app.py",
    "/web/page.js",
    "//evil",
    "/%ff",
    "/" + "a" * 9_000,
]

# how a request may end: gRPC's codes, none of which says that a fault of the service's was met
TYPED = frozenset({"OK", "INVALID_ARGUMENT", "UNAVAILABLE", "NOT_FOUND", "UNIMPLEMENTED", "CANCELLED"})
TOO_LARGE = frozenset({"RESOURCE_EXHAUSTED"})
LEFT = frozenset({"LEFT"})
BOMB_BYTES = 400_000_000  # of a message that gzip makes a thousandth of


@dataclass(frozen=True)
class World:
    """What requests are made of: an earlier trace, and a question whose answer is held back."""

    trace: Mapping[str, Any]
    held: str


@dataclass(frozen=True)
class Attempt:
    """One request: the messages of a gRPC method, or the bytes of an HTTP request. It may end with the codes `ends`.
    Its client goes away after `leaves` seconds; one that is not `whole` makes a server wait for more."""

    target: str
    messages: tuple[bytes, ...]
    metadata: tuple[tuple[str, str], ...] = ()
    ends: frozenset[str] = TYPED
    leaves: float | None = None
    whole: bool = True
    compression: grpc.Compression = grpc.Compression.NoCompression
    number: str = field(default="", compare=False)

    def __str__(self) -> str:
        cut = [message if len(message) < 4_000 else message[:4_000] + b"..." for message in self.messages[:5]]
        return f"request {self.number} to {self.target}: {cut} {self.metadata}"


def attempt(seed: int, number: int, world: World) -> Attempt:
    rnd = Random(f"{seed}/{number}")
    turn, place = divmod(number, 20)
    [target] = [RARE[turn % len(RARE)]] if place == 19 else rnd.choices(list(TARGETS), list(TARGETS.values()))
    return replace(target(rnd, world), number=f"{number} of seed {seed}")


# --- gRPC ---


def unary(rnd: Random, world: World) -> Attempt:
    model = rnd.choice(["executor"] * 4 + MODELS)
    leaves = rnd.uniform(0.0, 0.03) if rnd.random() < 0.1 else None
    message = _serialized(_inference(rnd, model, world))
    return Attempt(SERVICE + "ModelInfer", (message,), _metadata(rnd), TYPED | LEFT | TOO_LARGE, leaves)


def stream(rnd: Random, world: World) -> Attempt:
    """Several requests in one stream, whose client may go away meanwhile."""
    models = rnd.choices(["executor"] * 4 + MODELS, k=rnd.choice([0, 1, 1, 1, 2, 5]))
    messages = [_serialized(_inference(rnd, model, world)) for model in models]
    leaves = rnd.uniform(0.0, 0.03) if rnd.random() < 0.2 else None
    metadata = _metadata(rnd) or ((("triton_grpc_error", "true"),) if rnd.random() < 0.1 else ())
    return Attempt(SERVICE + "ModelStreamInfer", tuple(messages), metadata, TYPED | LEFT | TOO_LARGE, leaves)


def well_formed(rnd: Random, world: World) -> Attempt:
    wanted = {"strategy": rnd.choice(hostile.STRATEGIES)} if rnd.random() < 0.5 else {"plan": "Who? * Where is {x}?"}
    request = _question(rnd.choice(QUESTIONS).encode(), hostile.encoded(hostile.written(wanted)))
    return Attempt(SERVICE + rnd.choice(["ModelInfer", "ModelStreamInfer"]), (_serialized(request),))


def left_behind(rnd: Random, world: World) -> Attempt:
    """A client that goes away while its question is held: nothing is about to be sent to it then."""
    request = _question(world.held.encode(), b'{"strategy": "single"}')
    method = rnd.choice(["ModelInfer", "ModelStreamInfer"])
    ends = LEFT | {"UNAVAILABLE", "OK"}  # OK: of a stream an error, such as Overloaded, is a message
    return Attempt(SERVICE + method, (_serialized(request),), leaves=rnd.uniform(0.8, 1.2), ends=ends)


def garbage(rnd: Random, world: World) -> Attempt:
    """Bytes that are no message, to any method."""
    methods = ["ModelInfer", "ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics", "ServerLive", "NoSuch"]
    request = _serialized(_inference(rnd, "executor", world))
    message = rnd.randbytes(rnd.randint(0, 200)) if rnd.random() < 0.3 else hostile.scrambled(rnd, request)
    return Attempt(SERVICE + rnd.choice(methods), (message,), ends=TYPED | TOO_LARGE)


def described(rnd: Random, world: World) -> Attempt:
    """What may be asked without a token beside questions, of models that exist and of others."""
    named = {"name": rnd.choice([*MODELS, *UNSERVED, hostile.text(rnd).encode(errors="replace").decode()])}
    named["version"] = rnd.choice(["", "1", "2", "-1", "x", "9" * 40])
    kinds = {"ModelReady": service_pb2.ModelReadyRequest, "ModelMetadata": service_pb2.ModelMetadataRequest}
    kinds |= {"ModelConfig": service_pb2.ModelConfigRequest, "ModelStatistics": service_pb2.ModelStatisticsRequest}
    method = rnd.choice(list(kinds))
    return Attempt(SERVICE + method, (_serialized(kinds[method](**named)),))


def control(rnd: Random, world: World) -> Attempt:
    """Model control, shared memory, traces and logs, without the token or with a wrong one."""
    load = service_pb2.RepositoryModelLoadRequest(model_name=rnd.choice([*MODELS, *UNSERVED, "mine"]))
    load.parameters["config"].string_param = rnd.choice(
        ['{"backend": "python"}', "[", hostile.written(hostile.value(rnd))]
    )
    load.parameters["file:1/model.py"].bytes_param = b"import os; os._exit(1)"
    region = {"name": "mine", "key": "/mine", "byte_size": 64}
    level = service_pb2.TraceSettingRequest.SettingValue(value=["TIMESTAMPS"])
    file = service_pb2.LogSettingsRequest.SettingValue(string_param="/tmp/log")
    requests: dict[str, Any] = {
        "RepositoryModelLoad": load,
        "RepositoryModelUnload": service_pb2.RepositoryModelUnloadRequest(model_name=rnd.choice(MODELS)),
        "SystemSharedMemoryStatus": service_pb2.SystemSharedMemoryStatusRequest(),
        "SystemSharedMemoryRegister": service_pb2.SystemSharedMemoryRegisterRequest(**region),
        "SystemSharedMemoryUnregister": service_pb2.SystemSharedMemoryUnregisterRequest(),
        "CudaSharedMemoryStatus": service_pb2.CudaSharedMemoryStatusRequest(),
        "CudaSharedMemoryUnregister": service_pb2.CudaSharedMemoryUnregisterRequest(),
        "TraceSetting": service_pb2.TraceSettingRequest(settings={"trace_level": level}),
        "LogSettings": service_pb2.LogSettingsRequest(settings={"log_file": file}),
    }
    method = rnd.choice(list(requests))
    loads = method == "RepositoryModelLoad" and load.model_name == "revelator"
    token = rnd.choice([(), ((AUTHORIZATION, rnd.choice(["", "Bearer ", "Bearer x", "Bearer " + "0" * 64])),)])
    ends = frozenset({"UNAUTHENTICATED" if loads else "UNIMPLEMENTED"})
    return Attempt(SERVICE + method, (_serialized(requests[method]),), token, ends)


# --- gRPC: what is rare, for it is large, or has ended another server ---


def by_classes(rnd: Random, world: World) -> Attempt:
    """The client wants the answer by classes, which ended Triton 2.51."""
    request = _question(rnd.choice(QUESTIONS).encode(), b"")
    request.outputs.add(name="answer").parameters["classification"].int64_param = rnd.choice([1, 2, 2**31])
    method = rnd.choice(["ModelInfer", "ModelStreamInfer"])
    return Attempt(SERVICE + method, (_serialized(request),), ends=TYPED - {"NOT_FOUND"})


def large_reuse(rnd: Random, world: World) -> Attempt:
    """An earlier trace of 4 MB that is none."""
    field = rnd.choice(["documents", "nodes", "answers", "colour"])
    request = _question(QUESTIONS[0].encode(), b'{"reuse": {"%s": [%s{}]}}' % (field.encode(), b"{}, " * 1_000_000))
    return Attempt(SERVICE + "ModelInfer", (_serialized(request),))


def oversized(rnd: Random, world: World) -> Attempt:
    """A message, alone or in a stream after a good one, that is larger than any may be."""
    good, large = _question(QUESTIONS[0].encode(), b""), _question(QUESTIONS[0].encode(), b"a" * 20_000_000)
    ends = TOO_LARGE | {"CANCELLED"}
    if rnd.random() < 0.5:
        return Attempt(SERVICE + "ModelInfer", (_serialized(large),), ends=ends)
    return Attempt(SERVICE + "ModelStreamInfer", (_serialized(good), _serialized(large)), ends=ends)


def crowded(rnd: Random, world: World) -> Attempt:
    """A stream of hundreds of questions, whose client goes away while they are answered."""
    message = _serialized(_question(rnd.choice(QUESTIONS).encode(), b'{"strategy": "single"}'))
    leaves = rnd.choice([0.05, 0.5])
    return Attempt(SERVICE + "ModelStreamInfer", (message,) * 500, ends=TYPED | LEFT, leaves=leaves)


def bomb(rnd: Random, world: World) -> Attempt:
    request = service_pb2.ModelInferRequest(model_name="executor", raw_input_contents=[bytes(BOMB_BYTES)])
    message = _serialized(request)
    return Attempt(SERVICE + "ModelInfer", (message,), ends=TOO_LARGE, compression=grpc.Compression.Gzip)


def _serialized(message: Any) -> bytes:
    return message.SerializeToString(deterministic=True)


def _metadata(rnd: Random) -> tuple[tuple[str, str], ...]:
    odd = [("traceparent", "00-zz-1"), ("traceparent", "1"), ("x", "y" * 3_000)]
    return tuple(rnd.sample(odd, 1)) if rnd.random() < 0.2 else ()


def _tensor(name: str, data: bytes, request: Any, datatype: str = "BYTES", shape: tuple[int, ...] = (1,)) -> None:
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(len(data).to_bytes(4, "little") + data if datatype == "BYTES" else data)


def _question(question: bytes, options: bytes) -> Any:
    request = service_pb2.ModelInferRequest(model_name="executor")
    _tensor("question", question, request)
    _tensor("options", options, request)
    return request


def _inference(rnd: Random, model: str, world: World) -> Any:
    """A request to a model: hostile texts in sound tensors, of which up to three things are then made unsound."""
    known = rnd.choice(QUESTIONS) if rnd.random() < 0.6 else hostile.text(rnd)
    request = _question(hostile.encoded(known), hostile.options(rnd, dict(world.trace)))
    request.model_name = model
    if rnd.random() < 0.3:
        request.parameters["deadline_ms"].int64_param = rnd.choice([1, 20, 300, 5_000, 2**62])
    for _ in range(rnd.choice([0, 0, 1, 1, 2, 3])):
        rnd.choice(TWISTS)(rnd, request)
    return request


def _some(rnd: Random, fields: Any) -> Any:
    return rnd.choice(fields) if len(fields) else None


def _odd_type(rnd: Random, request: Any) -> None:
    if (tensor := _some(rnd, request.inputs)) is not None:
        tensor.datatype = rnd.choice(["INT32", "FP64", "BOOL", "BF16", "", "bytes", "UINT8", "X" * 300])


def _odd_shape(rnd: Random, request: Any) -> None:
    if (tensor := _some(rnd, request.inputs)) is not None:
        shapes = [[], [0], [2], [1, 1], [-1], [1] * 60, [2**62], [2**31, 2**33], [-(2**63)], [1, 0]]
        tensor.shape[:] = rnd.choice(shapes)


def _odd_name(rnd: Random, request: Any) -> None:
    if (tensor := _some(rnd, request.inputs)) is not None:
        tensor.name = rnd.choice(["", "question", "options", "Question", "x" * 5_000, "\0", "é"])


def _missing(rnd: Random, request: Any) -> None:
    fields = rnd.choice([request.inputs, request.raw_input_contents])
    if len(fields):
        del fields[rnd.randrange(len(fields))]


def _twice(rnd: Random, request: Any) -> None:
    if (tensor := _some(rnd, request.inputs)) is not None:
        request.inputs.add().CopyFrom(tensor)
        if rnd.random() < 0.5:
            request.raw_input_contents.append(b"\1\0\0\0a")


def _odd_length(rnd: Random, request: Any) -> None:
    """The length before a string says what is not so."""
    if len(request.raw_input_contents):
        at = rnd.randrange(len(request.raw_input_contents))
        rest = request.raw_input_contents[at][4:]
        lengths = [b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\1", (len(rest) + 1).to_bytes(4, "little")]
        request.raw_input_contents[at] = rnd.choice([*lengths, b""]) + rnd.choice([rest, b"", rest * 2])


def _as_contents(rnd: Random, request: Any) -> None:
    """Data in the message's own fields, of a type that may not fit, beside raw data or instead of it."""
    if (tensor := _some(rnd, request.inputs)) is not None:
        contents = [{"bytes_contents": [b"Who?"]}, {"bytes_contents": [b"a"] * 3}, {"int_contents": [1, 2]}]
        contents += [
            {"fp32_contents": [0.5]},
            {"bool_contents": [True]},
            {"bytes_contents": []},
            {"uint64_contents": [1]},
        ]
        tensor.contents.CopyFrom(service_pb2.InferTensorContents(**rnd.choice(contents)))
    if rnd.random() < 0.5:
        del request.raw_input_contents[:]


def _odd_parameter(rnd: Random, request: Any) -> None:
    holder = rnd.choice([request, request, request, *request.inputs])
    name = rnd.choice([*PARAMETERS, "x" * 2_000])
    kind = rnd.choice(["bool_param", "int64_param", "string_param", "double_param", "uint64_param"])
    values = {"bool_param": [True, False], "int64_param": [0, -1, 1, 2**63 - 1], "uint64_param": [0, 2**64 - 1]}
    values |= {
        "double_param": [0.0, -1.5, float("nan"), float("inf")],
        "string_param": ["", "1", "é" * 300, "9" * 5_000],
    }
    setattr(holder.parameters[name], kind, rnd.choice(values[kind]))


def _in_shared_memory(rnd: Random, request: Any) -> None:
    if (tensor := _some(rnd, request.inputs)) is not None:
        tensor.parameters["shared_memory_region"].string_param = rnd.choice(["", "mine", "../x", "é" * 200])
        tensor.parameters["shared_memory_byte_size"].int64_param = rnd.choice([0, 64, -1, 2**62])
        if rnd.random() < 0.5:
            tensor.parameters["shared_memory_offset"].int64_param = rnd.choice([0, -1, 2**62])


def _odd_output(rnd: Random, request: Any) -> None:
    output = request.outputs.add(name=rnd.choice(["answer", "trace", "event", "text", "", "nothing", "x" * 3_000]))
    if rnd.random() < 0.4:
        output.parameters["classification"].int64_param = rnd.choice([0, -1, 1, 3, 2**31])
    if rnd.random() < 0.2:
        output.parameters["shared_memory_region"].string_param = "mine"
        output.parameters["shared_memory_byte_size"].int64_param = rnd.choice([0, 64])


def _odd_model(rnd: Random, request: Any) -> None:
    request.model_name = rnd.choice(["", "nobody", "../executor", "executor\0", "é", "x" * 5_000, *MODELS, *UNSERVED])


def _odd_version(rnd: Random, request: Any) -> None:
    request.model_version = rnd.choice(["1", "2", "0", "-1", "latest", "9" * 40, "1.0", "é"])


def _odd_id(rnd: Random, request: Any) -> None:
    request.id = rnd.choice(["x" * 3_000, "\n{}", "é\u202e", "a\0b", '"}', " "])


def _sequence(rnd: Random, request: Any) -> None:
    request.parameters["sequence_id"].int64_param = rnd.choice([1, 0, -1, 2**63 - 1])
    request.parameters["sequence_start"].bool_param = rnd.random() < 0.5
    request.parameters["priority"].uint64_param = rnd.choice([0, 1, 2**63])
    request.parameters["timeout"].int64_param = rnd.choice([0, 1, -1, 10**15])


def _large(rnd: Random, request: Any) -> None:
    if len(request.raw_input_contents):
        size = rnd.choice([140_000, 1_100_000, 4_500_000])
        data = rnd.choice([b"a", b"[", b"\xff", b"{a} "]) * size
        at = rnd.randrange(len(request.raw_input_contents))
        request.raw_input_contents[at] = size.to_bytes(4, "little") + data[:size]


Twist = Callable[[Random, Any], None]
TWISTS: list[Twist] = [_odd_type, _odd_shape, _odd_name, _missing, _twice, _odd_length, _as_contents, _in_shared_memory]
TWISTS += [_odd_parameter] * 4 + [_odd_output, _odd_model, _odd_version, _odd_id, _sequence, _large]


# --- HTTP ---

HTTP = "HTTP"


def inferring(rnd: Random, world: World) -> Attempt:
    said = [_escaped(hostile.encoded(hostile.text(rnd))), _escaped(hostile.options(rnd, dict(world.trace)))]
    if rnd.random() < 0.5:
        said[0] = rnd.choice(QUESTIONS)
    inputs = [
        {"name": name, "datatype": "BYTES", "shape": [1], "data": [data]}
        for name, data in zip(("question", "options"), said, strict=True)
    ]
    body: Any = {"inputs": inputs, "parameters": {"deadline_ms": rnd.choice([300, 5_000, hostile.number(rnd)])}}
    return _http(rnd, "POST", "/v2/models/executor/infer", body)


def metrics(rnd: Random, world: World) -> Attempt:
    return _http(rnd, "GET", rnd.choice(["/metrics", "/health"]), None)


def checking(rnd: Random, world: World) -> Attempt:
    body = {"text": hostile.plan(rnd), "language": rnd.choice(["bnf", "logic", "art", hostile.text(rnd)])}
    return _http(rnd, "POST", "/api/check", body)


def inspecting(rnd: Random, world: World) -> Attempt:
    body: dict[str, Any] = {"question": rnd.choice([*QUESTIONS, hostile.text(rnd)])}
    if rnd.random() < 0.5:
        body["plan"] = hostile.plan(rnd)
    if rnd.random() < 0.3:
        body |= {"reuse": rnd.choice(["../x", "20260101-000000-000000-0000", hostile.text(rnd)])}
    body["deadline_ms"] = rnd.choice([300, 5_000, hostile.number(rnd)])
    return _http(rnd, "POST", "/api/runs", body)


def chatting(rnd: Random, world: World) -> Attempt:
    message = {"role": rnd.choice(["user", "user", "system"]), "content": rnd.choice([*QUESTIONS, hostile.text(rnd)])}
    body = {"model": rnd.choice(["revelator", "gpt"]), "messages": [message], "stream": rnd.random() < 0.4}
    return _http(rnd, "POST", "/v1/chat/completions", body)


def looking(rnd: Random, world: World) -> Attempt:
    """Any path, by any method."""
    method = rnd.choice(["GET", "GET", "GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "G\0T", ""])
    return _http(rnd, method, rnd.choice(PATHS), None)


def slow(rnd: Random, world: World) -> Attempt:
    """A part of a request, after which its client says nothing, and goes away before the service ends it."""
    whole = inferring(rnd, world).messages[0]
    part = whole[: rnd.randrange(len(whole))]
    return Attempt(HTTP, (part,), leaves=rnd.uniform(0.5, 2.0), whole=False)


def in_chunks(rnd: Random, world: World) -> Attempt:
    """A body of 100,000 chunks, of which the last may be missing."""
    path = rnd.choice(["/v2/models/executor/infer", "/metrics", "/v1/chat/completions", "/api/runs"])
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    return Attempt(HTTP, (head.encode() + b"1\r\na\r\n" * 100_000 + rnd.choice([b"0\r\n\r\n", b""]),))


def flooding(rnd: Random, world: World) -> Attempt:
    """Headers of megabytes, in one line or in hundreds of thousands."""
    lines = rnd.choice([b"X: " + b"a" * 5_000_000, b"X: y\r\n" * 500_000, b"Cookie: a=b; " * 300_000])
    return Attempt(HTTP, (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + lines,))


def nested(rnd: Random, world: World) -> Attempt:
    """JSON a million levels deep, as the body or as a question's options."""
    deep = rnd.choice(["[", '{"a":', '[{"inputs":']) * rnd.choice([1_000, 500_000])
    inputs = [{"name": name, "datatype": "BYTES", "shape": [1], "data": [deep]} for name in ("question", "options")]
    body = deep if rnd.random() < 0.5 else json.dumps({"inputs": inputs})
    path = rnd.choice(["/v2/models/executor/infer", "/v1/chat/completions", "/api/runs", "/api/check"])
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return Attempt(HTTP, (head.encode() + body.encode(),))


def _escaped(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _http(rnd: Random, method: str, path: str, body: Any) -> Attempt:
    """The bytes of a request: with a body that is often changed, and now and then a head that is no good."""
    data = b""
    if body is not None:
        data = hostile.encoded(hostile.written(hostile.changed(rnd, body) if rnd.random() < 0.4 else body))
    if rnd.random() < 0.1:
        data = hostile.scrambled(rnd, data)
    headers = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(data))}
    if rnd.random() < 0.25:
        name, said = rnd.choice(HEADERS)
        headers[name] = said
    if headers.get("Content-Encoding") == "gzip":
        data = gzip.compress(data * 200, mtime=0)
        headers["Content-Length"] = str(len(data))
    if "Transfer-Encoding" in headers:
        data = b"".join(b"1\r\n%c\r\n" % byte for byte in data[:2_000]) + b"0\r\n\r\n"
        del headers["Content-Length"]
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {said}" for name, said in headers.items()), "Connection: close"]
    head = "\r\n".join(lines).encode(errors="replace") + b"\r\n\r\n"
    if rnd.random() < 0.04:
        head = hostile.scrambled(rnd, head)
    return Attempt(HTTP, (head + data,), whole=_is_whole(head + data))


def _is_whole(request: bytes) -> bool:
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(request)
    try:
        while (event := reader.next_event()) is not h11.NEED_DATA:
            if isinstance(event, h11.EndOfMessage):
                return True
    except h11.RemoteProtocolError:
        return True
    return False


HEADERS = [
    ("Host", "evil.example"),
    ("Host", ""),
    ("Host", "["),
    ("Host", "127.0.0.1\0"),
    ("Origin", "http://["),
    ("Origin", "null"),
]
HEADERS += [
    ("Origin", "http://evil.example"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "x"),
    ("Transfer-Encoding", "chunked"),
]
HEADERS += [
    ("Content-Length", "-1"),
    ("Content-Length", "9" * 5_000),
    ("Content-Length", "1"),
    ("Authorization", "Bearer x"),
]
HEADERS += [
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("X", "y" * 20_000),
    ("Content-Type", "text/plain"),
    ("Range", "bytes=9-1"),
]

Target = Callable[[Random, World], Attempt]
TARGETS: dict[Target, float] = {
    unary: 34,
    stream: 14,
    well_formed: 6,
    left_behind: 1,
    garbage: 6,
    described: 3,
    control: 4,
    inferring: 12,
    metrics: 2,
    checking: 6,
    inspecting: 4,
    chatting: 4,
    looking: 4,
}
RARE: list[Target] = [by_classes, large_reuse, slow, in_chunks, oversized, flooding, crowded, nested, bomb]
