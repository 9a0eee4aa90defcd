"""Words that tell of relations, the kinds of answer that nouns ask for, closed word lists: the data files beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from serving.retrieval import extract_terms


@dataclass(frozen=True)
class Family:
    """Words of one relation: `words` say it, `near` hint at it (stems or lower-case phrases); `asks`: noun → kind."""

    name: str
    words: frozenset[str]
    near: frozenset[str]
    asks: dict[str, str]
    kind: str | None

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def families() -> tuple[Family, ...]:
    rows = _data("relations.yaml")
    return tuple(
        Family(
            name=name,
            words=_forms([*row.get("words", ()), *row.get("asks", {})]),
            near=_forms(row.get("near", ())),
            asks=row.get("asks", {}),
            kind=row.get("kind"),
        )
        for name, row in rows.items()
    )


@cache
def noun_kinds() -> dict[str, str]:
    """Kind by stem of a noun; the first file row that names it decides."""
    kinds: dict[str, str] = {}
    for kind, nouns in _data("nouns.yaml").items():
        for noun in nouns:
            kinds.setdefault(stem(noun), kind)
    return kinds


@cache
def word_set(name: str) -> frozenset[str]:
    """One of the closed word lists of `words.yaml`."""
    return frozenset(_data("words.yaml")[name].split())


def stem(word: str) -> str:
    return " ".join(extract_terms(word)) or word.lower()


def phrase_places(phrase: str, text: str) -> list[int]:
    """Character offsets of a lower-case phrase in lower-case text, whole words alone."""
    return [m.start() for m in re.finditer(rf"(?<!\w){re.escape(phrase)}(?!\w)", text)]


def _forms(listed: list[str]) -> frozenset[str]:
    """A single word as its stem, several as the phrase."""
    return frozenset(word.lower() if " " in word else stem(word) for word in listed)


@cache
def _data(name: str) -> dict:
    return yaml.safe_load(files("serving.models.reading").joinpath(name).read_text(encoding="utf-8"))
