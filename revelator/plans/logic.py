"""The language logic: a logical query as a value, read from text, written to it and checked (ITLR, section 2.1).

`"a" AND ("b" OR NOT "c")` is made of `Term`, `Not`, `And` and `Or`, frozen and canonical by construction. `And` and
`Or` have two or more operands, none of the same kind straight inside: equal queries in another grouping are equal
values. The constructors refuse, with ValueError, what has another spelling and what is deeper than `MAX_DEPTH`.
`serving.retrieval` runs the queries.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from revelator.errors import ExpressionError
from revelator.plans import trees
from revelator.plans.faults import Diagnostic, fault, sort_faults
from revelator.plans.grammar import read_string, write_string
from revelator.plans.parsing import MisplacedError, Token, parse_tokens
from revelator.plans.trees import MAX_DEPTH, Joined, Node, cover, join, walk

MAX_CHARACTERS = 100_000
MAX_TERMS = 64
MAX_LITERALS = 256  # terms counted as often as they stand: each is an array over all documents when the query runs
MAX_TABLED = 16  # distinct terms for which the truth table (65,536 rows) is looked at


@dataclass(frozen=True, slots=True)
class Term(Node):
    """A text of any length that documents are scored against, without the white space around it."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text.strip())
        Node.__post_init__(self)


@dataclass(frozen=True, slots=True)
class Not(Node):
    """Documents for which `operand` does not hold."""

    operand: Query

    @property
    def children(self) -> tuple[Query, ...]:
        return (self.operand,)


@dataclass(frozen=True, slots=True)
class _Operands(Joined):
    operands: tuple[Query, ...]

    @property
    def children(self) -> tuple[Query, ...]:
        return self.operands


@dataclass(frozen=True, slots=True)
class And(_Operands):
    """Documents for which all operands hold."""


@dataclass(frozen=True, slots=True)
class Or(_Operands):
    """Documents for which at least one operand holds."""


Query = Term | Not | And | Or
join_queries = join


def list_terms(query: Query) -> tuple[str, ...]:
    """Lists the distinct texts of the terms, in order of first use."""
    return tuple(dict.fromkeys(node.text for node in walk(query) if isinstance(node, Term)))


def count_negations(query: Query) -> int:
    """Counts the terms under an odd number of NOTs, with repeats."""
    return sum(negated for _, negated in list_literals(query))


def list_literals(query: Query, negated: bool = False) -> tuple[tuple[str, bool], ...]:
    """Lists (text, is under an odd number of NOTs) of each term, left to right, with repeats."""
    if isinstance(query, Term):
        return ((query.text, negated),)
    inside = negated is not isinstance(query, Not)
    return tuple(literal for operand in query.children for literal in list_literals(operand, inside))


def holds(query: Query, truth: Mapping[str, bool]) -> bool:
    """Whether the query holds if each term holds as `truth` says. Raises KeyError for a term that `truth` lacks."""
    return bool(_truth(query, truth, True))


def move_negations_inwards(query: Query, negated: bool = False) -> Query:
    """Moves NOT inwards to the terms by De Morgan's laws, and removes double negations."""
    if isinstance(query, Term):
        return Not(query) if negated else query
    if isinstance(query, Not):
        return move_negations_inwards(query.operand, not negated)
    conjunctive = isinstance(query, And) is not negated
    return join_queries(
        And if conjunctive else Or, [move_negations_inwards(operand, negated) for operand in query.operands]
    )


def draw_tree(query: Query) -> str:
    """Draws an indented tree, one operator or term a line."""
    return trees.draw(query, _label, lambda node: node.children)


def _label(node: Query) -> str:
    return render(node) if isinstance(node, Term) else type(node).__name__.upper()


def render(query: Query) -> str:
    """Writes the canonical text of a query, on one line."""
    return _text(query, "")


def render_spaced(query: Query) -> str:
    """Writes the query with a space at the start of each term: `" a" AND NOT " b"`.

    A byte-level tokenizer cuts a word after a space otherwise than after a quote. With the space the tokens of a term
    are those that stand in the question, and a model copies them.
    """
    return _text(query, " ")


