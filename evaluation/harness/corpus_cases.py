"""Cases of logical retrieval over real documents: ITLR's templates over the topics of a corpus, and data sets in BEIR's
form (NegConstraint: Xu et al. 2025, whose queries exclude something).

Topics are the titles of a corpus, and the phrases and kinds that they name (`data_gen.sources.logic_topics`). A
document is about a topic if its title or text holds the topic's words in a row, whatever their case: labels by phrase.
One that says the same in other words counts as silent about it, so figures of one corpus compare systems, not corpora.
A model may judge the same documents in place of the phrases (`judge_cases`).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from data_gen.sources.logic_questions import Truth, draw_combinations, fill_template, list_templates
from data_gen.sources.logic_topics import read_topics
from evaluation.baselines.steps import fill_prompt
from evaluation.harness.folder import Cost
from evaluation.harness.ranking import Case, LabelledCases, write_query
from revelator.errors import DataError, InvalidRequest
from revelator.files import sha256_file
from revelator.fingerprints import normalise
from revelator.plans.logic import Query, Term, holds, list_terms
from revelator.row_files import read_rows
from revelator.tasks import TASKS, QuestionInput, RelevanceInput, translate_task
from serving.batching import gather_all
from serving.protocols import GenerateRequest, Generator, Revelator

FEWEST = 3  # documents about a topic
LARGEST_SHARE = 0.1  # of the documents: what more of them are about is no topic
PATIENCE = 300  # draws before a template has a case less
BATCH = 32  # questions that are translated at once
TITLE = 80  # characters that stand for the title of a document without one


def make_corpus_cases(path: Path, per_template: int, seed: int, sizes: tuple[int, ...]) -> LabelledCases:
    """Makes at most `per_template` cases of each template of so many terms; the same arguments give the same cases.

    A case has a document for each combination of true and false terms that `draw_combinations` draws and that occurs,
    at least one that matches and one that does not. Raises DataError for a corpus that gives none."""
    file = path / "passages.jsonl" if path.is_dir() else path
    digest = sha256_file(file) if file.is_file() else ""  # a file that is not there is named by its reader
    return _make_corpus_cases(file, digest, per_template, seed, sizes)


@lru_cache(maxsize=1)  # several runs of one process rank the same cases
def _make_corpus_cases(path: Path, digest: str, per_template: int, seed: int, sizes: tuple[int, ...]) -> LabelledCases:
    rng = random.Random(f"corpus/{seed}")
    documents = _read_documents(path)
    topics, about = _find_topics(path, documents)
    rich = {size: [place for place, own in enumerate(about) if len(own) >= size] for size in sizes}

    def draw(template: str) -> tuple[Query, dict[int, bool]] | None:
        """Draws the topics of one document for the terms, and the documents to rank with whether they match."""
        size = template.count("{")
        for _ in range(PATIENCE if rich[size] else 0):
            query = fill_template(template, rng.sample(sorted(about[rng.choice(rich[size])]), size))
            positives, negatives = draw_combinations(query, rng)
            found = [(_draw_document(query, truth, about, topics, rng), True) for truth in positives]
            found += [(_draw_document(query, truth, about, topics, rng), False) for truth in negatives]
            matches = {place: is_match for place, is_match in found if place is not None}
            if len({*matches.values()}) == 2:
                return query, matches
        return None

    cases: list[Case] = []
    texts: list[str] = []  # of the documents that were drawn: nothing else is embedded
    for number, template in enumerate(template for size in sizes for template in list_templates(size)):
        for _ in range(per_template):
            if (drawn := draw(template)) is None:
                break
            query, matches = drawn
            pool = tuple(range(len(texts), len(texts) + len(matches)))
            texts += [documents[place] for place in matches]
            relevant = frozenset(place for place, is_match in zip(pool, matches.values(), strict=True) if is_match)
            id, kind = f"corpus:{number}:{len(cases)}", f"template {number}"
            cases.append(Case(id, query, write_query(query), kind, relevant, pool))
    if not cases:
        raise DataError("no document is about several topics", where=str(path), hint="give a larger corpus")
    return LabelledCases(cases, texts)


def _draw_document(
    query: Query, truth: Truth, about: Sequence[set[str]], topics: Mapping[str, set[int]], rng: random.Random
) -> int | None:
    """Draws a document with exactly these truth values; None where there is none."""
    names = list_terms(query)
    true = [topics[name] for name, holds in zip(names, truth, strict=True) if holds]
    false: set[int] = set().union(*(topics[name] for name, holds in zip(names, truth, strict=True) if not holds))
    fitting = set.intersection(*true) - false if true else set(range(len(about))) - false
    return rng.choice(sorted(fitting)) if fitting else None


def _find_topics(path: Path, documents: Sequence[str]) -> tuple[dict[str, set[int]], list[set[str]]]:
    """The documents about each topic, and the topics of each document, by the topic's text."""
    named = {normalise(topic.text): topic.text for topic in read_topics(path, 1)}
    longest = max(len(phrase.split()) for phrase in named)
    found: dict[str, set[int]] = defaultdict(set)
    for place, text in enumerate(documents):
        words = normalise(text).split()
        for start in range(len(words)):
            for end in range(start + 1, min(start + longest, len(words)) + 1):
                if topic := named.get(" ".join(words[start:end])):
                    found[topic].add(place)
    largest = max(LARGEST_SHARE * len(documents), FEWEST)
    topics = {topic: places for topic, places in found.items() if FEWEST <= len(places) <= largest}
    about: list[set[str]] = [set() for _ in documents]
    for topic, places in topics.items():
        for place in places:
            about[place].add(topic)
    return topics, about


