"""Questions as people ask them at work: comparisons, one question about several things, what hangs on an answer.

Published questions with several hops are about films, people and places. "Which tug pulls more, Orlik or Mewa?" and
"Who leads the investigation, and where did she work before?" are not among them. `everyday.yaml` has wordings and
words; a question is one wording with words and names drawn anew, and its plan follows from the wording. Nobody knows
the answer: like composed questions, these teach where a question divides, and that its words are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any

import yaml

from data_gen.questions import AnnotatedQuestion
from data_gen.records import hash_fraction
from revelator.plans import Atomic, Dependent, Expression, doubts, render
from revelator.plans import Sequence as ListOf

KINDS = {"compare": 0.36, "both": 0.14, "sides": 0.06, "single": 0.12, "followed": 0.14, "nested": 0.18}
ROUTES = {"both": "compound", "sides": "compound", "single": "single"}  # the others are complex
WORDS = (
    "adjectives",
    "amounts",
    "adverbs",
    "counts",
    "masses",
    "attributes",
    "relations",
    "events",
    "happens",
    "doers",
)
DEEPER = 0.25  # of the nested questions have a name that is itself a phrase for an answer
STYLES = {  # of names
    "{x}": 40, "the {x}": 8, "the {x} {k}": 18, "{k} {x}": 12, "the {k} {x}": 8, "the {k} {at} {x}": 14,
}  # fmt: skip
PLACES = ("in", "to", "from", "for", "at", "with", "of", "by")
LETTERS = "ABCDEFGHKLMNPRSTVXZ"
DEV = 0.04  # of the words that are asked about; their questions are of split dev

Slots = dict[str, str]


class Asker:
    """Draws questions about things with the given names."""

    def __init__(self, names: Sequence[str], random: Random) -> None:
        self._random = random
        self._names = [name for name in names if name.isprintable() and " and " not in name and "," not in name]
        self._words = {words: list(_list_words(words)) for words in WORDS}

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A question with its plan; None where two of its words came out alike, or its plan leaves a doubt."""
        [kind] = self._random.choices(list(KINDS), list(KINDS.values()))
        match kind:
            case "followed":
                question, expression, word = self._draw_followed()
            case "nested":
                question, expression, word = self._draw_nested()
            case _:
                question, expression, word = self._draw_listed(kind)
        items = expression.items if isinstance(expression, ListOf) else ()
        parts = tuple(item.text for item in items if isinstance(item, Atomic))
        if len(set(parts)) < len(parts) or doubts(expression):
            return None
        route = ROUTES.get(kind, "complex")
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="dev" if hash_fraction(f"everyday:{word}") < DEV else "train",
            question=question,
            route=route,
            expression=render(expression),
            parts=parts if route == "compound" else (),
            teacher="everyday",
        )

    def _draw_listed(self, kind: str) -> tuple[str, Expression, str]:
        """A wording that asks the same of several things, or two sides of one."""
        entry = self._random.choice(_read()[kind])
        words = self._choose_forms(self._random.choice(self._words[entry["words"]]))
        way = self._random.choice(entry.get("ways", [entry["ask"]]))
        said, full = self._draw_names("{k}" in way)
        word = words.get("v") or words.get("n") or words.get("adj") or words["did"]
        if kind == "sides":
            other = self._random.choice(self._words[entry["words"]])
            words["m"] = self._choose_forms(other).get("n") or other["did"]
            words.setdefault("n", words.get("did", ""))
            asked = [entry["ask"].format(x=full[0], **{**words, "n": side}) for side in (words["n"], words["m"])]
        elif kind == "single":
            asked = [way.format(**said, **words)]
        else:
            asked = [entry["ask"].format(x=name, **words) for name in full[: 3 if "{c}" in way else 2]]
        question = _begin(way.format(**said, **words))
        leaves = tuple(Atomic(_begin(text)) for text in asked)
        return question, leaves[0] if len(leaves) == 1 else ListOf(leaves), word

    def _draw_followed(self) -> tuple[str, Expression, str]:
        """Two questions in one, of which the second says "he" or "it" for the first's answer."""
        first, noun, thing, *_ = self._draw_link()
        asked, spoken = self._random.choice(_read()["asked"][thing])
        pronouns = self._random.choice(_read()["pronouns"][thing])
        said = spoken.format(**{key: value.format(noun=noun) for key, value in pronouns.items()})
        joint = self._random.choice(_read()["joints"])
        second = _begin(said) if joint == "? " else said
        plan = Dependent(Atomic(first), Atomic(asked.format(x=f"{{{noun}}}")))
        return f"{first.removesuffix('?')}{joint}{second}?", plan, noun

    def _draw_nested(self) -> tuple[str, Expression, str]:
        """A question about what a phrase stands for; in some, a phrase within a phrase."""
        first, noun, thing, phrase = self._draw_link()
        steps = [first]
        if self._random.random() < DEEPER:
            link, outer, thing, outer_phrase = self._draw_link(blank=True)
            steps.append(link.format(a=f"{{{noun}}}"))
            noun, phrase = outer, outer_phrase.format(a=phrase)
        asked, _ = self._random.choice(_read()["asked"][thing])
        plan: Expression = Atomic(steps[0])
        for step in (*steps[1:], asked.format(x=f"{{{noun}}}")):
            plan = Dependent(plan, Atomic(step))
        return _begin(asked.format(x=phrase)), plan, noun

    def _draw_link(self, blank: bool = False) -> tuple[str, str, str, str]:
        """(question, what its answer is called, kind of thing, phrase for the answer); `blank` leaves {a} in them."""
        first, noun, thing, *phrases = self._random.choice(_read()["links"])
        if blank:  # what follows a clause may seem part of it: "the pump that failed's maker"
            phrases = [phrase for phrase in phrases if "'s" not in phrase]
        phrase = self._random.choice(phrases)
        if blank:
            return first, noun, thing, phrase
        name = self._draw_names()[1][0]
        return _begin(first.format(a=name)), noun, thing, phrase.format(a=name)

    def _draw_names(self, kind_is_said: bool = False) -> tuple[Slots, list[str]]:
        """Names of three things of one kind, in one style: the slots k, ks, a, b, c, and the names in full.

        What stands at another thing ("the flight to Oslo") is "the one to Oslo" where the kind was said before."""
        kind = self._random.choice(_read()["kinds"].split())
        [style] = self._random.choices(list(STYLES), list(STYLES.values()))
        style = style.format(x="{x}", k=kind, at=self._random.choice(PLACES))
        [draw] = self._random.choices((self._draw_title, self._draw_word, self._draw_code), (45, 35, 20))
        full = [style.format(x=draw()) for _ in "abc"]
        slots = {"k": kind, "ks": f"{kind}s", **dict(zip("abc", full, strict=True))}
        if style.startswith(f"the {kind} ") and style.count(" ") > 2:
            for name in "abc" if kind_is_said else "bc":
                slots[name] = slots[name].replace(f"the {kind} ", "the one ", 1)
        return slots, full

    def _draw_title(self) -> str:
        return self._random.choice(self._names).partition(" (")[0]

    def _draw_word(self) -> str:
        """One word of a title; now and then in small letters, as names of servers are."""
        word = max(self._draw_title().split(), key=len)
        return word.lower() if self._random.random() < 0.15 else word

    def _draw_code(self) -> str:
        letters = "".join(self._random.choices(LETTERS, k=self._random.choice((1, 1, 2, 3))))
        digits = self._random.randrange(2, self._random.choice((10, 100, 1000)))
        return f"{letters}{self._random.choice(('', '', '-', ' '))}{digits}"

    def _choose_forms(self, words: Mapping[str, Any]) -> Slots:
        return {slot: self._random.choice(form) if isinstance(form, list) else form for slot, form in words.items()}


