"""The published formats by name, and the questions of several sources as one stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

from data_gen.config import QuestionSource
from data_gen.leakage import QuestionFilter
from data_gen.questions import AnnotatedQuestion
from data_gen.sources.conversations import read_qrecc
from data_gen.sources.executed import read_executed
from data_gen.sources.film_graph import read_metaqa
from data_gen.sources.multi_hop import (
    read_break,
    read_hotpot,
    read_musique,
    read_qdmr,
    read_strategy,
    read_two_wiki,
)
from data_gen.sources.rows import count_outcome, read_world
from data_gen.sources.single_step import (
    read_commonsense,
    read_natural_questions,
    read_pairs,
    read_qed,
    read_squad,
    read_trivia,
    read_web_questions,
)

READERS = {
    "2wiki": read_two_wiki,
    "break": read_break,
    "commonsenseqa": read_commonsense,
    "executed": read_executed,
    "hotpotqa": read_hotpot,
    "metaqa": read_metaqa,
    "musique": read_musique,
    "nq": read_natural_questions,
    "pairs": read_pairs,
    "qdmr": read_qdmr,
    "qed": read_qed,
    "qrecc": read_qrecc,
    "squad": read_squad,
    "strategyqa": read_strategy,
    "triviaqa": read_trivia,
    "webquestions": read_web_questions,
    "world": read_world,
}


def read_questions(
    sources: Iterable[QuestionSource], held_out: str | None, dropped: Counter[str], keep_back: float = 0.0
) -> Iterator[AnnotatedQuestion]:
    """Each question of the sources once, under the name and licence that its source is given, without those that are
    held out or kept back. What is left out is counted by reason. Raises DataError for a source that cannot be read."""
    question_filter = QuestionFilter(held_out, keep_back)
    for source in sources:
        for outcome in islice(READERS[source.format](source.path), source.limit):
            if not isinstance(outcome, AnnotatedQuestion):
                count_outcome(outcome, dropped)
            elif question_filter.admits(outcome, dropped):
                name, licence = source.name or outcome.source, source.licence or outcome.licence
                yield replace(outcome, source=name, licence=licence)
