"""Every source in the forms in which copies of it are published; the rows are invented."""

from __future__ import annotations

import csv
import functools
import http.server
import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_gen.build import build
from data_gen.config import Format, SetConfig
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.formats import READERS
from data_gen.sources.rows import ReadResult, RefusedRow, SkippedRow
from revelator.errors import DataError
from tests.data_gen.conftest import MUSIQUE, TWO_WIKI
from tests.data_gen.published import ANNOTATED, ROWS, VALUES, places, put
from tests.loopback import serving

HOTPOT = ROWS["hotpotqa"]


def one(format: str, path: Path | str) -> AnnotatedQuestion:
    [outcome] = READERS[format](path)
    assert isinstance(outcome, AnnotatedQuestion), outcome
    return outcome


def test_every_format_of_the_configuration_has_a_reader() -> None:
    others = {"logic", "reading"}  # logical queries are drawn from a corpus, rows for reading have splits by article
    assert {*READERS, *others} == set(get_args(Format))


def test_hotpotqa_gives_a_complex_question_without_a_plan_and_the_relevance_of_its_paragraphs(write) -> None:
    question = one("hotpotqa", write("h.json", [HOTPOT]))
    assert (question.route, question.expression, question.steps) == ("complex", "", ())
    assert question.answers == ("yes",) and question.id == "hotpotqa:h1"
    assert [(p.title, p.relevant) for p in question.passages] == [("Orn", True), ("Sedge", True), ("Marn", False)]
    assert question.passages[0].text == "Orn is a hill. It is old."


def test_hotpotqa_reads_alike_with_its_lists_written_out_or_turned_into_columns(write) -> None:
    facts, context = HOTPOT["supporting_facts"], HOTPOT["context"]
    written = {**HOTPOT, "supporting_facts": str(facts), "context": str(context)}
    columns = {
        **HOTPOT,
        "supporting_facts": {"title": [t for t, _ in facts], "sent_id": [i for _, i in facts]},
        "context": {"title": [t for t, _ in context], "sentences": [s for _, s in context]},
    }
    first, *others = [one("hotpotqa", write(f"{i}.json", [row])) for i, row in enumerate((HOTPOT, written, columns))]
    assert others == [first, first]


def test_hotpotqa_without_context_teaches_its_route(write) -> None:
    row = {"question": "Do Orn and Sedge lie in Marn?", "answer": "yes", "type": "comparison"}
    question = one("hotpotqa", write("h.jsonl", [row]))
    assert (question.route, question.passages) == ("complex", ())
    assert question.id == one("hotpotqa", write("again.jsonl", [{**row, "question": f" {row['question']} "}])).id


@pytest.mark.parametrize(
    ("format", "rows", "answers"),
    [
        ("nq", [{"question": "who leads orn", "answer": ["Una", "Una Vard"]}], ("Una", "Una Vard")),
        ("nq", [{"question": "who leads orn", "answer": "['Una', Una's aunt, 'Bo']"}], ("Una", "Una's aunt", "Bo")),
        ("webquestions", [{"question": "who leads orn", "answer": ["Una"]}], ("Una",)),
        (
            "webquestions",
            [
                {
                    "url": "http://x/orn",
                    "utterance": "who leads orn",
                    "targetValue": '(list (description "Una \\"U\\" Vard") (description Bo))',
                }
            ],
            ('Una "U" Vard', "Bo"),
        ),
        (
            "triviaqa",
            ['{"Version": 1, "Data": [{"QuestionId": "t", "Question": "who leads orn", "Answer": {"Value": "Una", '
             '"Aliases": ["U", "Una"], "NormalizedAliases": ["u"]}}], "Domain": "web"}'],
            ("Una", "U"),
        ),
        (
            "triviaqa",
            [{"question": "who leads orn", "answer": {"value": "Una", "aliases": ["U", "Una"]}}],
            ("Una", "U"),
        ),
        ("triviaqa", [{"question": "who leads orn", "answer": ["🚁", "Una V", "Una", "Old Una"]}],
         ("Una", "🚁", "Una V", "Old Una")),
        ("pairs", [{"question": "who leads orn", "answer": "Una"}], ("Una",)),
    ],
)  # fmt: skip
def test_single_step_questions_are_their_own_plan_and_step(
    write, format: str, rows: list[Any], answers: tuple[str, ...]
) -> None:
    question = one(format, write("rows.jsonl", rows))
    assert (question.route, question.expression, question.answers) == ("single", "who leads orn", answers)
    assert [(step.question, step.answers) for step in question.steps] == [("who leads orn", answers[:1])]


