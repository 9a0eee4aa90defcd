"""A compiled plan as a tree: each leaf of a G[q] expression becomes a node with the operator that its words call for.

A small model compiles questions into expressions well and into trees badly (AtomR, appendix D), so the tree is derived
by rules. A question about one entity, named or found earlier, is `Relate` with the rest of its words; one that only
asks who or what that is, `Search`; one that judges earlier answers, `[DR]`; any other is searched for as it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

from revelator.plans import Expression, bind, leaves, substitute
from revelator.plans.art import Art, Call, Relate, Search, escape, references
from serving.merge import needs_judgement
from serving.reading.question import ask
from serving.reading.text import tokenise
from serving.retrieval import ASKING_WORDS, STOP_WORDS


def tree_of(question: str, expression: Expression) -> Art:
    """The tree of a plan that checks: its leaves as children of the question, in order; a plan of one leaf is one
    node."""
    found, sources = leaves(expression), bind(expression).sources
    nodes = [
        _node(substitute(escape(leaf.text), {name: f"[{producer + 1}]" for name, producer in needs.items()}))
        for leaf, needs in zip(found, sources, strict=True)
    ]
    if len(nodes) == 1:
        return Art(escape(question), nodes[0].call)
    return Art(escape(question), children=tuple(nodes))


def _node(text: str) -> Art:
    named = references(text)
    if len(named) > 1 or (named and needs_judgement(text)):
        return Art(text)
    return Art(text, _call(text, [f"[{number}]" for number in named] or ask(text).names))


def _call(text: str, heads: Sequence[str]) -> Call:
    if len(heads) != 1:
        return Search(text)
    before, _, after = text.partition(heads[0])
    words = [token.text for token in tokenise(f"{before} {after}") if token.is_word]
    relation = " ".join(word for word in words if word.lower() not in STOP_WORDS | ASKING_WORDS | {"s"})
    return Relate(heads[0], relation) if relation else Search(heads[0])
