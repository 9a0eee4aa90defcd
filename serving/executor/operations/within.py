"""Operations inside a plan: a leaf that compares, counts or adds up what earlier leaves gave.

"Which of {a} and {b} was born earlier?" after "When was {a} born? + When was {b} born?" needs no document. Such a leaf
takes its placeholders' values, or what the chains that began with them ended in, and is computed only where it asks for
an operation on these and for nothing else: "How many {films} are there?" is a count, "How many people saw {films}?" is
not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from serving.executor.operations.arithmetic import asks_arithmetic, asks_difference, difference, total
from serving.executor.operations.comparison import extreme
from serving.executor.operations.compute import compute
from serving.executor.operations.counting import count_meeting
from serving.executor.operations.parts import MOST_CHARACTERS, Merged, Part, size_of
from serving.executor.operations.sameness import same
from serving.executor.operations.sets import selects, within
from serving.executor.operations.text import normalise
from serving.executor.operations.whole import is_value
from serving.executor.operations.wording import NEGATED, YES_NO, order

_GIVES_NAMES = re.compile(r"\s*(who|whom|whose|where|(?:which|what) (?!year|date|day|month|is|was|are|were))\b", re.I)
_COUNT = re.compile(r"\bhow many (of )?(?:the |these |those )?\{(\w+)\}(.*)", re.IGNORECASE)
_ALL_THERE_ARE = re.compile(r"\s*+(?:(?:are|were) there)?+(?:\s*+(?:in total|in all|altogether))?+\s*+\??+\s*+")
_SHARED = re.compile(r"\b(both|common|share[sd]?|also|same)\b", re.IGNORECASE)
_THING = "person|people|man|woman|thing|place|country|city|town|river|film|company|language|team|year|date|day"
_SAME = re.compile(
    r"^\s*(?:is|are|was|were) \{\w+\} and \{\w+\} (?:both )?(?:the same|identical|equal|alike)"
    rf"(?: (?:{_THING}))?\s*\??$",
    re.IGNORECASE,
)


@lru_cache(maxsize=512)  # a plan is asked twice for each leaf, and plans come again
def is_operation(text: str, several: bool) -> bool:
    """Whether a leaf's wording asks for an operation over the values of its placeholders, so that it is worth waiting
    for everything that came of them. `several`: it has more than one placeholder."""
    rest = re.sub(r"\{\w+\}", " ", text)
    if _COUNT.search(text) or selects(text):
        return True
    over_several = several or re.search(r"\b(?:of|between|among) (?:the |these |all )?\{", text) is not None
    asks = asks_difference(rest) or asks_arithmetic(rest) or _SHARED.search(rest) or order(rest, ())
    return over_several and bool(asks)


def compute_within(text: str, asked: str, values: Mapping[str, Part], chains: Sequence[Part]) -> Merged | None:
    """The answer of the leaf `text`, by code, or None.

    `asked`: the leaf after substitution. `values`: what each placeholder stands for, with the question that gave it.
    `chains`: the chains of the plan so far that lead through these, with what stands at their ends.
    """
    if not all(part.whole for part in values.values()) or size_of([*values.values(), *chains]) > MOST_CHARACTERS:
        return None
    if counting := _COUNT.search(text):
        return _count(asked, counting, values, chains)
    if shared := _sets(text, values):
        return shared
    if all(map(_is_of_values, values.values())):
        return _over_values(text, values)
    given = [answer for part in values.values() for answer in part.answers]
    ends = [answer for part in chains for answer in part.answers]
    if not ends or not all(map(_is_of_values, chains)) or set(ends) <= set(given):
        return None
    return compute(asked, chains)


def _is_of_values(part: Part) -> bool:
    """Whether a part's answers are dates or quantities, and were asked for as such: "1984" may be a title."""
    return all(map(is_value, part.answers)) and not _GIVES_NAMES.match(part.questions[-1])


def _over_values(text: str, values: Mapping[str, Part]) -> Merged | None:
    rest = re.sub(r"\{\w+\}", " ", text)
    if NEGATED.search(rest):
        return None
    each = [answer for part in values.values() for member in part.members for answer in member.answers]
    if len(each) == 2 and asks_difference(rest):
        return difference(rest, each)
    if asks_arithmetic(rest):
        return total(rest, each)
    names, given = list(values), [answer for part in values.values() for answer in part.answers]
    found = order(rest, ())
    best = extreme(rest, given, *found) if found and len(given) > 1 else None
    if best is None or found is None:
        return None
    if YES_NO.match(text) and " or " not in rest:
        first = min(range(len(names)), key=lambda i: text.find("{" + names[i] + "}"))
        return Merged(("yes" if best == first else "no",), f"comparison: {found[0]}") if len(given) == 2 else None
    return Merged((given[best],), f"comparison: {found[0]}")


def _count(asked: str, counting: re.Match[str], values: Mapping[str, Part], chains: Sequence[Part]) -> Merged | None:
    _, name, condition = counting.groups()
    if name not in values:
        return None
    answers = values[name].answers
    if _ALL_THERE_ARE.fullmatch(condition):
        return Merged((str(len({normalise(answer) for answer in answers})),), "count")
    if selects(counting[0]):
        shared = within(counting[0], values)
        return Merged((str(len(shared)),), "count: in common") if shared else None
    if len(chains) != 1 or len(chains[0].members) < 2 or not chains[0].whole or NEGATED.search(condition):
        return None
    return count_meeting(asked, chains[0])


def _sets(text: str, values: Mapping[str, Part]) -> Merged | None:
    if _SAME.match(text) and len(values) == 2:
        return same(text, list(values.values()))
    shared = within(text, values)
    return Merged(tuple(shared), "in common") if shared else None
