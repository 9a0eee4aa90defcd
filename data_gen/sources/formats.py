"""The published formats by name."""

from __future__ import annotations

from data_gen.sources.fan_out import read_fan_out
from data_gen.sources.film_graph import read_metaqa
from data_gen.sources.multi_hop import read_break, read_hotpot, read_musique, read_strategy, read_two_wiki
from data_gen.sources.rows import read_world
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
    "fanoutqa": read_fan_out,
    "hotpotqa": read_hotpot,
    "metaqa": read_metaqa,
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
