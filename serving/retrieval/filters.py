"""Filters over the fields of documents: `year >= 2024 and team = "ops"`, read from text, checked, and put to values.

The grammar is `filters.lark`. A value is a number, a day or time, true or false, or a text, by the way that it is
written, whichever file it is from; a list fulfils a comparison if one of its values does. A document without the field
fulfils none; `not` turns a condition around, and so keeps that document.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Literal

import numpy as np
from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from revelator.errors import InvalidRequest

LONGEST = 1_000  # characters of a filter
EXAMPLE = 'such as: year >= 2024 and team = "ops"; texts stand in double quotes, days are 2024-05-31'
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d{1,2})?")  # 007 is a name
DATE = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
Kind = Literal["number", "date", "truth", "text"]
NAMES: dict[Kind, str] = {"number": "numbers", "date": "dates", "truth": "true or false", "text": "text"}
Scalar = str | int | float | bool
Value = Scalar | list[Scalar]  # of a field, as JSON keeps it


@dataclass(frozen=True, slots=True)
class Reading:
    """A value as it is compared: `written` is its text."""

    kind: Kind
    value: Any
    written: str

    @property
    def is_day(self) -> bool:
        return self.kind == "date" and len(self.written) == len("2024-05-31")


def read_value(value: Scalar) -> Reading:
    """What a value is, by the way that it is written."""
    written = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if written in ("true", "false"):
        return Reading("truth", written == "true", written)
    if len(written) <= 32 and NUMBER.fullmatch(written):
        return Reading("number", float(written), written)
    if DATE.fullmatch(written):
        try:
            found = datetime.fromisoformat(written)
            found = found.astimezone(UTC).replace(tzinfo=None) if found.tzinfo else found
        except (ValueError, OverflowError):  # the 31st of February
            return Reading("text", written, written)
        return Reading("date", found, written)
    return Reading("text", written, written)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A field and a value; the sign `like` compares with a text in which `*` and `?` stand for others."""

    field: str
    sign: str
    wanted: Reading
    is_quoted: bool = False

    def holds(self, value: Reading) -> bool:
        """Whether it holds for one value of the field. A quoted text equals what is written so, whatever kind it is."""
        wanted = self.wanted
        if self.sign == "like":
            return fnmatchcase(value.written, wanted.written)
        if self.is_quoted and self.sign == "=" and value.written == wanted.written:
            return True
        if value.kind != wanted.kind:
            return False
        day = wanted.is_day
        return SIGNS[self.sign](*((one.value.date() if day else one.value) for one in (value, wanted)))


@dataclass(frozen=True, slots=True)
class Not:
    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Condition, ...]


Condition = Comparison | Not | And | Or


class _Builder(Transformer[Token, Condition]):
    def value(self, found: list[Token]) -> tuple[Reading, bool]:
        [token] = found
        text, is_quoted = str(token), token.type == "STRING"
        reading = read_value(_unquote(text) if is_quoted else text.lower() if token.type == "TRUTH" else text)
        if is_quoted and reading.kind != "date":
            reading = Reading("text", reading.written, reading.written)
        elif reading.kind == "text":
            raise InvalidRequest(f"{text} is no day of the calendar", where="where", hint=EXAMPLE)
        return reading, is_quoted

    def comparison(self, found: list[Any]) -> Condition:
        field, sign, (reading, is_quoted) = found
        return Comparison(fold_name(field), str(sign), reading, is_quoted)

    def membership(self, found: list[Any]) -> Condition:
        field, *values = found
        return _join(Or, [Comparison(fold_name(field), "=", reading, quoted) for reading, quoted in values])

    def likeness(self, found: list[Any]) -> Condition:
        field, text = found
        written = _unquote(str(text))
        return Comparison(fold_name(field), "like", Reading("text", written, written), True)

    def negation(self, found: list[Condition]) -> Condition:
        [operand] = found
        return operand.operand if isinstance(operand, Not) else Not(operand)

    def both(self, found: list[Condition]) -> Condition:
        return _join(And, found)

    def either(self, found: list[Condition]) -> Condition:
        return _join(Or, found)


