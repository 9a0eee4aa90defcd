"""How a plan, a query or a tree that a model wrote is held against gold, whatever its words.

Word-for-word equality counts another wording of the same relation as wrong, equal letters count any words as right.
Between the two stands what an executor needs: which leaf speaks of which name of the question, which of which earlier
leaf's answer, and that no two relations have changed places.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from data_gen.annotate.names import NAME_SPAN, find_mention
from revelator.errors import ExpressionError
from revelator.files import sha256_text
from revelator.plans import (
    Dependent,
    Expression,
    art,
    bind,
    check,
    leaves,
    letters_key,
    logic,
    parse,
    substitute,
    to_letters,
)
from revelator.plans import Sequence as ListOf
from revelator.plans.art import Art
from revelator.plans.language import ART, BNF, LOGIC
from revelator.plans.logic import join_queries
from revelator.scores import normalise
from serving.retrieval.words import ASKING_WORDS, terms

ASKING = frozenset(terms(" ".join(ASKING_WORDS)))


@dataclass(frozen=True)
class PlanScore:
    """`valid`: parses and checks (rule set `scoped`); the others hold a parsed plan against gold, checked or not."""

    valid: bool
    letters: bool  # same shape up to the order of `+`
    leaves: bool  # same number of leaves
    exact: bool  # the same tree, word for word
    bound: bool  # the same, whatever placeholders are called (`bound_alike`)
    arguments: bool  # the same graph over the same names and placeholders (`arguments_match`)
    names: bool  # every name that question and gold plan share, copied exactly


def plan_score(output: str, gold: Expression, question: str, names: Sequence[str]) -> PlanScore:
    """Scores the text that a model wrote; a text that does not parse scores nothing. `names`: those that the question
    and its gold plan share (the column `entities` of a set)."""
    try:
        plan = parse(output)
    except ExpressionError:
        return PlanScore(False, False, False, False, False, False, False)
    return PlanScore(
        valid=not check(plan),
        letters=letters_key(plan) == letters_key(gold),
        leaves=len(leaves(plan)) == len(leaves(gold)),
        exact=plan == gold,
        bound=bound_alike(plan, gold),
        arguments=arguments_match(plan, gold, names),
        names=names_copied(plan, question, names),
    )


@dataclass(frozen=True)
class TreeScore:
    """`valid`: parses and checks; `structure` and `exact` hold it against gold."""

    valid: bool
    structure: bool  # same operators and references, up to the order of what needs nothing of one another
    exact: bool  # the same tree, word for word


def tree_score(output: str, gold: Art) -> TreeScore:
    """Scores the text that a model wrote; a text that is no tree scores nothing."""
    try:
        tree = art.parse(output)
    except ExpressionError:
        return TreeScore(False, False, False)
    valid = not art.check(tree)
    return TreeScore(valid, valid and art.structure_key(tree) == art.structure_key(gold), tree == gold)


@dataclass(frozen=True)
class QueryScore:
    """`valid`: parses and can be run; `truth`: the same terms, SQuAD's text of them, and the same truth table over
    them; `exact`: the same query, word for word."""

    valid: bool
    truth: bool
    exact: bool


def query_score(output: str, gold: logic.Query) -> QueryScore:
    """Scores the text that a model wrote; a text that does not parse scores nothing."""
    try:
        query = logic.parse(output)
    except ExpressionError:
        return QueryScore(False, False, False)
    return QueryScore(
        not logic.check(query), logic.equivalent(_normalise_terms(query), _normalise_terms(gold)), query == gold
    )


def _normalise_terms(query: logic.Query) -> logic.Query:
    if isinstance(query, logic.Term):
        return logic.Term(normalise(query.text) or query.text)
    if isinstance(query, logic.Not):
        return logic.Not(_normalise_terms(query.operand))
    return join_queries(
        logic.And if isinstance(query, logic.And) else logic.Or, [_normalise_terms(part) for part in query.operands]
    )


@dataclass(frozen=True)
class PlanMeasure:
    """How plans of one language are scored, and which of the scores decides promotion. `score` is given the text that
    a model wrote, the gold plan, the question, and the names that question and gold plan share."""

    score: Callable[[str, Any, str, Sequence[str]], Any]
    deciding: str


PLAN_MEASURES = {
    BNF.name: PlanMeasure(plan_score, "letters"),
    LOGIC.name: PlanMeasure(lambda output, gold, question, names: query_score(output, gold), "truth"),
    ART.name: PlanMeasure(lambda output, gold, question, names: tree_score(output, gold), "structure"),
}


def arguments_match(plan: Expression, gold: Expression, names: Sequence[str]) -> bool:
    """The same graph up to the order of `+`, each leaf mentions those of `names` (the question's) and is fed by those
    leaves that its gold leaf is, no leaf brings in a name that gold does not have, and relations stand in gold's order.

    The order is wrong where two leaves share more words with each other's gold leaf than with their own.
    """
    if check(plan):
        return False
    ours, theirs = _signs(plan, names), _signs(gold, names)
    if _form(plan, iter(ours)) != _form(gold, iter(theirs)) or _brings_in(plan, gold, names):
        return False
    ours_said, said = _words(plan, ours, names), _words(gold, theirs, names)
    return all(
        dice(ours_said[a], said[a]) + dice(ours_said[b], said[b])
        >= dice(ours_said[a], said[b]) + dice(ours_said[b], said[a])
        for a, b in combinations(said, 2)
    )


def bound_alike(plan: Expression, gold: Expression) -> bool:
    """The same plan word for word, whatever placeholders are called: each stands for the answer of the same leaf."""
    return to_letters(plan) == to_letters(gold) and _bound(plan) == _bound(gold)


def names_copied(plan: Expression, question: str, names: Sequence[str]) -> bool:
    """Each of `names`, which question and gold plan share, stands in a leaf, letter by letter as one of the two writes
    it; true where there is none."""
    texts = [leaf.text for leaf in leaves(plan)]
    return all(
        any(_stands(s, text) for text in texts for s in (find_mention(name, question) or name, name)) for name in names
    )


def _stands(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _bound(plan: Expression) -> list[str]:
    """Its leaves, each placeholder the number of the leaf whose answer it takes, or its own name where none is."""
    sources = bind(plan).sources
    return [
        substitute(leaf.text, {name: f"#{own.get(name, name)}" for name in leaf.placeholders})
        for leaf, own in zip(leaves(plan), sources, strict=True)
    ]


def _signs(plan: Expression, names: Sequence[str]) -> list[str]:
    """One a leaf: equal for leaves that mention the same names and are fed by leaves of equal signs."""
    signs: list[str] = []
    for leaf, sources in zip(leaves(plan), bind(plan).sources, strict=True):
        mentioned = sorted(name for name in names if find_mention(name, leaf.text))
        signs.append(sha256_text(f"{mentioned} {sorted(signs[producer] for producer in sources.values())}"))
    return signs


def _form(plan: Expression, signs: Iterator[str]) -> str:
    """The shape with signs for leaves, what stands in parallel in the order of its text."""
    match plan:
        case Dependent(left, right):
            return f"({_form(left, signs)} * {_form(right, signs)})"
        case ListOf(items):
            return f"({' + '.join(sorted([_form(item, signs) for item in items]))})"
    return next(signs)


def _brings_in(plan: Expression, gold: Expression, names: Sequence[str]) -> bool:
    """Whether a leaf writes something with a capital, inside its sentence, that no leaf of gold has."""
    wanted = " ".join(leaf.text for leaf in leaves(gold))
    texts = [_without(leaf.text, names) for leaf in leaves(plan)]
    spans = [(text[: m.start()], m[0].removesuffix("'s")) for text in texts for m in NAME_SPAN.finditer(text)]
    return any(re.search(r"\W$", before) and not find_mention(span, wanted) for before, span in spans)


def _words(plan: Expression, signs: Sequence[str], names: Sequence[str]) -> dict[str, set[str]]:
    """Stems of what leaves of one sign say beside names and placeholders."""
    said: dict[str, set[str]] = {}
    for leaf, sign in zip(leaves(plan), signs, strict=True):
        said.setdefault(sign, set()).update(terms(_without(re.sub(r"\{[^{}]*\}", " ", leaf.text), names)))
    return {sign: words - ASKING for sign, words in said.items()}


def _without(text: str, names: Sequence[str]) -> str:
    for name in names:
        while found := find_mention(name, text):
            text = text.replace(found, " ")
    return text


def dice(some: set[str], others: set[str]) -> float:
    """Dice's coefficient; 0 for two empty sets."""
    return 2 * len(some & others) / (len(some) + len(others)) if some or others else 0.0
