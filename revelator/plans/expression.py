"""The plan of a question as a value: one of three frozen dataclasses, canonical by construction.

`Atomic` is a question that is asked as it stands, `Dependent` a question whose right side needs results of its left,
`Sequence` questions that do not need one another. The constructors refuse, with ValueError, what has another spelling
(a sequence of fewer than two items, a sequence straight inside a sequence) and what is deeper than `MAX_DEPTH`: equal
plans are equal values, and every walk over a plan may recurse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

MAX_DEPTH = 200  # nodes from the root to the deepest leaf; gold plans of the public sets have at most 4

Span = tuple[int, int]  # character offsets [start, end) in the text that was parsed

NAME = r"\w(?:[\w .'-]{0,62}\w)?"
_BRACED = re.compile(rf"(?<!\{{)(\{{++)({NAME})(\}}++)")
_PLACEHOLDER = re.compile(rf"(?<!\{{)\{{({NAME})\}}(?!\}})")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Node:
    """What the three kinds share: equality by structure, found without recursion, and a repr that can be read."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Node):
            return NotImplemented
        return self is other or list(_preorder(self)) == list(_preorder(other))  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return hash(tuple(_preorder(self)))  # type: ignore[arg-type]

    def __repr__(self) -> str:
        from revelator.plans.rendering import render

        return f"parse({render(self)!r})"  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Atomic(_Node):
    """A question for one retrieval step. `{name}` in its text is a placeholder for an earlier result."""

    text: str
    span: Span | None = None
    placeholders: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "placeholders", placeholders(self.text))

    @property
    def has_placeholders(self) -> bool:
        return bool(self.placeholders)

    @property
    def depth(self) -> int:
        return 1


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dependent(_Node):
    """`left * right`: `right` uses results of `left`. `a * b * c` is Dependent(Dependent(a, b), c)."""

    left: Expression
    right: Expression
    span: Span | None = None
    depth: int = field(init=False)
    has_placeholders: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "depth", _checked_depth(max(self.left.depth, self.right.depth) + 1))
        object.__setattr__(self, "has_placeholders", self.left.has_placeholders or self.right.has_placeholders)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sequence(_Node):
    """`a + b + …`: two or more questions in parallel, none of them a sequence itself."""

    items: tuple[Expression, ...]
    span: Span | None = None
    depth: int = field(init=False)
    has_placeholders: bool = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.items, tuple):
            object.__setattr__(self, "items", tuple(self.items))
        if len(self.items) < 2:
            raise ValueError("a Sequence has two or more items; one item is that item itself")
        if any(type(item) is Sequence for item in self.items):
            raise ValueError("a Sequence does not stand straight inside a Sequence: put its items in its place")
        object.__setattr__(self, "depth", _checked_depth(max([item.depth for item in self.items]) + 1))
        object.__setattr__(self, "has_placeholders", any(item.has_placeholders for item in self.items))


Expression = Atomic | Dependent | Sequence


def _checked_depth(depth: int) -> int:
    if depth > MAX_DEPTH:
        raise ValueError(f"a plan is at most {MAX_DEPTH} nodes deep")
    return depth


def children(expression: Expression) -> tuple[Expression, ...]:
    """The operands of a node, left to right; none for a leaf."""
    if type(expression) is Sequence:
        return expression.items
    return (expression.left, expression.right) if type(expression) is Dependent else ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Every node, parents before children, left before right."""
    stack = [expression]
    while stack:
        node = stack.pop()
        yield node
        if type(node) is not Atomic:
            stack.extend(reversed(children(node)))


def leaves(expression: Expression) -> tuple[Atomic, ...]:
    """The atomic questions, left to right; a leaf is known by its index in this tuple."""
    found: list[Atomic] = []
    stack = [expression]
    while stack:
        node = stack.pop()
        if type(node) is Atomic:
            found.append(node)
        elif type(node) is Dependent:
            stack += (node.right, node.left)
        else:
            stack += reversed(children(node))
    return tuple(found)


def _preorder(expression: Expression) -> Iterator[str | tuple[type, int]]:
    for node in walk(expression):
        yield node.text if type(node) is Atomic else (type(node), len(children(node)))


def braced(text: str) -> Iterator[tuple[str, int, int]]:
    """Each `{name}` of a text with its offsets; `{{name}}` is text."""
    for match in _PLACEHOLDER.finditer(text):
        yield match[1], match.start(), match.end()


def placeholders(text: str) -> tuple[str, ...]:
    """Distinct placeholder names of a text, in order of first use."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text))) if "{" in text else ()


def without_names(text: str) -> str:
    """The text with each `{name}` replaced by a space; other braces stay."""
    return _PLACEHOLDER.sub(" ", text) if "{" in text else text


def substitute(text: str, values: Mapping[str, str]) -> str:
    """The text with each `{name}` that has a value replaced by it, and `{{name}}` turned into a literal `{name}`.

    Values are put in as they are: braces in them are not read again.
    """
    return _BRACED.sub(_replacing(values), text) if "{" in text else text


def substituted_size(text: str, values: Mapping[str, str]) -> int:
    """Characters of `substitute(text, values)` at most, without making it."""
    return len(text) + sum(len(values.get(name, "")) for _, name, _ in _BRACED.findall(text))


def without_placeholders(text: str) -> str:
    """The text as a leaf that nothing gives a value to: names lose their braces."""
    while names := placeholders(text):
        text = substitute(text, {name: name for name in names})
    return text


def _replacing(values: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if len(opening) > 1 and len(closing) > 1:
            return f"{opening[1:]}{name}{closing[1:]}"
        if len(opening) == len(closing) == 1:
            return values.get(name, match[0])
        return match[0]

    return replace
