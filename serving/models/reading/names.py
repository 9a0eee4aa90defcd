"""Candidate answers in a sentence: names, quoted titles, dates, numbers with their units, plain noun phrases."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from serving.models.reading.lexicon import word_set
from serving.models.reading.text import Token
from serving.retrieval import ASKING_WORDS, STOP_WORDS

Sort = Literal["name", "date", "year", "number", "phrase", "title"]

CONNECTORS = word_set("connectors")
FUNCTION_WORDS = STOP_WORDS | ASKING_WORDS | word_set("function")
_MONTHS = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DATE = re.compile(
    rf"\b(?:\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTHS},? (?:\d{{3,4}})(?: BCE?| AD)?\b"
    rf"|{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{3,4}}\b(?: BCE?)?"
    rf"|{_MONTHS},? \d{{4}}\b|\d{{4}}-\d{{2}}-\d{{2}}\b"
    rf"|{_MONTHS} \d{{1,2}}\b(?!,? \d{{3}})|\d{{1,2}} {_MONTHS}\b)"
)
_YEAR = re.compile(
    r"(?<![\w.,$£€¥])(?:c\. ?)?(?:1\d{3}|20\d{2})(?:[–-](?:\d{2,4}|present))?s?(?: BCE?)?(?![\w%]|[.,]\d)"
    r"|\b\d{1,4} (?:BCE?|AD)\b"
)
_NUMBER_WORDS = (
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion dozen"
)
_WORDS = "|".join(_NUMBER_WORDS.split())
_NUMBER = re.compile(
    rf"(?:[$£€¥]|US\$|about )? ?(?<![\w.])(?:\d+(?:[.,]\d+)*(?![\d\w])|\b(?:{_WORDS})(?:[- ](?:{_WORDS}))*\b)"
    r"(?: ?(?:million|billion|thousand|hundred|trillion|crore|lakh)\b)?(?: ?%| percent| per cent)?",
    re.IGNORECASE,
)
_UNIT_BREAKS = FUNCTION_WORDS | {"and", "or"}
_TWO_WORD_UNITS = frozenset(["square", "cubic", "nautical", "short", "long", "light", "us", "american", "running"])
_QUOTE = re.compile(r"[\"“«]([^\"”»]{1,120})[\"”»]")


@dataclass(frozen=True)
class Candidate:
    """A span that could be an answer: token positions [first, last) in its sentence."""

    text: str
    sort: Sort
    first: int
    last: int


def candidates(sentence: str, tokens: tuple[Token, ...], known: frozenset[int] = frozenset()) -> list[Candidate]:
    """All candidates of a sentence, in order; dates and quoted titles are not cut up into names, and no name runs on
    into the tokens `known`."""
    found = list(_matches(sentence, tokens))
    taken = {i for c in found if c.sort != "number" for i in range(c.first, c.last)}
    named = [c for c in names(sentence, tokens, known) if c.first not in taken and c.last - 1 not in taken]
    inside = {i for c in named for i in range(c.first, c.last)}
    found = [c for c in found if c.sort != "number" or c.first not in inside] + named
    taken = {i for c in found for i in range(c.first, c.last)}
    phrases = _phrases(sentence, tokens, taken | known)
    found += phrases
    found += [
        Candidate(sentence[tokens[n.first].start : tokens[p.last - 1].end], "phrase", n.first, p.last)
        for n in found
        for p in phrases
        if n.sort == "name" and n.last == p.first and n.first and tokens[n.first - 1].lower in ("the", "a", "an")
    ]
    return sorted(found, key=lambda c: c.first)


def _matches(sentence: str, tokens: tuple[Token, ...]) -> list[Candidate]:
    found: list[Candidate] = []
    taken: set[int] = set()
    for sort, pattern in (("name", _QUOTE), ("date", _DATE), ("year", _YEAR), ("number", _NUMBER)):
        for match in pattern.finditer(sentence):
            group = 1 if pattern is _QUOTE else 0
            first, last = token_span(tokens, *match.span(group))
            if first >= last or taken.intersection(range(first, last)):
                continue
            text = match[group].strip().strip(",")
            if sort == "number":
                last = _with_unit(tokens, last)
                text = sentence[tokens[first].start : tokens[last - 1].end]
                if sentence[tokens[first].start - 1 : tokens[first].start] in tuple("$£€¥"):
                    text = sentence[tokens[first].start - 1] + text
            taken.update(range(first, last))
            found.append(Candidate(text, sort, first, last))  # type: ignore[arg-type]
    return found


def token_span(tokens: tuple[Token, ...], start: int, end: int) -> tuple[int, int]:
    """The tokens that lie wholly in the characters [start, end)."""
    inside = [i for i, t in enumerate(tokens) if t.start >= start and t.end <= end]
    return (inside[0], inside[-1] + 1) if inside else (0, 0)


def _with_unit(tokens: tuple[Token, ...], last: int) -> int:
    """The end of a number once the noun after it is taken in: `1,204 km`, `20 square miles`, `12 employees`."""
    for limit in range(2):
        if last >= len(tokens) or not tokens[last].text[0].isalpha() or tokens[last].lower in _UNIT_BREAKS:
            break
        if tokens[last].capitalised and limit == 0:
            break
        last += 1
        if tokens[last - 1].lower not in _TWO_WORD_UNITS:
            break
    return last


def names(sentence: str, tokens: tuple[Token, ...], known: frozenset[int] = frozenset()) -> list[Candidate]:
    """Runs of capitalised words, joined by `of`, `the`, `de`, `&`, initials, numbers inside or at the end."""
    found, i = [], 0
    while i < len(tokens):
        if i in known or not _starts_name(tokens, i):
            i += 1
            continue
        last = next((j for j in range(i + 1, _name_end(tokens, i)) if j in known), _name_end(tokens, i))
        first = i
        while first < last and first == 0 and tokens[first].lower in FUNCTION_WORDS - {"the", "a", "an"} and last > 1:
            first += 1
        text = sentence[tokens[first].start : tokens[last - 1].end] if first < last else ""
        text = re.sub(r"(?<=\w)['’](?:s)?$", "", text).strip(" '")
        last, text = _qualified(sentence, tokens, last, text)
        if text and text.lower() not in FUNCTION_WORDS:
            found.append(Candidate(text, "name", first, last))
        i = max(last, i + 1)
    return found


_QUALIFIER = re.compile(r" \((?:\d{4} )?[a-z]+(?: [a-z]+)?(?:, [a-z])?\)")


def _qualified(sentence: str, tokens: tuple[Token, ...], last: int, text: str) -> tuple[int, str]:
    """Takes in a qualifier such as `(1997 film)` that belongs to a name."""
    match = _QUALIFIER.match(sentence, tokens[last - 1].end)
    if not text or match is None:
        return last, text
    inside = sum(1 for t in tokens[last:] if t.end <= match.end())
    return last + inside, text + match[0]


def _starts_name(tokens: tuple[Token, ...], i: int) -> bool:
    token = tokens[i]
    if token.text[0].isdigit():
        ordinal = token.text[-1].isalpha()
        return ordinal and i + 1 < len(tokens) and tokens[i + 1].capitalised
    return token.capitalised and (token.lower != "i" or i > 0)


def _name_end(tokens: tuple[Token, ...], first: int) -> int:
    last, i = first + 1, first + 1
    while i < len(tokens):
        token, previous = tokens[i], tokens[i - 1]
        if previous.text.endswith(("'s", "’s")) and not token.capitalised:
            break
        if token.capitalised or (token.is_word and token.text[0].isdigit() and _may_end_in_number(tokens, i)):
            last = i = i + 1
        elif (
            (token.text == "." and (len(previous.text) == 1 or previous.lower in _TITLES) and _next_capital(tokens, i))
            or (token.text in ("!", ":") and _next_capital(tokens, i))
            or (token.lower in CONNECTORS and _connects(tokens, i))
        ):
            i += 1
        else:
            break
    return last


_TITLES = word_set("titles")


def _may_end_in_number(tokens: tuple[Token, ...], i: int) -> bool:
    text = tokens[i].text
    return len(text) <= 3 and tokens[i].start == tokens[i - 1].end + 1 and tokens[i - 1].is_word


def _next_capital(tokens: tuple[Token, ...], i: int) -> bool:
    return i + 1 < len(tokens) and tokens[i + 1].capitalised


def _connects(tokens: tuple[Token, ...], i: int) -> bool:
    for token in tokens[i + 1 : i + 3]:
        if token.capitalised:
            return True
        if token.lower not in CONNECTORS:
            return False
    return False


def _phrases(sentence: str, tokens: tuple[Token, ...], taken: set[int]) -> list[Candidate]:
    """Runs of at most five plain words between function words and marks."""
    found, first = [], None
    for i in range(len(tokens) + 1):
        plain = (
            i < len(tokens) and i not in taken and tokens[i].text[0].isalpha() and tokens[i].lower not in FUNCTION_WORDS
        )
        if plain and first is None:
            first = i
        elif not plain and first is not None:
            if i - first <= 5:
                for start in range(first, min(first + 2, i)):  # with and without its first word: `read music`
                    text = sentence[tokens[start].start : tokens[i - 1].end]
                    found.append(Candidate(text, "phrase", start, i))
            first = None
    return found
