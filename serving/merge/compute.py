"""Which operation a question, or a leaf of a plan, asks for over earlier answers; done where code is sure of it.

`compute` reads the operation from the question's own words, the values from the answers, and gives None when it cannot
be sure: an unreadable value, values of different dimensions, a tie, a candidate that the question does not name.

"Which of {a} and {b} was born earlier?" after "When was {a} born? + When was {b} born?" needs no document either. Such
a leaf takes its placeholders' values, or what the chains that began with them ended in, and is computed only where it
asks for an operation on these and for nothing else: "How many {films} are there?" is a count, "How many people saw
{films}?" is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from revelator.computing.values import is_value, normalise
from revelator.plans.operators import read_call
from serving.merge.arithmetic import add_up, asks_difference, count, count_meeting, subtract
from serving.merge.comparison import compare
from serving.merge.parts import Member, MergedAnswer, Part, measure_parts
from serving.merge.sets import find_common, judge_same, select, selects
from serving.merge.wording import ALIKE, NEGATED, YES_NO, asks_count, asks_sum, find_order

MOST_CHARACTERS = 100_000  # of the questions and answers that an operation works on, in a second at most
_GIVES_NAMES = re.compile(r"\s*(who|whom|whose|where|(?:which|what) (?!year|date|day|month|is|was|are|were))\b", re.I)
_COUNT = re.compile(r"\bhow many (?:of )?(?:the |these |those )?\{(\w+)\}(.*)", re.IGNORECASE)
_ALL_THERE_ARE = re.compile(r"\s*+(?:(?:are|were) there)?+(?:\s*+(?:in total|in all|altogether))?+\s*+\??+\s*+")
_THING = "person|people|man|woman|thing|place|country|city|town|river|film|company|language|team|year|date|day"
_SAME = re.compile(
    r"^\s*(?:is|are|was|were) \{\w+\} and \{\w+\} (?:both )?(?:the same|identical|equal|alike)"
    rf"(?: (?:{_THING}))?\s*\??$",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{\w+\}")


def compute(question: str, parts: Sequence[Part]) -> MergedAnswer | None:
    """The answer of `question` by code over the answers of its parts, or None."""
    if not parts or measure_parts(parts) > MOST_CHARACTERS or NEGATED.search(_PLACEHOLDER.sub(" ", question)):
        return None
    if not all(part.answers and part.whole for part in parts):
        return None
    if len(parts) == 2 and asks_difference(question):
        return subtract(question, parts)
    alike = len(parts) > 1 and ALIKE.search(question)
    if alike and YES_NO.match(question):
        return judge_same(question, parts)
    if asks_count(question):
        return count(question, parts)
    if added := add_up(question, parts):
        return added
    return find_common(parts) if alike else compare(question, parts)


@lru_cache(maxsize=512)  # a plan is asked twice for each leaf, and plans come again
def is_operation(text: str, several: bool) -> bool:
    """Whether a leaf's wording asks for an operation over the values of its placeholders, so that it is worth waiting
    for everything that came of them. `several`: it has more than one placeholder."""
    if read_call(text):
        return False
    if _COUNT.search(text) or selects(text):
        return True
    if not several and not re.search(r"\b(?:of|between|among) (?:the |these |all )?\{", text):
        return False
    rest = _PLACEHOLDER.sub(" ", text)
    return bool(asks_difference(rest) or asks_sum(rest) or ALIKE.search(rest) or find_order(rest))


def compute_within(text: str, asked: str, values: Mapping[str, Part], chains: Sequence[Part]) -> MergedAnswer | None:
    """The answer of the leaf `text`, by code, or None.

    `asked`: the leaf after substitution. `values`: what each placeholder stands for, with the question that gave it.
    `chains`: the chains of the plan so far that lead through these, with what stands at their ends.
    """
    if not all(part.whole for part in values.values()) or measure_parts([*values.values(), *chains]) > MOST_CHARACTERS:
        return None
    if counting := _COUNT.search(text):
        return _count(asked, counting, values, chains)
    if _SAME.match(text) and len(values) == 2:
        return judge_same(text, list(values.values()))
    if shared := select(text, values):
        return MergedAnswer(tuple(shared), "in common")
    if all(map(_is_of_values, values.values())):
        return _compute_over_values(text, values)
    given = [answer for part in values.values() for answer in part.answers]
    ends = [answer for part in chains for answer in part.answers]
    if not ends or not all(map(_is_of_values, chains)) or set(ends) <= set(given):
        return None
    return compute(asked, chains)


def _is_of_values(part: Part) -> bool:
    """Whether a part's answers are dates or quantities, and were asked for as such: "1984" may be a title."""
    return all(map(is_value, part.answers)) and not _GIVES_NAMES.match(part.questions[-1])


def _compute_over_values(text: str, values: Mapping[str, Part]) -> MergedAnswer | None:
    """The operation on dates or quantities that the leaf's placeholders stand for; each is named by its placeholder."""
    parts = [
        Part((f"{{{name}}}",), tuple(Member({name: a}, (a,)) for member in part.members for a in member.answers))
        for name, part in values.items()
    ]
    found = compute(text, parts)
    named = {f"{{{name}}}": part.answers for name, part in values.items()}
    return replace(found, answers=named.get(found.answers[0], found.answers)) if found else None


def _count(
    asked: str, counting: re.Match[str], values: Mapping[str, Part], chains: Sequence[Part]
) -> MergedAnswer | None:
    name, condition = counting.groups()
    if name not in values:
        return None
    if _ALL_THERE_ARE.fullmatch(condition):
        return MergedAnswer((str(len(set(map(normalise, values[name].answers)))),), "count")
    if selects(counting[0]):
        shared = select(counting[0], values)
        return MergedAnswer((str(len(shared)),), "count: in common") if shared else None
    if len(chains) != 1 or len(chains[0].members) < 2 or not chains[0].whole or NEGATED.search(condition):
        return None
    return count_meeting(asked, chains[0])
