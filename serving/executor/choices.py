"""Which values a leaf is asked with: one or all of a producer's, and which belong together.

A leaf is asked once for each combination of its producers' values, but for those that it takes whole (`{2*}`). Values
that come from the same ancestor stay together: a film is paired with its
own director, never with another film's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from revelator.plans.graph import GraphStep
from revelator.trace import Node

MOST_TRIES = 1_000  # of the search for a leaf's choices: a few milliseconds


class Pick(NamedTuple):
    """A value of a step: the node that it was found at, its place among that node's values, and its text."""

    node: str
    number: int
    value: str


@dataclass(frozen=True)
class Choice:
    """The values that one call of a leaf is asked with, and where they come from.

    `inputs` gives the id of the node behind each placeholder. `picked` says for each step on the way which value was
    taken: choices belong together when they agree on every step that both name.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    picked: Mapping[int, Pick] = field(default_factory=dict)

    def agrees(self, picked: Mapping[int, Pick]) -> bool:
        return all(self.picked[step] == picked[step] for step in self.picked.keys() & picked.keys())


NOTHING_CHOSEN = Choice()


@dataclass(frozen=True, eq=False)
class EndedCall:
    """One call of a leaf, ended; without answers when it failed or was skipped."""

    node: Node
    choice: Choice

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(self.node.answers) if self.node.status == "ok" else ()

    @property
    def values(self) -> tuple[str, ...]:
        """The answers that another leaf is asked with. A verdict is none: it would be asked about as if it were what
        was asked for."""
        return () if "verdict" in self.node.detail else self.answers


def choose_values(
    step: GraphStep,
    outcomes: Mapping[int, Sequence[EndedCall]],
    list_nodes: Mapping[int, str],
    limit: int,
) -> tuple[list[Choice], bool]:
    """At most `limit` choices for a leaf, in the order of the whole product, and whether there may be more. `outcomes`:
    what each producer gave; `list_nodes`: the node id that stands for all values of a producer.

    The search ends after `MOST_TRIES`, however many combinations there are.
    """
    producers = sorted(set(step.sources.values()))
    calls = {p: [(one, values) for one in outcomes[p] if (values := one.values)] for p in producers}
    if not all(calls.values()):
        return [], False
    lists = {p: list(dict.fromkeys(v for _, values in calls[p] for v in values)) for p in step.taken_whole}
    whole = {p: Pick(list_nodes[p], 0, join_with_and(values)) for p, values in lists.items()}
    tries = 0

    def extend(picked: Mapping[int, Pick], producers: Sequence[int]) -> Iterator[Mapping[int, Pick]]:
        """What is picked, with a value of each producer."""
        nonlocal tries
        if not producers:
            yield picked
            return
        producer, *others = producers
        for one, values in calls[producer]:
            tries += 1
            for number, value in enumerate(values if one.choice.agrees(picked) else ()):
                tries += 1
                if tries > MOST_TRIES:
                    return
                pick = {producer: Pick(one.node.id, number, value)}
                yield from extend({**picked, **one.choice.picked, **pick}, others)

    def make_choice(picked: Mapping[int, Pick]) -> Choice:
        taken = {name: (whole.get(producer) or picked[producer]) for name, producer in step.sources.items()}
        values = {name: pick.value for name, pick in taken.items()}
        return Choice(values, {name: pick.node for name, pick in taken.items()}, picked)

    found = list(islice(extend({}, [p for p in producers if p not in whole]), limit + 1))
    return [make_choice(picked) for picked in found[:limit]], len(found) > limit or tries > MOST_TRIES


def join_with_and(values: Sequence[str]) -> str:
    """Joins values as a sentence does: "A, B and C"."""
    return " and ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
