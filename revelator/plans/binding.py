"""Decides which step feeds each placeholder, from the plan alone: the same plan always binds the same way.

A number names its step, which must stand in a left operand. A name may take the result of any leaf of a left operand
that it stands to the right of. The last stage of a left operand is its result, and an operation the only one of what it
is done with; earlier stages stay in scope and come after. For the names of one right operand:

1. a name is matched with the producers' questions: words shared with what the question asks for and a question word
   that fits ({city} and where) count first, other shared words after them. The best match wins; of equals the nearest,
   and names that tie over the same producers share these out from left to right;
2. a name that matches nothing and is new takes the first result of the left operand that is still free;
3. a name that matches nothing and was bound further left keeps its meaning, unless the right operand would then use
   nothing of its left: one of its placeholders always does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from revelator.plans.bnf import (
    Atomic,
    Dependent,
    Expression,
    Operation,
    Step,
    blank_placeholders,
    list_steps,
    read_reference,
    replace_placeholders,
    spell_operation,
)
from revelator.plans.gathering import wants_all
from revelator.plans.graph import Graph, GraphStep
from revelator.plans.operators import read_call

MAX_CANDIDATES = 64  # nearest producers that a placeholder is matched with; keeps binding linear in the plan


def bind(expression: Expression) -> Graph:
    """The graph of a plan: finds the producer of each placeholder. One that has none in scope (`check` reports it) is
    absent from the sources of its step."""
    return _Binder(list_steps(expression)).bind(expression)


def spell_by_numbers(expression: Expression) -> Expression:
    """The same plan with the number of its step in place of each name that has a producer."""
    sources = iter(bind(expression).sources)

    def spell(node: Expression) -> Expression:
        if type(node) is Atomic:
            found = next(sources)
            return Atomic(replace_placeholders(node.text, lambda name: spell_number(name, node, found)))
        spelled = node.with_children([spell(child) for child in node.children])
        if type(node) is Operation:
            next(sources)
        return spelled

    return spell(expression)


def spell_number(name: str, leaf: Atomic, sources: Mapping[str, int]) -> str:
    """The placeholder `name` of a leaf by the number of its step; as it is where it has no producer.

    Names for one step take all its values only together: where one of them takes each value, so do the others.
    """
    if name not in sources:
        return f"{{{name}}}"
    alike = [other for other, producer in sources.items() if producer == sources[name]]
    return f"{{{sources[name] + 1}{'*' if all(wants_all(leaf.text, other) for other in alike) else ''}}}"


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP = _set(
    "a an and are as at be been by did do does for from had has have he her his how i in is it its many me much of on"
    " or she that the their there these this those to was were what when where which who whom whose why will with"
)
CLAUSE = _set("of in at by from for on to that who which whose with during after before did does was")
ASKED = {
    "who": _set("person people man woman actor author artist director performer founder spouse father mother"),
    "where": _set("place city country state county town village location region continent birthplace venue"),
    "when": _set("year date day month time decade century birthday"),
    "many": _set("number count population total"),
}
FITS = {noun: word for word, nouns in ASKED.items() for noun in nouns}
WORD = re.compile(r"[^\W\d_]+")
SUFFIX = re.compile(r"(?<=\w{3})(?:ies|ing|ers?|ors?|ions?|ed|es|s|e|y)$")
LONG = 64  # characters; a longer run of letters is no word, and has no stem


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _stems(words: list[str]) -> frozenset[str]:
    return frozenset([_stem(word) if len(word) <= LONG else word for word in words if word not in STOP])


@lru_cache(maxsize=16_384)
def _stem(word: str) -> str:
    return SUFFIX.sub("", word)


class _Producer(NamedTuple):
    """What the match looks at in a leaf's question: its content words, those it asks for, its question word."""

    words: frozenset[str]
    focus: frozenset[str]
    asks: str | None

    @classmethod
    def of(cls, leaf: Step) -> _Producer:
        if isinstance(leaf, Operation):
            return cls(frozenset(), frozenset(), None)
        words = _words(blank_placeholders(leaf.text))
        stems = _stems(words)
        clause = next((i for i in range(2, len(words)) if words[i] in CLAUSE), None)
        asks = next((word for word in words[:4] if word in ASKED), None)
        return cls(stems, stems if clause is None else _stems(words[:clause]), asks)

    def score(self, stems: frozenset[str], asked: str | None) -> tuple[int, int]:
        fits = asked is not None and asked == self.asks
        return len(stems & self.focus) + fits, len(stems & self.words)


class _Results(NamedTuple):
    """What a part of the plan offers: its results, its earlier stages from the nearest, and the names it bound."""

    last: list[int]
    earlier: list[int]
    names: dict[str, int]


