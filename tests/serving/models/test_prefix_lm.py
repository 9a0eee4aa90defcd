"""A prefix language model in the engine: it judges, writes and searches as any base does."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.onnx_model import OnnxModel
from serving.models.transformers_model import TransformersModel
from tests.prefix_lm import write_prefix_base

QUESTIONS = ["Who wrote Tin Comet?", "Is it?", "When was the founder of the company that made Tin Comet born? " * 3]
PROMPTS = [TASKS["translate_bnf"].render(QuestionInput(question)) for question in QUESTIONS]
DOCUMENTS = ["", "a film", "a film of 1987 by Ada Quill " * 8, *(f"document {n}" for n in range(6))]
JUDGED = [TASKS["relevance"].render(RelevanceInput(QUESTIONS[0], "Tin Comet", text)) for text in DOCUMENTS]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_prefix_base(tmp_path_factory.mktemp("prefix"))


@pytest.fixture(scope="module", params=["auto", "transformers"])
def engine(base: Path, request: pytest.FixtureRequest) -> Engine:
    return Engine(base, threads=1, runtime=request.param)


def test_both_runtimes_judge_write_and_search_alike(base: Path) -> None:
    ours, theirs = (Engine(base, threads=1, runtime=runtime) for runtime in ("auto", "transformers"))
    assert isinstance(ours.model, OnnxModel) and isinstance(theirs.model, TransformersModel)
    assert ours.generate(PROMPTS, 0.0, 24) == theirs.generate(PROMPTS, 0.0, 24)
    pairs = zip(*(e.judge_labels(JUDGED + PROMPTS, ("yes", "no")) for e in (ours, theirs)), strict=True)
    for one, other in pairs:
        assert one == pytest.approx(other, abs=1e-5)
    ids = ours.tokenizer(PROMPTS[0])["input_ids"]
    batch = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
    end = theirs.model.write(*batch, 8, 102, 0.0, None, lambda: False)[0][3]
    [found], [expected] = (e.model.search_beams(*batch, 8, end, 3, lambda: False) for e in (ours, theirs))
    assert [beam.text for beam in found] == [beam.text for beam in expected]
    assert [beam.score for beam in found] == pytest.approx([beam.score for beam in expected], abs=0.01)


@pytest.mark.parametrize("wanted", [1, 8, 40_000])
def test_the_likeliest_tokens_are_those_of_all_logits(base: Path, wanted: int) -> None:
    """They are looked for in 8 bits, and their logits computed again: only the sum of the softmax keeps an error."""
    for engine in (Engine(base, threads=1), Engine("mini", threads=1)):
        batch = engine.tokenizer(PROMPTS, padding=True, return_tensors="pt")
        ids, kept = batch["input_ids"].numpy(), batch["attention_mask"].numpy().astype(bool)
        logits = engine.model.read_ends(batch["input_ids"], batch["attention_mask"], lambda: False)
        expected = logits.log_softmax(-1).topk(min(wanted, logits.shape[1]))
        log_probabilities, tokens, _ = engine.model._read_prompts(ids, kept, lambda: False, wanted)
        best, places = torch.from_numpy(log_probabilities).topk(expected.values.shape[1])
        torch.testing.assert_close(best, expected.values, atol=1e-3, rtol=0)
        assert torch.from_numpy(tokens).gather(1, places)[:, 0].tolist() == expected.indices[:, 0].tolist()


def test_documents_are_judged_together_as_each_would_be_alone(engine: Engine) -> None:
    together = engine.judge_labels(JUDGED, ("yes", "no"))
    for prompt, judged in zip(JUDGED, together, strict=True):
        assert judged == pytest.approx(engine.judge_labels([prompt], ("yes", "no"))[0], abs=1e-5)


def test_prompts_are_answered_together_as_each_would_be_alone(engine: Engine) -> None:
    together = engine.generate(PROMPTS, 0.0, 12)
    assert together == [engine.generate([prompt], 0.0, 12)[0] for prompt in PROMPTS]


def test_the_likeliest_text_is_no_less_likely_than_the_greedy_one(engine: Engine, base: Path) -> None:
    """Random weights never end a text by themselves: what the greedy one has in fourth place ends it here."""
    prompt = PROMPTS[0]
    ids = engine.tokenizer(prompt)["input_ids"]
    batch = torch.tensor([ids]), torch.ones(1, len(ids), dtype=torch.long)
    greedy = engine.model.write(*batch, 8, 102, 0.0, None, lambda: False)[0]
    found = engine.model.search_beams(*batch, 8, greedy[3], 4, lambda: False)[0]

    model = Engine(base, threads=1, runtime="transformers").model.model

    @torch.no_grad()
    def likelihood(text: list[int]) -> float:
        row = torch.tensor([[*ids, *text]])
        log_probabilities = model(input_ids=row).logits[0].log_softmax(-1)
        return sum(log_probabilities[len(ids) - 1 + place, token].item() for place, token in enumerate(text))

    scores = [likelihood([*beam.text, greedy[3]]) for beam in found]
    assert scores == pytest.approx([beam.score for beam in found], abs=0.01)
    assert scores == sorted(scores, reverse=True) and scores[0] >= likelihood(greedy[:4]) - 1e-4


def test_a_plan_that_does_not_end_or_check_is_degraded_and_the_question_is_asked_as_it_stands(engine: Engine) -> None:
    answered = complete(engine, "translate_bnf", PROMPTS, max_new_tokens=12)
    for question, completion in zip(QUESTIONS, answered, strict=True):
        assert completion.degraded is False or completion.text == " ".join(question.split())
        assert TASKS["translate_bnf"].parse_sound(completion.text) is not None


def test_what_is_written_is_spelled_as_the_question_is(engine: Engine) -> None:
    prompt = TASKS["translate_bnf"].render(QuestionInput("Who wrote Ödegård's 🜁🜂 McCall?"))
    row = engine.tokenizer("ödegård's 🜁🜂 mccall is who?", add_special_tokens=False)["input_ids"]
    end = engine.tokenizer.eos_token_id
    assert engine._decode([*row, end, *row], prompt=prompt).text == "Ödegård's 🜁🜂 McCall is who?"