def _read_documents(path: Path) -> list[str]:
    """Title and text of each row, a line each."""
    return [_write_document(row, f"{path}, line {line}") for line, row in read_rows(str(path))]


def _write_document(row: Any, where: str) -> str:
    """Title and text; SciFact's documents have their sentences in `abstract`."""
    given = row if isinstance(row, dict) else {}
    title, text = given.get("title") or "", given.get("text") or given.get("abstract") or ""
    if isinstance(text, list):
        text = " ".join(map(str, text))
    if not isinstance(title, str) or not isinstance(text, str) or not f"{title}{text}".strip():
        raise DataError("not a document with title and text", where=where, hint='{"title": "…", "text": "…"} a line')
    return f"{title or text[:TITLE]}\n{text}"


def read_beir_cases(folder: Path, split: str) -> LabelledCases:
    """Reads `corpus.jsonl`, `queries.jsonl` and `qrels/SPLIT.tsv` (query, document, score; above 0 is relevant). Every
    document is ranked for each query that has a relevant one. Raises DataError."""
    documents = list(_read_identified(folder / "corpus.jsonl"))
    places = {id: place for place, (id, _, _) in enumerate(documents)}
    texts = [_write_document(row, where) for _, row, where in documents]
    queries = {id: str(row.get("text", "")).strip() for id, row, _ in _read_identified(folder / "queries.jsonl")}
    relevant: dict[str, set[int]] = defaultdict(set)
    for query, document, score, where in _read_judgements(folder / "qrels" / f"{split}.tsv"):
        if document not in places or not queries.get(query):
            raise DataError(f"judges query {query} and document {document}, of which one is not there", where=where)
        if score > 0:
            relevant[query].add(places[document])
    pool = tuple(range(len(texts)))
    cases = [
        Case(f"beir:{id}", Term(queries[id]), queries[id], "", frozenset(found), pool) for id, found in relevant.items()
    ]
    if not cases:
        raise DataError("no query has a relevant document", where=str(folder))
    return LabelledCases(cases, texts)


def _read_identified(path: Path) -> Iterator[tuple[str, dict[str, Any], str]]:
    for line, row in read_rows(str(path)):
        where = f"{path}, line {line}"
        if not isinstance(row, dict) or row.get("_id") in (None, ""):
            raise DataError("a row without `_id`", where=where, hint="BEIR's form: corpus.jsonl, queries.jsonl, qrels/")
        yield str(row["_id"]), row, where


def _read_judgements(path: Path) -> Iterator[tuple[str, str, float, str]]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read: {error}", where=str(path)) from error
    for number, line in enumerate(lines[1:], 2):
        where = f"{path}, line {number}"
        try:
            query, document, score = line.split("\t")
            yield query, document, float(score), where
        except ValueError:
            raise DataError("not query, document and score", where=where, hint="three columns with tabs") from None


async def translate_cases(cases: Sequence[Case], revelator: Revelator) -> list[Case]:
    """The same cases with the logical queries that the revelator writes for their questions. A question that it cannot
    translate is its own query of one term."""
    translated = []
    for first in range(0, len(cases), BATCH):
        batch = cases[first : first + BATCH]
        translated += await asyncio.gather(*[_translate_case(case, revelator) for case in batch])
    return translated


async def _translate_case(case: Case, revelator: Revelator) -> Case:
    task = translate_task("logic")
    with suppress(InvalidRequest):
        [output] = await revelator.complete(task.name, [task.render(QuestionInput(case.question))])
        if query := task.parse_sound(output.text):
            return replace(case, query=query)
    return case


async def reason_about_cases(cases: Sequence[Case], generator: Generator) -> list[Case]:
    """The same cases with what a language model writes when it reasons about their questions."""
    reasoned = []
    for first in range(0, len(cases), BATCH):
        batch = cases[first : first + BATCH]
        reasoned += await gather_all([_reason_about_case(case, generator) for case in batch])
    return reasoned


async def _reason_about_case(case: Case, generator: Generator) -> Case:
    began = time.perf_counter()
    reading = await generator.answer(GenerateRequest("write", fill_prompt("bright", question=case.question)))
    taken = time.perf_counter() - began
    cost = Cost(reading.tokens_in, reading.tokens_out, generator_calls=1, wall_s=taken, path_s=taken)
    return replace(case, reasoning=reading.sentence, cost=cost)


async def judge_cases(cases: Sequence[Case], texts: Sequence[str], revelator: Revelator) -> list[Case]:
    """The same cases with the labels of the revelator, which judges each document of a case for each of its terms."""
    task, asked = TASKS["relevance"], {}
    for case in cases:
        for place in case.pool:
            title, _, text = texts[place].partition("\n")
            for term in list_terms(case.query):
                asked[term, place] = task.render(RelevanceInput(f"Is this document about {term}?", title, text))
    keys, prompts = [*asked], [*asked.values()]
    outputs = []
    for first in range(0, len(prompts), BATCH):
        outputs += await revelator.complete(task.name, prompts[first : first + BATCH])
    assert task.labels, "a label task"
    truths = {key: output.text == task.labels[0] for key, output in zip(keys, outputs, strict=True)}
    return [replace(case, relevant=_find_matches(case, truths)) for case in cases]


def _find_matches(case: Case, truths: Mapping[tuple[str, int], bool]) -> frozenset[int]:
    names = list_terms(case.query)
    return frozenset(place for place in case.pool if holds(case.query, {name: truths[name, place] for name in names}))
