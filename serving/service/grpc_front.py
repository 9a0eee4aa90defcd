"""The gRPC front: KServe's inference protocol, version 2, as Triton speaks it, with tritonclient's generated service.

    ModelInfer           `executor` (question, options → answer, trace), `revelator` (task, prompt → text, …)
    ModelStreamInfer     `executor`: a response for each event of the question (event); `revelator` as above
    ServerLive, ServerReady, ServerMetadata, ModelReady, ModelMetadata, ModelConfig, ModelStatistics, RepositoryIndex

    RepositoryModelLoad  `revelator` alone, for who knows the control token: which versions answer beside the release
    grpc.health.v1.Health/Check  as Kubernetes asks: SERVING while this process answers

Everything else is UNIMPLEMENTED: nobody can register memory or change settings. Errors are those of
`revelator.wire.write_error`. When a call ends before its answer, because of the client or its deadline, so does the
work. The large requests that are being answered have a bounded size together, as over HTTP.
"""

# ruff: noqa: N802  the methods are named by the protocol
from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from functools import cache
from importlib.metadata import version as find_version
from typing import Any, TypeAlias
from urllib.parse import unquote

import grpc
import numpy as np
from google.protobuf import json_format, text_format
from google.protobuf.message import DecodeError
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.model_config_pb2 import ModelConfig
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceServicer, add_GRPCInferenceServiceServicer_to_server

from revelator import spans
from revelator.channels import Tls
from revelator.errors import ConfigError, InvalidRequest, Overloaded, RevelatorError, Unavailable
from revelator.limits import Limits
from revelator.trace import Event
from revelator.wire import choose_grpc_code, write_error
from serving.http.bodies import ALL_BYTES, SMALL_BYTES
from serving.http.protection import is_loopback
from serving.latency import write_json
from serving.protocols import Completion
from serving.service.access import Access, Tokens
from serving.service.admission import PEER
from serving.service.questions import EXECUTOR, MODELS, REVELATOR, Metadata, Prompt, Questions
from serving.service.tensors import (
    choose_outputs,
    make_strings,
    name_type,
    read_inputs,
    read_parameters,
    write_outputs,
)
from serving.triton import repository

MESSAGE_BYTES = 1 << 22  # of a request, over the options that a question may have
METADATA_BYTES = 1 << 15  # of headers: a token names hundreds of groups; gRPC's own bound is 8 kB
RETRY_MS = 1_000.0  # after a refusal because of large requests
HANDSHAKE_SECONDS = 15.0  # from a connection to the end of its handshake
IDLE_SECONDS = 300.0  # of a connection without a call; a client connects again with its next one
PING_SECONDS = 60.0  # between looks whether a client that says nothing is there
STREAMED = 64  # requests of one stream that are at work at the same time
SERVING_STATUS = b"\x08\x01"  # a HealthCheckResponse, field 1: SERVING
PARSED = "write it with a client of KServe's inference protocol, version 2, such as tritonclient; its texts are UTF-8"
FINAL, WANTS_FINAL = "triton_final_response", "triton_enable_empty_final_response"  # parameters
log = logging.getLogger(__name__)
Context: TypeAlias = Any  # grpc.aio.ServicerContext, which has no types


def bind_grpc(
    limits: Limits, tokens: Tokens, host: str, port: int, tls: Tls | None = None, mutual: bool = False
) -> tuple[grpc.aio.Server, int]:
    """A server that listens and answers nothing yet, and its port. Raises ConfigError for a port that is taken."""
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", limits.options_bytes + MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_metadata_size", METADATA_BYTES),
            ("grpc.so_reuseport", 0),  # a port that is taken is an error
            ("grpc.server_handshake_timeout_ms", round(1000 * HANDSHAKE_SECONDS)),
            ("grpc.max_connection_idle_ms", round(1000 * IDLE_SECONDS)),
            ("grpc.keepalive_time_ms", round(1000 * PING_SECONDS)),
        ],
        interceptors=[Access(tokens), Parsing()],
    )
    try:
        if tls:
            return server, server.add_secure_port(address, _read_credentials(tls, mutual))
        return server, server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError("cannot listen there", where=address, hint="name other ports with --ports") from error


