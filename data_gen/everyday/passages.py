"""Passages about several things of one kind, and questions that one of their facts answers: rows for reading.

A reader that has seen encyclopaedias alone takes the value of one thing for another's where a passage is about several,
as catalogues, reports and tables are. Here all things of a passage have the same facts with different values, so that
only who has which value tells the answer. Some questions ask what the passage does not say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from data_gen.everyday.words import Namer, Slots, capitalise, choose_forms, list_words, read_words
from revelator.reading import Answer, ReadingRow
from revelator.tables import write_row

UNSAID = 0.3  # of the questions
MEASURED = ("quantity", "length")  # values with a unit
QUESTIONS = 3  # of a passage
PEOPLE = ("roles", "owners")  # words of facts that name a person
AS_TABLE, AS_FORM = 0.4, 0.1  # of the passages: rows of a table, and lines of a form about one thing, its title
WITH_PEOPLE = 0.4  # of the others say more of a person whom each thing has
AS_LIST = 0.2  # of what is left; the rest is prose
ROWS, COLUMNS = (3, 9), (2, 4)  # of a table, at least and at most; the columns beside the key
UNIT_ABOVE = 0.6  # of the columns of quantities have their unit in the header
REVERSED = 0.15  # of the questions about a row ask for its key
ASIDE, PRONOUN, JOINED = 0.3, 0.35, 0.45  # of the facts that could be said so
KNOWN = 0.85  # "he" or "she" in place of the name, of one who has just been named
ALIKE = 0.5  # of the questions about what is not said ask for a value of a kind that is


@dataclass(frozen=True)
class _Fact:
    """What can be said of one thing. `entry` is of `facts` in words.yaml."""

    entry: dict[str, Any]
    words: Slots
    thing: str
    value: str

    def write(self, random: Random, key: str = "say") -> str:
        text = random.choice(self.entry[key]).format(x=self.thing, y=self.value, **self.words)
        is_day = self.entry["value"] == "date" and self.value.count(" ") == 2
        return text.replace(f"in {self.value}", f"on {self.value}") if is_day else text

    def ask(self, random: Random) -> str:
        return capitalise(random.choice(self.entry["ask"]).format(x=self.thing, **self.words))


class PassageWriter:
    """Draws passages and their questions; `titles` are what things and people may be called."""

    def __init__(self, titles: Sequence[str], random: Random) -> None:
        self._random = random
        self._namer = Namer(titles, random)
        self._words = {name: list(list_words(name)) for name in {fact["words"]: None for fact in read_words()["facts"]}}

    def draw(self, identity: str) -> Iterator[ReadingRow]:
        """The rows of one passage; none where two of its values came out alike. A question whose answer the passage
        says twice, or that says it itself, is left out."""
        roll = self._random.random()
        if roll < AS_TABLE:
            yield from self._draw_table(identity)
        elif roll < AS_TABLE + AS_FORM:
            yield from self._draw_form(identity)
        else:
            yield from self._draw_text(identity)

    def _draw_text(self, identity: str) -> Iterator[ReadingRow]:
        things = self._draw_things()
        has_people = self._random.random() < WITH_PEOPLE
        first = [fact for fact in read_words()["facts"] if fact["words"] in PEOPLE and fact["value"] == "person"]
        entries = [self._draw_entry(first if has_people else ())]
        entries += [self._draw_entry() for _ in range(self._random.choice((1, 1, 2)))]
        facts = [[self._make_fact(entry, words, thing) for entry, words in entries] for thing in things]
        lives = self._draw_lives([own[0].value for own in facts]) if has_people else []
        said = [fact for own in (*facts, *lives) for fact in own]
        if len({fact.value for fact in said}) < len(said):
            return
        passage = self._write_people(facts, lives) if lives else self._write_things(facts)
        title = self._random.choice(("", things[0], capitalise(things[-1])))
        yield from self._ask(identity, title, passage, said)

    def _draw_table(self, identity: str) -> Iterator[ReadingRow]:
        """A row for each of several things of one kind. Questions ask for a cell, or for the key of a row."""
        kind, [absent, *things] = self._draw_keys(1 + self._random.randint(*ROWS))
        if not things:  # the names that were drawn are alike
            return
        entries = self._draw_columns(self._random.randint(*COLUMNS))
        heads = [_name_column(words) for _, words in entries]
        facts = [[self._make_fact(entry, words, thing) for entry, words in entries] for thing in things]
        for place, (entry, _) in enumerate(entries):
            if entry["value"] in MEASURED and self._random.random() < UNIT_ABOVE:
                unit = facts[0][place].value.partition(" ")[2]
                heads[place] += f" ({unit})"
                for own in facts:
                    own[place] = replace(own[place], value=own[place].value.partition(" ")[0])
        said = [fact for own in facts for fact in own]
        if len(set(heads)) < len(heads) or len({fact.value for fact in said}) < len(said):
            return
        columns = [self._random.choice((capitalise(kind), "Name")), *heads]
        passage = "\n".join(write_row(columns, [own[0].thing, *(fact.value for fact in own)]) for own in facts)
        title = self._random.choice(("", capitalise(f"{kind}s"), f"{self._namer.draw_title()}: {capitalise(kind)}s"))
        yield from self._ask(identity, title, passage, said, kind, absent)

    def _draw_form(self, identity: str) -> Iterator[ReadingRow]:
        """Lines of `field: value` about the thing of the title."""
        [thing, *_] = self._draw_things()
        entries = self._draw_columns(self._random.randint(3, 7))
        facts = [self._make_fact(entry, words, thing) for entry, words in entries]
        heads = [_name_column(words) for _, words in entries]
        if len(set(heads)) < len(heads) or len({fact.value for fact in facts}) < len(facts):
            return
        lines = [write_row(("", ""), (head, fact.value)) for head, fact in zip(heads, facts, strict=True)]
        yield from self._ask(identity, capitalise(thing), "\n".join(lines), facts)

    def _ask(
        self, identity: str, title: str, passage: str, said: Sequence[_Fact], kind: str = "", absent: str = ""
    ) -> Iterator[ReadingRow]:
        """Questions about what is `said`; of a table also for the key of a row, a thing of its `kind`. `absent` is the
        name of another such thing."""
        for number in range(QUESTIONS):
            fact = self._random.choice(said)
            asked, value = fact.ask(self._random), fact.value
            if kind and self._random.random() < REVERSED:
                text = fact.write(self._random)
                if text.startswith(f"{fact.thing} "):
                    asked, value = f"Which {kind}{text.removeprefix(fact.thing)}?", fact.thing
            if self._random.random() < UNSAID:
                yield ReadingRow(f"{identity}-{number}", self._ask_unsaid(fact, passage, absent), passage, title)
            elif value not in asked and len(found := find_whole(value, passage)) == 1:
                yield ReadingRow(f"{identity}-{number}", asked, passage, title, (Answer(value, found[0]),))

    def _draw_keys(self, count: int) -> tuple[str, list[str]]:
        """What a table lists: the kind, and names of such things without the kind."""
        kind = self._random.choice(read_words()["kinds"].split())
        draw = self._random.choice((self._namer.draw_title, self._namer.draw_word, self._namer.draw_code))
        return kind, list(dict.fromkeys(draw() for _ in range(count)))

    def _draw_columns(self, count: int) -> list[tuple[dict[str, Any], Slots]]:
        return [self._draw_entry() for _ in range(count)]

    def _draw_things(self) -> list[str]:
        return list(dict.fromkeys(self._namer.draw_names()))[: self._random.choice((1, 2, 2, 3, 3))]

    def _draw_entry(self, among: Sequence[dict[str, Any]] = ()) -> tuple[dict[str, Any], Slots]:
        entry = self._random.choice(among or read_words()["facts"])
        words = choose_forms(self._random.choice(self._words[entry["words"]]), self._random)
        return entry, {**words, "year": str(self._random.randrange(1950, 2025))}

    def _make_fact(self, entry: dict[str, Any], words: Slots, thing: str) -> _Fact:
        return _Fact(entry, words, thing, self._draw_value(entry["value"]))

    def _draw_lives(self, people: Sequence[str]) -> list[list[_Fact]]:
        chosen = self._random.sample(read_words()["lives"], self._random.choice((1, 2, 2)))
        entries = [{"value": value, "say": [say], "ask": ask} for value, say, *ask in chosen]
        return [[self._make_fact(entry, {}, person) for entry in entries] for person in people]

    def _ask_unsaid(self, fact: _Fact, passage: str, absent: str = "") -> str:
        """A question about another thing, or about a fact that no thing of the passage has."""
        if self._random.random() < 0.5:
            names = [absent] if absent else self._namer.draw_names()
            others = [name for name in names if name not in passage]
            if others:
                return self._make_fact(fact.entry, fact.words, others[0]).ask(self._random)
        while True:
            entry, words = self._draw_entry()
            alike = entry["value"] == fact.entry["value"]
            is_new = entry.get("words") != fact.entry.get("words") and words.get("n", words.get("v", "")) not in passage
            if is_new and alike == (self._random.random() < ALIKE):
                return self._make_fact(entry, words, fact.thing).ask(self._random)

    def _write_things(self, facts: Sequence[Sequence[_Fact]]) -> str:
        if self._random.random() < AS_LIST:
            return "\n".join("- " + ", ".join(fact.write(self._random) for fact in own) for own in facts)
        return " ".join(self._write_thing(own) for own in facts)

    def _write_people(self, facts: Sequence[Sequence[_Fact]], lives: Sequence[Sequence[_Fact]]) -> str:
        """Of each thing who its person is, the person's life, and the rest."""
        told = []
        for (first, *rest), life in zip(facts, lives, strict=True):
            pronoun = self._random.choice(("he", "she"))
            told += [self._write_thing([first]), self._write_thing(life, pronoun, KNOWN), self._write_thing(rest)]
        return " ".join(told)

    def _write_thing(self, facts: Sequence[_Fact], pronoun: str = "it", known: float = 0.0) -> str:
        """The facts of one thing: an aside after its name, two facts with one subject, or a pronoun in later sentences;
        in the first one with probability `known`."""
        sentences: list[str] = []
        waiting = list(facts)
        while waiting:
            fact = waiting.pop(0)
            text = fact.write(self._random)
            starts = text.startswith(f"{fact.thing} ")
            if starts and waiting and "aside" in waiting[0].entry and self._random.random() < ASIDE:
                aside = waiting.pop(0).write(self._random, "aside")
                text = f"{fact.thing}, {aside},{text.removeprefix(fact.thing)}"
            elif starts and waiting and self._random.random() < JOINED:
                other = waiting[0].write(self._random)
                if other.startswith(f"{fact.thing} "):
                    waiting.pop(0)
                    text = f"{text} and{other.removeprefix(fact.thing)}"
            if starts and self._random.random() < (max(PRONOUN, known) if sentences else known):
                text = f"{pronoun}{text.removeprefix(fact.thing)}"
            sentences.append(f"{capitalise(text)}.")
        return " ".join(sentences)

    def _draw_value(self, kind: str) -> str:
        random, words = self._random, read_words()
        sizes = (str(random.randrange(2, 100)), f"{random.randrange(100, 10_000):,}", f"{random.uniform(1, 90):.1f}")
        number = random.choice(sizes)
        match kind:
            case "quantity":
                return f"{number} {random.choice(words['units'])}"
            case "length":
                return f"{number} {random.choice(words['lengths'])}"
            case "number":
                return random.choice((str(random.randrange(2, 900)), f"{random.randrange(1000, 90_000):,}"))
            case "date":
                year, month = random.randrange(1890, 2027), random.choice(words["months"])
                return random.choice((str(year), f"{month} {year}", f"{random.randrange(1, 29)} {month} {year}"))
            case "person":
                return f"{random.choice(words['first_names'].split())} {capitalise(self._namer.draw_word())}"
            case "company":
                return f"{capitalise(self._namer.draw_word())} {random.choice(words['firms_are'])}"
            case _:
                return capitalise(self._namer.draw_word())


def _name_column(words: Slots) -> str:
    return capitalise(words.get("n") or words.get("part") or words.get("adj") or words["v"])


def find_whole(value: str, passage: str) -> list[int]:
    """Where a passage says a value as a whole, not inside a longer word or number."""
    return [found.start() for found in re.finditer(rf"(?<![\w.,-]){re.escape(value)}(?![\w-]|[.,]\d)", passage)]