def test_a_question_that_looks_like_a_plan_is_quoted(write) -> None:
    question = one("pairs", write("p.jsonl", [{"question": "What is 1 + 1 (in {base})?", "answer": "10"}]))
    assert question.expression.startswith('"') and question.question == "What is 1 + 1 (in {base})?"


def test_squad_gives_each_question_its_paragraph_and_one_that_does_not_help(write) -> None:
    outcomes = list(READERS["squad"](write("s.json.gz", [ROWS["squad"]])))
    whole = {"version": "1.1", "data": [ROWS["squad"]]}
    nested = list(READERS["squad"](write("nested.jsonl", [json.dumps({"data": [ROWS["squad"]], "version": "1.1"})])))
    late = list(READERS["squad"](write("late.jsonl", [json.dumps(whole, indent=1)])))
    assert outcomes == nested == late and [outcome.id for outcome in outcomes] == ["squad:s1", "squad:s2"]
    first = outcomes[0]
    assert first.answers == ("Una Vard", "Una") and first.steps[0].title == "Orn Fell"
    assert [(p.text[:8], p.relevant) for p in first.passages] == [("Una Vard", True), ("The fell", False)]


@pytest.mark.parametrize(
    ("answers", "kind", "reason"),
    [([{"text": 7}], RefusedRow, "'answers' must be a text or a list of texts"), ([], SkippedRow, "does not say")],
)
def test_a_row_of_squad_without_an_answer_that_can_be_read_is_left_out(
    write, answers: list, kind: type, reason: str
) -> None:
    article = json.loads(json.dumps(ROWS["squad"]))
    article["paragraphs"][0]["qas"][0]["answers"] = answers
    left, kept = READERS["squad"](write("s.json", [article]))
    assert isinstance(left, kind) and reason in left.reason
    assert kept.id == "squad:s2"


def test_qed_gives_the_passage_and_the_one_of_the_row_before(write) -> None:
    answers = [[{"start": 0, "end": 2, "string": "Bo"}]]
    about = {"question_text": "who leads marn", "title_text": "Marn", "paragraph_text": "Bo leads Marn ."}
    second = {**ROWS["qed"], "example_id": 2, **about, "original_nq_answers": answers}
    first, other = READERS["qed"](write("q.jsonl", [ROWS["qed"], second]))
    assert [(p.title, p.relevant) for p in first.passages] == [("Orn", True)]
    assert [(p.title, p.relevant) for p in other.passages] == [("Marn", True), ("Orn", False)]
    assert other.steps[0].title == "Marn"


def test_commonsenseqa_is_straightforward_in_each_of_its_forms(write) -> None:
    flat = ROWS["commonsenseqa"]
    hub = {**flat, "choices": {"label": ["A", "B"], "text": ["cup", "sieve"]}}
    published = {"id": "c1", "answerKey": "A", "question": {"stem": flat["question"], "choices": flat["choices"]}}
    question, *others = [
        one("commonsenseqa", write(f"{i}.jsonl", [row])) for i, row in enumerate((flat, hub, published))
    ]
    assert others == [question, question]
    assert (question.route, question.answers, question.expression) == ("straightforward", ("cup",), "")


def test_break_gives_the_plans_of_its_filters_without_steps(write) -> None:
    single = {**ROWS["qdmr"], "decomposition": "return orn ;return towns of #1", "operators": "['select', 'project']"}
    picture = {**ROWS["break"], "question_id": "NLVR2_dev_1"}
    plan, *left = READERS["break"](write("b.jsonl", [ROWS["break"], single, ROWS["qdmr"], picture]))
    assert plan.expression == "What are the towns of orn? * Which of {1*} have a mill by the river?"
    assert (plan.route, plan.steps, plan.id) == ("complex", (), "break:GEO_dev_1")
    assert left == [
        SkippedRow("SPIDER_dev_1", "no step keeps some of a list"),
        SkippedRow("SPIDER_dev_1", "an operator that no source is asked for"),
        SkippedRow("NLVR2_dev_1", "a statement about two pictures, no question"),
    ]