@asynccontextmanager
async def serve_grpc(server: grpc.aio.Server, questions: Questions, tokens: Tokens) -> AsyncIterator[None]:
    """Answers until the end of the block."""
    add_GRPCInferenceServiceServicer_to_server(Front(questions, tokens), server)
    health = {"Check": grpc.unary_unary_rpc_method_handler(_check_health)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", health),))
    await server.start()
    try:
        yield
    finally:
        await server.stop(grace=1.0)


class Parsing(grpc.aio.ServerInterceptor):
    """Refuses bytes that are no request with the reason; gRPC itself says UNKNOWN to them, and logs a traceback of
    each. In a stream, the method gets the error in place of the request."""

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or handler.request_deserializer is None:
            return handler

        def parse(message: bytes) -> Any:
            try:
                return handler.request_deserializer(message)
            except DecodeError:
                fault = f"{len(message):,} bytes are not the message of this method"
            return InvalidRequest(fault, where=details.method, hint=PARSED)

        async def answer(request: Any, context: Context) -> Any:
            if isinstance(request, InvalidRequest):
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, write_error(request))
            return await handler.unary_unary(request, context)

        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(handler.stream_stream, parse, handler.response_serializer)
        return grpc.unary_unary_rpc_method_handler(answer, parse, handler.response_serializer)


async def _check_health(request: bytes, context: Context) -> bytes:
    return SERVING_STATUS


def _read_credentials(tls: Tls, mutual: bool) -> grpc.ServerCredentials:
    assert tls.key and tls.cert
    pair = tls.key.read_bytes(), tls.cert.read_bytes()
    return grpc.ssl_server_credentials([pair], tls.ca.read_bytes() if mutual else None, require_client_auth=mutual)


PLATFORM = "python"
ANSWER, EVENTS = ("answer", "trace"), ("event",)  # what the executor puts out: of a call, and of a stream
EXECUTOR_CONFIG = """
    name: "executor"
    input { name: "question" data_type: TYPE_STRING dims: [ 1 ] }
    input { name: "options" data_type: TYPE_STRING dims: [ 1 ] }
    output { name: "answer" data_type: TYPE_STRING dims: [ 1 ] }
    output { name: "trace" data_type: TYPE_STRING dims: [ 1 ] }
    output { name: "event" data_type: TYPE_STRING dims: [ 1 ] }
"""


@cache
def read_config(model: str) -> ModelConfig:
    """What a model takes and gives, as Triton describes it."""
    return text_format.Parse(EXECUTOR_CONFIG, ModelConfig()) if model == EXECUTOR else repository.read_config(model)


