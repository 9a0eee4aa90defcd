"""The engine: probabilities in one pass, deterministic generation, and adapters that do not fit."""

import asyncio
import importlib
import importlib.util
import json
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from revelator.artifact import digest_base, list_learned_tasks, require_task, write_manifest
from revelator.errors import ArtifactError, Cancelled, InvalidRequest, RevelatorError, ServingError
from revelator.folders import MANIFEST
from revelator.tasks import TASKS, RelevanceInput
from revelator.wire import read_error
from serving.home.versions import ADAPTER, CONTENTS_FILE
from serving.models.engine import Engine, GeneratedText
from serving.models.local import LocalRevelator, complete
from serving.models.onnx_model import OnnxModel
from serving.triton.repository import DECODING, find_templates
from tests.training.toy import toy_rows, write_adapter, write_base

ROUTES = TASKS["route"].labels
PROMPTS = [row.prompt for row in toy_rows("dev", 6)]


@pytest.fixture(scope="module")
def toy_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_base(tmp_path_factory.mktemp("base") / "toy")


@pytest.fixture(scope="module")
def adapter(toy_base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_adapter(tmp_path_factory.mktemp("adapter") / "toy", toy_base)


@pytest.fixture(scope="module")
def engine(toy_base: Path, adapter: Path) -> Engine:
    return Engine(toy_base, adapter, threads=1)


@pytest.fixture(scope="module")
def plain(toy_base: Path, adapter: Path) -> Engine:
    """The same model on transformers: what ONNX Runtime is held against."""
    return Engine(toy_base, adapter, threads=1, runtime="transformers")


def test_probabilities_of_labels_sum_to_one_in_the_order_of_prompts(engine: Engine) -> None:
    together = engine.judge_labels(PROMPTS, ROUTES)
    for prompt, probabilities in zip(PROMPTS, together, strict=True):
        assert tuple(probabilities) == ROUTES
        assert sum(probabilities.values()) == pytest.approx(1.0, abs=1e-6)
        alone = engine.judge_labels([prompt], ROUTES)[0]
        assert probabilities == pytest.approx(alone, abs=1e-4)  # padding does not count


def test_documents_of_one_question_are_judged_together_as_each_would_be_alone(engine: Engine) -> None:
    """Long and short ones, equal ones, one that begins another, and strangers are among them."""
    task = TASKS["relevance"]
    question = "Who founded the company that distributed the film that Ada Quill wrote in 1987 and why?"
    texts = ["", "x", "x y", "x", "a film of 1987 " * 20, "it was shot " * 60, *(f"document {i}" for i in range(8))]
    prompts = [task.render(RelevanceInput(question, "Tin Comet", text)) for text in texts] + PROMPTS
    together = engine.judge_labels(prompts, ("yes", "no"))
    for prompt, probabilities in zip(prompts, together, strict=True):
        assert probabilities == pytest.approx(engine.judge_labels([prompt], ("yes", "no"))[0], abs=1e-4)


def test_a_labels_probability_is_the_softmax_over_first_tokens_of_the_unmerged_adapter(
    engine: Engine, toy_base: Path, adapter: Path
) -> None:
    model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(toy_base, dtype=torch.float32), adapter
    ).eval()
    ids = torch.tensor([engine.tokenizer(PROMPTS[0])["input_ids"]])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, -1]
    first = [engine.tokenizer(" " + label)["input_ids"][0] for label in ROUTES]
    expected = dict(zip(ROUTES, logits[first].softmax(-1).tolist(), strict=True))
    assert engine.judge_labels([PROMPTS[0]], ROUTES)[0] == pytest.approx(expected, abs=1e-4)


def test_the_adapter_changes_what_the_base_says(engine: Engine, toy_base: Path) -> None:
    plain = Engine(toy_base, threads=1)
    assert plain.manifest is None and plain.base_digest == engine.base_digest
    ours, theirs = (e.judge_labels(PROMPTS[:1], ROUTES)[0] for e in (engine, plain))
    assert max(abs(ours[label] - theirs[label]) for label in ROUTES) > 1e-3


