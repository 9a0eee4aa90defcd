"""The engine: probabilities in one pass, deterministic generation, and adapters that do not fit."""

import asyncio
import json
import threading
import weakref
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from revelator.artifact import digest_base, list_learned_tasks, require_task, write_manifest
from revelator.errors import ArtifactError, Cancelled, InvalidRequest, ServingError
from revelator.folders import MANIFEST
from revelator.tasks import TASKS, RelevanceInput
from serving.models.engine import Engine
from serving.models.local import LocalRevelator, complete
from serving.models.onnx_model import OnnxModel
from serving.triton.inside.revelator import LOOK_SECONDS, Client, CompletionService, Row
from serving.triton.repository import ADAPTER, CONTENTS_FILE
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
    assert engine._decode([*words, end, *words]) == ("Who is it?", len(words) + 1, False)
    assert engine._decode(words) == ("Who is it?", len(words), False)


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


@pytest.fixture(scope="module")
def completions(toy_base: Path, adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> CompletionService:
    folder = tmp_path_factory.mktemp("version")
    (folder / ADAPTER).symlink_to(adapter)
    (folder / CONTENTS_FILE).write_text(json.dumps({"base": {"folder": str(toy_base)}}))
    return CompletionService(folder)


def test_rows_of_a_batch_go_on_while_one_of_their_clients_waits(completions: CompletionService) -> None:
    gone, waits = (
        [Row(task, PROMPTS[0], cancelled=lambda: True) for task in ("refine", "route")],
        Row("end", PROMPTS[0]),
    )
    with Passes(completions._engine) as passes:
        first, second, third = completions.complete([*gone, waits])
        assert isinstance(first, Cancelled) and isinstance(second, Cancelled) and passes.made == 1
        assert third.text in TASKS["end"].labels
        both = completions.complete([gone[1], Row("route", PROMPTS[1])])
    assert [c.text in ROUTES for c in both] == [True, True]


def test_rows_whose_clients_leave_while_they_are_written_end_after_the_token_under_way(
    completions: CompletionService,
) -> None:
    with Passes(completions._engine) as passes:
        rows = [Row("refine", prompt, cancelled=lambda: passes.made >= 3) for prompt in PROMPTS[:2]]
        assert all(isinstance(outcome, Cancelled) for outcome in completions.complete(rows))
    assert passes.made == 3


def test_an_error_that_is_kept_holds_nothing_of_its_pass(completions: CompletionService) -> None:
    """Its traceback would: every frame's keys and values, until a garbage collector comes by."""

    def left() -> bool:
        return True

    held = weakref.ref(left)
    outcomes = completions.complete([Row("refine", PROMPTS[0], cancelled=left)])
    del left
    assert isinstance(outcomes[0], Cancelled) and held() is None


def test_a_group_that_nobody_waits_for_is_not_tried_again_row_by_row(completions: CompletionService) -> None:
    looks: list[int] = []
    rows = [Row("refine", prompt, cancelled=lambda: not looks.append(1)) for prompt in PROMPTS[:2]]
    assert all(isinstance(outcome, Cancelled) for outcome in completions.complete(rows))
    assert len(looks) == len(rows)


def test_an_unexpected_error_is_logged_and_said_without_its_frames(
    completions: CompletionService, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(completions._engine, "model", None)
    (outcome,) = completions.complete([Row("route", PROMPTS[0])])
    assert type(outcome) is ServingError and "AttributeError" in outcome.message and outcome.__traceback__ is None
    assert "Traceback" in caplog.text and "route, " in caplog.text


def test_a_client_is_looked_at_seldom_and_stays_away() -> None:
    now, looks = 0.0, iter([False, False, True])
    client = Client(lambda: next(looks), clock=lambda: now)
    assert not client.has_left() and not client.has_left()
    now = LOOK_SECONDS
    assert not client.has_left()
    now = 2 * LOOK_SECONDS
    assert client.has_left() and client.has_left()


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
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
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
