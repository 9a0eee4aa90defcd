"""The logical benchmark: its templates, its measure, and that labels are what the documents were made from."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from data_gen.sources.logic_questions import (
    fill_template,
    list_templates,
)
from evaluation.harness.corpus_cases import make_corpus_cases, read_beir_cases
from evaluation.harness.folder import read_metrics, read_questions, read_run
from evaluation.harness.ranking import write_query
from evaluation.run import evaluate
from revelator.errors import DataError
from revelator.files import write_json
from revelator.plans.logic import check, count_negations, holds, list_terms
from tests.chat_server import running, says
from tests.planner_server import Planner
from tests.serving.retrieval.toy_encoder import write_encoder


def test_there_are_32_templates_by_number_of_negations_4_12_12_4() -> None:
    queries = [fill_template(template, ("a", "b", "c")) for template in list_templates()]
    assert len(set(queries)) == 32
    assert Counter(map(count_negations, queries)) == {0: 4, 1: 12, 2: 12, 3: 4}
    assert all(check(query) == () for query in queries)


def test_a_query_is_asked_in_words() -> None:
    query = fill_template("{0} AND NOT {1} OR {2}", ("rain", "snow", "hail"))
    assert write_query(query) == "documents about rain and not about snow, or about hail"


def write_corpus(folder: Path) -> Path:
    """342 documents, each called by two words, that name three others each."""
    firsts = (
        "amber birch cedar dune ember fjord grove heath islet jade kelp loam marsh north oasis pine quartz reed slate"
    )
    lasts = "bell crown drum eagle fiddle gate harp iron judge kite loom mast needle oar plough quill rope sail tower"
    titles = [f"{first} {last}".title() for first, last in itertools.product(firsts.split(), lasts.split())]
    draw = random.Random(5)
    rows = [{"title": title, "text": f"It is near {', '.join(draw.sample(titles, 3))}."} for title in titles]
    path = folder / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_documents_of_a_corpus_match_as_the_phrases_in_them_say(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    found = make_corpus_cases(path, 2, 1, (1, 2, 3))
    assert {len(list_terms(case.query)) for case in found.cases} == {1, 2, 3}
    assert len({case.id for case in found.cases}) == len(found.cases) > 50
    for case in found.cases:
        assert 0 < len(case.relevant) < len(case.pool) <= 6
        for place in case.pool:
            stated = {term: term in found.texts[place] for term in list_terms(case.query)}
            assert holds(case.query, stated) == (place in case.relevant)
    assert "documents about " in found.cases[0].question
    world = tmp_path / "world"
    world.mkdir()
    (world / "passages.jsonl").write_bytes(path.read_bytes())
    assert make_corpus_cases(world, 2, 1, (1, 2, 3)) == found, "a world's folder is a corpus"
    path.write_text(path.read_text().partition("\n")[0])
    with pytest.raises(DataError, match="no document is about several topics"):
        make_corpus_cases(path, 2, 1, (1, 2, 3))


def test_the_abstracts_of_scifact_are_texts(tmp_path: Path) -> None:
    path = write_corpus(tmp_path)
    found = make_corpus_cases(path, 2, 1, (1, 2, 3))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    said = [
        {"doc_id": str(n), "title": row["title"], "abstract": row["text"].split("\n")} for n, row in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in said))
    assert make_corpus_cases(path, 2, 1, (1, 2, 3)) == found


def write_beir(folder: Path) -> Path:
    """Three documents and two queries that exclude something, in the form of BEIR and of NegConstraint."""
    documents = {"d1": "A ferry leaves the pier.", "d2": "The ferry is in the harbour.", "d3": "The harbour is empty."}
    queries = {"q1": "Ferries, but not in a harbour", "q2": "Harbours without ferries"}
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = [json.dumps({"_id": id, "title": "", "text": text}) + "\n" for id, text in rows.items()]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    (folder / "qrels").mkdir(exist_ok=True)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\nq2\td3\t1\n")
    return folder


def test_a_data_set_in_beirs_form_is_read_with_its_judgements(tmp_path: Path) -> None:
    found = read_beir_cases(write_beir(tmp_path), "test")
    assert [(case.id, case.question, set(case.relevant)) for case in found.cases] == [
        ("beir:q1", "Ferries, but not in a harbour", {0}),
        ("beir:q2", "Harbours without ferries", {2}),
    ]
    assert all(case.pool == (0, 1, 2) for case in found.cases)
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td9\t1\n")
    with pytest.raises(DataError, match="document d9, of which one is not there") as error:
        read_beir_cases(tmp_path, "test")
    assert "test.tsv, line 2" in str(error.value)
    with pytest.raises(DataError, match="cannot be read"):
        read_beir_cases(tmp_path, "dev")


def test_a_run_ranks_a_corpus_by_terms_and_a_language_model_translates_the_queries_of_beir(tmp_path: Path) -> None:
    model = str(write_encoder(tmp_path / "encoder"))

    def run(
        name: str,
        benchmark: dict[str, object],
        labels: str = "phrase",
        way: str = "logical",
        queries: str = "gold",
        **more: object,
    ) -> Path:
        ranking = {"way": way, "per_template": 1, "terms": [2, 3], "model": model, "max_tokens": 0}
        ranking |= {"labels": labels, "queries": queries}
        write_json(tmp_path / f"{name}.yaml", {"benchmark": benchmark, "system": {"ranking": ranking}, **more})
        called = [str(tmp_path / f"{name}.yaml"), "--out", str(tmp_path / name)]
        CliRunner().invoke(evaluate, called, catch_exceptions=False)
        return tmp_path / name

    corpus = run("corpus", {"format": "itlr", "path": str(write_corpus(tmp_path)), "name": "own corpus"})
    groups = read_metrics(corpus)["groups"]
    assert {"2", "3"} == set(groups["terms"]) and {"1", "2"} <= set(groups["negations"])
    assert all(group["ndcg@10"]["n"] >= 5 for group in groups["terms"].values())
    assert read_run(corpus).benchmark["files"]
    with running() as server:
        Planner(server, relevance="yes")
        own = {"format": "itlr", "path": str(tmp_path / "corpus.jsonl"), "sample": 10}
        judged = read_questions(run("judged", own, "model", planner={"url": server.url, "model": "m"}))
        written = read_questions(run("written", own, queries="model", planner={"url": server.url, "model": "m"}))
    assert {row.gold_plan for row in written} == {'"ferry" AND NOT "harbour"'}
    assert [row.gold_titles for row in written] == [row.gold_titles for row in read_questions(corpus)][:10]
    assert [row.id for row in judged] == [row.id for row in read_questions(corpus)][:10]
    for row in judged:  # every document is about every term: all of a case match, or none does
        assert row.scores.get("ndcg@10", 1.0) == 1.0 and bool(row.gold_titles) == bool(row.scores)
    assert any(row.scores for row in judged) and not all(row.scores for row in judged)
    with running() as server:
        Planner(server)
        beir = run(
            "beir", {"format": "beir", "path": str(write_beir(tmp_path))}, planner={"url": server.url, "model": "m"}
        )
    rows = read_questions(beir)
    assert {row.gold_plan for row in rows} == {'"ferry" AND NOT "harbour"'} and len(rows) == 2
    assert {(row.terms, row.negations) for row in rows} == {(2, 1)}
    assert read_run(beir).adapter["planner"].startswith("m at ")
    with running() as server:
        server.replies = [says("A ferry leaves the pier.")]
        generator = {"url": server.url, "model": "m"}
        bright = run("bright", {"format": "beir", "path": str(tmp_path)}, way="bright", generator=generator)
    rows = read_questions(bright)
    assert sorted(row.question for row in rows) == sorted(
        json.loads(request["messages"][0]["content"].partition("JSON string: ")[2].partition("\n")[0])
        for request in server.requests
    )
    assert all(row.retrieved[0] == "A ferry leaves the pier." for row in rows), "the reasoning is what is searched with"
    assert {(row.cost.tokens_in, row.cost.tokens_out, row.cost.generator_calls) for row in rows} == {(31, 7, 1)}
    assert read_run(bright).generator.startswith("m at ")