def test_generation_at_temperature_zero_repeats_itself_and_counts_its_tokens(engine: Engine) -> None:
    once = engine.generate(PROMPTS, max_new_tokens=12)
    assert once == engine.generate(PROMPTS, max_new_tokens=12)
    assert len(once) == len(PROMPTS) and all(1 <= row.tokens <= 12 for row in once)


def test_sampling_follows_the_seed_of_torch(engine: Engine) -> None:
    texts = set()
    for seed in (1, 1, 2, 3):
        torch.manual_seed(seed)
        texts.add(engine.generate(PROMPTS[:1], temperature=5.0, max_new_tokens=12)[0][0])
    assert 2 <= len(texts) <= 3


def test_generation_ends_at_the_end_token_which_counts_and_is_not_text(engine: Engine) -> None:
    end = engine.tokenizer.eos_token_id
    words = engine.tokenizer(" Who is it?")["input_ids"]
    assert engine._decode([*words, end, *words]) == GeneratedText("Who is it?", len(words) + 1)
    assert engine._decode(words) == GeneratedText("Who is it?", len(words))


def test_a_batch_without_prompts_is_an_empty_answer(engine: Engine) -> None:
    assert engine.judge_labels([], ROUTES) == [] and engine.generate([]) == []


def test_a_prompt_that_leaves_no_room_is_an_invalid_request(engine: Engine) -> None:
    with pytest.raises(InvalidRequest, match=r"this model reads at most 511"):
        engine.generate([PROMPTS[0], "Who? " * 600])


def test_a_label_is_judged_without_the_end_of_a_document_that_is_too_long(engine: Engine) -> None:
    relevance = TASKS["relevance"]
    water = "\N{CJK UNIFIED IDEOGRAPH-6C34}"
    texts = [water * 560 + end + water * 20 for end in "ab"]
    long, other = (relevance.render(RelevanceInput("Who wrote it?", "Ost", text)) for text in texts)
    assert min(engine.count_tokens([long, other])) > engine.max_positions
    first, second = engine.judge_labels([long, other], relevance.labels, shorten=True)
    assert first == pytest.approx(second, abs=1e-5) and sum(first.values()) == pytest.approx(1.0)


def test_completions_are_labels_with_probabilities_or_written_text(engine: Engine) -> None:
    judged = complete(engine, "route", PROMPTS[:2])
    assert [c.text for c in judged] == [max(c.probabilities, key=c.probabilities.get) for c in judged]
    assert [c.tokens_in for c in judged] == engine.count_tokens(PROMPTS[:2]) and judged[0].tokens_out == 0
    written = complete(engine, "refine", PROMPTS[:1], max_new_tokens=5)[0]
    assert written.probabilities == {} and 1 <= written.tokens_out <= 5


@pytest.mark.parametrize("runtime", ["onnx", "transformers"])
def test_one_beam_is_the_likeliest_token_each_time_with_the_probability_of_both_runtimes(
    engine: Engine, plain: Engine, runtime: str
) -> None:
    one = {"onnx": engine, "transformers": plain}[runtime]
    ended = 0
    for prompt, greedy, [*beams] in zip(PROMPTS, one.generate(PROMPTS), one.search_beams(PROMPTS, 1), strict=True):
        if beams:
            ended += 1
            assert (beams[0].text, beams[0].tokens) == (greedy.text, greedy.tokens)
            [other] = engine.search_beams([prompt], 1)[0]
            assert beams[0].probability == pytest.approx(other.probability, abs=1e-3) and 0 < other.probability <= 1
    assert ended


async def test_concurrent_calls_in_one_process_answer_as_they_would_alone(engine: Engine) -> None:
    local = LocalRevelator(engine)
    answers = await asyncio.gather(*(local.complete("route", [prompt]) for prompt in PROMPTS))
    local.close()
    assert [a[0] for a in answers] == [complete(engine, "route", [prompt])[0] for prompt in PROMPTS]


