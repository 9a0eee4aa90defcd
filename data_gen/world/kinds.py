"""Every kind of complex question, with how often it is drawn, and the single ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate

from data_gen.world.chains import chain, joint, shared_joint
from data_gen.world.comparisons import compare, compare_counts
from data_gen.world.drawing import Draft, Drawing
from data_gen.world.judgements import difference, same, with_own
from data_gen.world.lists import count, fan_out, intersect, listed
from data_gen.world.pairs import pair, two_facts
from data_gen.world.terms import question

# how often each kind of complex question is drawn
KINDS: dict[str, tuple[float, Callable[[Drawing], Draft | None]]] = {
    "chain 2": (12, lambda d: chain(d, 2)),
    "chain 3": (9, lambda d: chain(d, 3)),
    "chain 4": (5, lambda d: chain(d, 4)),
    "chain 5": (1.5, lambda d: chain(d, 5)),
    "chain 6": (0.7, lambda d: chain(d, 6)),
    "joint 1 0": (3, lambda d: joint(d, 1, 0)),
    "joint 0 1": (3, lambda d: joint(d, 0, 1)),
    "joint 1 1": (5, lambda d: joint(d, 1, 1)),
    "joint 2 1": (3, lambda d: joint(d, 2, 1)),
    "joint 1 2": (3, lambda d: joint(d, 1, 2)),
    "joint 2 2": (1.5, lambda d: joint(d, 2, 2)),
    "joint 3 1": (1, lambda d: joint(d, 3, 1)),
    "joint 1 1 then 1": (2.5, lambda d: joint(d, 1, 1, 1)),
    "joint 2 1 then 1": (1.5, lambda d: joint(d, 2, 1, 1)),
    "joint 1 1 then 2": (0.7, lambda d: joint(d, 1, 1, 2)),
    "joint 2 2 then 1": (0.5, lambda d: joint(d, 2, 2, 1)),
    "shared joint 0": (1.5, lambda d: shared_joint(d, 0)),
    "shared joint 1": (2.5, lambda d: shared_joint(d, 1)),
    "shared joint 2": (1, lambda d: shared_joint(d, 2)),
    "shared joint 1, longer": (1.5, lambda d: shared_joint(d, 1, 1)),
    "compare 1 1": (4, lambda d: compare(d, (1, 1))),
    "compare 2 2": (6, lambda d: compare(d, (2, 2))),
    "compare 3 3": (2, lambda d: compare(d, (3, 3))),
    "compare 1 2": (2, lambda d: compare(d, (1, 2))),
    "compare 2 1": (2, lambda d: compare(d, (2, 1))),
    "compare 3 2": (1, lambda d: compare(d, (3, 2))),
    "compare 1 3": (0.7, lambda d: compare(d, (1, 3))),
    "compare 1 1 1": (1.5, lambda d: compare(d, (1, 1, 1))),
    "compare 2 2 2": (1, lambda d: compare(d, (2, 2, 2))),
    "same 1 1": (3, lambda d: same(d, (1, 1))),
    "same 2 2": (3, lambda d: same(d, (2, 2))),
    "same 1 2": (1, lambda d: same(d, (1, 2))),
    "difference 1 1": (1.5, lambda d: difference(d, (1, 1))),
    "difference 2 2": (1, lambda d: difference(d, (2, 2))),
    "own 0": (2, lambda d: with_own(d, 0)),
    "own 1": (2, lambda d: with_own(d, 1)),
    "own 2": (1, lambda d: with_own(d, 2)),
    "two facts 1": (3, lambda d: two_facts(d, 1)),
    "two facts 2": (2, lambda d: two_facts(d, 2)),
    "two facts 3": (0.7, lambda d: two_facts(d, 3)),
    "two facts 1, deeper": (1.5, lambda d: two_facts(d, 1, 1)),
    "two facts 2, deeper": (0.7, lambda d: two_facts(d, 2, 1)),
    "pair 2 1": (2, lambda d: pair(d, chain(d, 2), chain(d, 1))),
    "pair 1 2": (1, lambda d: pair(d, chain(d, 1), chain(d, 2))),
    "pair 2 2": (1.5, lambda d: pair(d, chain(d, 2), chain(d, 2))),
    "pair 3 1": (1, lambda d: pair(d, chain(d, 3), chain(d, 1))),
    "pair joint": (0.7, lambda d: pair(d, joint(d, 1, 1), chain(d, 1))),
    "pair joint 2": (0.5, lambda d: pair(d, chain(d, 2), joint(d, 1, 1))),
    "pair two facts": (0.5, lambda d: pair(d, chain(d, 1), two_facts(d, 1))),
    "each": (4, lambda d: fan_out(d, 0, "each")),
    "each of found": (2, lambda d: fan_out(d, 1, "each")),
    "each, chained": (1.5, lambda d: fan_out(d, 0, "each", 2)),
    "extreme": (4, lambda d: fan_out(d, 0, "extreme")),
    "extreme of found": (1.5, lambda d: fan_out(d, 1, "extreme")),
    "count which": (2, lambda d: fan_out(d, 0, "count_is")),
    "count which, found": (0.7, lambda d: fan_out(d, 1, "count_is")),
    "count after": (2, lambda d: fan_out(d, 0, "count_after")),
    "count": (2, lambda d: count(d, 1)),
    "count deeper": (1, lambda d: count(d, 2)),
    "more": (1.5, lambda d: compare_counts(d, 0)),
    "more of found": (1, lambda d: compare_counts(d, 1)),
    "in both": (2, lambda d: intersect(d)),
}


_CHOICES = [make for _, make in KINDS.values()]
_WEIGHTS = list(accumulate(weight for weight, _ in KINDS.values()))


def draw_kind(rng: random.Random) -> Callable[[Drawing], Draft | None]:
    """A kind of complex question, drawn by weight."""
    return rng.choices(_CHOICES, cum_weights=_WEIGHTS)[0]


def single(drawing: Drawing) -> Draft | None:
    """One fact."""
    if drawing.rng.random() < 0.15 and drawing.lists:
        found = listed(drawing, 0)
        return (
            Draft(question(found[1], drawing.rng), (found[1],), "list", drawing.text(found[1].values))
            if found
            else None
        )
    return joint(drawing, 0, 0) if drawing.rng.random() < 0.12 else chain(drawing, 1)