def _join(kind: type[And] | type[Or], operands: list[Condition]) -> Condition:
    return operands[0] if len(operands) == 1 else kind(tuple(operands))


def _unquote(text: str) -> str:
    try:
        return str(json.loads(text))
    except ValueError:
        hint = r"write a backslash as \\ and a quote as \""
        raise InvalidRequest(f"{text:.60} is no text", where="where", hint=hint) from None


@cache
def _open_parser() -> Lark:
    grammar = files("serving.retrieval").joinpath("filters.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", transformer=_Builder())


def fold_name(name: str) -> str:
    """A field's name as filters write it: "Last review" is `last_review`."""
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_")


@lru_cache(256)
def _parse(text: str) -> Condition:
    try:
        return _open_parser().parse(text)  # type: ignore[return-value]
    except VisitError as error:
        raise error.orig_exc from None
    except UnexpectedInput as error:
        shown = "".join(f"\n{line}" for line in error.get_context(text, 60).rstrip().split("\n"))
        message = f"the filter cannot be read at character {(error.pos_in_stream or 0) + 1}:{shown}"
        raise InvalidRequest(message, where="where", hint=EXAMPLE) from None


def parse_filter(text: str) -> Condition | None:
    """A filter as a condition; None for an empty text. Raises InvalidRequest that shows the place."""
    if len(text) > LONGEST:
        message = f"the filter has {len(text):,} characters; at most {LONGEST:,} are read"
        raise InvalidRequest(message, where="where", hint="compare with fewer values")
    return _parse(text) if text.strip() else None


def list_comparisons(condition: Condition) -> Iterator[Comparison]:
    if isinstance(condition, Comparison):
        yield condition
    else:
        for operand in (condition.operand,) if isinstance(condition, Not) else condition.operands:
            yield from list_comparisons(operand)


def check_filter(condition: Condition, known: Mapping[str, Collection[Kind]]) -> None:
    """Raises InvalidRequest for a field that is not `known`, and for a value of another kind than the field has."""
    for one in list_comparisons(condition):
        kinds = known.get(one.field)
        if not kinds:
            listed = f"fields are {', '.join(sorted(known))}" if known else "no document that you may read has fields"
            raise InvalidRequest(f"there is no field {one.field!r:.60}", where="where", hint=listed)
        held = " and ".join(NAMES[kind] for kind in NAMES if kind in kinds)
        if one.sign in ("=", "!=", "like") and one.is_quoted and "text" in kinds:
            continue
        wanted = one.wanted
        if one.sign == "like" or wanted.kind not in kinds:
            message = f"{one.field} holds {held}, and {wanted.written!r:.60} is {_describe(wanted, one.is_quoted)}"
            raise InvalidRequest(message, where="where", hint=f"compare it with {held}, {EXAMPLE}")
        if wanted.kind in ("text", "truth") and one.sign not in ("=", "!="):
            message = f"{one.field} holds {held}, which have no order"
            raise InvalidRequest(message, where="where", hint="compare with =, !=, in or like")


def _describe(wanted: Reading, is_quoted: bool) -> str:
    named = {"number": "a number", "date": "a date", "truth": "true or false", "text": "text"}[wanted.kind]
    return f"{named} where it stands in quotes" if is_quoted else named


def list_readings(value: Value) -> list[Reading]:
    return [read_value(one) for one in (value if isinstance(value, list) else [value])]


def match_values(comparison: Comparison, values: list[list[Reading]]) -> np.ndarray:
    """Whether the comparison holds, for each distinct value of its field, shape (values,)."""
    if comparison.sign == "!=":
        equal = Comparison(comparison.field, "=", comparison.wanted, comparison.is_quoted)
        return ~match_values(equal, values)
    return np.array([any(map(comparison.holds, own)) for own in values], bool)


def compute_mask(condition: Condition, find: Callable[[Comparison], np.ndarray]) -> np.ndarray:
    """The mask of a condition, from those of its comparisons."""
    if isinstance(condition, Comparison):
        return find(condition)
    if isinstance(condition, Not):
        return ~compute_mask(condition.operand, find)
    join = np.logical_and if isinstance(condition, And) else np.logical_or
    return join.reduce([compute_mask(operand, find) for operand in condition.operands])
