"""A plan as a graph: how many edits its flow of answers is away from gold, and which names of the question it keeps.

Nodes are leaves, edges go from each leaf to those that its answer feeds. Words are left out on purpose: equal words are
`PlanScore.exact`, equal arguments `plan_match`. Every insertion or deletion of a node or an edge costs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from data_gen.leakage import normalise
from revelator.language import Expression, bind, check, leaves

STATES = 20_000  # partial mappings that are looked at before the best one so far is taken

Edges = frozenset[tuple[int, int]]


def entity_coverage(plan: Expression, names: Sequence[str]) -> float:
    """Share of the question's names all of whose words occur in the plan; 1.0 if it names nothing."""
    planned = set(normalise(" ".join(leaf.text for leaf in leaves(plan))).split())
    return sum(set(normalise(name).split()) <= planned for name in names) / len(names) if names else 1.0


def graph_of(plan: Expression) -> tuple[int, Edges]:
    """Number of leaves, and edges producer to consumer, of a plan that checks."""
    sources = bind(plan).sources
    return len(sources), frozenset((p, c) for c, fed in enumerate(sources) for p in set(fed.values()))


def edit_distance(plan: Expression | None, gold: Expression) -> int:
    """Edits between the graphs of a plan and of gold (Sanfeliu and Fu 1983). A plan that cannot be bound, or None, is
    an empty graph: all of gold has to be inserted. Exact up to 8 leaves, beyond that an upper bound."""
    ours = graph_of(plan) if plan is not None and not check(plan) else (0, frozenset())
    return graph_distance(*ours, *graph_of(gold))


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
