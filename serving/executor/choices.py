"""Which values a leaf is asked with: one or all of a producer's, and which belong together.

A leaf is asked once for each combination of its producers' values, except where its wording takes the whole list
("which of {films}", "between {x}"). Values that come from the same ancestor stay together: a film is paired with its
own director, never with another film's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from revelator.trace import Node


@dataclass(frozen=True)
class Choice:
    """The values that one call of a leaf is asked with, and where they come from.

    `inputs` gives the id of the node behind each placeholder. `picked` says for each leaf on the way which call and
    which of its values was taken: choices belong together when they agree on every leaf that both name. `lineage` is
    every value taken on the way, by placeholder, the first first.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    inputs: Mapping[str, str] = field(default_factory=dict)
    picked: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    lineage: Mapping[str, str] = field(default_factory=dict)

    def agrees(self, other: Choice) -> bool:
        return all(self.picked[leaf] == other.picked[leaf] for leaf in self.picked.keys() & other.picked.keys())

    def joined(self, other: Choice) -> Choice:
        return Choice(
            {**self.values, **other.values},
            {**self.inputs, **other.inputs},
            {**self.picked, **other.picked},
            {**self.lineage, **other.lineage},
        )


NOTHING_CHOSEN = Choice()
MOST_STEPS = 2_000  # looks whether two choices agree, of 1 µs each: all that a leaf takes of the event loop


class Answered(NamedTuple):
    """One call of a leaf, ended; without answers when it failed or was skipped."""

    node: Node
    choice: Choice
    answers: tuple[str, ...] = ()


class Chosen(NamedTuple):
    """The first choices for a leaf; `is_cut`: there may be more."""

    choices: list[Choice]
    is_cut: bool


def choose(
    text: str,
    sources: Mapping[str, int],
    outcomes: Mapping[int, Sequence[Answered]],
    frames: Mapping[int, str],
    width: int,
) -> Chosen:
    """At most `width` choices for a leaf with this text. `sources`: producer of each placeholder; `outcomes`: what each
    producer gave; `frames`: the node id that stands for all values of a producer.

    The search for values that belong together ends after `MOST_STEPS`, however many combinations there are.
    """
    found: list[Choice] = []
    for choice in _combinations(text, sources, outcomes, frames):
        if choice is None or len(found) == width:
            return Chosen(found, True)
        found.append(choice)
    return Chosen(found, False)


def _combinations(
    text: str, sources: Mapping[str, int], outcomes: Mapping[int, Sequence[Answered]], frames: Mapping[int, str]
) -> Iterator[Choice | None]:
    """Every choice; None, and then nothing, where the search is given up."""
    producers = sorted(set(sources.values()))
    options: list[list[Choice]] = []
    for producer in producers:
        names = [name for name, behind in sources.items() if behind == producer]
        takes_list = all(wants_all(text, name) for name in names)
        ended = outcomes[producer]
        each = _together(names, ended, frames[producer]) if takes_list else _each(names, ended, producer)
        options.append(list(islice(each, MOST_STEPS)))
        if not options[-1]:
            return
    left = MOST_STEPS

    def extend(choice: Choice, position: int) -> Iterator[Choice | None]:
        nonlocal left
        if position == len(options):
            yield choice
            return
        for option in options[position]:
            left -= 1
            if left < 0:
                yield None
                return
            if option.agrees(choice):
                yield from extend(choice.joined(option) if choice is not NOTHING_CHOSEN else option, position + 1)

    yield from extend(NOTHING_CHOSEN, 0)


def _each(names: Sequence[str], ended: Sequence[Answered], producer: int) -> Iterator[Choice]:
    for one in ended:
        for number, answer in enumerate(one.answers):
            yield Choice(
                dict.fromkeys(names, answer),
                dict.fromkeys(names, one.node.id),
                {**one.choice.picked, producer: (one.node.id, number)},
                {**one.choice.lineage, **dict.fromkeys(names, answer)},
            )


def _together(names: Sequence[str], ended: Sequence[Answered], frame: str) -> Iterator[Choice]:
    values = list(dict.fromkeys(answer for one in ended for answer in one.answers))
    if values:
        text = listed(values)
        yield Choice(dict.fromkeys(names, text), dict.fromkeys(names, frame), {}, dict.fromkeys(names, text))


_GATHERS = re.compile(
    r"\b(?:(?<!each )(?<!one )of|between|among|amongst|compare)\s+(?:the\s+|these\s+|all\s+)*(?=\{)", re.IGNORECASE
)
_AGGREGATES = re.compile(
    r"\b(how many|in common|both|same|total|sum|count|average|altogether|combined"
    r"|most|least|first|last|earli(?:er|est)|lat(?:er|est)|old(?:er|est)|young(?:er|est)|new(?:er|est)"
    r"|(?:long|short|large?|small|bigg?|high|low|tall|great|heavi)(?:er|est))\b",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[_\W]")
_ASKS_OF = re.compile(r"\b(which|who|what|how many|any|all|both|none|number|one)\s*$", re.IGNORECASE)


def wants_all(text: str, name: str) -> bool:
    """Whether a question takes the whole list for a placeholder: "which of {films}", "between {a}", or an aggregate
    over a placeholder named in the plural ("how many … {films}"); otherwise it is asked for each value."""
    marker = "{" + name + "}"
    for match in _GATHERS.finditer(text):
        takes_list = not match[0].lower().startswith("of") or _ASKS_OF.search(text[: match.start()])
        if takes_list and text.startswith(marker, match.end()):
            return True
    return is_plural(name) and _AGGREGATES.search(text) is not None


def is_plural(name: str) -> bool:
    """By its last word; a number or a single letter after it only tells two of a kind apart ("films_b", "films2")."""
    words = [word for word in _SEPARATOR.split(name.lower().rstrip("0123456789_")) if len(word) > 1]
    last = words[-1] if words else ""
    irregular = last in ("people", "children", "men", "women")
    return irregular or (len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is", "series")))


def listed(values: Sequence[str]) -> str:
    """Values as a sentence names them: "A, B and C"."""
    return " and ".join(filter(None, [", ".join(values[:-1]), values[-1]]))
