"""The page of results: every figure comes from the rows, with its n and its interval."""

from __future__ import annotations

from dataclasses import replace

from evaluation.adapters.predictions import LabelRow, PlanRow, TextRow
from evaluation.chains.answers import AnswerRow
from evaluation.chains.results import Measured, page_text
from evaluation.retrieval.recall import Retrieved

RIGHT = dict.fromkeys(("valid", "letters", "leaves", "arguments", "names"), True) | {"exact": False, "bound": False}
WRONG = RIGHT | {"letters": False, "arguments": False}

TEXTS = [
    TextRow(f"q{i}/translate_art/0", "translate_art", "musique", f"q{i}", "?", "{}", "{}", i > 0, 30, 90)
    for i in range(4)
]


def plan(number: int, **score: bool) -> PlanRow:
    about = {"group": f"q{number}", "question": "?", "shape": "A * B", "gold": "a * {b}", "output": "a * {b}"}
    return PlanRow(id=f"q{number}/translate_bnf/0", source="musique", **about, **score, tokens_in=30, tokens_out=12)


def found(number: int, present: tuple[str, ...], leaves: tuple[tuple[str, ...], ...]) -> Retrieved:
    return Retrieved(f"q{number}", "musique", ("Arno", "Belt"), present, present[:1], ("Arno", "Cove"), leaves)


def answer(number: int, em: float) -> AnswerRow:
    about = {"route": "complex", "plan": "a * {b}", "answer": "Lima", "outcome": "complete", "tokens_in": 200 + number}
    return AnswerRow(f"q{number}", "musique", "?", ("Lima",), em=em, acc=em, f1=em, **about)


def measured() -> Measured:
    gold = [
        found(0, ("Arno", "Belt"), (("Arno",), ("Belt", "Cove"))),
        found(1, ("Arno", "Belt"), (("Cove", "Arno"), ("Cove",))),
        found(2, ("Arno",), ((), ())),
        found(3, (), ((), ())),
    ]
    labels = [
        LabelRow(f"q{i}/end/{i}", "end", "musique", f"q{i}", "yes" if i else "no", "yes", 0.1 * i) for i in range(4)
    ]
    plans = [plan(0, **RIGHT), plan(1, **RIGHT), plan(2, **RIGHT), plan(3, **WRONG)]
    answers = [
        answer(0, 1.0),
        answer(1, 0.0),
        answer(2, 0.0),
        replace(answer(3, 0.0), error="InvalidRequest: too long"),
    ]
    return Measured(
        plans, labels, TEXTS, gold, gold[:2], answers, {"Command": "`revelator real`", "Machine": "two cores"}
    )


def row_of(page: str, *starts: str) -> list[str]:
    [line] = [line for line in page.splitlines() if line.startswith("| " + " | ".join(starts))]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_plans_show_their_count_and_shares_with_intervals() -> None:
    _, n, valid, letters, leaves, _, _, exact = row_of(page_text(measured()), "MuSiQue, multi-hop")
    assert (n, valid, leaves) == ("4", "1.000 [1.000, 1.000]", "1.000 [1.000, 1.000]")
    assert letters.startswith("0.750 [")
    assert exact.startswith("0.000 [")


def test_labels_stand_beside_the_commonest_label_and_the_area_under_the_curve() -> None:
    assert row_of(page_text(measured()), "MuSiQue", "end")[2:] == [
        "4",
        "0.750 [0.250, 1.000]",
        "0.750 (`yes`)",
        "1.000",
    ]


def test_coverage_tells_the_encyclopedia_from_the_sets_own_passages() -> None:
    page = page_text(measured())
    assert row_of(page, "MuSiQue", "Wikipedia's introductions alone")[3][:5] == "0.375"
    _, _, n, titles, whole, none = row_of(page, "MuSiQue", "with the sets' passages")
    assert (n, titles[:5], whole[:5], none[:5]) == ("4", "0.625", "0.500", "0.250")


def test_recall_counts_only_questions_whose_gold_titles_are_all_in_the_index() -> None:
    page = page_text(measured())
    assert [cell[:5] for cell in row_of(page, "MuSiQue", "whole question |")[2:]] == ["2", "0.500", "0.500", "0.500"]
    assert [cell[:5] for cell in row_of(page, "MuSiQue", "gold steps")[2:]] == ["2", "0.500", "0.750", "0.750"]


def test_answers_name_their_normaliser_and_are_split_by_coverage() -> None:
    page = page_text(measured())
    assert row_of(page, "MuSiQue", "musique", "all |")[3:5] == ["4", "0.250 [0.000, 0.750]"]
    assert row_of(page, "MuSiQue", "musique", "all gold titles")[3:5] == ["2", "0.500 [0.000, 1.000]"]


def test_costs_leave_out_refused_questions_and_reasons_count_them() -> None:
    page = page_text(measured())
    assert row_of(page, "model tokens in")[1] == "201.0 [200.0, 202.0]"
    assert row_of(page, "the server refused")[1][:5] == "0.250"


def test_a_set_that_was_not_measured_is_said_to_have_no_rows() -> None:
    page = page_text(measured())
    assert "no rows" in page
    assert "nan" not in page
    assert "$" not in page


def test_each_target_stands_beside_what_was_reached() -> None:
    page = page_text(measured())
    found = row_of(page, "translate art", "all")
    assert found[2:7] == ["same operators and references", "–", "≥ 0.85", "0.750", "4"]
    assert row_of(page, "translate bnf", "MuSiQue", "letters")[4:6] == ["≥ 0.95", "0.750"]
    assert row_of(page, "end", "all")[4:6] == ["≥ 0.95", "0.750"]
    assert "decompose" not in page.partition("## Plans")[0]  # no rows, no line
