"""Which values a leaf is asked with: one or all of a producer's, and which belong together.

A leaf is asked once for each combination of its producers' values, but for those that it takes whole (`{2*}`). Values
that come from the same ancestor stay together: a film is paired with its
own director, never with another film's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from revelator.plans.graph import GraphStep
from revelator.trace import Node, join_answers

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

    def agrees(self, other: Choice) -> bool:
        return all(self.picked[step] == other.picked[step] for step in self.picked.keys() & other.picked.keys())

    def combine(self, other: Choice) -> Choice:
        return Choice({**self.values, **other.values}, {**self.inputs, **other.inputs}, {**self.picked, **other.picked})


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


def explain_no_value(node: Node) -> str:
    """Why a question cannot be asked with what a node answers."""
    answer, asked = join_answers(node.answers), node.asked or node.question
    return f"“{answer}” is a verdict on “{asked}”, and nothing to ask about"


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
    names: dict[int, list[str]] = {producer: [] for producer in sorted(set(step.sources.values()))}
    for name, producer in step.sources.items():
        names[producer].append(name)
    calls = {p: [(one, values) for one in outcomes[p] if (values := one.values)] for p in names}
    if not all(calls.values()):
        return [], False
    lists = step.taken_whole
    whole = {producer: _make_list_choice(names[producer], calls[producer], list_nodes[producer]) for producer in lists}
    order = list(names)
    found: list[Choice] = []
    tries = 0

    def extend(choice: Choice, position: int) -> bool:
        """Adds the choices that extend `choice`; returns whether the search goes on."""
        nonlocal tries
        if position == len(order):
            found.append(choice)
            return len(found) <= limit
        producer = order[position]
        if producer in lists:
            return extend(choice.combine(whole[producer]), position + 1)
        for one, values in calls[producer]:
            tries += 1
            if not one.choice.agrees(choice):
                continue
            for number, value in enumerate(values):
                tries += 1
                if tries > MOST_TRIES:
                    return False
                option = _make_choice(names[producer], one, value, number, producer)
                if not extend(choice.combine(option), position + 1):
                    return False
        return tries <= MOST_TRIES

    is_whole = extend(NOTHING_CHOSEN, 0)
    return found[:limit], not is_whole


def _make_choice(names: Sequence[str], one: EndedCall, answer: str, number: int, producer: int) -> Choice:
    """The choice of the call's `answer`, its `number`-th."""
    return Choice(
        dict.fromkeys(names, answer),
        dict.fromkeys(names, one.node.id),
        {**one.choice.picked, producer: Pick(one.node.id, number, answer)},
    )


def _make_list_choice(names: Sequence[str], ended: Sequence[tuple[EndedCall, Sequence[str]]], list_node: str) -> Choice:
    text = join_with_and(list(dict.fromkeys(value for _, values in ended for value in values)))
    return Choice(dict.fromkeys(names, text), dict.fromkeys(names, list_node))


def join_with_and(values: Sequence[str]) -> str:
    """Joins values as a sentence does: "A, B and C"."""
    return " and ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
