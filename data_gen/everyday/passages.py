"""Passages about several things of one kind, and questions that one of their facts answers: rows for reading.

A reader that has seen encyclopaedias alone takes the value of one thing for another's where a passage is about several,
as catalogues, reports and tables are. Here all things of a passage have the same facts with different values, so that
only who has which value tells the answer. Some questions ask what the passage does not say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from data_gen.everyday.words import Namer, Slots, capitalise, choose_forms, list_words, read_words
from revelator.reading import Answer, ReadingRow
from revelator.tables import write_row

UNSAID = 0.3  # of the questions
QUESTIONS = 3  # of a passage
PEOPLE = ("roles", "owners")  # words of facts that name a person
WITH_PEOPLE = 0.4  # of the passages say more of a person whom each thing has
AS_TABLE, AS_LIST = 0.25, 0.15  # of the other passages; the rest is prose
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
        says twice is left out."""
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
        for number in range(QUESTIONS):
            fact = self._random.choice(said)
            answers: tuple[Answer, ...] = ()
            if self._random.random() < UNSAID:
                question = self._ask_unsaid(fact, passage)
            else:
                question, answers = fact.ask(self._random), (Answer(fact.value, passage.find(fact.value)),)
                if passage.count(fact.value) != 1:
                    continue
            yield ReadingRow(f"{identity}-{number}", question, passage, title, answers)

    def _draw_things(self) -> list[str]:
        _, names = self._namer.draw_names()
        return list(dict.fromkeys(names))[: self._random.choice((1, 2, 2, 3, 3))]

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

    def _ask_unsaid(self, fact: _Fact, passage: str) -> str:
        """A question about another thing, or about a fact that no thing of the passage has."""
        if self._random.random() < 0.5:
            others = [name for name in self._namer.draw_names()[1] if name not in passage]
            if others:
                return self._make_fact(fact.entry, fact.words, others[0]).ask(self._random)
        while True:
            entry, words = self._draw_entry()
            alike = entry["value"] == fact.entry["value"]
            is_new = entry.get("words") != fact.entry.get("words") and words.get("n", words.get("v", "")) not in passage
            if is_new and alike == (self._random.random() < ALIKE):
                return self._make_fact(entry, words, fact.thing).ask(self._random)

    def _write_things(self, facts: Sequence[Sequence[_Fact]]) -> str:
        roll = self._random.random()
        if roll < AS_TABLE:
            return "\n".join(map(self._write_row, facts))
        if roll < AS_TABLE + AS_LIST:
            return "\n".join("- " + ", ".join(fact.write(self._random) for fact in own) for own in facts)
        return " ".join(self._write_thing(own) for own in facts)

    def _write_people(self, facts: Sequence[Sequence[_Fact]], lives: Sequence[Sequence[_Fact]]) -> str:
        """Of each thing who its person is, the person's life, and the rest."""
        told = []
        for (first, *rest), life in zip(facts, lives, strict=True):
            pronoun = self._random.choice(("he", "she"))
            told += [self._write_thing([first]), self._write_thing(life, pronoun, KNOWN), self._write_thing(rest)]
        return " ".join(told)

    def _write_row(self, facts: Sequence[_Fact]) -> str:
        words = [fact.words for fact in facts]
        columns = [slots.get("n") or slots.get("part") or slots.get("adj") or slots["v"] for slots in words]
        return write_row(["Name", *map(capitalise, columns)], [facts[0].thing, *(fact.value for fact in facts)])

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
