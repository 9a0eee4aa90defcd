"""Plans MetaQA's questions as trees, from their words alone.

The topic stands in brackets in the data; everything else is read off the words: which relations are named
(`lexicon.yaml`), from which end each is walked, and whether the topic is asked for again ("the same director"). The
number of hops is not told, and neither graph nor answers are looked at.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from revelator.plans.art import Art, Filter, Relate

TOPIC = re.compile(r"\[(.+)\]")
T = "TOPIC"

# from a person to the films: "directed by T", "T directed films", "the director T"
_TO_FILMS = (
    re.compile(rf"\b(?P<word>\w+) by {T}"),
    re.compile(rf"{T} (?P<word>\w+ed|written) (?:films|movies)"),
    re.compile(rf"\bthe (?P<word>director|writer|screenwriter|actor) {T}"),
)
_TOGETHER = re.compile(r"\bco-|\btogether\b|\bsame (?:movie|film) with\b")
_SHARED = re.compile(r"\bsame\b|\bshares?\b|\balso\b")
_FILMS_ASKED = re.compile(r"(?<!TOPIC is )\b(?:what|which|an?) (?:film|movie)s?\b(?! genre)")
_DONE_BY_TOPIC = re.compile(rf"\bwhat (?:did|does|was) {T}")


def topic_of(question: str) -> str | None:
    match = TOPIC.search(question)
    return match[1] if match else None


def plan(question: str) -> Art | None:
    """The tree of a question, or None when its words name no relation."""
    match = TOPIC.search(question)
    if match is None:
        return None
    topic, text = match[1], f"{question[: match.start()]}{T}{question[match.end() :]}".lower().replace(T.lower(), T)
    asked = question.replace("[", "").replace("]", "")
    if _TOGETHER.search(text):
        steps = _there_and_back(topic, relation(text), first_inverse=True)
    elif _SHARED.search(text):
        steps = _there_and_back(topic, relation(text), first_inverse=False)
    else:
        steps = _one_way(topic, text)
    return Art(asked, children=steps) if steps else None


def _there_and_back(topic: str, along: str | None, *, first_inverse: bool) -> tuple[Art, ...]:
    """To what the topic is related to and back again, without the topic."""
    if along not in _lexicon()["people"]:
        return ()
    first = Relate(topic, str(along), first_inverse)
    second = Relate("[1]", str(along), not first_inverse)
    return (
        Art(f"{along}: {topic}", first),
        Art(f"{along}: [1]", second),
        Art(f"Which of [2] are others than {topic}?", Filter(("[2]",), f"other than {topic}")),
    )


def _one_way(topic: str, text: str) -> tuple[Art, ...]:
    for form in _TO_FILMS:
        found = form.search(text)
        first = relation(found["word"]) if found else None
        if found and first in _lexicon()["people"]:
            rest = f"{text[: found.start()]} {text[found.end() :]}"
            films = Art(f"films {first} {topic}", Relate(topic, str(first), True))
            second = relation(rest)
            return (films, Art(f"{second} of [1]", Relate("[1]", second, False))) if second else (films,)
    along = relation(text)
    if along is None:
        return ()
    inverse = bool(_FILMS_ASKED.search(text) or (_DONE_BY_TOPIC.search(text) and along in _lexicon()["people"]))
    return (Art(f"{along} of {topic}", Relate(topic, along, inverse)),)


def relation(text: str) -> str | None:
    """The relation that most words of a text name; of equals, the first of the lexicon."""
    words = re.findall(r"[a-z][a-z-]*", text.replace(T, " "))
    hits = {name: sum(bool(form.fullmatch(word)) for word in words) for name, form in _forms().items()}
    best = max(hits, key=lambda name: hits[name])
    return best if hits[best] else None


@cache
def _forms() -> dict[str, re.Pattern[str]]:
    relations = _lexicon()["relations"]
    return {
        name: re.compile("|".join(re.escape(word).replace(r"\*", "[a-z-]*") for word in words))
        for name, words in relations.items()
    }


@cache
def _lexicon() -> dict[str, Any]:
    return yaml.safe_load(files("evaluation.metaqa").joinpath("lexicon.yaml").read_text(encoding="utf-8"))