class Passes:
    """The passes that an engine's model makes; number `held` calls `begun` and waits for `go`. A context manager."""

    def __init__(self, engine: Engine, held: int = 0, begun: Callable[[], object] = print) -> None:
        self.made = 0
        self.mask_scores, self.begun = held, begun
        self.go = threading.Event()
        self.owner, self.name = (
            (engine.model, "run") if isinstance(engine.model, OnnxModel) else (engine.model.model, "forward")
        )

    def __enter__(self) -> "Passes":
        run = getattr(self.owner, self.name)

        @wraps(run)
        def counted(*values: object, **named: object) -> object:
            self.count()
            return run(*values, **named)

        setattr(self.owner, self.name, counted)
        return self

    def __exit__(self, *_: object) -> None:
        delattr(self.owner, self.name)

    def count(self) -> None:
        self.made += 1
        if self.made == self.mask_scores:
            self.begun()
            self.go.wait()


DOCUMENTS = [  # more than the tokens of one pass
    TASKS["relevance"].render(RelevanceInput("Who wrote it?", "Tin Comet", f"a film of {n} " * 60)) for n in range(60)
]


@pytest.mark.parametrize(("task", "prompts", "held"), [("refine", PROMPTS[:1], 3), ("relevance", DOCUMENTS, 1)])
@pytest.mark.parametrize("runtime", ["onnx", "transformers"])
async def test_a_model_makes_no_pass_after_its_caller_was_cancelled(
    engine: Engine, plain: Engine, task: str, prompts: list[str], held: int, runtime: str
) -> None:
    engine = engine if runtime == "onnx" else plain
    with Passes(engine) as whole:
        complete(engine, task, prompts)
    assert whole.made > held
    begun = asyncio.Event()
    local = LocalRevelator(engine)
    with Passes(engine, held, partial(asyncio.get_running_loop().call_soon_threadsafe, begun.set)) as passes:
        call = asyncio.create_task(local.complete(task, prompts))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        passes.go.set()
        await asyncio.to_thread(local.close)  # waits for the model's thread
    assert call.cancelled() and passes.made == held


@dataclass
class Tensor:
    name: str
    value: np.ndarray

    def as_numpy(self) -> np.ndarray:
        return self.value


@dataclass
class Response:
    outputs: Sequence[Tensor] = ()
    error: Any = None


class Fault:
    """`TritonError` of the Python backend."""

    INVALID_ARG, UNAVAILABLE, CANCELLED, INTERNAL = range(4)

    def __init__(self, message: str, code: int) -> None:
        self.message, self.code = message, code


class Request:
    """A request of the Python backend to the model `revelator`: prompts of one task, whose client leaves as told."""

    def __init__(self, task: str, *prompts: str, has_left: Callable[[], bool] = lambda: False) -> None:
        self.is_cancelled = has_left
        columns = {"task": [task.encode()] * len(prompts), "prompt": [prompt.encode() for prompt in prompts]}
        self.inputs = {name: np.array([[cell] for cell in column], object) for name, column in columns.items()}
        self.inputs["temperature"] = np.zeros((len(prompts), 1), np.float32)


@pytest.fixture(scope="module")
def backend() -> Iterator[ModuleType]:
    """`serving.triton.backend` as in the processes of Triton's Python backend, which alone have this module."""
    utils = ModuleType("triton_python_backend_utils")
    utils.Tensor, utils.InferenceResponse, utils.TritonError = Tensor, Response, Fault
    utils.get_input_tensor_by_name = lambda request, name: Tensor(name, request.inputs[name])
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, utils.__name__, utils)
        patch.setitem(sys.modules, "bitsandbytes", None)  # as the model does, which nobody would undo
        yield importlib.import_module("serving.triton.backend")
    del sys.modules["serving.triton.backend"]


