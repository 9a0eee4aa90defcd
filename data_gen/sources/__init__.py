"""Readers of published data sets: each gives `AnnotatedQuestion`s and says what it could not use."""

from data_gen.sources.break_qdmr import read_break
from data_gen.sources.commonsense import read_commonsense
from data_gen.sources.fan_out_qa import read_fan_out
from data_gen.sources.hotpot import read_hotpot
from data_gen.sources.musique import read_musique
from data_gen.sources.passages import read_qed, read_squad
from data_gen.sources.rows import Refused, Skipped
from data_gen.sources.single_step import read_natural_questions, read_pairs, read_trivia, read_web_questions
from data_gen.sources.strategy_qa import read_strategy
from data_gen.sources.two_wiki import read_two_wiki
from data_gen.sources.world import read_world

READERS = {
    "2wiki": read_two_wiki,
    "break": read_break,
    "commonsenseqa": read_commonsense,
    "fanoutqa": read_fan_out,
    "hotpotqa": read_hotpot,
    "musique": read_musique,
    "nq": read_natural_questions,
    "pairs": read_pairs,
    "qed": read_qed,
    "squad": read_squad,
    "strategyqa": read_strategy,
    "triviaqa": read_trivia,
    "webquestions": read_web_questions,
    "world": read_world,
}

__all__ = [
    "READERS",
    "Refused",
    "Skipped",
    "read_break",
    "read_commonsense",
    "read_fan_out",
    "read_hotpot",
    "read_musique",
    "read_natural_questions",
    "read_pairs",
    "read_qed",
    "read_squad",
    "read_strategy",
    "read_trivia",
    "read_two_wiki",
    "read_web_questions",
    "read_world",
]