def test_qdmr_gives_plans_that_number_their_steps_and_end_in_operations(write) -> None:
    single = {**ROWS["qdmr"], "decomposition": "return orn ;return towns of #1", "operators": "['select', 'project']"}
    short = {**ROWS["qdmr"], "question_id": "SPIDER_dev_3", "operators": "['select']"}
    plan, *left = READERS["qdmr"](write("b.jsonl", [ROWS["qdmr"], {**single, "question_id": "SPIDER_dev_2"}, short]))
    assert plan.expression == "What are the towns of orn? * (What are the mills of {1}? => count) => argmax {1}"
    assert (plan.route, plan.steps, plan.id) == ("complex", (), "qdmr:SPIDER_dev_1")
    assert left == [
        SkippedRow("SPIDER_dev_2", "a plan of one step, which says the question again"),
        SkippedRow("SPIDER_dev_3", "a decomposition whose operators are not one a step"),
    ]


def test_what_gives_no_plan_is_counted_by_reason_and_listed_in_the_card(tmp_path: Path) -> None:
    told = {
        **ROWS["break"],
        "question_id": "GEO_dev_3",
        "decomposition": "return the towns ;return #5 that have a mill",
    }
    pictures = [{**ROWS["break"], "question_id": f"NLVR2_dev_{n}"} for n in range(2)]
    path = tmp_path / "b.jsonl"
    path.write_text("\n".join(map(json.dumps, [ROWS["break"], *pictures, told])))
    config = SetConfig.model_validate({"name": "b", "sources": [{"format": "break", "path": str(path)}]})
    dropped = build(config, tmp_path / "set")["dropped"]
    [refused] = [reason for reason in dropped if "pictures" not in reason]
    assert dropped == {"a statement about two pictures, no question": 2, refused: 1}
    card = (tmp_path / "set/README.md").read_text()
    assert all(reason in card for reason in dropped)


def test_break_is_read_from_its_published_csv(tmp_path: Path) -> None:
    path = tmp_path / "dev.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS["break"]))
        writer.writeheader()
        writer.writerow(ROWS["break"])
    assert one("break", path).route == "complex"


def test_strategyqa_gives_the_written_decomposition_as_a_plan(write) -> None:
    question = one("strategyqa", write("s.json", [ROWS["strategyqa"]]))
    parts = "(When did Orn Fell rise? + When was the Battle of Marn?)"
    assert question.expression == f"{parts} * Is {{2}} after {{1}}?"
    assert (question.route, question.answers, question.steps) == ("complex", ("yes",), ())
    [refused] = READERS["strategyqa"](write("t.json", [{**ROWS["strategyqa"], "answer": "yes"}]))
    assert refused.reason == "field 'answer' must be true or false, found 'yes'"


def test_one_own_pairs_are_read_from_csv_too_and_a_bad_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), ("Who leads\nOrn?", "Una"), ("Who?",), ("Why?", "")])
    good, short, empty = READERS["pairs"](path)
    assert isinstance(good, AnnotatedQuestion) and good.question == "Who leads Orn?" and good.answers == ("Una",)
    assert short == RefusedRow(str(path), 4, "1 fields do not match the header of 2 columns")
    assert isinstance(empty, RefusedRow) and (empty.line, "'answer' must be" in empty.reason) == (5, True)


def test_lines_arrays_csv_parquet_and_gzip_read_the_same(write, tmp_path: Path) -> None:
    rows = [{"question": f"who leads orn {i}", "answer": f"Una {i}"} for i in range(300)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.DictWriter(file, ["question", "answer"]).writerows([{"question": "question", "answer": "answer"}, *rows])
    files = [write(name, rows) for name in ("a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz")]
    files += [tmp_path / "rows.csv", tmp_path / "rows.parquet"]
    read = [list(READERS["pairs"](path)) for path in files]
    assert len(read[0]) == 300 and all(other == read[0] for other in read)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=tmp_path)
    with serving(http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}"