def _text(query: Query, space: str) -> str:
    if isinstance(query, Term):
        return write_string(space + query.text)
    if isinstance(query, Not):
        return f"NOT {_group(query.operand, not isinstance(query.operand, Term), space)}"
    if isinstance(query, And):
        return " AND ".join(_group(operand, isinstance(operand, Or), space) for operand in query.operands)
    return " OR ".join(_text(operand, space) for operand in query.operands)


def _group(query: Query, needed: bool, space: str) -> str:
    return f"({_text(query, space)})" if needed else _text(query, space)


_TOKEN = re.compile(
    r"""(?P<TEXT>"(?:[^"\\]|\\.)*+")|(?P<OPEN>\()|(?P<CLOSE>\))|(?P<WORD>[^\s()"]+)|(?P<UNCLOSED>")""", re.DOTALL
)
_WORDS = {"AND": "TIGHT", "OR": "LOOSE", "NOT": "NOT"}
_EXAMPLE = 'write it like "a" AND ("b" OR NOT "c")'


def parse(text: str) -> Query:
    """Parses `text` into a query with spans, in linear time. Raises ExpressionError."""
    if len(text) > MAX_CHARACTERS:
        message = f"a logical query has at most {MAX_CHARACTERS:,} characters; this one has {len(text):,}"
        raise fault(text, "too-long", message, 0, len(text), "shorten its terms")
    found = [_read_token(text, match) for match in _TOKEN.finditer(text)]
    if not found:
        raise fault(text, "empty", "there is no term here", 0, len(text), _EXAMPLE)
    try:
        return parse_tokens(found, MAKERS)
    except MisplacedError as error:
        raise _make_misplaced_error(text, error) from None
    except ValueError:
        message = f"groups and negations are nested more than {MAX_DEPTH} deep"
        hint = "remove parentheses and NOTs that change nothing"
        raise fault(text, "too-deep", message, 0, len(text), hint) from None


MAKERS: dict[str, Callable[..., Query]] = {
    "TEXT": Term,
    "NOT": Not,
    "TIGHT": lambda parts: join(And, parts, cover(parts)),
    "LOOSE": lambda parts: join(Or, parts, cover(parts)),
    "CLOSE": lambda node, span: node,
}


def _read_token(text: str, match: re.Match[str]) -> Token:
    kind, value, (start, end) = str(match.lastgroup), match[0], match.span()
    if kind == "UNCLOSED":
        raise fault(text, "open-quote", "this quote is never closed", start, end, 'close the term with "')
    if kind == "WORD" and value not in _WORDS:
        raise _make_unquoted_error(text, value, start, end)
    if kind == "TEXT":
        value = read_string(text, start, end, "a term")
    return Token(_WORDS[value] if kind == "WORD" else kind, value, start, end)


def _make_unquoted_error(text: str, value: str, start: int, end: int) -> ExpressionError:
    if value.upper() in _WORDS:
        hint = f"write {value.upper()}, or quote the word as a term"
        return fault(text, "lower-case", "operators are written in capitals", start, end, hint)
    return fault(text, "unquoted", "a term stands in straight double quotes", start, end, _EXAMPLE)


def _make_misplaced_error(text: str, error: MisplacedError) -> ExpressionError:
    token, before, opening = error.token, error.before, error.opening
    start, end = token.start, token.end
    if token.kind == "END" and before.kind in ("TEXT", "CLOSE") and opening:
        message = "this parenthesis is never closed"
        return fault(text, "open-group", message, opening.start, opening.end, "close it with )")
    if token.kind == "END":
        message = f"no term stands after this {before.value}"
        return fault(text, "no-operand", message, before.start, before.end, _EXAMPLE)
    if token.kind in ("TEXT", "OPEN", "NOT"):
        message = "AND or OR is missing before this" if token.kind != "NOT" else "NOT cannot stand here"
        hint = "join terms with AND or OR; negate a negation as NOT (NOT …)"
        return fault(text, "no-operator", message, start, end, hint)
    if token.kind == "CLOSE" and not opening:
        return fault(text, "no-group", "this parenthesis was never opened", start, end, "remove it, or open it with (")
    return fault(text, "no-operand", f"no term stands before this {token.value}", start, end, _EXAMPLE)


