"""A plan as a graph: how many edits its flow of answers is away from gold, and which names of the question it keeps.

Nodes are leaves, edges go from each leaf to those that its answer feeds. Words are left out on purpose: equal words are
`PlanScore.exact`, equal arguments `plan_match`. Every insertion or deletion of a node or an edge costs one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from data_gen.leakage import normalise
from revelator.limits import depth
from revelator.plans import Expression, bind, check, leaves, letters_key, parse

STATES = 20_000  # partial mappings that are looked at before the best one so far is taken

Edges = frozenset[tuple[int, int]]
NONE: Edges = frozenset()


@dataclass(frozen=True, slots=True)
class Sketch:
    """What scores look at in a plan: `letters` up to the order of `+`, stages of its longest chain, its leaves' texts,
    edges producer to consumer (none where it does not check). Kept without the plan itself: the collector walks over
    every node that is kept, and took as long for 100,000 plans as reading them."""

    valid: bool
    letters: str
    depth: int
    texts: tuple[str, ...]
    edges: Edges

    @property
    def leaves(self) -> int:
        return len(self.texts)


@lru_cache(maxsize=65_536)  # gold plans come again with every system, and so do most of a model's own
def read_sketch(text: str) -> Sketch:
    """Read, checked and bound once. Raises ExpressionError."""
    plan = parse(text)
    valid, texts = not check(plan), tuple([leaf.text for leaf in leaves(plan)])
    return Sketch(valid, letters_key(plan), depth(plan), texts, _shared(_edges(plan)) if valid else NONE)


def entity_coverage(plan: Sketch, names: Collection[str]) -> float:
    """Share of the question's names all of whose words occur in the plan; 1.0 if it names nothing."""
    words = frozenset(normalise(" ".join(plan.texts)).split())
    return sum([words.issuperset(normalise(name).split()) for name in names]) / len(names) if names else 1.0


def _edges(plan: Expression) -> Edges:
    return frozenset([(p, c) for c, fed in enumerate(bind(plan).sources) for p in fed.values()])


@lru_cache(maxsize=1024)
def _shared(edges: Edges) -> Edges:
    """One value for all plans of the same graph."""
    return edges


def edit_distance(plan: Sketch | None, gold: Sketch) -> int:
    """Edits between the graphs of a plan and of gold (Sanfeliu and Fu 1983). A plan that does not check, or None, is
    an empty graph: all of gold has to be inserted. Exact up to 8 leaves, beyond that an upper bound."""
    size, edges = (plan.leaves, plan.edges) if plan and plan.valid else (0, NONE)
    return graph_distance(size, edges, gold.leaves, gold.edges)


@lru_cache(maxsize=65_536)
def graph_distance(n: int, edges: Edges, m: int, others: Edges) -> int:
    """The least cost over all mappings of n nodes onto m: depth first, cut where the cost so far and the edges that
    remain cannot beat the best."""
    if n > m:
        n, edges, m, others = m, others, n, edges
    best = n + m + len(edges) + len(others)
    states = 0

    def mapped(images: tuple[int, ...], cost: int, left: int, right: int) -> None:
        """`images` of the first nodes, -1 for a deleted one; `left`, `right`: edges that no pair of them has yet.
        At least the difference of the two is still to be edited, and every node of `others` that has no origin."""
        nonlocal best, states
        node, states = len(images), states + 1
        unused = m - n + images.count(-1)
        if cost + unused + abs(left - right) >= best or states > STATES:
            return
        if node == n:
            best = cost + unused + right
            return
        kept = [before for before in range(node) if images[before] >= 0]
        mine = _between(edges, node, range(node))
        free = sorted(set(range(m)).difference(images), key=lambda image: image != node)
        for image in free:
            theirs = _between(others, image, [images[before] for before in kept])
            common = sum(
                ((a, node) in edges and (images[a], image) in others)
                + ((node, a) in edges and (image, images[a]) in others)
                for a in kept
            )
            mapped((*images, image), cost + mine + theirs - 2 * common, left - mine, right - theirs)
        mapped((*images, -1), cost + mine + 1, left - mine, right)

    mapped((), 0, len(edges), len(others))
    return best


def _between(edges: Edges, node: int, others: Sequence[int]) -> int:
    return sum(((other, node) in edges) + ((node, other) in edges) for other in others)