class Front(GRPCInferenceServiceServicer):
    def __init__(self, questions: Questions, tokens: Tokens) -> None:
        self._questions = questions
        self._tokens = tokens
        self._counts: dict[str, Counts] = defaultdict(Counts)
        self._held = 0  # bytes of large requests

    async def ServerLive(self, request: Any, context: Context) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Context) -> Any:
        return pb.ServerReadyResponse(ready=await self._questions.is_ready())

    async def ServerMetadata(self, request: Any, context: Context) -> Any:
        extensions = ["statistics", "model_configuration"]
        return pb.ServerMetadataResponse(name="revelator", version=find_version("revelator"), extensions=extensions)

    async def ModelReady(self, request: Any, context: Context) -> Any:
        has_version = self._questions.has_version(request.name, request.version)
        ready = has_version and await self._questions.is_ready()
        return pb.ModelReadyResponse(ready=ready)

    async def ModelMetadata(self, request: Any, context: Context) -> Any:
        version = await self._find_version(request.name, request.version, context)
        config = read_config(request.name)
        response = pb.ModelMetadataResponse(name=request.name, versions=[version], platform=PLATFORM)
        for tensors, target in ((config.input, response.inputs), (config.output, response.outputs)):
            for tensor in tensors:
                shape = [*([-1] if config.max_batch_size else []), *tensor.dims]
                target.add(name=tensor.name, datatype=name_type(tensor.data_type), shape=shape)
        return response

    async def ModelConfig(self, request: Any, context: Context) -> Any:
        """What a client needs: how a deployment batches, and what it runs on, is its own business."""
        version = await self._find_version(request.name, request.version, context)
        config = read_config(request.name)
        batch, tensors = config.max_batch_size, {"input": config.input, "output": config.output}
        shown = ModelConfig(name=request.name, platform=PLATFORM, max_batch_size=batch, **tensors)
        shown.version_policy.specific.versions[:] = [int(version)]
        return pb.ModelConfigResponse(config=shown)

    async def ModelStatistics(self, request: Any, context: Context) -> Any:
        served = self._list_versions()
        if request.name:
            served = {request.name: await self._find_version(request.name, request.version, context)}
        response = pb.ModelStatisticsResponse()
        for model, version in served.items():
            self._counts[model].write(response.model_stats.add(name=model, version=version))
        return response

    async def RepositoryIndex(self, request: Any, context: Context) -> Any:
        is_ready = await self._questions.is_ready()
        state = "READY" if is_ready else "UNAVAILABLE"
        served = self._list_versions().items()
        models = [] if request.ready and not is_ready else served
        return pb.RepositoryIndexResponse(models=[{"name": name, "version": v, "state": state} for name, v in models])

    async def RepositoryModelLoad(self, request: Any, context: Context) -> Any:
        """Opens the versions that the request's `config` names beside the release; without one, the release's own."""
        if request.model_name != REVELATOR:
            message = f"versions of {REVELATOR} alone are loaded, by revelator model deploy"
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
        if not self._tokens.may_control(context.invocation_metadata()):
            message = "only who knows the control token changes versions: `revelator model deploy` reads it in --home"
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, message)
        try:
            versions = _read_versions(request.parameters["config"].string_param)
            await self._questions.load_versions(versions)
        except RevelatorError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except Exception as error:
            log.exception("a version does not load")
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"[:2_000])
        return pb.RepositoryModelLoadResponse()

    async def ModelInfer(self, request: Any, context: Context) -> Any:
        PEER.set(name_peer(context))
        version = await self._find_version(request.model_name, request.model_version, context)
        try:
            with self._hold(request):
                return await self._infer(request, version, context)
        except RevelatorError as error:
            await context.abort(choose_status(error), write_error(error))

    async def ModelStreamInfer(self, requests: AsyncIterator[Any], context: Context) -> None:
        PEER.set(name_peer(context))
        writing, places = asyncio.Lock(), asyncio.Semaphore(STREAMED)

        async def write(response: Any, error: str = "") -> None:
            async with writing:
                await context.write(pb.ModelStreamInferResponse(error_message=error, infer_response=response))

        async def answer(request: Any) -> None:
            try:
                await self._answer_in_stream(request, context, write)
            finally:
                places.release()

        async with asyncio.TaskGroup() as tasks:
            async for request in requests:
                await places.acquire()
                tasks.create_task(answer(request))

    async def _answer_in_stream(self, request: Any, context: Context, write: Callable[..., Awaitable[None]]) -> None:
        if isinstance(request, InvalidRequest):
            return await write(pb.ModelInferResponse(), write_error(request))
        last = pb.ModelInferResponse(model_name=request.model_name, id=request.id)
        last.parameters[FINAL].bool_param = True
        try:
            served = self._questions.find_version(request.model_name)
            if served is None or not self._questions.has_version(request.model_name, request.model_version):
                raise Unavailable(_describe_unknown(request.model_name, request.model_version), final=True)
            last.model_version = served
            if request.model_name == EXECUTOR:
                with self._hold(request):
                    async with aclosing(self._stream(request, served, context)) as responses:
                        async for response in responses:
                            await write(response)
                if read_parameters(request.parameters).get(WANTS_FINAL) is not True:
                    return
            else:
                with self._hold(request):
                    last = await self._infer(request, served, context)
                last.parameters[FINAL].bool_param = True
            await write(last)
        except RevelatorError as error:
            await write(last, write_error(error))

    @contextmanager
    def _hold(self, request: Any) -> Iterator[None]:
        """Around the answer to a request; a small one always has room. Raises Overloaded."""
        size = request.ByteSize()
        size = size if size > SMALL_BYTES else 0
        if size and self._held + size > ALL_BYTES:
            hint = "ask again after retry_after_ms, or send shorter options"
            raise Overloaded("too many large requests at the same time", hint=hint, retry_after_ms=RETRY_MS)
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    async def _infer(self, request: Any, version: str, context: Context) -> Any:
        """Answers a request for `executor` or `revelator`."""
        model, metadata = request.model_name, await read_metadata(request, context, self._tokens)
        config = read_config(model)
        with self._counts[model].count():
            inputs, wanted = read_inputs(request, config), choose_outputs(request, config, without=EVENTS)
            if model == REVELATOR:
                outputs, version = await self._complete(inputs, metadata, request.model_version)
            else:
                [question], [options] = inputs["question"], inputs["options"]
                trace = await self._questions.answer(question, options, metadata)
                dumped = await asyncio.to_thread(trace.dump_json)
                outputs = {"answer": make_strings(trace.answer), "trace": make_strings(dumped)}
        response = pb.ModelInferResponse(model_name=model, model_version=version, id=request.id)
        write_outputs(response, outputs, wanted)
        return response

    async def _complete(
        self, inputs: dict[str, list[Any]], metadata: Metadata, version: str
    ) -> tuple[dict[str, np.ndarray], str]:
        """The outputs, and the version that answered."""
        heat = inputs.get("temperature", [0.0] * len(inputs["task"]))
        prompts = [Prompt(*row) for row in zip(inputs["task"], inputs["prompt"], heat, strict=True)]
        completions, answered = await self._questions.complete(prompts, metadata, version)
        return make_columns(completions), answered

    async def _stream(self, request: Any, version: str, context: Context) -> AsyncGenerator[Any, None]:
        """A response for each event of a question."""
        config = read_config(EXECUTOR)
        with self._counts[EXECUTOR].count():
            inputs, wanted = read_inputs(request, config), choose_outputs(request, config, without=ANSWER)
            [question], [options] = inputs["question"], inputs["options"]
            events: AsyncGenerator[Event, None] = self._questions.stream(
                question, options, await read_metadata(request, context, self._tokens)
            )
            async with aclosing(events):
                async for event in events:
                    response = pb.ModelInferResponse(model_name=EXECUTOR, model_version=version, id=request.id)
                    response.parameters[FINAL].bool_param = False
                    write_outputs(response, {"event": make_strings(await write_json(event.to_json()))}, wanted)
                    yield response

    def _list_versions(self) -> dict[str, str]:
        return {model: version for model in MODELS if (version := self._questions.find_version(model))}

    async def _find_version(self, model: str, version: str, context: Context) -> str:
        """The version, or the served one where none is named. Ends the call where there is none such."""
        served = self._questions.find_version(model)
        if served is None or not self._questions.has_version(model, version):
            await context.abort(grpc.StatusCode.NOT_FOUND, _describe_unknown(model, version))
        assert served is not None
        return version or served


