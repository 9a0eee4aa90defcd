"""What the service refuses over gRPC, with which code and words; the same process answers honest clients afterwards."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc as grpc_client
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from revelator.errors import Overloaded
from revelator.wire import read_error
from serving.service import grpc_front
from tests.serving.service.conftest import FAST, WAIT
from tests.serving.service.test_answers import ask, text


def tensor(name: str, values: list, shape: list[int]) -> grpc_client.InferInput:
    array = np.array(values, dtype=np.object_ if isinstance(values[0], bytes) else None).reshape(shape)
    return grpc_client.InferInput(name, shape, np_to_triton_dtype(array.dtype)).set_data_from_numpy(array)


MANY_NODES = b'{"reuse": {"nodes": [%s{}]}}' % (b"{}," * 1_000_000)
SERVICE = "/inference.GRPCInferenceService/"
QUESTION, OPTIONS = tensor("question", [b"q"], [1]), tensor("options", [b""], [1])


@pytest.fixture(autouse=True)
def honest_client(client) -> Iterator[None]:
    """Is answered after whatever a test has sent."""
    yield
    assert client.ask(FAST, strategy="single").answers == ("Orland",)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        ("executor", [tensor("question", [b"who \xff?"], [1]), OPTIONS], "question is not UTF-8"),
        ("executor", [QUESTION, tensor("options", [b"[" * 100_000], [1])], "not JSON"),
        ("executor", [QUESTION, tensor("options", [b'{"plan":"\\ud800"}'], [1])], "not JSON"),
        ("executor", [QUESTION, tensor("options", [b'{"colour": "red"}'], [1])], "options.colour"),
        ("executor", [QUESTION, tensor("options", [MANY_NODES], [1])], "reuse"),
        ("executor", [QUESTION], "missing required input options"),
        ("executor", [QUESTION, QUESTION], "unexpected input 'question'"),
        ("executor", [QUESTION, OPTIONS, tensor("more", [b""], [1])], "3 inputs"),
        ("executor", [tensor("question", [b"q", b"q"], [2]), OPTIONS], "unexpected shape"),
        ("executor", [tensor("question", [7], [1]), OPTIONS], "data-type"),
        ("executor", [tensor("question", [b""], [1]), OPTIONS], "question is empty"),
        ("executor", [tensor("question", [b"q" * 5_000], [1]), OPTIONS], "question_characters"),
        ("revelator", [text("task", "cook", batch=True), text("prompt", "egg", batch=True)], "no task 'cook'"),
        ("revelator", [text("task", "relevance", batch=True), text("prompt", "a" * 30_000, batch=True)], "20,000"),
        ("revelator", [text("task", "relevance", batch=True), text("prompt", *"ab", batch=True)], "different numbers"),
        ("revelator", [text("task", *["relevance"] * 65, batch=True), text("prompt", *"a" * 65, batch=True)], "shape"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_tensors_that_are_wrong_are_an_invalid_argument_of_one_line(triton, model, inputs, message):
    with pytest.raises(InferenceServerException) as refused:
        triton.infer(model, inputs)
    assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    said = json.loads(refused.value.message())
    assert said["error"] == "InvalidRequest" and message in f"{said['where']}: {said['message']}"


@pytest.mark.parametrize("deadline", ["soon", -5, 0])
def test_a_deadline_that_is_none_is_refused(triton, deadline):
    with pytest.raises(InferenceServerException, match="deadline_ms must be"):
        triton.infer("executor", ask(FAST), parameters={"deadline_ms": deadline})


@pytest.mark.parametrize(
    ("model", "version"), [("nobody", ""), ("retriever", ""), ("executor", "7"), ("x" * 10_000, "")]
)
def test_a_model_that_is_not_served_is_not_found(triton, model, version):
    with pytest.raises(InferenceServerException, match="unknown model") as refused:
        triton.infer(model, ask(FAST), model_version=version)
    assert refused.value.status() == "StatusCode.NOT_FOUND" and len(refused.value.message()) < 300
    with pytest.raises(InferenceServerException, match="unknown model"):
        triton.get_model_metadata(model, version)
    assert "models are executor, revelator" in refused.value.message()


def test_classes_and_shared_memory_are_not_given(triton):
    shared = grpc_client.InferRequestedOutput("answer")
    shared.set_shared_memory("region", 64)
    for output in (grpc_client.InferRequestedOutput("answer", class_count=3), shared):
        with pytest.raises(InferenceServerException, match="parameters of an output") as refused:
            triton.infer("executor", ask(FAST), outputs=[output])
        assert refused.value.status() == "StatusCode.INVALID_ARGUMENT"
    question = grpc_client.InferInput("question", [1], "BYTES")
    question.set_shared_memory("region", 64)
    with pytest.raises(InferenceServerException, match=r"parameters of an input|raw contents"):
        triton.infer("executor", [question, OPTIONS])
    with pytest.raises(InferenceServerException, match="unexpected output 'more'"):
        triton.infer("executor", ask(FAST), outputs=[grpc_client.InferRequestedOutput("more")])


def test_nobody_changes_the_service(triton):
    for change in (
        lambda: triton.load_model("executor"),
        lambda: triton.unload_model("executor"),
        lambda: triton.register_system_shared_memory("a", "b", 1),
        lambda: triton.update_trace_settings(settings={"trace_level": "OFF"}),
        lambda: triton.update_log_settings({"log_file": "/tmp/x"}),
    ):
        with pytest.raises(InferenceServerException) as refused:
            change()
        assert refused.value.status() == "StatusCode.UNIMPLEMENTED"


@pytest.fixture
def stub(service) -> Iterator[GRPCInferenceServiceStub]:
    options = [("grpc.max_send_message_length", -1), ("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(service.url, options=options) as channel:
        yield GRPCInferenceServiceStub(channel)


def request(**more) -> pb.ModelInferRequest:
    made = pb.ModelInferRequest(model_name="executor", **more)
    for name in ("question", "options"):
        made.inputs.add(name=name, datatype="BYTES", shape=[1])
    return made


@pytest.mark.parametrize(
    "contents",
    [[], [b"", b""], [b"\x01\0\0\0q", b"\xff\xff\xff\xff"], [b"\x01\0\0\0q"], [b"\x01\0\0\0qmore", b"\0\0\0\0"]],
)
def test_contents_that_are_no_strings_are_refused(stub, contents):
    with pytest.raises(grpc.RpcError) as refused:
        stub.ModelInfer(request(raw_input_contents=contents), timeout=WAIT)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def sound_request(**options) -> pb.ModelInferRequest:
    made = request()
    made.raw_input_contents.extend(value._get_content() for value in ask(FAST, strategy="single", **options))
    return made


NO_MESSAGES = [b"\xff" * 9, b"\x0a\x01\xff", sound_request().SerializeToString()[:-1]]  # the second: a name, no UTF-8


@pytest.fixture
def channel(service) -> Iterator[grpc.Channel]:
    """For requests of bytes."""
    with grpc.insecure_channel(service.url, options=[("grpc.enable_http_proxy", 0)]) as channel:
        yield channel


@pytest.mark.parametrize("message", NO_MESSAGES)
def test_bytes_that_are_no_request_are_an_invalid_argument_that_says_how_to_mend_them(channel, caplog, message):
    with pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(SERVICE + "ModelInfer")(message, timeout=WAIT)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    said = json.loads(refused.value.details())
    assert said["error"] == "InvalidRequest" and said["where"] == SERVICE + "ModelInfer"
    assert "tritonclient" in said["hint"] and not [record for record in caplog.records if record.exc_info]


def test_a_stream_goes_on_after_bytes_that_are_no_request(channel, caplog):
    sent = iter([NO_MESSAGES[0], sound_request().SerializeToString()])
    replies = list(channel.stream_stream(SERVICE + "ModelStreamInfer")(sent, timeout=WAIT))
    responses = [pb.ModelStreamInferResponse.FromString(reply) for reply in replies]
    [fault] = [response.error_message for response in responses if response.error_message]
    assert json.loads(fault)["error"] == "InvalidRequest"
    assert b'"finished"' in responses[-1].infer_response.raw_output_contents[0]
    assert not [record for record in caplog.records if record.exc_info]


def test_a_request_of_random_bytes_is_refused_with_a_reason(channel, caplog):
    rnd, sound, seen = Random(1), sound_request().SerializeToString(), set()
    for _ in range(300):
        message = bytearray(sound)
        for _ in range(rnd.choice([1, 1, 2, 8])):
            message[rnd.randrange(len(message))] = rnd.randrange(256)
        if rnd.random() < 0.3:
            message = rnd.choice([rnd.randbytes(rnd.randrange(1, 60)), message[: rnd.randrange(1, len(sound))]])
        try:
            channel.unary_unary(SERVICE + "ModelInfer")(bytes(message), timeout=WAIT)
        except grpc.RpcError as error:
            seen.add(error.code())
            assert error.code() is not grpc.StatusCode.INVALID_ARGUMENT or json.loads(error.details())["message"]
    assert seen == {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
    assert not [record for record in caplog.records if record.exc_info]


def test_a_hundred_thousand_tensors_are_refused(stub):
    many = pb.ModelInferRequest(model_name="executor")
    for _ in range(100_000):
        many.inputs.add(name="question", datatype="BYTES", shape=[1])
    with pytest.raises(grpc.RpcError, match="100000 inputs"):
        stub.ModelInfer(many, timeout=WAIT)


def test_a_message_that_is_too_large_is_refused_before_it_is_read(stub):
    for size in (9_000_000, 100_000_000):
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(request(raw_input_contents=[b"a" * size]), timeout=WAIT)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_large_requests_together_have_a_bounded_size(service, client, stub, monkeypatch):
    monkeypatch.setattr(grpc_front, "ALL_BYTES", 5_000_000)
    [held] = service.hold("weighing", 1)
    padded = json.dumps({"strategy": "single"}) + " " * 3_000_000
    with grpc_client.InferenceServerClient(service.url) as first, ThreadPoolExecutor(1) as thread:
        pending = thread.submit(first.infer, "executor", [text("question", held), text("options", padded)])
        service.await_start(held)
        with grpc_client.InferenceServerClient(service.url) as second:
            asked = [text("question", FAST), text("options", padded)]
            with pytest.raises(InferenceServerException) as refused:
                second.infer("executor", asked)
            error = read_error(refused.value.status().removeprefix("StatusCode."), refused.value.message())
            assert isinstance(error, Overloaded) and error.retry_after_ms
            streamed = pb.ModelInferRequest(model_name="executor")
            streamed.inputs.extend(value._get_tensor() for value in asked)
            streamed.raw_input_contents.extend(value._get_content() for value in asked)
            [response] = stub.ModelStreamInfer(iter([streamed]), timeout=WAIT)
            assert json.loads(response.error_message)["error"] == "Overloaded"
            assert client.ask(FAST, strategy="single").answers == ("Orland",), "a small one always has room"
            service.release()
            assert pending.result(WAIT).as_numpy("answer").tolist() == [b"Ines Calloway"]
            assert second.infer("executor", asked).as_numpy("answer").tolist() == [b"Orland"]


@pytest.mark.parametrize("algorithm", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_unpacked_up_to_the_same_size(stub, algorithm):
    bomb = pb.ModelInferRequest(model_name="executor", raw_input_contents=[bytes(200_000_000)])
    process, most, ended = psutil.Process(), [], threading.Event()

    def watch() -> None:
        while not ended.wait(0.002):
            most.append(process.memory_info().rss)

    sent = bomb.SerializeToString()
    before = process.memory_info().rss
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(bomb, timeout=WAIT, compression=algorithm)
    finally:
        ended.set()
        thread.join()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert max(most) - before < 2.5 * len(sent), "twice the message at the client, next to nothing at the service"


def test_a_stream_that_nobody_reads_is_held_back(service, stub):
    """Its questions end when the client goes."""
    asked = pb.ModelInferRequest(model_name="executor", id="x")
    for value in ask(FAST, strategy="single"):
        asked.inputs.append(value._get_tensor())
        asked.raw_input_contents.append(value._get_content())

    def requests() -> Iterator[pb.ModelInferRequest]:
        for _ in range(500):
            yield asked

    call = stub.ModelStreamInfer(requests())
    next(iter(call))
    call.cancel()
    service.await_count()
