"""Word problems of equal groups: so many groups of so many, or so many shared out equally."""

from __future__ import annotations

import re

from serving.models.direct.numbers import NUMBER, number, shown

_GROUPS = rf"(?:There are|[A-Z]\w+ (?:has|had|buys|bought)) (?P<a>{NUMBER}) (?P<group>[a-z]+?)(?:s|es)?"
_SIZE = rf"(?P<b>{NUMBER}) (?P<thing>[a-z]+)"
_TOTAL = (
    r"[.,;] [Hh]ow many (?P<asked>[a-z]+) (?:(?:are|is) (?:there|that)|(?:does|do|did) \w+ (?:have|buy|own|get))"
    r"(?: (?:in total|altogether|in all|now))?"
)
_TIMES = (
    re.compile(rf"{_GROUPS} (?:with|of|holding) {_SIZE} (?:in )?each{_TOTAL}"),
    re.compile(
        rf"{_GROUPS}(?:[.,;] (?:and )?| and )(?:[Ee]ach|[Ee]very)(?: (?P=group)| one|(?: one)? of them)?"
        rf" (?:holds|has|contains|costs|weighs|carries) {_SIZE}{_TOTAL}"
    ),
)
_SHARED = re.compile(
    rf"(?:.+ )?(?P<a>{NUMBER}) (?P<thing>[a-z]+)(?: (?:are|is|were))?(?: (?:shared|divided|split))?"
    rf" (?:equally |evenly )(?:shared |divided |split )?(?:among|between|by|into) (?P<b>{NUMBER}) [a-z]+[.,;]"
    r" [Hh]ow many (?P<asked>[a-z]+) (?:does|do|will|are|is|did)\b.*\beach\b.*"
)


def grouped(text: str) -> tuple[str, str] | None:
    """Groups times their size, or the share of each; None when another thing is asked for than is told."""
    for form in (*_TIMES, _SHARED):
        match = form.fullmatch(text)
        if match is None or match["thing"] != match["asked"] or len(re.findall(NUMBER, text)) != 2:
            continue
        a, b = number(match["a"]), number(match["b"])
        if a is None or not b:
            continue
        value = a / b if form is _SHARED else a * b
        return (shown(value), "word problem") if value.denominator == 1 else None
    return None
