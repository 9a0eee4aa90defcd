"""A round of self-training from end to end: plans that are given, executed on a real index, and built into a set."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from data_gen.config import SetConfig
from data_gen.leakage import hash_question
from evaluation.self_training import rounds
from evaluation.self_training.command import gain, make_round
from evaluation.self_training.rounds import draw_samples
from revelator.errors import ConfigError, RevelatorError
from revelator.rows import stream_rows
from revelator.tasks import TASKS, TranslateInput
from serving.executor.executor import Executor
from serving.models.embedded import EmbeddedGenerator
from serving.models.engine import Engine
from serving.protocols import Completion
from serving.retrieval import Index
from serving.retrieval.index import LocalRetriever
from tests.training.toy import write_set

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


def settings(folder: Path, **changes: object) -> rounds.Settings:
    rows = [
        json.dumps({"id": str(n), "question": q, "answer": a})
        for n, (q, a) in enumerate(zip(PLANS, ANSWERS, strict=True))
    ]
    (folder / "mine.jsonl").write_text("\n".join(rows))
    values: dict[str, object] = {
        "questions": str(folder / "mine.jsonl"),
        "format": "pairs",
        "source": "mine",
        "licence": "CC0-1.0",
        "limit": 9,
        "seed": 1,
        "temperatures": (0.0, 0.5, 0.9),
        "least": 0.6,
        "coverage": 0.8,
        "held_out": None,
        "decoding": "grammar",
        "documents": 3,
        "model": "model-digest",
        "index": "index-digest",
    }
    return rounds.Settings(**{**values, **changes})  # type: ignore[arg-type]


def run_round(out: Path, given: rounds.Settings, index: Path | None, beside: SetConfig | None = None) -> dict:
    executor = Executor(Judge(), LocalRetriever(Index.open(index)), EmbeddedGenerator()) if index else None
    return rounds.run_round(out, given, write, executor, beside)


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


def ask(folder: Path, out: str, *options: str) -> Result:
    """A round by the embedded base alone over the questions of PLANS."""
    given = settings(folder)
    command = [given.questions, "--coverage", "0.5", "--agreement", "0", "--threads", "1", *options]
    return CliRunner().invoke(make_round, [*command, "--out", str(folder / out)])


def proposed(folder: Path) -> dict[str, list[str]]:
    rows = map(json.loads, (folder / "proposals.jsonl").read_text().splitlines())
    return {row["id"]: row["samples"] for row in rows}


def test_draws_of_a_batch_depend_on_its_place_and_the_seed_alone() -> None:
    engine = Engine("tiny", threads=1)
    prompts = [TASKS["translate_bnf"].render(TranslateInput(question)) for question in PLANS]
    draw = draw_samples(engine, (0.0, 2.0, 2.0), 1, "grammar")
    first = draw(prompts, 0)
    assert [len(texts) for texts in first] == [3] * 4
    assert first != draw(prompts, 32)
    assert first == draw(prompts, 0) == draw_samples(engine, (0.0, 2.0, 2.0), 1, "grammar")(prompts, 0)
    assert first != draw_samples(engine, (0.0, 2.0, 2.0), 2, "grammar")(prompts, 0)
    assert any(second != third for _, second, third in first)
    assert [texts[0] for texts in first] == [texts[0] for texts in draw(prompts, 32)]  # at temperature 0


def test_a_round_asks_a_sample_at_each_temperature_and_goes_on_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "BATCH", 1)
    options = ("--temperature", "0", "--temperature", "2")
    assert isinstance(ask(tmp_path, "straight", *options).exception, RevelatorError | None)  # it may keep none
    whole = (tmp_path / "straight/proposals.jsonl").read_bytes()
    samples = proposed(tmp_path / "straight")
    assert {len(texts) for texts in samples.values()} == {2} and len({*map(tuple, samples.values())}) == 4
    shutil.copytree(tmp_path / "straight", tmp_path / "again")
    (tmp_path / "again/proposals.jsonl").write_bytes(whole[: len(whole) // 2])
    ask(tmp_path, "again", *options)
    assert proposed(tmp_path / "again") == samples


def test_a_round_that_was_broken_off_anywhere_gives_the_same_set(index: Path, tmp_path: Path) -> None:
    given = settings(tmp_path)
    digest = run_round(tmp_path / "straight", given, index)["digest"]
    for name in ("proposals.jsonl", "executions.jsonl"):
        whole = (tmp_path / "straight" / name).read_bytes()
        for length in (0, len(whole) // 3, len(whole) - 2):
            out = tmp_path / f"{name}-{length}"
            rounds.begin_round(out, given)
            if name == "executions.jsonl":
                (out / "proposals.jsonl").write_bytes((tmp_path / "straight/proposals.jsonl").read_bytes())
            (out / name).write_bytes(whole[:length])
            assert run_round(out, given, index)["digest"] == digest
            assert sorted((out / name).read_bytes().splitlines()) == sorted(whole.splitlines())


def test_a_round_beside_a_set_adds_training_questions_and_repeats_none(index: Path, tmp_path: Path) -> None:
    own = [
        {"id": "own", "source": "own", "licence": "CC0-1.0", "split": "dev", "route": "complex", "question": question,
         "expression": plan, "answers": ["Port Velm"]} for question, plan in list(PLANS.items())[:1]
    ]  # fmt: skip
    (tmp_path / "own.jsonl").write_text("\n".join(map(json.dumps, own)))
    beside = SetConfig.model_validate(
        {"name": "own", "sources": [{"format": "world", "path": str(tmp_path / "own.jsonl")}]}
    )
    manifest = run_round(tmp_path / "round", settings(tmp_path), index, beside)
    assert manifest["dropped"]["question seen before"] == 1  # what is a dev question is not trained on
    assert manifest["records"]["train"] == 0 < manifest["records"]["dev"]


def test_held_out_questions_are_not_planned_and_another_model_makes_a_round_of_its_own(
    index: Path, tmp_path: Path
) -> None:
    first = next(iter(PLANS))
    (tmp_path / "held").write_text(f"{hash_question(first)}  mine\n")
    with pytest.raises(RevelatorError, match="no plan was kept"):
        run_round(tmp_path / "round", settings(tmp_path, held_out=str(tmp_path / "held")), index)
    ids = {json.loads(line)["id"] for line in (tmp_path / "round/proposals.jsonl").read_text().splitlines()}
    assert len(ids) == 3
    with pytest.raises(ConfigError, match="other settings"):
        rounds.begin_round(tmp_path / "round", settings(tmp_path, model="another"))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="no round"):
        rounds.begin_round(tmp_path / "mine", settings(tmp_path))


def test_the_gain_is_measured_on_dev_rows_and_written_into_the_card(
    index: Path, registered: Path, tmp_path: Path
) -> None:
    run_round(tmp_path / "round", settings(tmp_path), index)
    rows = write_set(tmp_path / "toy", train=1, dev=4)
    adapters = [str(registered / "adapters" / number) for number in "12"]
    arguments = [str(tmp_path / "round"), "--before", adapters[0], "--after", adapters[1], "--set", str(rows)]
    said = CliRunner().invoke(gain, [*arguments, "--limit", "2"], catch_exceptions=False).output
    found = json.loads((tmp_path / "round/round.json").read_text())["gain"]
    assert found["tasks"]["route"]["n"] == 2 and len(found["tasks"]["translate_bnf"]["scores"]["letters"]) == 2
    low, high = found["tasks"]["translate_bnf"]["intervals"]["letters"]
    before, after = found["tasks"]["translate_bnf"]["scores"]["letters"]
    assert low <= after - before <= high
    assert "translate_bnf" in said and "letters" in said and f"{after - before:+.3f}" in said
    ran = CliRunner().invoke(gain, [*arguments, "--source", "nowhere"])
    assert isinstance(ran.exception, ConfigError) and ran.exception.where == "--source"
    ran = CliRunner().invoke(gain, [str(tmp_path), *arguments[1:]])
    assert isinstance(ran.exception, ConfigError) and "no round" in ran.exception.message