@pytest.fixture(scope="module")
def served(backend: ModuleType, toy_base: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model `revelator` as Triton runs it."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "1").mkdir()
    (folder / "1" / ADAPTER).symlink_to(adapter)
    (folder / "1" / CONTENTS_FILE).write_text(json.dumps({"base": {"folder": str(toy_base)}, "files": {"a": "b"}}))
    config = {"parameters": {DECODING: {"string_value": "beams"}}}
    spec = importlib.util.spec_from_file_location("served_model", find_templates() / "revelator" / "model.py")
    assert spec and spec.loader
    spec.loader.exec_module(module := importlib.util.module_from_spec(spec))
    model = module.TritonPythonModel()
    place = {"model_repository": str(folder), "model_version": "1", "model_instance_kind": "CPU"}
    model.initialize({**place, "model_config": json.dumps(config)})
    return model


@pytest.fixture
def looked_at_always(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.0)


def read_texts(response: Response) -> list[str]:
    assert response.error is None, response.error.message
    return [value.decode() for value in response.outputs[0].value[:, 0]]


def read_fault(response: Response) -> RevelatorError:
    return read_error("", response.error.message)


def test_a_batch_goes_on_for_clients_that_wait_and_ends_for_those_that_have_left(served, looked_at_always) -> None:
    looks = iter([False, *[True] * 99])  # it leaves after its request was read
    gone, left = Request("refine", PROMPTS[0], has_left=lambda: next(looks)), Request("end", "a", has_left=lambda: True)
    with Passes(served.engine) as passes:
        first, second, third = served.execute([gone, left, Request("end", PROMPTS[0])])
        assert isinstance(read_fault(first), Cancelled) and isinstance(read_fault(second), Cancelled)
        assert (first.error.code, passes.made) == (Fault.CANCELLED, 1)
        assert read_texts(third)[0] in TASKS["end"].labels
        looks = iter([False, *[True] * 99])
        leaving = Request("route", PROMPTS[0], has_left=lambda: next(looks))
        both = served.execute([leaving, Request("route", PROMPTS[1])])
    assert all(read_texts(response)[0] in ROUTES for response in both), "one of their group waits"


def test_prompts_whose_clients_leave_while_they_are_written_end_after_the_token_under_way(
    served, looked_at_always
) -> None:
    with Passes(served.engine) as passes:
        requests = [Request("refine", prompt, has_left=lambda: passes.made >= 3) for prompt in PROMPTS[:2]]
        assert all(isinstance(read_fault(response), Cancelled) for response in served.execute(requests))
    assert passes.made == 3


def test_a_request_that_cannot_be_read_or_run_fails_alone(served) -> None:
    torn = Request("end", PROMPTS[0])
    torn.inputs["prompt"][0, 0] = b"\xff"
    long, good = Request("end", PROMPTS[0], "word " * 4_000), Request("end", PROMPTS[0], PROMPTS[1])
    first, second, third = served.execute([torn, long, good])
    for response, said in ((first, "prompt is not UTF-8"), (second, "tokens")):
        assert response.error.code == Fault.INVALID_ARG and isinstance(read_fault(response), InvalidRequest)
        assert said in read_fault(response).message
    assert len(read_texts(third)) == 2


def test_an_unexpected_error_is_logged_and_said_in_one_line(served, monkeypatch, caplog) -> None:
    monkeypatch.setattr(served.engine, "model", None)
    (response,) = served.execute([Request("route", PROMPTS[0])])
    fault = read_fault(response)
    assert type(fault) is ServingError and "AttributeError" in fault.message and "\n" not in fault.message
    assert "Traceback" in caplog.text and "route, " in caplog.text


def test_a_group_that_nobody_waits_for_is_not_tried_again_row_by_row(backend) -> None:
    calls: list[Sequence[str]] = []

    def work(error: Exception, rows: Sequence[str]) -> list[str]:
        calls.append(rows)
        raise error

    for error, count in ((Cancelled("gone"), 1), (InvalidRequest("wrong"), 3), (ValueError("torn"), 3)):
        calls.clear()
        outcomes = backend.run_groups(["a", "b"], lambda _, error=error: (error,), work)
        assert len(calls) == count
        assert all(outcome.__traceback__ is None for outcome in outcomes), "its frames would hold the pass"


def test_a_client_is_looked_at_seldom_and_stays_away(backend, monkeypatch) -> None:
    now, looks = 0.0, iter([False, False, True])
    monkeypatch.setattr(backend, "time", SimpleNamespace(monotonic=lambda: now))
    caller = backend.Caller(Request("end", has_left=lambda: next(looks)))
    assert not caller.has_left() and not caller.has_left()
    now = backend.LOOK_SECONDS
    assert not caller.has_left()
    now = 2 * backend.LOOK_SECONDS
    assert caller.has_left() and caller.has_left()


def test_an_adapter_of_another_base_is_refused_by_digest(tmp_path: Path, toy_base: Path, adapter: Path) -> None:
    other = write_base(tmp_path / "other", seed=9)
    with pytest.raises(ArtifactError, match="base: sha256") as caught:
        Engine(other, adapter)
    assert str(toy_base) in str(caught.value)  # the hint names the base that fits


def test_an_adapter_on_a_base_with_another_tokenizer_is_refused(tmp_path: Path, adapter: Path) -> None:
    other = write_base(tmp_path / "other", words=("yes", "no", "maybe", "certainly"))
    with pytest.raises(ArtifactError, match="base: sha256"):
        Engine(other, adapter)


@pytest.mark.parametrize(("key", "says"), [("prompt_hash", "prompts: sha256"), ("grammar_hash", "grammar: sha256")])
def test_an_adapter_of_other_prompts_or_grammar_is_refused(tmp_path: Path, toy_base: Path, key: str, says: str) -> None:
    folder = write_adapter(tmp_path / "old", toy_base)
    manifest = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(manifest | {key: "0" * 64}))
    with pytest.raises(ArtifactError, match=says) as caught:
        Engine(toy_base, folder)
    assert "train again" in str(caught.value)


