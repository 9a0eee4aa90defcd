"""Compares plans as graphs: the number of edits between the plan's graph and gold's, and the names that it keeps.

Nodes are leaves. Edges go from each leaf to those that use its answer. Words do not count here, as they do in
`evaluation.metrics.plans`. Inserting or deleting a node or an edge costs one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache

from data_gen.leakage import normalise
from revelator.limits import count_stages
from revelator.plans import bind, check, leaves, letters_key, parse

STATES = 20_000  # partial mappings that are looked at before the best one so far is taken

Edges = frozenset[tuple[int, int]]
NONE: Edges = frozenset()


@dataclass(frozen=True, slots=True)
class Sketch:
    """What metrics need of a plan: `letters` up to the order of `+`, the number of stages of its longest chain, the
    texts of its leaves, and edges from producer to consumer (none if the plan is invalid). It does not hold the plan:
    the garbage collector took as long to walk 100,000 plans as reading them had taken."""

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
    """Parses, checks and binds a plan, once for each text. Raises ExpressionError."""
    plan = parse(text)
    valid, texts = not check(plan), tuple([leaf.text for leaf in leaves(plan)])
    edges = frozenset([(p, c) for c, fed in enumerate(bind(plan).sources) for p in fed.values()]) if valid else NONE
    return Sketch(valid, letters_key(plan), count_stages(plan), texts, edges)


def entity_coverage(plan: Sketch, names: Collection[str]) -> float:
    """Computes the share of names whose words all occur in the plan; 1.0 without names."""
    words = frozenset(normalise(" ".join(plan.texts)).split())
    return sum([words.issuperset(normalise(name).split()) for name in names]) / len(names) if names else 1.0


def edit_distance(plan: Sketch | None, gold: Sketch) -> int:
    """Counts the edits between the graphs of a plan and of gold (Sanfeliu and Fu 1983). An invalid plan, or None,
    counts as an empty graph: all of gold must be inserted. Exact up to 8 leaves, an upper bound beyond."""
    size, edges = (plan.leaves, plan.edges) if plan and plan.valid else (0, NONE)
    return graph_distance(size, edges, gold.leaves, gold.edges)


@lru_cache(maxsize=65_536)
def graph_distance(n: int, edges: Edges, m: int, others: Edges) -> int:
    """Finds the least cost over all mappings of n nodes onto m: depth first, pruning what cannot beat the best cost."""
    if n > m:
        n, edges, m, others = m, others, n, edges
    best = n + m + len(edges) + len(others)
    states = 0

    def extend(images: tuple[int, ...], cost: int, left: int, right: int) -> None:
        """Maps the next node. `images` are those of the first nodes, -1 for a deleted one; `left` and `right` count
        the edges that no mapped pair has yet. Their difference, and each unused node of the other graph, is a lower
        bound on the edits that remain."""
        nonlocal best, states
        node, states = len(images), states + 1
        unused = m - n + images.count(-1)
        if cost + unused + abs(left - right) >= best or states > STATES:
            return
        if node == n:
            best = cost + unused + right
            return
        kept = [before for before in range(node) if images[before] >= 0]
        mine = _count_edges(edges, node, range(node))
        free = sorted(set(range(m)).difference(images), key=lambda image: image != node)
        for image in free:
            theirs = _count_edges(others, image, [images[before] for before in kept])
            common = sum(
                ((a, node) in edges and (images[a], image) in others)
                + ((node, a) in edges and (image, images[a]) in others)
                for a in kept
            )
            extend((*images, image), cost + mine + theirs - 2 * common, left - mine, right - theirs)
        extend((*images, -1), cost + mine + 1, left - mine, right)

    extend((), 0, len(edges), len(others))
    return best


def _count_edges(edges: Edges, node: int, others: Sequence[int]) -> int:
    return sum(((other, node) in edges) + ((node, other) in edges) for other in others)