def check(query: Query) -> tuple[Diagnostic, ...]:
    """Finds faults, left to right; empty if there are none. Offsets are in the text parsed, else in `render(query)`.

    `empty-term`: no letter or digit. `too-many-terms`: more than MAX_TERMS, or MAX_LITERALS
    with repeats. `contradiction`: no document can match.
    `tautology`: every document matches. The last two can be run, and rank nothing.
    """
    if query.span is None:
        query = parse(render(query))
    return sort_faults(_faults(query))


def _faults(query: Query) -> Iterator[Diagnostic]:
    for node in walk(query):
        if isinstance(node, Term) and not any(c.isalnum() for c in node.text):
            yield Diagnostic(
                "empty-term", "this term holds no word", *node.place, "write what documents should be about"
            )
    names, times = list_terms(query), len(list_literals(query))
    if len(names) > MAX_TERMS or times > MAX_LITERALS:
        message = f"{len(names)} terms in {times} places, and a query has at most {MAX_TERMS} in {MAX_LITERALS}"
        yield Diagnostic("too-many-terms", message, *query.place, "leave out terms, or ask several queries")
    elif len(names) <= MAX_TABLED:
        columns, every_row = _truth_columns(names)
        column = _truth(query, columns, every_row)
        if not column:
            hint = "one part excludes what another asks for: leave one of them out"
            yield Diagnostic("contradiction", "no document can match this query", *query.place, hint)
        if column == every_row:
            hint = "join what must hold at once with AND"
            yield Diagnostic("tautology", "every document matches this query", *query.place, hint)


def has_conditions(query: Query) -> bool:
    """Whether a query joins several terms and can be run."""
    return isinstance(query, And | Or) and len(list_terms(query)) > 1 and not check(query)


def read_conditions(text: str) -> str:
    """The canonical text of a query that joins several terms, as the leaf of a plan may be; "" for any other text."""
    try:
        query = parse(text)
    except ExpressionError:
        return ""
    return render(query) if has_conditions(query) else ""


def are_equivalent(one: Query, other: Query) -> bool:
    """Whether both queries hold for the same documents, whatever these say. False if their terms differ.

    Beyond MAX_TABLED terms no truth table is made: queries are equivalent if they are equal after moving NOT inwards.
    """
    names = sorted(list_terms(one))
    if names != sorted(list_terms(other)):
        return False
    if len(names) > MAX_TABLED:
        return move_negations_inwards(one) == move_negations_inwards(other)
    table = _truth_columns(names)
    return _truth(one, *table) == _truth(other, *table)


def make_shape_key(query: Query) -> str:
    """The shape without words, up to the order of operands: `(t AND NOT t)`. NOT is carried inwards to the terms."""
    return _shape(move_negations_inwards(query))


def _shape(query: Query) -> str:
    if isinstance(query, Term):
        return "t"
    if isinstance(query, Not):
        return f"NOT {_shape(query.operand)}"
    name = " AND " if isinstance(query, And) else " OR "
    return f"({name.join(sorted(map(_shape, query.operands)))})"


def _truth_columns(names: Sequence[str]) -> tuple[dict[str, int], int]:
    """A truth table of 2 ** len(names) rows, one bit a row: the column of each term, and a column that is all true."""
    every_row = (1 << (1 << len(names))) - 1
    # rows whose bit i is set come in runs of 2 ** i, after as many in which it is not
    return {name: every_row // ((1 << (1 << i)) + 1) << (1 << i) for i, name in enumerate(names)}, every_row


def _truth(query: Query, columns: Mapping[str, int], every_row: int) -> int:
    """The column of the query: in which rows it holds."""
    if isinstance(query, Term):
        return columns[query.text]
    if isinstance(query, Not):
        return every_row ^ _truth(query.operand, columns, every_row)
    over = operator.and_ if isinstance(query, And) else operator.or_
    return reduce(over, [_truth(operand, columns, every_row) for operand in query.operands])
