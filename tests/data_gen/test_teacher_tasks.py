"""What a teacher is asked for each task, and the compound questions that it writes, against a real server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from data_gen.annotate.validation import find_fault
from data_gen.questions import AnnotatedPassage, AnnotatedQuestion, AnnotatedStep
from data_gen.sources.rows import read_world
from data_gen.teacher import replies
from data_gen.teacher.chats import build_chat
from data_gen.teacher.config import CompoundConfig, TeachConfig
from data_gen.teacher.replies import SimpleQuestion
from revelator.cli import revelator
from revelator.config import read_config
from revelator.rows import SPLITS, Row, stream_rows
from revelator.tasks import TASKS
from revelator.tasks.chat_prompts import read_last_line
from tests.chat_server import Server, running
from tests.data_gen.toy_teacher import PROMPTS, Teacher

DOCUMENTS = {
    "Tin Comet": "Tin Comet is a film. Harrow Pictures distributed it.",
    "Harrow Pictures": "Harrow Pictures is a company. Ada Quill founded it.",
    "Quill": "A feather to write with.",
}
WHO = "Who founded the company that distributed Tin Comet?"
TWO = "When was Tin Comet shown, and who wrote it?"
ANSWERS = {"Who distributed Tin Comet?": "Harrow Pictures", "Who founded Harrow Pictures?": "Ada Quill"}


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def endpoint(server: Server) -> dict[str, Any]:
    return {
        "name": "taught",
        "endpoint": {"url": server.url, "model": "m", "concurrency": 3, "retries": 0},
        "sampling": {"samples": 1, "temperatures": [0.0]},
    }


def run(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    arguments = ["data", "build", str(folder / "config.yaml"), "--out", str(folder / "out"), "--json"]
    result = CliRunner().invoke(revelator, arguments, catch_exceptions=False)
    return json.loads(result.stdout)


def records(folder: Path) -> list[Row]:
    return [record for split in SPLITS for record in stream_rows(folder / "out/set", split)]


def annotated(folder: Path) -> list[AnnotatedQuestion]:
    return [row for row in read_world(folder / "out/questions.jsonl") if isinstance(row, AnnotatedQuestion)]


def row(question: str, answer: str, **more: Any) -> dict[str, Any]:
    passages = [{"title": title, "text": text, "relevant": False} for title, text in DOCUMENTS.items()]
    known = {"source": "mine", "licence": "CC0-1.0", "split": "train", "route": "complex"}
    return {"id": question, "question": question, "answers": [answer], "passages": passages, **known, **more}


def taught(server: Server, folder: Path, rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sources = [{"format": "world", "path": str(folder / "rows.jsonl")}]
    return run({"rows": "taught", **endpoint(server), "sources": sources, **changes}, folder)


ROUTES = {WHO: "complex", TWO: "compound", "What is 2 plus 2?": "straightforward", "Who wrote Tin Comet?": "single"}
PLAIN = {
    "route": lambda data, body: ROUTES[data["question"]],
    "translate_bnf": lambda data, body: "Who distributed Tin Comet? * Who founded {distributor}?",
    "decompose": lambda data, body: '["When was Tin Comet shown?", "Who wrote Tin Comet?"]',
    "relevance": lambda data, body: "No." if data["document"].startswith("Quill:") else "Yes.",
    "answer": lambda data, body: json.dumps([ANSWERS[data["question"]]] if data["question"] in ANSWERS else []),
}


def test_with_a_plan_the_steps_are_its_questions_answered_from_the_passages(server: Server, tmp_path: Path) -> None:
    Teacher(server, PLAIN)
    taught(server, tmp_path, [row(WHO, "Ada Quill")])
    [question] = annotated(tmp_path)
    assert question.steps == (
        AnnotatedStep("Who distributed Tin Comet?", ("Harrow Pictures",), "Tin Comet"),
        AnnotatedStep("Who founded Harrow Pictures?", ("Ada Quill",), "Harrow Pictures"),
    )
    assert {p.title for p in question.passages if p.relevant} == {"Tin Comet", "Harrow Pictures"}
    assert find_fault(question, 0.5) is None
    assert {r.task for r in records(tmp_path)} == {"route", "translate_bnf", "refine", "end", "relevance"}


def test_each_route_gets_what_its_tasks_need(server: Server, tmp_path: Path) -> None:
    Teacher(server, PLAIN)
    rows = [{**row(question, ""), "answers": [], "passages": []} for question in ROUTES]
    taught(server, tmp_path, rows)
    made = {(r.task, r.question): r.completion.strip() for r in records(tmp_path)}
    assert {question: made["route", question] for question in ROUTES} == ROUTES
    assert json.loads(made["decompose", TWO]) == ["When was Tin Comet shown?", "Who wrote Tin Comet?"]
    assert made["translate_bnf", "Who wrote Tin Comet?"] == "Who wrote Tin Comet?"
    assert ("translate_bnf", "What is 2 plus 2?") not in made


def test_queries_and_trees_are_written_in_canonical_text_or_dropped(server: Server, tmp_path: Path) -> None:
    steps = [
        {"question": "Who distributed Tin Comet?", "relate": {"head": "Tin Comet", "to": "distributor"}},
        {"question": "Who founded [1]?", "relate": {"head": "[1]", "to": "founder"}},
    ]
    tree = {"translate_art": lambda data, body: json.dumps({"question": data["question"], "children": steps})}
    Teacher(server, {**PLAIN, **tree})
    bare = {"passages": [], "answers": []}
    taught(server, tmp_path, [{**row(WHO, ""), **bare}], tasks=["translate_art"], route="complex")
    [record] = records(tmp_path)
    assert record.task == "translate_art" and record.agreement == "1.000"
    assert json.loads(json.loads(record.gold))["children"] == steps
    topics = {
        "translate_logic": lambda data, body: '("owls" AND (NOT "mice"))' if "owls" in data["question"] else '"x"'
    }
    Teacher(server, topics)
    asked = ["Papers on owls, but not on mice?", "Papers on bats?"]
    manifest = taught(
        server, tmp_path, [{**row(q, ""), **bare} for q in asked], tasks=["translate_logic"], route="single"
    )
    assert {json.loads(r.gold) for r in records(tmp_path)} == {'"owls" AND NOT "mice"'}
    assert manifest["teaching"]["not kept, translate_logic: a term is not in the question"] == "1"


def test_supporting_facts_are_never_overruled(server: Server, tmp_path: Path) -> None:
    Teacher(server, {**PLAIN, "relevance": lambda data, body: "yes"})
    passages = [{"title": t, "text": d, "relevant": t != "Quill"} for t, d in DOCUMENTS.items()]
    taught(server, tmp_path, [row(WHO, "Ada Quill", passages=passages)], route="complex")
    [question] = annotated(tmp_path)
    assert {p.title: p.relevant for p in question.passages} == {"Tin Comet": True, "Harrow Pictures": True}


def test_each_prompt_shows_examples_in_its_own_form() -> None:
    for name in PROMPTS:
        outputs = [message["content"] for message in build_chat(name, {}) if message["role"] == "assistant"]
        assert len(outputs) > 1 and all(read_last_line(output) == output for output in outputs), name
        for output in outputs if name in TASKS else ():
            TASKS[name].parse(output)


def test_the_examples_of_our_own_prompts_would_be_kept() -> None:
    for prompt in ("answer", "simple", "combine"):
        *chat, _ = build_chat(prompt, {})
        for asked, replied in zip(chat[1::2], chat[2::2], strict=True):
            data = json.loads(asked["content"].removeprefix("<data>\n").removesuffix("\n</data>"))
            line = replied["content"]
            match prompt:
                case "answer" if line != "[]":
                    replies.read_answers([AnnotatedPassage(relevant=True, **d) for d in data["documents"]], line)
                case "simple":
                    made = replies.read_simple_questions(data["title"], data["text"], data["at_most"], line)
                    assert len(made) == data["at_most"]
                case "combine":
                    replies.read_combined(data["title"], [SimpleQuestion(q, "?") for q in data["questions"]], line)


TOPICS = 40


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = [
        {"id": str(n), "title": f"Orn{n} Fell", "text": f"Orn{n} Fell is a hill in Norland {n}. Its height is {n} m. "
         f"Mila Tross {n} climbed it first. It is made of slate {n}."} for n in range(TOPICS)
    ]  # fmt: skip
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def simple(data: dict[str, Any], body: dict[str, Any]) -> str:
    title = data["title"]
    n = re.findall(r"\d+", title)[0]
    pairs = [
        (f"In which country is {title}?", f"Norland {n}"),
        (f"How high is {title}?", f"{n} m"),
        (f"Who climbed {title} first?", f"Mila Tross {n}"),
        (f"What is {title} made of?", f"slate {n}"),
        (f"Who owns {title}?", "Nobody"),  # stands in no document
        ("How old is it?", "hill"),  # names no title
    ]
    return json.dumps([{"question": q, "answer": a} for q, a in pairs])


def combine(data: dict[str, Any], body: dict[str, Any]) -> str:
    return ", and ".join(question.rstrip("?") for question in data["questions"]) + "?"


def compounds(server: Server, corpus: Path, sizes: dict[str, int], **changes: Any) -> dict[str, Any]:
    about = {"corpus": str(corpus), "licence": "CC0-1.0", "sizes": sizes, **changes}
    return run({"rows": "compound", **endpoint(server), **about}, corpus.parent)


def test_compound_questions_come_in_any_size_and_no_two_splits_share_a_title(
    server: Server, corpus: Path, tmp_path: Path
) -> None:
    teacher = Teacher(server, {"simple": simple, "combine": combine})
    digest = compounds(server, corpus, {"train": 6, "dev": 3, "test": 2})["digest"]
    assert len(teacher.answered) == 11 * 2  # for no title more than were wanted
    assert compounds(server, corpus, {"train": 6, "dev": 3, "test": 2})["digest"] == digest
    assert len(teacher.answered) == 11 * 2
    made = annotated(tmp_path)
    assert [sum(q.split == split for q in made) for split in SPLITS] == [6, 3, 2]
    topics = {split: {q.entities[0] for q in made if q.split == split} for split in SPLITS}
    assert len(set.union(*topics.values())) == 11
    for question in made:
        assert find_fault(question, 0.5) is None
        assert all(question.entities[0] in part for part in question.parts)
        assert all(step.answers[0] in question.passages[0].text for step in question.steps)
        assert not any("owns" in part or "old" in part for part in question.parts)
    assert {len(question.parts) for question in made} == {2, 3, 4}
    decomposed = [r for r in records(tmp_path) if r.task == "decompose"]
    assert {tuple(json.loads(r.gold)) for r in decomposed} == {q.parts for q in made}
    assert {r.label for r in records(tmp_path) if r.task == "route"} == {"compound"}


def test_titles_of_one_name_stay_in_one_split_and_too_few_titles_are_said(
    server: Server, tmp_path: Path, corpus: Path
) -> None:
    Teacher(server, {"simple": simple, "combine": combine})
    twins = [{"title": f"Orn{n} Fell{kind}", "text": f"It is in Norland {n}. Its height is {n} m."}
             for n in range(8) for kind in ("", " (hill)", " (song)")]  # fmt: skip
    corpus.write_text("\n".join(map(json.dumps, twins)))
    manifest = compounds(server, corpus, {"train": 20, "dev": 20, "test": 20})
    splits: dict[str, set[str]] = {}
    for question in annotated(tmp_path):
        splits.setdefault(question.entities[0], set()).add(question.split)
    assert splits and all(len(own) == 1 for own in splits.values())
    assert sum(manifest["records"].values()) > 0


def test_a_compound_question_that_leaves_a_part_out_or_gives_an_answer_away_is_dropped(
    server: Server, corpus: Path
) -> None:
    def bad(data: dict[str, Any], body: dict[str, Any]) -> str:
        first, n = data["questions"][0], int(re.findall(r"\d+", data["title"])[0])
        forms = [first, f"{combine(data, body)} Mila Tross {n}", "How high is the hill?", combine(data, body)]
        return forms[n % 4]

    Teacher(server, {"simple": simple, "combine": bad})
    manifest = compounds(server, corpus, {"train": 8})
    reasons = " ".join(manifest["teaching"])
    for reason in ("leaves a part out", "gives an answer away", "does not name the title"):
        assert reason in reasons


def test_the_shipped_configurations_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REVELATOR_DATA", "/data")
    folder = Path(__file__).parents[2] / "data_gen/configs/teacher"
    assert read_config(folder / "teach.yaml", TeachConfig).tasks == ("translate_bnf",)
    assert dict(read_config(folder / "compound.yaml", CompoundConfig).sizes) == {
        "train": 50_000, "dev": 8_000, "test": 2_000}  # fmt: skip