class _Binder:
    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.steps: list[GraphStep] = []
        self.is_explicit = False
        self.producers = [_Producer.of(step) for step in steps]

    def bind(self, root: Expression) -> Graph:
        results = self._visit(root, (), {}, ())
        return Graph(tuple(self.steps), tuple(results.last), self.is_explicit)

    def _add(self, step: GraphStep) -> list[int]:
        self.steps.append(step)
        return [len(self.steps) - 1]

    def _visit(
        self, node: Expression, scope: tuple[_Results, ...], bound: dict[str, int], before: tuple[range, ...]
    ) -> _Results:
        """`scope`: the left operands that this node stands to the right of, nearest first; `before`: their steps."""
        start = len(self.steps)
        if type(node) is Atomic:
            found = {name: bound[name] for name in node.placeholders if name in bound}
            for name in node.placeholders:
                if reference := read_reference(name):
                    self.is_explicit = True
                    if any(reference.number - 1 in steps for steps in before):
                        found[name] = reference.number - 1
            return _Results(self._add(GraphStep(node.text, found, read_call(node.text))), [], {})
        if type(node) is Operation:
            self.is_explicit = True
            inside = self._visit(node.operand, scope, bound, before)
            steps, text = range(start, len(self.steps)), f"=> {spell_operation(node)}"
            worked = GraphStep(text, operation=node, inside=steps, parts=tuple(inside.last))
            return _Results(self._add(worked), [], inside.names)
        if type(node) is Dependent:
            left = self._visit(node.left, scope, bound, before)
            assigned = self._assign(node.right, (left, *scope), bound)
            before = (range(start, len(self.steps)), *before)
            right = self._visit(node.right, (left, *scope), {**bound, **assigned}, before)
            earlier = [*right.earlier, *reversed(left.last), *left.earlier]
            return _Results(right.last, earlier[:MAX_CANDIDATES], {**left.names, **assigned, **right.names})
        parts = [self._visit(item, scope, bound, before) for item in node.children]
        return _Results(
            [i for part in parts for i in part.last],
            list(islice((i for part in reversed(parts) for i in part.earlier), MAX_CANDIDATES)),
            {name: source for part in parts for name, source in part.names.items()},
        )

    def _assign(self, right: Expression, scope: tuple[_Results, ...], bound: dict[str, int]) -> dict[str, int]:
        """Assigns producers to the names that `right` uses outside its own inner right operands."""
        used = (name for leaf in list_starts(right) for name in leaf.placeholders)
        names = [name for name in dict.fromkeys(used) if not read_reference(name)]
        if not names:
            return {}
        left = scope[0]
        tiers = _tiers(scope)
        chosen = self._match(names, tiers)
        if len(chosen) == len(names) and len(scope) == 1:
            return chosen  # the left is all there is to take from
        seen = {**bound, **left.names}
        unmatched = [name for name in names if name not in chosen]
        new = [name for name in unmatched if name not in seen]
        if not new and {*left.last, *left.earlier}.isdisjoint(chosen.values()):
            new = [unmatched[-1] if unmatched else names[-1]]
        taken = set(chosen.values())
        free = (i for tier in tiers for i in tier if i not in taken)
        for name in new:
            chosen[name] = next(free, left.last[-1])
        return {**{name: seen[name] for name in unmatched if name in seen}, **chosen}

    def _match(self, names: list[str], tiers: list[list[int]]) -> dict[str, int]:
        """Matches names whose best score is above 0; names that tie over the same producers share them."""
        tied: dict[tuple[int, ...], list[str]] = {}
        for name in names:
            words = _words(name)
            stems, asked = _stems(words), FITS.get(words[-1]) if words else None
            best, equals, nearest = (0, 0), list[int](), list[int]()
            for tier in tiers:
                for i in tier:
                    score = self.producers[i].score(stems, asked)
                    if score > best:
                        best, equals, nearest = score, [i], tier
                    elif score == best and tier is nearest:
                        equals.append(i)
            if equals:
                tied.setdefault(tuple(sorted(equals)), []).append(name)
        return {name: i for equals, group in tied.items() for name, i in _share(group, equals)}


def _share(names: list[str], equals: tuple[int, ...]) -> list[tuple[str, int]]:
    """Gives one name the nearest of equal producers, and several names as many of the nearest, in order."""
    nearest = equals[-len(names) :]
    return [(name, nearest[min(i, len(nearest) - 1)]) for i, name in enumerate(names)]


def _tiers(scope: tuple[_Results, ...]) -> list[list[int]]:
    """Sorts the producers in scope by nearness: results before earlier stages, near operands before far ones."""
    room = MAX_CANDIDATES
    nearest = []
    for tier in (tier for results in scope for tier in (results.last[-MAX_CANDIDATES:], results.earlier)):
        if room and tier:
            nearest.append(tier[:room])
            room -= len(nearest[-1])
    return nearest


def list_starts(right: Expression) -> list[Atomic]:
    """Lists the leaves of `right` that have nothing inside `right` to their left."""
    if type(right) is Atomic:
        return [right]
    first = right.children[:1] if type(right) is Dependent else right.children
    return [leaf for child in first for leaf in list_starts(child)]
