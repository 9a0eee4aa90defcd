"""Questions that one passage answers: SQuAD v1.1 and QED.

A passage that does not help stands beside the one that does: of SQuAD another paragraph of the same article, of QED
the passage of the row before. Neither holds an answer as words.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion, Evidence
from data_gen.leakage import normalise
from data_gen.sources import fields
from data_gen.sources.rows import Outcome, read_annotated
from data_gen.sources.single_step import single


def read_squad(path: Path | str, source: str = "squad", licence: str = "CC-BY-SA-4.0") -> Iterator[Outcome]:
    """SQuAD v1.1 (Rajpurkar et al., 2016): articles with paragraphs and questions, or the Hub's questions."""

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.question(row)
        answers = fields.texts({"answers": [answer["text"] for answer in fields.objects(row["answers"])]}, "answers")
        title = fields.text(row, "title").replace("_", " ")
        return single(
            fields.identity(row, source, asked, "id"),
            source,
            licence,
            asked,
            answers,
            _beside(Evidence(title, fields.text(row, "context"), True), row.get("others", ()), answers),
        )

    return read_annotated(path, annotate, _questions, member="data")


def _questions(article: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Each question of an article with its paragraph, and the others from the next one on."""
    if "paragraphs" not in article:
        yield article
        return
    title, contexts = article["title"], [paragraph["context"] for paragraph in article["paragraphs"]]
    for place, paragraph in enumerate(article["paragraphs"]):
        others = [Evidence(title.replace("_", " "), text, False) for text in contexts[place + 1 :] + contexts[:place]]
        for row in paragraph["qas"]:
            yield {**row, "title": title, "context": contexts[place], "others": others}


def read_qed(path: Path | str, source: str = "qed", licence: str = "CC-BY-SA-3.0") -> Iterator[Outcome]:
    """QED (Lamm et al., 2021): questions of Natural Questions, each with the passage that answers it."""
    before: list[Evidence] = []

    def annotate(row: dict[str, Any]) -> AnnotatedQuestion:
        asked = fields.question(row, "question_text")
        spans = chain.from_iterable(row["original_nq_answers"])
        answers = fields.texts({"original_nq_answers": [span["string"] for span in spans]}, "original_nq_answers")
        passage = Evidence(fields.text(row, "title_text"), fields.text(row, "paragraph_text"), True)
        others = [Evidence(other.title, other.text, False) for other in before if other.title != passage.title]
        before[:] = [passage]
        identity = fields.identity(row, source, asked, "example_id")
        return single(identity, source, licence, asked, answers, _beside(passage, others, answers))

    return read_annotated(path, annotate)


def _beside(passage: Evidence, others: list[Evidence], answers: tuple[str, ...]) -> tuple[Evidence, ...]:
    """The passage and the first of the others that holds none of the answers."""
    said = [f" {normalise(answer)} " for answer in answers]
    other = next((o for o in others if not any(answer in f" {normalise(o.text)} " for answer in said)), None)
    return (passage, other) if other else (passage,)
