"""The language bnf: the plan of a question as a value, read from text and written to it (QCompiler, section 3.2).

`Atomic` is a question that is asked as it stands, `Dependent` a question whose right side needs results of its left,
`Sequence` questions that do not need one another. The constructors refuse, with ValueError, what has another spelling
(a sequence of fewer than two items, a sequence straight inside a sequence) and what is deeper than `MAX_DEPTH`: equal
plans are equal values, and every walk over a plan may recurse.

`parse` hands the tokens of `lexer` to Lark's LALR parser of `bnf.lark`; `render` writes the canonical text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from lark import Transformer, UnexpectedToken

from revelator.errors import ExpressionError
from revelator.plans.faults import Span, fault
from revelator.plans.grammar import make_lalr_parser
from revelator.plans.lexer import MAX_DEPTH, Token, reads_as_itself, tokenise

MAX_CHARACTERS = 1_000_000
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
        object.__setattr__(self, "depth", _check_depth(max(self.left.depth, self.right.depth) + 1))
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
        object.__setattr__(self, "depth", _check_depth(max([item.depth for item in self.items]) + 1))
        object.__setattr__(self, "has_placeholders", any(item.has_placeholders for item in self.items))


Expression = Atomic | Dependent | Sequence


def _check_depth(depth: int) -> int:
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


def find_placeholders(text: str) -> Iterator[tuple[str, int, int]]:
    """Finds each `{name}` of a text with its offsets; `{{name}}` is text."""
    for match in _PLACEHOLDER.finditer(text):
        yield match[1], match.start(), match.end()


def placeholders(text: str) -> tuple[str, ...]:
    """Distinct placeholder names of a text, in order of first use."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(text))) if "{" in text else ()


def blank_placeholders(text: str) -> str:
    """Replaces each `{name}` by a space; other braces stay."""
    return _PLACEHOLDER.sub(" ", text) if "{" in text else text


def substitute(text: str, values: Mapping[str, str]) -> str:
    """Replaces each `{name}` that has a value by it, and `{{name}}` by a literal `{name}`.

    Braces inside values are not read again.
    """
    return _BRACED.sub(_replacer(values), text) if "{" in text else text


def substituted_size(text: str, values: Mapping[str, str]) -> int:
    """Bounds the number of characters of `substitute(text, values)` without building it."""
    return len(text) + sum(len(values.get(name, "")) for _, name, _ in _BRACED.findall(text))


def unbrace_placeholders(text: str) -> str:
    """Removes the braces of each `{name}`: the text of a leaf that gets no values."""
    while names := placeholders(text):
        text = substitute(text, {name: name for name in names})
    return text


def _replacer(values: Mapping[str, str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        opening, name, closing = match.groups()
        if len(opening) > 1 and len(closing) > 1:
            return f"{opening[1:]}{name}{closing[1:]}"
        if len(opening) == len(closing) == 1:
            return values.get(name, match[0])
        return match[0]

    return replace


def parse(text: str) -> Expression:
    """Parses `text` into a plan with spans, in linear time. Raises ExpressionError."""
    if len(text) >= MAX_CHARACTERS:
        message = f"an expression is shorter than {MAX_CHARACTERS:,} characters; this one is not"
        raise fault(text, "too-long", message, 0, len(text), "split it into several expressions")
    found = tokenise(text)
    if not found:
        raise fault(text, "empty", "there is no question here", 0, len(text), 'write one; an empty text is ""')
    try:
        return _parser()(found)[0]
    except UnexpectedToken as error:
        raise _misplaced_error(text, found, error.token) from None
    except _UnusableError as error:
        raise fault(text, error.code, error.message, *error.span, error.hint) from None


class _UnusableError(Exception):
    """A part that fits the grammar and still cannot be built."""

    def __init__(self, code: str, message: str, span: Span, hint: str) -> None:
        self.code, self.message, self.span, self.hint = code, message, span, hint


_Part = tuple[Expression, int, int]  # a node, and where it starts and ends with the parentheses around it


class _Builder(Transformer):
    """One method a rule of the grammar."""

    def word(self, parts: list[Token]) -> Token:
        return parts[0]

    def text(self, parts: list[Token]) -> _Part:
        token = parts[0]
        start, end = token.start_pos, token.end_pos
        return Atomic(token.value, (start, end)), start, end

    def quoted(self, parts: list[Token]) -> _Part:
        token = parts[0]
        start, end = token.start_pos, token.end_pos
        try:
            return Atomic(json.loads(token.value, strict=False), (start, end)), start, end
        except json.JSONDecodeError as error:
            at = min(start + error.pos, end - 1)
            hint = r"a quoted text is a JSON string: write a backslash as \\, a quote as \", a line break as \n"
            raise _UnusableError("bad-escape", "this escape has no meaning", (at, at + 1), hint) from None

    def group(self, parts: list) -> _Part:
        opening, (node, _, _), closing = parts
        start, end = opening.start_pos, closing.end_pos
        object.__setattr__(node, "span", (start, end))  # the node is new and ours alone
        return node, start, end

    def dependent(self, parts: list) -> _Part:
        left, start, end = parts[0]
        for right, _, end in parts[2::2]:
            if left.depth >= MAX_DEPTH or right.depth >= MAX_DEPTH:
                raise _too_deep_error(start, end)
            left = Dependent(left, right, (start, end))
        return left, start, end

    def start(self, parts: list) -> _Part:
        if len(parts) == 1:
            return parts[0]
        start, end = parts[0][1], parts[-1][2]
        items: list[Expression] = []
        for node, _, _ in parts[::2]:
            items.extend(node.items if type(node) is Sequence else (node,))
        if max(item.depth for item in items) >= MAX_DEPTH:
            raise _too_deep_error(start, end)
        return Sequence(tuple(items), (start, end)), start, end


def _too_deep_error(start: int, end: int) -> _UnusableError:
    hint = "join steps that do not need one another with +"
    return _UnusableError("too-deep", f"a plan is at most {MAX_DEPTH} nodes deep", (start, end), hint)


@cache
def _parser() -> Callable[[list[Token]], _Part]:
    return make_lalr_parser("bnf.lark", _Builder())


def _misplaced_error(text: str, found: list[Token], token: Token) -> ExpressionError:
    """An operand is missing before `token`."""
    index = len(found) if token.type == "$END" else next(i for i, t in enumerate(found) if t is token)
    before = found[index - 1] if index else token
    if before.type == "OPEN" and token.type == "CLOSE":
        hint = "write a question in it, or quote the text"
        return fault(text, "empty-group", "there is nothing in this group", before.start_pos, token.end_pos, hint)
    side, operator = ("before", token) if token.type in ("PLUS", "TIMES") else ("after", before)
    message = f"there is no question {side} this {operator.value}"
    hint = f'write one, remove the {operator.value}, or quote the text: "a {operator.value} b"'
    return fault(text, "dangling-operator", message, operator.start_pos, operator.end_pos, hint)


_RAW = re.compile("[\x7f-\x9f\u2028\u2029]")  # what JSON leaves as it is though it may break a line


def render(expression: Expression) -> str:
    """Writes the canonical text of a plan, on one line."""
    pieces: list[str] = []
    stack: list[Expression | str] = [expression]
    while stack:
        node = stack.pop()
        if type(node) is str:
            pieces.append(node)
        elif type(node) is Atomic:
            pieces.append(quote(node.text))
        elif type(node) is Dependent:
            left = _group(node.left, type(node.left) is Sequence)
            right = _group(node.right, type(node.right) is not Atomic)
            stack += reversed([*left, " * ", *right])
        elif type(node) is Sequence:
            joined = [part for item in node.items for part in (" + ", item)][1:]
            stack += reversed(joined)
    return "".join(pieces)


def _group(node: Expression, needed: bool) -> list[Expression | str]:
    return ["(", node, ")"] if needed else [node]


def quote(text: str) -> str:
    """Writes the text of a leaf for an expression: as it is, or as a JSON string if it would parse differently."""
    if reads_as_itself(text) and not _RAW.search(text):
        return text
    return quote_json(text)


def quote_json(text: str) -> str:
    """Writes a JSON string on one line."""
    return _RAW.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(text, ensure_ascii=False))