@cache
def _read() -> dict[str, Any]:
    """`everyday.yaml`, its lines with bars as lists."""
    data = yaml.safe_load(files("data_gen").joinpath("everyday.yaml").read_text(encoding="utf-8"))
    data["links"] = [line.split(" | ") for line in data["links"]]
    data["asked"] = {kind: [line.split(" | ") for line in lines] for kind, lines in data["asked"].items()}
    return data


def _list_words(kind: str) -> Iterator[dict[str, Any]]:
    """The slots of each word of a kind; a list has the forms to choose from."""
    found = _read()[kind]
    match kind:
        case "adjectives" | "attributes":
            yield from found
        case "relations":
            yield from ({"n": noun} for noun in found)
        case "doers":
            yield from ({"did": verb} for verb in found.split())
        case "amounts":
            yield from map(_inflect, found.split())
        case "adverbs":
            yield from (
                {**_inflect(verb), "adv": row["adv"], "more": row["more"]}
                for row in found
                for verb in row["verbs"].split()
            )
        case "counts" | "masses":
            tails = [f" {tail}" if tail else "" for tail in found.get("tails", [""])]
            verbs = [_inflect(verb) for verb in found["verbs"].split()]
            yield from ({**verb, "n": noun, "tail": tails} for noun in found["nouns"].split() for verb in verbs)
        case "events" | "happens":
            for pair in found.split():
                base, past = pair.split("/")
                yield {**_inflect(base), "past": past, "part": past}


def _inflect(verb: str) -> Slots:
    does = "has" if verb == "have" else verb + ("es" if verb.endswith(("ss", "sh", "ch", "x", "o")) else "s")
    if verb.endswith("y") and verb[-2] not in "aeiou":
        does = f"{verb[:-1]}ies"
    did = _read()["past"].get(verb) or verb + ("d" if verb.endswith("e") else "ed")
    return {"v": verb, "vs": does, "ved": did}


def _begin(text: str) -> str:
    return text[:1].upper() + text[1:]
