"""A logical query in the words of a question, so that the question has one reading.

The words stand in `logic_words.yaml`. A phrase asserts or denies topics in one style ("about A", "do not mention B");
topics that are joined alike share one phrase ("neither A nor B", "at least one of A and B"). What precedence would
leave open is closed by words: a group inside another stands between paired words (either … or, both … and) or repeats
the words of its style, and an exclusion that reaches the whole question stands before it, after it, or behind a comma.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from revelator.config import read_table
from revelator.plans.logic import And, Not, Or, Query, Term, list_terms

MARK = re.compile("\ufdd0(\\d+)\ufdd1")  # where a topic stands until the whole question is worded
CONNECTIVE = re.compile(
    r",|\b(?:and|or|not|no|nor|neither|either|both|but|except|excluding|without|unless|only|also|than|all|any|none)\b",
    re.I,
)
QUOTED = 0.06  # chance that a topic is quoted though it need not be
CONDITION = 0.35  # chance that "A or not B" is said as a condition
LOWER = 0.08  # chance that the question is typed without capitals
SINGULAR = re.compile(r"\b(?:anything|something|everything)\b")
NUMBER = {
    False: {"those": "those", "they_are": "they are", "they_say": "they say", "they_must": "they must"},
    True: {"those": "what is", "they_are": "it is", "they_say": "it says", "they_must": "it must"},
}


@dataclass(frozen=True)
class WordedQuery:
    """A question, its query in the order in which the question names the topics, and its form without the topics."""

    question: str
    query: Query
    form: str


def word_query(query: Query, rng: random.Random, free: bool = False) -> WordedQuery:
    """Words for `query`, whose NOTs stand on terms alone. `free`: at least one of them is of no training question."""
    texts = list_terms(query)
    while True:
        words = _Words(rng, free)
        form = _Question(words, texts).write(query)
        if words.new == free:
            break
    lower = rng.random() < LOWER
    texts = tuple(text.lower() for text in texts) if lower else texts
    shown = [_quote_topic(text, rng) for text in texts]
    order = list(dict.fromkeys(int(number) for number in MARK.findall(form)))
    question = MARK.sub(lambda match: shown[int(match[1])], form.lower() if lower else form)
    renamed = dict(zip(list_terms(query), texts, strict=True))
    return WordedQuery(question, _order_query(query, renamed, [texts[i] for i in order]), MARK.sub("{}", form))


def _quote_topic(text: str, rng: random.Random) -> str:
    """A topic as the question names it: in quotes where a word of its own could be taken for one of the question."""
    return f'"{text}"' if CONNECTIVE.search(text) or rng.random() < QUOTED else text


def _order_query(query: Query, renamed: dict[str, str], order: Sequence[str]) -> Query:
    if isinstance(query, Term):
        return Term(renamed[query.text])
    if isinstance(query, Not):
        return Not(_order_query(query.operand, renamed, order))
    parts = [_order_query(operand, renamed, order) for operand in query.operands]
    return type(query)(tuple(sorted(parts, key=lambda part: min(order.index(text) for text in list_terms(part)))))


class _Words:
    """Draws from the lists of `logic_words.yaml`; `new` says whether a held-out entry has been drawn."""

    def __init__(self, rng: random.Random, free: bool) -> None:
        self.rng, self._free, self.new = rng, free, False

    def draw(self, name: str, allowed: Callable[[Any], bool] = lambda entry: True) -> Any:
        lists = read_table("data_gen.sources", "logic_words.yaml")
        for key in name.split("."):
            lists = lists[key]
        said = [entry for entry in lists["said"] if allowed(entry)]
        free = [entry for entry in lists["free"] if allowed(entry)] if self._free else []
        drawn = self.rng.randrange(len(said) + len(free)) if not free or self.rng.random() < 0.5 else len(said)
        if drawn < len(said):
            return said[drawn]
        self.new = True
        return self.rng.choice(free)


class _Question:
    """One question under way: its style, its head, and the topics by number."""

    def __init__(self, words: _Words, texts: Sequence[str]) -> None:
        self.words, self.rng, self.texts = words, words.rng, texts
        self.style = words.draw("styles")
        self.bare = self.style["heads"] == "bare"
        head = words.draw(f"heads.{self.style['heads']}")
        self.head = head.replace("{docs}", words.draw("docs")) if "{docs}" in head else head
        self.number = NUMBER[bool(SINGULAR.search(self.head))]

    def write(self, query: Query) -> str:
        before = after = ""
        if isinstance(query, And):
            denied = [part for part in query.operands if isinstance(part, Not)]
            rest = [part for part in query.operands if not isinstance(part, Not)]
            place = self.rng.random()
            if denied and rest and place < 0.3:
                kept = rest[0] if len(rest) == 1 else And(tuple(rest))
                if place < 0.15:
                    before, query = self._write_exclusion("before", denied), kept
                else:
                    after, query = self._write_exclusion("after", denied), kept
        text = self.head.replace("{x}", self._write(query, 0))
        if before and not before.endswith(". ") and not re.match(r"I\b|I'", text):
            text = text[0].lower() + text[1:]
        if after and text[-1] not in ".?!":
            text += "."
        text = (before + text + after).replace(",,", ",").replace(",.", ".").replace(",?", "?").replace(",;", ";")
        return text[0].upper() + text[1:] if self.rng.random() < 0.7 else text

    def _write(self, query: Query, level: int) -> str:
        """What is said of the documents. Above level 0 the phrase stands inside another one and must not run over."""
        if isinstance(query, Term):
            return self._fill_style("pos", self._mark_topic(query))
        if isinstance(query, Not):
            return self._fill_style("neg", self._mark_topic(query.operand))
        parts = self.rng.sample(query.operands, len(query.operands))
        plain = [part for part in parts if isinstance(part, Term)]
        denied = [part for part in parts if isinstance(part, Not)]
        groups = [part for part in parts if isinstance(part, And | Or)]
        if isinstance(query, And):
            return self._write_and(plain, denied, groups, level)
        return self._write_or(plain, denied, groups, level)

    def _write_and(self, plain: Sequence[Query], denied: Sequence[Query], groups: Sequence[Query], level: int) -> str:
        if not groups and not plain:
            if level == 0 and self.rng.random() < 0.3:
                return " and ".join(self._write(part, 1) for part in denied)
            return self._fill_style("pos", self._join_topics("none", denied))
        if not groups:
            allowed = self._is_closed_and if level and self.bare else None
            said = self._fill_style("pos", self._join_topics("all", plain, allowed))
            if not denied:
                return said
            place = "whole" if level == 0 and self.rng.random() < 0.5 else "without"
            return said + self._write_exclusion(place, denied)
        closed = [self._write(group, level + 1) for group in groups]
        if not plain and len(groups) == 1 and level == 0 and self.rng.random() < 0.5:
            return closed[0] + self._write_exclusion("whole", denied) if denied else closed[0]
        cores = [self._write_and(plain, denied, [], 1)] if plain or denied else []
        return self._join_phrases("and" if level == 0 else "and_inner", [*cores, *closed], " and also ")

    def _write_or(self, plain: Sequence[Query], denied: Sequence[Query], groups: Sequence[Query], level: int) -> str:
        pair = len(plain) == len(denied) == 1 and not groups and level == 0 and self.style["heads"] == "verb"
        if pair and self.rng.random() < CONDITION:
            x, y = self._write(plain[0], 1), self._fill_style("pos", self._mark_topic(denied[0]))
            deny = self._fill_style("deny", self._mark_topic(denied[0]))
            return self.words.draw("unless").format(x=x, y=y, deny=deny)
        parts = []
        if plain:
            open_ = level == 0 and not denied and not groups
            parts.append(
                self._fill_style("pos", self._join_topics("any", plain, None if open_ else self._is_closed_or))
            )
        if len(denied) > 1 and self.rng.random() < 0.8:
            closed = self._is_together if self.style["heads"] != "verb" else None
            parts.append(self._fill_style("deny", self._join_topics("not_all", denied, closed)))
        else:
            parts += [self._write(part, 1) for part in denied]
        parts += [self._write(group, level + 1) for group in groups]
        if len(parts) == 1:
            return parts[0]
        self.rng.shuffle(parts)
        return self._join_phrases("or" if level == 0 else "or_inner", parts, ", or ")

    def _join_phrases(self, name: str, parts: list[str], between: str) -> str:
        """Whole phrases joined; of more than two, all but the last by `between`."""
        return self.words.draw(name).format(x=between.join(parts[:-1]), y=parts[-1])

    def _join_topics(self, name: str, parts: Sequence[Query], allowed: Callable[[str], bool] | None = None) -> str:
        """Topics under one word that joins them."""
        topics = [self._mark_topic(part) for part in parts]
        if len(topics) == 1:
            return topics[0]
        form = self.words.draw(f"{name}_{'two' if len(topics) == 2 else 'more'}", allowed or (lambda form: True))
        between = " nor " if form.startswith("neither {list}") else ", "
        return form.format(a=topics[0], list=between.join(topics[:-1]), b=topics[-1])

    @staticmethod
    def _is_closed_or(form: str) -> bool:
        """Whether a form of OR says where it begins ("either A or B"), so that it may stand inside another."""
        return not form.startswith("{")

    @staticmethod
    def _is_closed_and(form: str) -> bool:
        """Whether a form of AND says where it begins or ends, so that it may stand inside another."""
        return not form.startswith("{") or "together" in form or "combination" in form

    @staticmethod
    def _is_together(form: str) -> bool:
        """Whether a form begins with a word for all its topics ("both A and B")."""
        return form.startswith(("both", "all", "every"))

    def _write_exclusion(self, place: str, denied: Sequence[Query]) -> str:
        """Words that exclude `denied`; `place` is where they stand beside the words for the rest."""

        def fits(form: str) -> bool:
            return not (self.bare and ("{th" in form or "mention" in form or "say" in form))

        denied = self.rng.sample(denied, len(denied))
        form = self.words.draw(f"{place}_{'one' if len(denied) == 1 else 'more'}", fits)
        topics = [self._mark_topic(part) for part in denied]
        said = {"n": ", ".join(topics[:-1]) or topics[0], "m": topics[-1]}
        if " nor {m}" in form:
            said["n"] = " nor ".join(topics[:-1])
        refused = [self._fill_style("neg", topic) for topic in topics]
        said |= {"deny": ", ".join(refused[:-1]) or refused[0], "refuse": refused[-1]}
        return form.format(**said, **self.number)

    def _fill_style(self, how: str, topics: str) -> str:
        return self.style.get(how, self.style["neg"]).format(a=topics)

    def _mark_topic(self, part: Query) -> str:
        term = part.operand if isinstance(part, Not) else part
        assert isinstance(term, Term)
        return f"\ufdd0{self.texts.index(term.text)}\ufdd1"


def list_phrases(name: str, free: bool) -> list[str]:
    """The entries of a list of `logic_words.yaml`: those of training, or with `free` the held-out ones."""
    return read_table("data_gen.sources", "logic_words.yaml")[name]["free" if free else "said"]
