"""QDMR (Wolfson et al., 2020): the operators of a decomposition become questions in natural words.

A step that is a name, or a kind of thing with short filters, is no question that anyone asks: it is folded into the
steps that use it ("return poland; return cities of #1" asks "What are the cities of poland?"). Every other step is one
leaf. What compares or lists the parts of the whole question is left to the merge, as in a plan for 2WikiMultiHopQA.
"""

from __future__ import annotations

import re

from data_gen.annotation import GoldStep, UnplannableError
from data_gen.qdmr_operators import RULES
from data_gen.qdmr_phrases import REFERENCE, modified
from data_gen.qdmr_things import Said, Sayer, project, select

NUMBER = re.compile(r"#(\d+)")
PARTS = re.compile(
    r"(?:which\b[^#]*|(?:if|are|is) both )?(#\d+(?:\s*(?:,|and|or)\s*#\d+)+)(?: (?:are|is) true)?", re.IGNORECASE
)


def read(decomposition: str) -> list[str]:
    """The steps of `return …; return …` without that word. Raises UnplannableError where one refers to a later one."""
    steps = [re.sub(r"^return\s+", "", " ".join(step.split()), flags=re.I) for step in decomposition.split(";")]
    steps = [re.sub(r"(?<!\s)\s+(,|'s\b)|^the (?=#)|(?<!\w)'(?=\w)(?![^']*')", r"\1", step) for step in steps if step]
    steps = [re.sub(r"(?<=\()\s+|(?<!\s)\s+(?=\))", "", step) for step in steps]
    for index, step in enumerate(steps, start=1):
        if any(not 0 < int(number) < index for number in NUMBER.findall(step)):
            raise UnplannableError("a step refers to a later step or to none")
    return steps


def gold_steps(decomposition: str) -> list[GoldStep]:
    """The leaves of a decomposition, `#n` counting leaves from 1. Raises UnplannableError: its message is counted."""
    steps = read(decomposition)
    if not steps:
        raise UnplannableError("a decomposition without steps")
    parts = PARTS.fullmatch(steps[-1])
    results = [int(number) for number in NUMBER.findall(parts[1])] if parts else [len(steps)]
    sayer = Sayer(steps)
    for k, step in enumerate(steps[:-1] if parts else steps, start=1):
        sayer.said[k] = _said(sayer, k, step)
    kept = sorted(_needed(sayer.said, results))
    place = {k: number for number, k in enumerate(kept, start=1)}
    return [_gold(sayer.said[k], place) for k in kept]


def _said(sayer: Sayer, k: int, step: str) -> Said:
    for pattern, make in RULES:
        if match := re.fullmatch(pattern, step, re.IGNORECASE):
            return make(sayer, k, match)
    return project(sayer, k, step) if NUMBER.search(step) else select(sayer, k, step)


def _needed(said: dict[int, Said], results: list[int]) -> set[int]:
    """The steps that are asked for the results; one that is only spoken of is not."""
    found: set[int] = set()
    waiting = list(results)
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += [int(number) for number, _ in REFERENCE.findall(said[k].question)] + list(said[k].after)
    return found


def _gold(one: Said, place: dict[int, int]) -> GoldStep:
    text = REFERENCE.sub(lambda match: f"#{place[int(match[1])]}{match[2]}", one.question)
    names = tuple(dict.fromkeys([one.noun, modified(one.phrase, one.filters, one.noun)]))
    return GoldStep("", text=text, names=names, after=tuple(place[k] for k in one.after))
