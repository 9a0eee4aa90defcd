"""Keys under which two answers are the same."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from importlib.resources import files


def normalise(text: str) -> str:
    """A key under which two answers are the same: case, accents, punctuation and articles left out."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    words = re.sub(r"[^\w\s]", " ", text).split()
    return " ".join(w for w in words if w not in ("a", "an", "the")) or " ".join(words)


@cache
def _countries() -> dict[str, str]:
    rows = files("serving.executor.operations").joinpath("countries.tsv").read_text(encoding="utf-8").splitlines()
    return {form: row.split("\t")[0] for row in rows for form in row.split("\t")}


def country(text: str) -> str:
    """A key under which a country, its adjective and its short forms are the same: "U.S.", "American"."""
    key = normalise(text)
    return _countries().get(key, key)


LONGEST = 200  # characters of a value with everything around it; a longer text is prose, or was made to cost time


def plain(text: str) -> str:
    """What the readers of values see: one space where there is white space; nothing of a text that is no value."""
    text = " ".join(unicodedata.normalize("NFC", text).replace("\u2013", "-").split())
    return text if len(text) <= LONGEST else ""