def test_an_adapter_of_some_tasks_is_taken_after_a_task_was_added(tmp_path: Path, toy_base: Path) -> None:
    folder = write_adapter(tmp_path / "old", toy_base)
    digests = {"base_digest": digest_base(toy_base), "data_digest": ""}
    write_manifest(folder, base_name=str(toy_base), **digests, run_id="", tasks={"route", "end"})
    assert Engine(toy_base, folder).manifest
    assert list_learned_tasks(toy_base, folder) == {"route", "end"}
    with pytest.raises(ArtifactError, match="has not learned the task select") as caught:
        require_task("select", toy_base, folder)
    assert "train it on a set" in str(caught.value)


def test_a_damaged_or_missing_file_is_named(tmp_path: Path, toy_base: Path) -> None:
    folder = write_adapter(tmp_path / "bad", toy_base)
    weights = folder / "adapter_model.safetensors"
    for damaged in (weights.read_bytes()[:-1] + b"\0", b""):
        weights.write_bytes(damaged)
        with pytest.raises(ArtifactError, match=r"adapter_model\.safetensors: has changed"):
            Engine(toy_base, folder)
    weights.unlink()
    with pytest.raises(ArtifactError, match=r"adapter_model\.safetensors: is missing"):
        Engine(toy_base, folder)
    (folder / MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        Engine(toy_base, folder)


def test_a_missing_base_and_one_in_another_weight_format_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="does not exist"):
        Engine(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ArtifactError, match="only safetensors are read"):
        Engine(tmp_path)
    (tmp_path / "base.gguf").write_bytes(b"GGUF")
    with pytest.raises(ArtifactError, match=r"base\.gguf: a base is a folder, and this is a file") as caught:
        Engine(tmp_path / "base.gguf")
    assert "only safetensors are read" in str(caught.value) and "A base from a GGUF file" in str(caught.value)
