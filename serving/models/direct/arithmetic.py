"""Sums, parity and series, in figures and in words."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from serving.models.direct.numbers import NUMBER, number, shown

_OPERATIONS = (
    (r"to the power of|\^|\*\*", "^"),
    (r"multiplied by|times|[x×*]", "*"),
    (r"divided by|over|[/÷:]", "/"),
    (r"plus|added to|increased by|[+]", "+"),
    (r"minus|decreased by|less|[-−–]", "-"),
)


def evaluated(text: str) -> tuple[str, str] | None:
    """The value of a sum that is the whole question."""
    body = re.sub(
        r"^(?:what(?:'s| is| are)?|how (?:many|much) (?:is|are|do|does)|which number is|calculate|compute|work out|find"
        r"|evaluate)\b",
        "",
        text,
        flags=re.IGNORECASE,
    )
    body = re.sub(r"\b(?:equal to|equals?|make|makes|give|gives|in total|altogether)\s*$", "", body.strip()).strip(" =")
    body = _prefixed(re.sub(r"^(?:the result of|the value of|you get if you|do you get (?:if|when) you)\s+", "", body))
    value = _evaluate(body)
    return None if value is None else (shown(value), "arithmetic")


def _prefixed(body: str) -> str:
    """`the sum of 3 and 4` as `3 plus 4`, `the square root of` and `half of` left to `_evaluate`."""
    a, b, over = f"({NUMBER})", f"({NUMBER})", "(?:together|up)?"
    a, b, over = f"({NUMBER})", f"({NUMBER})", "(?:together|up)?"
    forms = (
        (rf"^(?:add|sum)(?:ing)? {a} (?:and|to|with|plus) {b} ?{over}$", r"\1 plus \2"),
        (rf"^(?:subtract|take(?: away)?|deduct)(?:ing)? {a} (?:away )?from {b}$", r"\2 minus \1"),
        (rf"^multiply(?:ing)? {a} (?:by|and|with|times) {b}$", r"\1 times \2"),
        (rf"^divid(?:e|ing) {a} by {b}$", r"\1 divided by \2"),
        (
            rf"^(?:remains|is left|is left over|remain|left) (?:of|from) {a},? (?:if|when|after) (?:you |we |one |i )?"
            rf"(?:take|takes|taking|subtract|remove|removing|subtracting)(?: away)? {b}(?: away)?(?: from it)?$",
            r"\1 minus \2",
        ),
        (rf"^{a},? (?:take away|less|reduced by|lowered by) {b}$", r"\1 minus \2"),
        (rf"^(?:add|sum)(?:ing)? {a} (?:and|to|with|plus) {b} ?{over}$", r"\1 plus \2"),
        (rf"^(?:subtract|take(?: away)?|deduct)(?:ing)? {a} (?:away )?from {b}$", r"\2 minus \1"),
        (rf"^multiply(?:ing)? {a} (?:by|and|with|times) {b}$", r"\1 times \2"),
        (rf"^divid(?:e|ing) {a} by {b}$", r"\1 divided by \2"),
        (
            rf"^(?:remains|is left|is left over|remain|left) (?:of|from) {a},? (?:if|when|after) (?:you |we |one |i )?"
            rf"(?:take|takes|taking|subtract|remove|removing|subtracting)(?: away)? {b}(?: away)?(?: from it)?$",
            r"\1 minus \2",
        ),
        (rf"^{a},? (?:take away|less|reduced by|lowered by) {b}$", r"\1 minus \2"),
        (r"^(?:the )?(?:sum|total) of (.+?) and (.+)$", r"\1 plus \2"),
        (r"^(?:the )?product of (.+?) and (.+)$", r"\1 times \2"),
        (r"^(?:the )?difference (?:between|of) (.+?) and (.+)$", r"difference \1 minus \2"),
        (r"^(?:the )?quotient of (.+?) and (.+)$", r"\1 divided by \2"),
        (r"^(.+?) squared$", r"\1 ^ 2"),
        (r"^(.+?) cubed$", r"\1 ^ 3"),
        (r"^twice (.+)$", r"2 times \1"),
        (r"^(?:double) (.+)$", r"2 times \1"),
        (r"^half (?:of )?(.+)$", r"\1 divided by 2"),
        (r"^(.+?) (?:percent|per cent|%) of (.+)$", r"\1 times \2 divided by 100"),
        (r"^(.+?)% of (.+)$", r"\1 times \2 divided by 100"),
    )
    for pattern, form in forms:
        body = re.sub(pattern, form, body, flags=re.IGNORECASE)
    return body


def _evaluate(body: str) -> Fraction | None:
    """Value of `a op b op c …` with the usual precedence; None when it is anything else or a bare number."""
    absolute = body.startswith("difference ")
    tokens = _operands(body.removeprefix("difference "))
    if tokens is None or len(tokens) < 3:
        return None
    try:
        for operators in ("^", "*/", "+-"):
            tokens = _fold(tokens, operators)
    except (ZeroDivisionError, OverflowError):
        return None
    value = Fraction(tokens[0])
    return abs(value) if absolute else value


def _operands(body: str) -> list[Fraction | str] | None:
    # an operator stands between spaces or straight after a figure: `3 - -4`, `3-4`
    pattern = "|".join(rf"(?<=\s)(?:{words})(?=\s)|(?<=\d)(?:{words})(?=\s?\d)" for words, _ in _OPERATIONS)
    pieces = re.split(f"({pattern})", body, flags=re.IGNORECASE)
    tokens: list[Fraction | str] = []
    for i, piece in enumerate(pieces):
        if i % 2:
            tokens.append(next(sign for words, sign in _OPERATIONS if re.fullmatch(words, piece, re.IGNORECASE)))
        else:
            value = number(piece)
            if value is None:
                return None
            tokens.append(value)
    return tokens


MOST_BITS = 1_000  # of a result: what a float can show, where digits without bound would hold the process for minutes


_APPLY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "^": lambda a, b: _power(a, b),
}


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1 or abs(exponent) > 64:
        raise OverflowError("only small whole exponents")
    if _bits(base) * abs(exponent) > MOST_BITS:
        raise OverflowError("too large a power")
    return base ** int(exponent)


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _fold(tokens: list[Fraction | str], operators: str) -> list[Fraction | str]:
    out = tokens[:1]
    for sign, value in zip(tokens[1::2], tokens[2::2], strict=True):
        if str(sign) in operators:
            out[-1] = result = _APPLY[str(sign)](out[-1], value)  # type: ignore[arg-type]
            if _bits(result) > MOST_BITS:
                raise OverflowError("too large a number")
        else:
            out += [sign, value]
    return out


_PARITY = re.compile(rf"is (?:the )?(?:number )?(?P<number>-?{NUMBER}) (?:an? )?(?P<kind>even|odd)(?: number)?", re.I)
_DIVISIBLE = re.compile(
    rf"(?:is|can) ({NUMBER}) (?:divisible|be divided|evenly divisible)(?: evenly)? by ({NUMBER})", re.I
)


def parity(text: str) -> tuple[str, str] | None:
    """Yes or no: whether a whole number is even, odd, or divisible by another."""
    if match := _PARITY.fullmatch(text):
        value, divisor, rest = number(match["number"]), Fraction(2), int(match["kind"].lower() == "odd")
    elif match := _DIVISIBLE.fullmatch(text):
        value, divisor, rest = number(match[1]), number(match[2]) or Fraction(0), 0
    else:
        return None
    if value is None or value.denominator != 1 or divisor.denominator != 1 or divisor == 0:
        return None
    return "yes" if value % divisor == rest else "no", "divisibility"


_SERIES = re.compile(
    r"(?:(?:what|which)(?: number| term)? (?:comes|is|follows|would come|should come)(?: the)? next"
    r"(?: number| term)?(?: in (?:the |this )?(?:series|sequence|row|list|pattern))?(?: of numbers)?|"
    r"(?:continue|complete|extend) (?:the |this )?(?:series|sequence|row|pattern)(?: of numbers)?|"
    r"what (?:number|term) (?:follows|continues)(?: the| this)?(?: series| sequence)?)"
    r"[:,]? (?P<terms>[-\d][-\d., ]*\d)[,. ]*(?:…|_+)?",
    re.IGNORECASE,
)


def series(text: str) -> tuple[str, str] | None:
    """The next term where one difference or one ratio explains three terms or more."""
    match = _SERIES.fullmatch(text)
    terms = [number(t) for t in match["terms"].split(", ")] if match else []
    known = [t for t in terms if t is not None]
    if len(known) < 3 or len(known) < len(terms):
        return None
    if len({b - a for a, b in pairwise(known)}) == 1:
        return shown(2 * known[-1] - known[-2]), "arithmetic series"
    if all(known) and len({b / a for a, b in pairwise(known)}) == 1:
        return shown(known[-1] ** 2 / known[-2]), "geometric series"
    return None
