"""The atomic reasoning tree (ART; AtomR, section 3.2) as a value.

A node is a question and the way to its answer: one of three operators (`Search`, `Relate`, `Filter`), `children`, or
neither, which is `[DR]`, answered directly from the earlier answers that its question names. Nodes are numbered
breadth-first, the root is 0. `[i]` in a text stands for the answers of node i, `[[i]]` for the text `[i]`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_DEPTH = 32  # nodes from the root to the deepest leaf; the paper's trees have at most 4
_BRACKETED = re.compile(r"\[(\d{1,4})\]")
_REFERENCE = re.compile(r"(?<!\[)(\[{1,2})(\d{1,4})(\]{1,2})(?!\])")


@dataclass(frozen=True, slots=True)
class Search:
    """Which entities a name stands for; `descriptor` tells them from others of that name."""

    name: str
    descriptor: str = ""

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.name, self.descriptor)


@dataclass(frozen=True, slots=True)
class Relate:
    """One step from `head`: along the relation `to`, to the attribute `to`, or the relation to the entity `to`.

    `inverse` says from which end the relation is read: "directed by" leads from a film to a person, its inverse from
    a person to films. None leaves it to the source: as it is written, and from the other end if that finds nothing.
    """

    head: str
    to: str
    inverse: bool | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.head, self.to)


@dataclass(frozen=True, slots=True)
class Filter:
    """Those of `entities` that meet `condition`."""

    entities: tuple[str, ...]
    condition: str

    @property
    def texts(self) -> tuple[str, ...]:
        return (*self.entities, self.condition)


Call = Search | Relate | Filter


@dataclass(frozen=True, slots=True)
class Art:
    """A node and what stands below it; a whole tree is its root. Raises ValueError for both a call and children."""

    question: str
    call: Call | None = None
    children: tuple[Art, ...] = ()

    def __post_init__(self) -> None:
        if self.call is not None and self.children:
            raise ValueError("a node has an operator or children, not both")

    @property
    def is_direct(self) -> bool:
        return self.call is None and not self.children

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text in which a reference may stand, the question first."""
        return (self.question, *(self.call.texts if self.call else ()))


@dataclass(frozen=True, slots=True)
class Numbered:
    """A node with its place: `number` breadth-first, numbers of its `parent` (None for the root) and `children`."""

    number: int
    node: Art
    parent: int | None
    children: tuple[int, ...]
    path: tuple[int, ...]  # positions among the children, from the root down

    @property
    def needs(self) -> tuple[int, ...]:
        """The nodes whose answers its own texts name, in order of first use."""
        return tuple(dict.fromkeys(i for text in self.node.texts for i in references(text)))


def numbered(art: Art) -> tuple[Numbered, ...]:
    """All nodes breadth-first: the node numbered i stands at index i."""
    found: list[Numbered] = []
    queue: deque[tuple[Art, int | None, tuple[int, ...]]] = deque([(art, None, ())])
    last = 0
    while queue:
        node, parent, path = queue.popleft()
        number, below = len(found), tuple(range(last + 1, last + 1 + len(node.children)))
        last += len(below)
        queue.extend((child, number, (*path, place)) for place, child in enumerate(node.children))
        found.append(Numbered(number, node, parent, below, path))
    return tuple(found)


def depth(art: Art) -> int:
    """Nodes from the root to the deepest leaf."""
    return 1 + max((depth(child) for child in art.children), default=0)


def referred(text: str) -> Iterator[tuple[int, int, int]]:
    """Each reference `[i]` of a text with its offsets; `[[i]]` is none."""
    for match in _REFERENCE.finditer(text):
        if len(match[1]) == len(match[3]) == 1:
            yield int(match[2]), match.start(), match.end()


def references(text: str) -> tuple[int, ...]:
    """Distinct numbers that a text refers to, in order of first use."""
    return tuple(dict.fromkeys(number for number, _, _ in referred(text))) if "[" in text else ()


def escape(text: str) -> str:
    """The text with `[3]` written so that it is no reference."""
    return _BRACKETED.sub(r"[[\1]]", text)


def substitute(text: str, answers: Mapping[int, Sequence[str]]) -> str:
    """The text with each `[i]` that has answers replaced by them (joined by commas), and `[[i]]` turned into `[i]`.

    Answers are put in as they are: brackets in them are not read again.
    """
    return _REFERENCE.sub(_replacing(answers), text)


def substituted_size(text: str, answers: Mapping[int, Sequence[str]]) -> int:
    """Characters of `substitute(text, answers)` at most, without making it."""
    sizes = {number: sum(len(answer) + 2 for answer in found) for number, found in answers.items()}
    return len(text) + sum(sizes.get(int(number), 0) for _, number, _ in _REFERENCE.findall(text))


def substitute_each(text: str, answers: Mapping[int, Sequence[str]]) -> tuple[str, ...]:
    """The values that a text stands for: the answers of node i when it is `[i]` and nothing else, else one text."""
    whole = _REFERENCE.fullmatch(text.strip())
    if whole and len(whole[1]) == len(whole[3]) == 1 and int(whole[2]) in answers:
        return tuple(answers[int(whole[2])])
    return (substitute(text, answers),)


def _replacing(answers: Mapping[int, Sequence[str]]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        opening, number, closing = match.groups()
        if len(opening) == len(closing) == 2:
            return f"[{number}]"
        if len(opening) == len(closing) == 1 and int(number) in answers:
            return ", ".join(answers[int(number)])
        return match[0]

    return replace
