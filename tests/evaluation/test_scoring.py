"""Scores by task, from completions that are known in advance."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from evaluation.gate.scores import Scores, grade_rows, read_pinned_rows, score_row, score_tasks
from evaluation.metrics.plans import PLAN_SCORES
from revelator.rows import Row, read_split
from revelator.tasks import TASKS, QuestionInput
from serving.models.engine import GeneratedText
from tests.training.toy import toy_row, write_set


class Recited:
    """An engine that recites: a text for each prompt, a probability of 0.9 for the label that it names."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def judge_labels(
        self, prompts: Sequence[str], labels: Sequence[str], *_: object, **__: object
    ) -> list[dict[str, float]]:
        rest = 0.1 / (len(labels) - 1)
        return [{label: 0.9 if label == self.answers[p] else rest for label in labels} for p in prompts]

    def find_probabilities(self, prompts: Sequence[str], output: str, *_: object) -> list[float]:
        return [float(self.answers[prompt] == output) for prompt in prompts]

    def generate(self, prompts: Sequence[str], *_: object) -> list[GeneratedText]:
        return [GeneratedText(self.answers[prompt], 1) for prompt in prompts]

    def search_beams(self, prompts: Sequence[str], *_: object) -> list[list[GeneratedText]]:
        return [[GeneratedText(self.answers[prompt], 1, probability=1.0)] for prompt in prompts]

    def count_tokens(self, prompts: Sequence[str]) -> list[int]:
        return [len(prompt) for prompt in prompts]


def score(engine: Recited, rows: Sequence[Row]) -> Scores:
    return score_tasks(grade_rows(engine, rows))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder: Path = write_set(tmp_path_factory.mktemp("set") / "toy", train=1, dev=20)
    assert {len([r for r in read_pinned_rows(folder, "dev", 5) if r.task == task]) for task in TASKS} == {5}
    return read_split(folder, "dev")


def test_gold_completions_score_one_everywhere(rows: list[Row]) -> None:
    scores = score(Recited({row.prompt: row.completion.strip() for row in rows}), rows)
    assert set(scores) == set(TASKS)
    for task, own in scores.items():
        assert own.n == 20 and set(own.scores.values()) == {1.0}, task
        assert len(own.ids) == 20 and all(len(values) == 20 for values in own.values.values())


def test_text_that_no_task_can_read_scores_zero_and_stops_nothing(rows: list[Row]) -> None:
    written = [row for row in rows if not TASKS[row.task].labels]
    scores = score(Recited({row.prompt: '["( * +' for row in written}), written)
    assert {task: own.deciding for task, own in scores.items()} == dict.fromkeys(
        ("decompose", "read", "refine", "rewrite", "translate_art", "translate_bnf", "translate_logic"), 0
    )


def test_a_constant_answer_has_the_accuracy_of_its_share_and_an_auc_of_one_half(rows: list[Row]) -> None:
    judged = [row for row in rows if row.task == "end"]
    own = score(Recited({row.prompt: "yes" for row in judged}), judged)["end"]
    assert own.scores["accuracy"] == pytest.approx(sum(row.label == "yes" for row in judged) / len(judged))
    assert own.scores["auc"] == 0.5


def test_plans_are_scored_by_shape_apart_from_arguments_names_and_words() -> None:
    gold = "Who runs Obra Vale? * Where was {mayor} born?"
    prompt = TASKS["translate_bnf"].render(QuestionInput("Where was the mayor of Obra Vale born?"))
    row = toy_row(
        id="1",
        task="translate_bnf",
        prompt=prompt,
        completion=f" {gold}",
        gold=json.dumps(gold),
        entities='["Obra Vale"]',
    )
    for text, expected in {
        "Who leads Obra Vale? * Where is {leader} from?": (1, 1, 1, 1, 0, 1, 1),
        "Who leads it? * Where is {leader} from?": (1, 1, 1, 1, 0, 0, 0),
        "Who leads Obra Vale? + Where is it?": (1, 0, 1, 1, 0, 0, 1),
        "Who leads it? * Where is it?": (0, 1, 1, 1, 0, 0, 0),
    }.items():
        assert score_row(row, text) == dict(zip(PLAN_SCORES, expected, strict=True))
    served = score(Recited({prompt: "Who leads it? * Where is it?"}), [row])["translate_bnf"].scores
    assert served["valid"] == 0, "the question stands in for a plan that cannot run, and is no plan of the model's"


def test_queries_are_scored_by_their_truth_table_over_normalised_terms() -> None:
    gold = '"the River Orn" AND NOT ("kilns" AND "salt")'
    prompt = TASKS["translate_logic"].render(QuestionInput("the River Orn, but not both kilns and salt"))
    row = toy_row(id="1", task="translate_logic", prompt=prompt, completion=f" {gold}", gold=json.dumps(gold))
    for text, expected in {
        gold: {"valid": 1, "truth": 1, "exact": 1},
        '(NOT "Salt" OR NOT "Kilns") AND "river Orn"': {"valid": 1, "truth": 1, "exact": 0},
        '"the River Orn" AND NOT "kilns" AND NOT "salt"': {"valid": 1, "truth": 0, "exact": 0},
        '"the River Orn" AND NOT ("kilns" AND "salts")': {"valid": 1, "truth": 0, "exact": 0},
        '"the River Orn" AND NOT "the River Orn"': {"valid": 0, "truth": 0, "exact": 0},
        '"the River Orn" AND': {"valid": 0, "truth": 0, "exact": 0},
    }.items():
        assert score_row(row, text) == expected, text


def test_parts_count_in_any_order_and_without_regard_to_case_and_articles(rows: list[Row]) -> None:
    row = next(row for row in rows if row.task == "decompose")
    turned = json.dumps([part.upper() for part in reversed(json.loads(row.gold))])
    assert score(Recited({row.prompt: turned}), [row])["decompose"].scores == {"equal": 1.0}


@pytest.mark.parametrize(
    ("gold", "text", "expected"),
    [
        ("Una Vard", "the Una Vard", {"f1": 1, "em": 1, "answerable": 1}),
        ("Una Vard", "Una", {"f1": pytest.approx(2 / 3), "em": 0, "answerable": 1}),
        ("Una Vard", "unanswerable", {"f1": 0, "em": 0, "answerable": 0}),
        ("no", "no answer", {"f1": 0, "em": 0, "answerable": 1}),
        ("unanswerable", "unanswerable", {"f1": 1, "em": 1, "answerable": 1}),
        ("unanswerable", "Una", {"f1": 0, "em": 0, "answerable": 0}),
        ('["Una", "Orn"]', '["Una", "Orn"]', {"f1": 1, "em": 1, "answerable": 1}),
        ('["Una", "Orn"]', '["Una"', {"f1": 0, "em": 0, "answerable": 0}),
    ],
)
def test_what_is_read_is_scored_by_its_words_and_by_whether_there_is_an_answer(
    gold: str, text: str, expected: dict[str, float]
) -> None:
    assert score_row(toy_row(task="read", gold=json.dumps(gold)), text) == expected
