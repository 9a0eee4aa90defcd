"""A round of self-training from end to end: plans that are given, executed on a real index, and built into a set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from data_gen.leakage import hash_question
from evaluation import self_training
from evaluation.self_training import Settings, begin_round, draw_samples, self_train
from revelator.errors import ConfigError, RevelatorError
from revelator.rows import stream_rows
from revelator.tasks import TASKS, TranslateInput
from serving.executor.executor import Executor
from serving.models.embedded import EmbeddedGenerator
from serving.models.engine import Engine
from serving.protocols import Completion
from serving.retrieval import Index
from serving.retrieval.index import LocalRetriever

PLANS = {
    "Where was the director of Lantern Row born?": "Who directed Lantern Row? * Where was {director} born?",
    "Where was the director of The Glass Orchard born?": "Who directed The Glass Orchard? * Where was {director} born?",
    "Where is the birthplace of Tobias Renn?": "Where is the birthplace of Tobias Renn?",
    "Who directed Lantern Row at its start?": "Who directed Lantern Row? * When was {director} born?",
}
ANSWERS = ("Port Velm", "Nowhere", "Orland", "Ines Calloway")


class Judge:
    """A revelator that calls every passage relevant."""

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        return [Completion("yes", {"yes": 1.0, "no": 0.0}) for _ in prompts]


def write(prompts: Sequence[str], batch: int) -> list[list[str]]:
    return [[next(plan for question, plan in PLANS.items() if question in prompt)] * 3 for prompt in prompts]


def settings(folder: Path, **changes: object) -> Settings:
    rows = [
        json.dumps({"id": str(n), "question": q, "answer": a})
        for n, (q, a) in enumerate(zip(PLANS, ANSWERS, strict=True))
    ]
    (folder / "mine.jsonl").write_text("\n".join(rows))
    values: dict[str, object] = {
        "questions": str(folder / "mine.jsonl"),
        "format": "pairs",
        "limit": 9,
        "seed": 1,
        "held_out": None,
        "model": "model-digest",
        "index": "index-digest",
    }
    return Settings(**{**values, **changes})  # type: ignore[arg-type]


def run_round(out: Path, given: Settings, index: Path | None) -> dict:
    executor = Executor(Judge(), LocalRetriever(Index.open(index)), EmbeddedGenerator()) if index else None
    return self_training.run_round(out, given, write, executor)


def test_a_plan_is_kept_if_its_leaves_find_the_known_answer(index: Path, tmp_path: Path) -> None:
    run_round(tmp_path / "round", settings(tmp_path), index)
    made = list(stream_rows(tmp_path / "round/set", "train", "translate_bnf"))
    [(question, plan), *_] = PLANS.items()
    assert [(r.question, json.loads(r.gold), r.teacher, r.agreement) for r in made] == [
        (question, plan, "self:model-digest", "1.000")
    ]
    refined = list(stream_rows(tmp_path / "round/set", "train", "refine"))
    assert {json.loads(r.gold) for r in refined} == {"Who directed Lantern Row?", "Where was Ines Calloway born?"}
    known = json.loads((tmp_path / "round/round.json").read_text())
    assert known["counts"] == {
        "questions": 4, "samples": 12, "valid": 9, "agreeing": 3, "kept": 1, "with_steps": 1}  # fmt: skip
    assert known["dropped"]["no sample holds"] == 1
    card = (tmp_path / "round/set/README.md").read_text()
    assert "self:model-digest" in card and "no sample holds" in card


def test_without_an_index_every_plan_that_the_samples_agree_on_is_kept(tmp_path: Path) -> None:
    manifest = run_round(tmp_path / "round", settings(tmp_path, index=""), None)
    known = json.loads((tmp_path / "round/round.json").read_text())
    assert [known["counts"][name] for name in ("agreeing", "kept", "with_steps")] == [3, 3, 0]
    assert manifest["records"]["train"] == 3  # plans alone: what the steps answer is not known


def ask(folder: Path, out: str) -> Result:
    """A round by the embedded base alone over the questions of PLANS."""
    given = settings(folder)
    command = [given.questions, "--threads", "1", "--out", str(folder / out)]
    return CliRunner().invoke(self_train, command)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine("tiny", threads=1)


def proposed(folder: Path) -> dict[str, list[str]]:
    rows = map(json.loads, (folder / "attempts.jsonl").read_text().splitlines())
    return {row["id"]: row["samples"] for row in rows}


def test_draws_of_a_batch_depend_on_its_place_and_the_seed_alone(engine: Engine) -> None:
    prompts = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in PLANS]
    draw = draw_samples(engine, (0.0, 2.0, 2.0), 1)
    first = draw(prompts, 0)
    assert [len(texts) for texts in first] == [3] * 4
    assert first != draw(prompts, 32)
    assert first == draw(prompts, 0) == draw_samples(engine, (0.0, 2.0, 2.0), 1)(prompts, 0)
    assert first != draw_samples(engine, (0.0, 2.0, 2.0), 2)(prompts, 0)
    assert any(second != third for _, second, third in first)
    assert [texts[0] for texts in first] == [texts[0] for texts in draw(prompts, 32)]  # at temperature 0


def test_a_round_asks_a_sample_at_each_temperature_and_goes_on_to_the_same(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(self_training, "Engine", lambda *_, **__: engine)
    monkeypatch.setattr(self_training, "BATCH", 1)
    monkeypatch.setattr(self_training, "TEMPERATURES", (0.0, 2.0))
    assert isinstance(ask(tmp_path, "straight").exception, RevelatorError | None)  # it may keep none
    whole = (tmp_path / "straight/attempts.jsonl").read_bytes()
    samples = proposed(tmp_path / "straight")
    assert {len(texts) for texts in samples.values()} == {2} and len({*map(tuple, samples.values())}) == 4
    shutil.copytree(tmp_path / "straight", tmp_path / "again")
    (tmp_path / "again/attempts.jsonl").write_bytes(whole[: len(whole) // 2])
    ask(tmp_path, "again")
    assert proposed(tmp_path / "again") == samples


def test_a_round_that_was_broken_off_anywhere_gives_the_same_set(index: Path, tmp_path: Path) -> None:
    given = settings(tmp_path)
    digest = run_round(tmp_path / "straight", given, index)["digest"]
    whole = (tmp_path / "straight/attempts.jsonl").read_bytes()
    for length in (0, len(whole) // 3, len(whole) - 2):
        out = tmp_path / f"{length}"
        begin_round(out, given)
        (out / "attempts.jsonl").write_bytes(whole[:length])
        assert run_round(out, given, index)["digest"] == digest
        assert sorted((out / "attempts.jsonl").read_bytes().splitlines()) == sorted(whole.splitlines())


def test_held_out_questions_are_not_planned_and_another_model_makes_a_round_of_its_own(
    index: Path, tmp_path: Path
) -> None:
    first = next(iter(PLANS))
    (tmp_path / "held").write_text(f"{hash_question(first)}  mine\n")
    with pytest.raises(RevelatorError, match="no plan was kept"):
        run_round(tmp_path / "round", settings(tmp_path, held_out=str(tmp_path / "held")), index)
    ids = {json.loads(line)["id"] for line in (tmp_path / "round/attempts.jsonl").read_text().splitlines()}
    assert len(ids) == 3
    with pytest.raises(ConfigError, match="other settings"):
        begin_round(tmp_path / "round", settings(tmp_path, model="another"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="no round"):
        begin_round(tmp_path / "mine", settings(tmp_path))
