"""Logical queries scored by how their question is worded."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from tokenizers import Tokenizer

from data_gen.build import build
from data_gen.config import SetConfig
from evaluation.logic_translation.translation import answers, of_set, section, table, written
from revelator.artifact import EMBEDDED_BASE
from revelator.plans.logic import Term, check, render, terms
from revelator.tasks import TASKS
from tests.evaluation.test_scoring import Recited


def test_questions_that_were_written_one_by_one_have_queries_of_their_own_words() -> None:
    asked = written()
    assert len({row.prompt for row in asked}) == len(asked) >= 50
    for row in asked:
        assert check(row.gold) == ()
        assert all(term.casefold() in row.prompt.casefold() for term in terms(row.gold)), row.prompt


def test_a_term_that_is_learnt_has_the_tokens_that_it_has_in_the_question() -> None:
    tokenizer = Tokenizer.from_file(str(EMBEDDED_BASE / "tokenizer.json"))
    for row in written():
        question = " ".join(tokenizer.encode(row.prompt).tokens)
        for term in terms(row.gold):
            if f" {term}" in row.prompt:  # not at its start, and in the same case
                spelt = tokenizer.encode(TASKS["translate_logic"].completion(Term(term))).tokens
                assert " ".join(spelt[1:-1]) in question, term


def test_a_set_is_scored_in_parts_of_at_most_so_many_questions(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    made = itertools.product(
        "BDFGHJKLMNPRSTVZ", ("alo", "emi", "oru", "ika"), ("bes", "dan", "lim", "tor", "vek", "zud")
    )
    rows = [{"title": "".join(name)} for name in itertools.islice(made, 384)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    source = {"format": "logic", "path": str(corpus), "size": 300, "tasks": ["translate_logic"]}
    build(SetConfig.model_validate({"name": "l", "sources": [source], "split": {"dev": 0.5}}), tmp_path / "set")
    asked = list(of_set(tmp_path / "set", "dev", 5))
    parts = {row.part for row in asked}
    assert parts == {"1-2 terms", "3 terms, 32 templates", "4-6 terms", "held-out wordings"} and len(asked) == 20
    engine = Recited({row.prompt: render(row.gold) for row in asked[:-1]} | {asked[-1].prompt: '"else"'})
    scored = list(answers(engine, asked))  # type: ignore[arg-type]
    assert [score.truth for *_, score in scored] == [True] * 19 + [False]
    assert table({"all": [score for *_, score in scored]}).row_count == 1
    by_part = {row.part: [score] for row, _, score in scored}
    page = section(by_part, {"adapter": "", "set": "ab"})
    assert page.startswith("`python -m evaluation.logic_translation") and ": set `ab`; " in page
    wanted = {line.split(" | ")[1]: line.split(" | ")[4] for line in page.splitlines() if "same truth table" in line}
    assert wanted == dict.fromkeys(parts, "≥ 0.95") | {"held-out wordings": "reported"}
