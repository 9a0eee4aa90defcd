"""Questions that need no document: what they ask follows from their own words, and so the answer is computed."""

from __future__ import annotations

import random
from collections.abc import Callable

from data_gen.world.names import Names, load_vocabulary


def words(n: int) -> str:
    """A whole number from 0 to 999 in words."""
    ones, tens = load_vocabulary()["ones"], load_vocabulary()["tens"]
    if n < 20:
        return ones[n]
    if n < 100:
        return tens[n // 10] + (f"-{ones[n % 10]}" if n % 10 else "")
    return f"{ones[n // 100]} hundred" + (f" and {words(n % 100)}" if n % 100 else "")


def draw(rng: random.Random, names: Names) -> tuple[str, str]:
    """A question and its answer."""
    return rng.choice(MAKERS)(rng, names)


def _arithmetic(rng: random.Random, names: Names) -> tuple[str, str]:
    a, b = rng.randrange(2, 1000), rng.randrange(2, 1000)
    if rng.random() < 0.4:
        a, b = a % 100 + 2, b % 20 + 2
    show: Callable[[int], str] = words if rng.random() < 0.3 else str
    operation = rng.choice("+-*/")
    if operation == "+":
        text = rng.choice(
            ("What is {} plus {}?", "Add {} and {}.", "What is the sum of {} and {}?", "How much is {} plus {}?")
        )
        return text.format(show(a), show(b)), str(a + b)
    if operation == "-":
        a, b = max(a, b), min(a, b)
        text = rng.choice(
            ("What is {} minus {}?", "How much is {} minus {}?", "What remains of {} if you take away {}?")
        )
        return text.format(show(a), show(b)), str(a - b)
    a, b = a % 100 + 2, b % 30 + 2
    if operation == "*":
        text = rng.choice(("What is {} times {}?", "Multiply {} by {}.", "What is the product of {} and {}?"))
        return text.format(show(a), show(b)), str(a * b)
    text = rng.choice(("What is {} divided by {}?", "Divide {} by {}.", "How much is {} divided by {}?"))
    return text.format(show(a * b if a * b < 1000 else a * 5), show(b if a * b < 1000 else 5)), str(a)


def _larger(rng: random.Random, names: Names) -> tuple[str, str]:
    a, b, c = rng.sample(range(10, 100_000), 3)
    if rng.random() < 0.5:
        word, best = rng.choice(
            (("larger", max(a, b)), ("smaller", min(a, b)), ("greater", max(a, b)), ("lower", min(a, b)))
        )
        return f"Which number is {word}, {a} or {b}?", str(best)
    word, best = rng.choice((("largest", max(a, b, c)), ("smallest", min(a, b, c))))
    return rng.choice(
        (f"Which of {a}, {b} and {c} is the {word}?", f"What is the {word} of the numbers {a}, {b} and {c}?")
    ), str(best)


def _dates(rng: random.Random, names: Names) -> tuple[str, str]:
    a, b = rng.sample(range(1100, 2100), 2)
    roll = rng.random()
    if roll < 0.4:
        word, best = rng.choice((("earlier", min(a, b)), ("later", max(a, b))))
        return rng.choice((f"Which year is {word}, {a} or {b}?", f"Did {a} or {b} come {word}?")), str(best)
    if roll < 0.7:
        return rng.choice(
            (f"How many years lie between {a} and {b}?", f"How many years is it from {min(a, b)} to {max(a, b)}?")
        ), str(abs(a - b))
    age = rng.randrange(15, 95)
    person = names.word()
    return f"{person} was born in {a} and died {age} years later. In which year did {person} die?", str(a + age)


def _letters(rng: random.Random, names: Names) -> tuple[str, str]:
    word = names.word(rng.choice((1, 2, 3)))
    roll = rng.random()
    if roll < 0.4:
        return rng.choice((f'How many letters are in "{word}"?', f"How many letters does the word {word} have?")), str(
            len(word)
        )
    if roll < 0.6:
        return rng.choice((f"What is {word} spelled backwards?", f"Write {word} from back to front.")), word[
            ::-1
        ].lower()
    if roll < 0.8:
        which, letter = rng.choice((("first", word[0]), ("last", word[-1]), ("second", word[1])))
        return f"What is the {which} letter of {word}?", letter.upper()
    letter = rng.choice(word.lower())
    return f"How often does the letter {letter.upper()} occur in {word}?", str(word.lower().count(letter))


def _word_count(rng: random.Random, names: Names) -> tuple[str, str]:
    sentence = [
        rng.choice(load_vocabulary()["nouns"]).lower() if i % 2 else names.word() for i in range(rng.randrange(2, 8))
    ]
    text = " ".join(sentence)
    if rng.random() < 0.6:
        return f'How many words are in "{text}"?', str(len(sentence))
    which, answer = rng.choice((("first", sentence[0]), ("last", sentence[-1])))
    return f'What is the {which} word of "{text}"?', answer


def _choice(rng: random.Random, names: Names) -> tuple[str, str]:
    things = load_vocabulary()["things"]
    kind = rng.choice(sorted(things))
    others = [rng.choice(things[k]) for k in rng.sample(sorted(set(things) - {kind}), rng.choice((1, 2, 2, 3)))]
    answer = rng.choice([w for w in things[kind] if w not in others])
    options = [*others, answer]
    rng.shuffle(options)
    article = "an" if kind[0] in "aeiou" else "a"
    listed = f"{', '.join(options[:-1])} or {options[-1]}"
    return rng.choice(
        (f"Which of these is {article} {kind}: {listed}?", f"Which one is {article} {kind}, {listed}?")
    ), answer


def _alphabet(rng: random.Random, names: Names) -> tuple[str, str]:
    a, b = sorted({names.word(), names.word(), names.word()}, key=str.lower)[:2]
    first = min(a, b, key=str.lower)
    pair = (a, b) if rng.random() < 0.5 else (b, a)
    if not (a.isascii() and b.isascii()):
        return _letters(rng, names)
    return f"Which comes first in alphabetical order, {pair[0]} or {pair[1]}?", first


def _units(rng: random.Random, names: Names) -> tuple[str, str]:
    large, small, factor = rng.choice(load_vocabulary()["units"])
    n = rng.randrange(2, 400)
    return rng.choice((f"How many {small} are in {n} {large}?", f"Convert {n} {large} to {small}.")), str(n * factor)


def _story(rng: random.Random, names: Names) -> tuple[str, str]:
    person, other = names.word(), names.word()
    thing = rng.choice(load_vocabulary()["countables"])
    a, b = rng.randrange(3, 200), rng.randrange(2, 90)
    if rng.random() < 0.5:
        return (
            f"{person} has {a} {thing} and {other} gives {person} {b} more. How many {thing} does {person} have now?",
            str(a + b),
        )
    a += b
    return f"{person} had {a} {thing} and gave {b} of them to {other}. How many {thing} are left?", str(a - b)


def _sequence(rng: random.Random, names: Names) -> tuple[str, str]:
    start, step = rng.randrange(1, 300), rng.randrange(2, 40)
    shown = [start + step * i for i in range(rng.choice((3, 4)))]
    listed = ", ".join(map(str, shown))
    return rng.choice((f"Which number comes next: {listed}?", f"Continue the series {listed}.")), str(shown[-1] + step)


def _parity(rng: random.Random, names: Names) -> tuple[str, str]:
    n = rng.randrange(3, 100_000)
    word, holds = rng.choice((("even", n % 2 == 0), ("odd", n % 2 == 1)))
    return rng.choice((f"Is {n} an {word} number?", f"Is the number {n} {word}?")), "yes" if holds else "no"


def _given(rng: random.Random, names: Names) -> tuple[str, str]:
    """Names and values as in a question for documents, but all that is needed is said."""
    a, b = names.word(), names.word()
    low, high = sorted(rng.sample(range(1850, 2020), 2))
    early, late = (a, b) if rng.random() < 0.5 else (b, a)
    years = {early: low, late: high}
    frames = (
        ("{a} was born in {ya} and {b} in {yb}. Who is {word}?", ("older", early), ("younger", late)),
        ("If {a} came out in {ya} and {b} came out in {yb}, which came out {word}?", ("first", early), ("later", late)),
        ("{a} has {ya} inhabitants, {b} has {yb}. Which of them is {word}?", ("smaller", early), ("larger", late)),
        (
            "Given that {a} is {ya} metres high and {b} is {yb} metres high, which is {word}?",
            ("lower", early),
            ("higher", late),
        ),
    )
    text, *ends = rng.choice(frames)
    word, answer = rng.choice(ends)
    return text.format(a=a, b=b, ya=years[a], yb=years[b], word=word), answer


MAKERS: tuple[Callable[[random.Random, Names], tuple[str, str]], ...] = (
    _arithmetic,
    _arithmetic,
    _larger,
    _dates,
    _letters,
    _letters,
    _word_count,
    _choice,
    _choice,
    _alphabet,
    _units,
    _story,
    _story,
    _sequence,
    _parity,
    _given,
    _given,
)
