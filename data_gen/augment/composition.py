"""Questions with several hops, composed of single ones: the noun phrase for one question's answer takes the place of a
span of the next, so the plan of the whole is known, and keeps the words of the single questions.

Published plans with several hops are few; single questions are many. What a composed question asks is mostly nonsense,
and nobody knows its answer: it teaches where a question divides and that its words are copied, which names alone
(`data_gen.augment.substitution`) do not. Drawn are the six graphs of MuSiQue (Trivedi et al. 2022, table 1).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from data_gen.annotate.plan import GoldStep, UnplannableError, plan
from data_gen.annotate.wording import list_relation_questions, name_answer, tidy
from data_gen.augment.clauses import UNREADABLE, Clause, read_clause
from data_gen.questions import AnnotatedQuestion
from revelator.errors import DataError
from revelator.plans import doubts, parse

# How many single questions stand in each chain, and whether another question follows the one that joins two chains.
GRAPHS: dict[tuple[tuple[int, ...], bool], float] = {
    ((2,), False): 0.40,  # A * B
    ((3,), False): 0.22,  # A * B * C
    ((4,), False): 0.08,
    ((1, 1), False): 0.14,  # (A + B) * C
    ((2, 1), False): 0.09,  # (A * B + C) * D
    ((1, 1), True): 0.07,  # (A + B) * C * D
}
RELATIONS = 0.3  # of the questions of a chain ask for a relation, in the words that plans have for it
RENAMED = 0.5  # of the spans that stay get another name
AT_THE_END = 0.75  # of the phrases take the place of the last span
LONGEST = 44  # words of a composed question


@dataclass(frozen=True)
class _Part:
    """A noun phrase and the steps that lead to what it stands for."""

    phrase: str
    steps: tuple[GoldStep, ...]


class Composer:
    """Draws questions from clauses and from relations; `names` are put where spans stay."""

    def __init__(self, clauses: Sequence[Clause], names: Sequence[str], random: Random) -> None:
        self._random = random
        self._names = [name for name in names if name.isprintable()]
        self._speakable = [name for name in self._names if not UNREADABLE.search(name)]
        self._relations = [ask for ask in list_relation_questions() if _ask_relation("Ost", ask)]
        self._first = [c for c in clauses if c.phrases]
        self._middle = [c for c in self._first if c.spans]
        self._last = [c for c in clauses if c.spans]
        self._joins = [c for c in clauses if len(c.spans) > 1]
        self._joins_said = [c for c in self._joins if c.phrases]
        for kind, found in (("answers of which one can speak", self._middle), ("two names", self._joins_said)):
            if not found:
                raise DataError(f"no question with {kind}", hint="give more single questions")

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A question with its plan; None where it came out too long, or its plan does not bind or leaves a doubt."""
        (chains, followed), *_ = self._random.choices(list(GRAPHS), list(GRAPHS.values()))
        parts = [self._chain(length - (len(chains) == 1)) for length in chains]
        if followed:
            parts = [self._said(self._random.choice(self._joins_said), parts)]
        link = self._one(self._last) if len(parts) == 1 else self._random.choice(self._joins)
        asked, steps = self._filled(link, parts, link.question)
        question = tidy(f"{asked}?")
        if len(question.split()) > LONGEST:
            return None
        try:
            planned = plan(question, [replace(step, text=f"{step.text}?") for step in steps], identity)
        except UnplannableError:
            return None
        if doubts(parse(planned.expression)):
            return None
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="train",
            question=question,
            route="complex",
            expression=planned.expression,
            teacher="composed",
        )

    def _one(self, pool: Sequence[Clause]) -> Clause:
        """One of the pool, or the question for a relation of a name, which can be spoken of and put into."""
        if self._random.random() < RELATIONS:
            found = _ask_relation(self._random.choice(self._speakable), self._random.choice(self._relations))
            if found:
                return found
        return self._random.choice(pool)

    def _chain(self, length: int) -> _Part:
        part = self._said(self._one(self._first), [])
        for _ in range(length - 1):
            part = self._said(self._one(self._middle), [part])
        return part

    def _said(self, link: Clause, parts: Sequence[_Part]) -> _Part:
        """The phrase for a clause's answer, with the phrases of `parts` in it."""
        noun, phrase = self._random.choice(link.phrases)
        said, steps = self._filled(link, parts, phrase)
        last = GoldStep(steps[-1].text, names=tuple(dict.fromkeys([noun, *name_answer(steps[-1].text)])))
        return _Part(said, (*steps[:-1], last))

    def _filled(self, link: Clause, parts: Sequence[_Part], said: str) -> tuple[str, tuple[GoldStep, ...]]:
        """`said`, which has the clause's spans, with a part's phrase in the place of one span each; and the steps."""
        chosen = self._chosen(link, len(parts), said)
        steps, phrases, references = list[GoldStep](), {}, {}
        for span in link.spans:
            kept = span if self._random.random() >= RENAMED else self._random.choice(self._names)
            phrases[span] = references[span] = kept
        for span, part in zip(chosen, parts, strict=True):
            steps += [_shift_references(step, len(steps)) for step in part.steps]
            phrases[span], references[span] = part.phrase, f"#{len(steps)}"
        return _replace_spans(said, phrases), (*steps, GoldStep(_replace_spans(link.question, references)))

    def _chosen(self, link: Clause, count: int, said: str) -> list[str]:
        """The spans that give way, as they stand; mostly the last, for what follows a phrase may seem part of it."""
        spans = sorted(link.spans, key=said.index)
        if count == 1 and self._random.random() < AT_THE_END:
            return spans[-1:]
        return sorted(self._random.sample(spans, count), key=said.index)


def _ask_relation(name: str, ask: str) -> Clause | None:
    found = read_clause(ask.replace("{x}", name))
    return found if found and found.phrases and found.spans == (name,) else None


def _replace_spans(text: str, values: Mapping[str, str]) -> str:
    """The text with every span replaced, all at once."""
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], text) if values else text


def _shift_references(step: GoldStep, by: int) -> GoldStep:
    return GoldStep(re.sub(r"#(\d+)", lambda match: f"#{int(match[1]) + by}", step.text), names=step.names)
