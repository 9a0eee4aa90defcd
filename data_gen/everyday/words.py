"""The words of everyday passages (`words.yaml`), the forms of verbs, and names of things."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

from data_gen.annotate.inflection import make_third_person
from revelator.config import read_table

STYLES = {  # of names
    "{x}": 40, "the {x}": 8, "the {x} {k}": 18, "{k} {x}": 12, "the {k} {x}": 8, "the {k} {at} {x}": 14,
}  # fmt: skip
PLACES = ("in", "to", "from", "for", "at", "with", "of", "by")
LETTERS = "ABCDEFGHKLMNPRSTVXZ"

Slots = dict[str, str]


class Namer:
    """Draws names of things: titles, words of titles, and codes, alone or with the kind of thing."""

    def __init__(self, titles: Sequence[str], random: Random) -> None:
        self._random = random
        self._titles = [title for title in titles if title.isprintable() and " and " not in title and "," not in title]

    def draw_names(self) -> list[str]:
        """Names of three things of one kind, in one style."""
        kind = self._random.choice(read_words()["kinds"].split())
        [style] = self._random.choices(list(STYLES), list(STYLES.values()))
        style = style.format(x="{x}", k=kind, at=self._random.choice(PLACES))
        [draw] = self._random.choices((self.draw_title, self.draw_word, self.draw_code), (45, 35, 20))
        return [style.format(x=draw()) for _ in range(3)]

    def draw_title(self) -> str:
        return self._random.choice(self._titles).partition(" (")[0]

    def draw_word(self) -> str:
        """One word of a title; now and then in small letters, as names of servers are."""
        word = max(self.draw_title().split(), key=len)
        return word.lower() if self._random.random() < 0.15 else word

    def draw_code(self) -> str:
        letters = "".join(self._random.choices(LETTERS, k=self._random.choice((1, 1, 2, 3))))
        digits = self._random.randrange(2, self._random.choice((10, 100, 1000)))
        return f"{letters}{self._random.choice(('', '', '-', ' '))}{digits}"


def choose_forms(words: Mapping[str, Any], random: Random) -> Slots:
    """The slots of a word, of each list one form."""
    return {slot: random.choice(form) if isinstance(form, list) else form for slot, form in words.items()}


@cache
def read_words() -> dict[str, Any]:
    """`words.yaml`, its lines with bars as lists."""
    data = dict(read_table("data_gen.everyday", "words.yaml"))
    data["lives"] = [line.split(" | ") for line in data["lives"]]
    return data


def list_words(kind: str) -> Iterator[dict[str, Any]]:
    """The slots of each word of a kind; a list has the forms to choose from."""
    found = read_words()[kind]
    match kind:
        case "attributes":
            yield from found
        case "dates" | "roles" | "firms" | "sites":
            yield from ({"n": noun} for noun in found)
        case "sizes":
            yield from ({"adj": adjective} for adjective in found)
        case "owners":
            yield from (dict(zip(("v", "does", "part"), each.split("/"), strict=True)) for each in found.split())
        case "amounts":
            yield from map(_inflect, found.split())
        case "counts":
            tails = [f" {tail}" if tail else "" for tail in found["tails"]]
            verbs = [_inflect(verb) for verb in found["verbs"].split()]
            yield from ({**verb, "n": noun, "tail": tails} for noun in found["nouns"].split() for verb in verbs)
        case "events" | "happens":
            for pair in found.split():
                base, past = pair.split("/")
                yield {**_inflect(base), "past": past, "part": past}


def _inflect(verb: str) -> Slots:
    did = read_words()["past"].get(verb) or verb + ("d" if verb.endswith("e") else "ed")
    return {"v": verb, "vs": make_third_person(verb), "ved": did}


def capitalise(text: str) -> str:
    """The text with a capital at its beginning; `str.capitalize` would make the letters of names small."""
    return text[:1].upper() + text[1:]