async def _refuse(front: Front, request: Any, context: Context) -> None:
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this service does not offer that")


for _name in vars(GRPCInferenceServiceServicer):  # whose own methods raise, and fill the log
    if _name[0].isupper() and _name not in vars(Front):
        setattr(Front, _name, _refuse)


class Counts:
    """How many requests a model has answered and refused, and the nanoseconds that they took."""

    def __init__(self) -> None:
        self._answered = pb.StatisticDuration()
        self._failed = pb.StatisticDuration()
        self._last = 0

    @contextmanager
    def count(self) -> Iterator[None]:
        began, target = time.perf_counter_ns(), self._failed
        try:
            yield
            target = self._answered
        finally:
            target.count += 1
            target.ns += time.perf_counter_ns() - began
            self._last = time.time_ns() // 1_000_000

    def write(self, statistics: Any) -> None:
        statistics.inference_count = statistics.execution_count = self._answered.count
        statistics.last_inference = self._last
        statistics.inference_stats.success.CopyFrom(self._answered)
        statistics.inference_stats.fail.CopyFrom(self._failed)


def name_peer(context: Context) -> str:
    """The client, as admission tells clients apart: by certificate, else by address; on this machine itself, where all
    have the same address, by connection."""
    if names := context.peer_identities():
        return bytes(names[0]).decode(errors="replace")
    address, _, _ = unquote(context.peer()).partition(":")[2].rpartition(":")
    return context.peer() if is_loopback(address) else address


async def read_metadata(request: Any, context: Context, tokens: Tokens) -> Metadata:
    """Finds the groups anew for each request of a stream: a token may expire while the stream is open."""
    headers = {name: value for name, value in context.invocation_metadata() or () if name == spans.HEADER}
    left = context.time_remaining()
    parameters = {**headers, **read_parameters(request.parameters)}
    groups = await tokens.find_groups(context.invocation_metadata())
    return Metadata(request.id, parameters, math.inf if left is None else left, groups)


def choose_status(error: RevelatorError) -> grpc.StatusCode:
    """A server that ran out of time says CANCELLED, and its message names the error: DEADLINE_EXCEEDED is what a client
    says that waited no longer (`revelator.wire`)."""
    code = choose_grpc_code(error)
    return grpc.StatusCode["CANCELLED" if code == "DEADLINE_EXCEEDED" else code]


def make_columns(completions: Sequence[Completion]) -> dict[str, np.ndarray]:
    """The outputs of model_repo/revelator/config.pbtxt, a row a completion."""
    width = max(len(completion.probabilities) for completion in completions)
    probabilities = np.zeros((len(completions), width), dtype=np.float32)
    for row, completion in zip(probabilities, completions, strict=True):
        row[: len(completion.probabilities)] = list(completion.probabilities.values())
    return {
        "text": make_strings(*(completion.text for completion in completions)).reshape(-1, 1),
        "probabilities": probabilities,
        "usage": np.array([[c.tokens_in, c.tokens_out] for c in completions], dtype=np.int32),
        "degraded": np.array([[completion.degraded] for completion in completions], dtype=np.bool_),
    }


def _read_versions(text: str) -> list[int]:
    """The versions that a configuration (JSON) names. Raises InvalidRequest."""
    try:
        config = json_format.Parse(text or "{}", ModelConfig())
    except json_format.ParseError as error:
        raise InvalidRequest(f"the configuration cannot be read: {error}"[:500], where="config") from error
    return [*config.version_policy.specific.versions]


def _describe_unknown(model: str, version: str) -> str:
    which = f"{model[:60]!r} {f'version {version[:20]} ' if version else ''}"
    return f"Request for unknown model: {which}is not found; models are {', '.join(MODELS)}, best without a version"