def test_a_file_is_read_from_its_address(write, address: str, tmp_path: Path) -> None:
    path = write("rows.jsonl.gz", [{"question": "who leads orn", "answer": "Una"}])
    assert list(READERS["nq"](f"{address}/{path.name}")) == list(READERS["nq"](path))
    with pytest.raises(DataError) as caught:
        list(READERS["nq"](f"{address}/none.jsonl"))
    assert caught.value.where == f"{address}/none.jsonl" and caught.value.hint


def test_a_data_set_on_the_hub_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    place = "hf://datasets/no-such-owner/no-such-set?split=train"
    with pytest.raises(DataError, match="cannot be read") as caught:
        list(READERS["nq"](place))
    assert caught.value.where == place and "fetch the data and give its path" in caught.value.hint


def test_an_unknown_word_after_the_question_mark_is_named() -> None:
    with pytest.raises(DataError, match="unknown part"):
        list(READERS["nq"]("hf://datasets/owner/name?part=train"))


def test_a_folder_is_no_file_of_questions(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="Is a directory") as caught:
        list(READERS["nq"](tmp_path))
    assert caught.value.where == str(tmp_path) and caught.value.hint == "give one of its files"


def test_json_lines_of_any_number_are_read_in_flat_memory(tmp_path: Path) -> None:
    def peak(count: int) -> int:
        text = "who leads the town of orn in the hills of marn and sedge " * 4
        rows = (json.dumps({"question": f"{text}{i}", "answer": "Una"}) + "\n" for i in range(count))
        path = tmp_path / f"{count}.jsonl"
        path.write_text("".join(rows))
        tracemalloc.start()
        assert sum(1 for _ in READERS["nq"](path)) == count
        highest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return highest

    many, few = (min(peak(count) for _ in range(3)) for count in (1_500, 500))  # other threads allocate, too
    assert many < 1.5 * few


SPOILED = {**ROWS, "musique": MUSIQUE[0], "2wiki": TWO_WIKI[0], "world": ANNOTATED}


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_value_in_any_field_stops_the_reading(write, data: st.DataObject) -> None:
    format, row = data.draw(st.sampled_from(sorted(SPOILED.items(), key=str)))
    changed = put(row, data.draw(st.sampled_from(places(row))), data.draw(VALUES))
    outcomes: list[ReadResult] = list(READERS[format](write("rows.jsonl", [row, changed])))
    for outcome in outcomes:
        if isinstance(outcome, AnnotatedQuestion):
            json.dumps(outcome.to_json(), ensure_ascii=False).encode()
            assert outcome.question.strip() and all(isinstance(answer, str) for answer in outcome.answers)


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("Context", "str", "must be a list"),
        ("Context", ["Who?"], "questions and answers in turn"),
        ("Question", "\ud800", "half a surrogate pair"),
        ("Turn_no", [1], "must be numbers"),
        ("Rewrite", " ", "'Rewrite' must be a non-empty text"),
    ],
)
def test_a_damaged_message_is_refused_with_its_reason(write, field: str, value: Any, reason: str) -> None:
    [outcome] = READERS["qrecc"](write("q.jsonl", [ROWS["qrecc"] | {field: value}]))
    assert isinstance(outcome, RefusedRow) and reason in outcome.reason


@pytest.mark.parametrize("form", ["published", "Tensorflow's", "of the shared task"])
def test_a_message_of_a_conversation_has_what_was_asked_before_and_what_it_means(write, form: str) -> None:
    other = {"Rewrite": "question_rewrite", "Conversation_no": "conversation_id", "Turn_no": "turn_id"}
    names = {"Tensorflow's": other, "of the shared task": {"Rewrite": "Truth_rewrite"}}.get(form, {})
    row = {names.get(name, name if form != "Tensorflow's" else name.lower()): v for name, v in ROWS["qrecc"].items()}
    question = one("qrecc", write("q.json", [row]))
    assert (question.id, question.message) == ("qrecc:7-2", "Since when?")
    assert question.question == "Since when has Una Vard led Orn Fell?" and question.tasks == ("rewrite",)
    assert [(step.question, step.answers) for step in question.history] == [("Who leads Orn Fell?", ("Una Vard",))]
