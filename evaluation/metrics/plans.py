"""Compares a plan, query or tree that a model wrote with gold, in any wording.

Word-for-word equality rejects another wording of the same relation; equal letters accept any words. `arguments` stands
between the two. It asks what an executor needs: which leaf mentions which name of the question, which leaf uses which
earlier answer, and that no two relations are swapped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

from data_gen.annotate.names import NAME_SPAN, find_mention
from revelator.errors import ExpressionError
from revelator.files import sha256_text
from revelator.limits import count_stages
from revelator.plans import (
    Dependent,
    Expression,
    Operation,
    art,
    bind,
    check,
    list_leaves,
    list_steps,
    logic,
    make_letters_key,
    parse,
)
from revelator.plans import Sequence as ListOf
from revelator.plans.art import Art
from revelator.plans.language import ART, BNF, LOGIC
from revelator.plans.logic import join_queries
from revelator.scores import normalise
from serving.retrieval.words import ASKING_WORDS, extract_terms

ASKING = frozenset(extract_terms(" ".join(ASKING_WORDS)))


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """What figures need of a plan: `letters` up to the order of `+`, the number of stages of its longest chain, and of
    its leaves. It does not hold the plan: the garbage collector took as long to walk 100,000 plans as reading them had
    taken."""

    valid: bool
    letters: str
    depth: int
    leaves: int


@lru_cache(maxsize=65_536)  # gold plans come again with every system, and so do most of a model's own
def summarise_plan(text: str) -> PlanSummary:
    """Parses and checks a plan, once for each text. Raises ExpressionError."""
    plan = parse(text)
    return PlanSummary(not check(plan), make_letters_key(plan), count_stages(plan), len(list_leaves(plan)))


PLAN_SCORES = ("valid", "letters", "operations", "leaves", "exact", "arguments", "names")
Scores = dict[str, bool]


def score_plan(output: str, gold: Expression, question: str, names: Sequence[str]) -> Scores:
    """Scores a text that a model wrote; a text that does not parse scores nothing. `names` are those that the question
    and its gold plan share (the column `entities` of a set).

    `valid`: parses and checks (rules `scoped`). The others compare a parsed plan with gold, valid or not. `letters`:
    the same shape, operations included, up to the order of `+`. `operations`: the same ones, none where gold has none.
    `leaves`: their number. `exact`: the same tree, word for word.
    `arguments`: the same graph over the same names and placeholders. `names`: each of `names` is copied exactly.
    """
    try:
        plan = parse(output)
    except ExpressionError:
        return dict.fromkeys(PLAN_SCORES, False)
    return {
        "valid": not check(plan),
        "letters": make_letters_key(plan) == make_letters_key(gold),
        "operations": _list_operations(plan) == _list_operations(gold),
        "leaves": len(list_leaves(plan)) == len(list_leaves(gold)),
        "exact": plan == gold,
        "arguments": have_equal_arguments(plan, gold, names),
        "names": copies_names(plan, question, names),
    }


def _list_operations(plan: Expression) -> list[str]:
    return sorted(step.name for step in list_steps(plan) if isinstance(step, Operation))


def score_tree(output: str, gold: Art) -> Scores:
    """`valid`: parses and checks. `structure`: also the same operators and references, up to the order of what needs
    nothing of one another. `exact`: the same tree, word for word."""
    try:
        tree = art.parse(output)
    except ExpressionError:
        return dict.fromkeys(("valid", "structure", "exact"), False)
    valid = not art.check(tree)
    same = valid and art.make_structure_key(tree) == art.make_structure_key(gold)
    return {"valid": valid, "structure": same, "exact": tree == gold}


def score_query(output: str, gold: logic.Query) -> Scores:
    """`valid`: parses and can run. `truth`: the same terms, after SQuAD's normaliser, and the same truth table.
    `exact`: the same query, word for word."""
    try:
        query = logic.parse(output)
    except ExpressionError:
        return dict.fromkeys(("valid", "truth", "exact"), False)
    same = logic.are_equivalent(_normalise_terms(query), _normalise_terms(gold))
    return {"valid": not logic.check(query), "truth": same, "exact": query == gold}


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
    """How plans of one language are scored, and which score decides promotion. `score` takes the text that a model
    wrote, the gold plan, the question, and the names that question and gold plan share."""

    score: Callable[[str, Any, str, Sequence[str]], Scores]
    deciding: str


PLAN_MEASURES = {
    BNF.name: PlanMeasure(score_plan, "letters"),
    LOGIC.name: PlanMeasure(lambda output, gold, question, names: score_query(output, gold), "truth"),
    ART.name: PlanMeasure(lambda output, gold, question, names: score_tree(output, gold), "structure"),
}


def have_equal_arguments(plan: Expression, gold: Expression, names: Sequence[str]) -> bool:
    """Whether the plan has gold's graph up to the order of `+`, each leaf mentions the same of `names` and uses the
    same leaves as its gold leaf, no leaf adds a name that gold lacks, and relations are in gold's order.

    Two leaves are swapped if they share more words with each other's gold leaf than with their own.
    """
    if check(plan):
        return False
    ours, theirs = _digest_leaves(plan, names), _digest_leaves(gold, names)
    if _spell_shape(plan, iter(ours)) != _spell_shape(gold, iter(theirs)) or _adds_a_name(plan, gold, names):
        return False
    ours_said, said = _collect_words(plan, ours, names), _collect_words(gold, theirs, names)
    return all(
        compute_dice(ours_said[a], said[a]) + compute_dice(ours_said[b], said[b])
        >= compute_dice(ours_said[a], said[b]) + compute_dice(ours_said[b], said[a])
        for a, b in combinations(said, 2)
    )


def copies_names(plan: Expression, question: str, names: Sequence[str]) -> bool:
    """Whether a leaf contains each of `names` exactly as the question or the gold plan spells it; true without
    names."""
    texts = [leaf.text for leaf in list_leaves(plan)]
    return all(
        any(_occurs(s, text) for text in texts for s in (find_mention(name, question) or name, name)) for name in names
    )


def _occurs(name: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _digest_leaves(plan: Expression, names: Sequence[str]) -> list[str]:
    """Returns a digest for each step: equal for leaves that mention the same names and use steps of equal digests, and
    for the same operations on these."""
    digests: list[str] = []
    for step, bound in zip(list_steps(plan), bind(plan).steps, strict=True):
        if isinstance(step, Operation):
            named = sorted(digests[number - 1] for number in step.references)
            compared = [digests[number - 1] for number in step.condition.steps] if step.condition else []
            condition = step.condition and (step.condition.sign, *(compared or [step.condition.value]))
            said, used = f"{step.name} {named} {condition}", tuple(bound.parts)
        else:
            said = str(sorted(name for name in names if find_mention(name, step.text)))
            used = tuple(bound.sources.values())
        digests.append(sha256_text(f"{said} {sorted(digests[producer] for producer in used)}"))
    return digests


def _spell_shape(plan: Expression, digests: Iterator[str]) -> str:
    """Spells the shape with digests for leaves; parallel parts are sorted."""
    match plan:
        case Dependent(left, right):
            return f"({_spell_shape(left, digests)} * {_spell_shape(right, digests)})"
        case ListOf(items):
            return f"({' + '.join(sorted([_spell_shape(item, digests) for item in items]))})"
        case Operation(operand):
            return f"({_spell_shape(operand, digests)} => {next(digests)})"
    return next(digests)


def _adds_a_name(plan: Expression, gold: Expression, names: Sequence[str]) -> bool:
    """Whether a leaf has a capitalised name, inside its sentence, that no leaf of gold has."""
    wanted = " ".join(leaf.text for leaf in list_leaves(gold))
    texts = [_remove_names(leaf.text, names) for leaf in list_leaves(plan)]
    spans = [(text[: m.start()], m[0].removesuffix("'s")) for text in texts for m in NAME_SPAN.finditer(text)]
    return any(re.search(r"\W$", before) and not find_mention(span, wanted) for before, span in spans)


def _collect_words(plan: Expression, digests: Sequence[str], names: Sequence[str]) -> dict[str, set[str]]:
    """Collects the stems of the leaves of each digest, without names and placeholders."""
    said: dict[str, set[str]] = {}
    for leaf, digest in zip(list_steps(plan), digests, strict=True):
        if isinstance(leaf, Operation):
            continue
        said.setdefault(digest, set()).update(
            extract_terms(_remove_names(re.sub(r"\{[^{}]*\}", " ", leaf.text), names))
        )
    return {digest: words - ASKING for digest, words in said.items()}


def _remove_names(text: str, names: Sequence[str]) -> str:
    for name in names:
        while found := find_mention(name, text):
            text = text.replace(found, " ")
    return text


def compute_dice(some: set[str], others: set[str]) -> float:
    """Computes Dice's coefficient; 0 for two empty sets."""
    return 2 * len(some & others) / (len(some) + len(others)) if some or others else 0.0
