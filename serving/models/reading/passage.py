"""A passage as the reader sees it: sentences, who or what each speaks of, how well the title fits the question."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from revelator.trace import Passage
from serving.models.reading.lexicon import phrase_places, word_set
from serving.models.reading.names import Candidate, candidates, token_span
from serving.models.reading.question import Asked
from serving.models.reading.text import Token, content, sentences, tokenise
from serving.retrieval.words import detokenize

PRONOUNS = word_set("pronouns")
_NOUN_PHRASE_START = frozenset(("the", "this"))
_THINGS = word_set("things")


@dataclass(frozen=True)
class Sentence:
    """A sentence of a passage with what the scoring needs; `subject`: spans that stand for the passage's title."""

    text: str
    tokens: tuple[Token, ...]
    title: str
    passage: int
    number: int
    candidates: tuple[Candidate, ...]
    subject: tuple[tuple[int, int], ...]
    stems: frozenset[str]


@dataclass(frozen=True)
class Title:
    """A passage title: `base` without the qualifier in parentheses."""

    base: str
    qualifier: str
    stems: frozenset[str] = field(compare=False)


def read_title(text: str) -> Title:
    text = " ".join(text.split())
    before, opening, inside = text.removesuffix(")").rpartition("(")
    is_qualified = text.endswith(")") and opening and ")" not in inside and before.strip()
    base, qualifier = (before.rstrip(), inside) if is_qualified else (text, "")
    return Title(base, qualifier, frozenset(content(tokenise(base))) or frozenset(base.lower().split()))


def read_passage(passage: Passage, number: int) -> list[Sentence]:
    title = read_title(passage.title)
    texts = sentences(detokenize(passage.text))
    nouns = _class_nouns(texts[0], title) if texts else frozenset()
    return [_sentence(text, title, nouns, number, place) for place, text in enumerate(texts)]


def _class_nouns(opening: str, title: Title) -> frozenset[str]:
    """What the passage's subject is said to be: `X is a 1990 drama film directed by …` → drama, film."""
    match = re.search(r"\b(?:is|was|are|were) (?:an?|the|one of the)\b([^,.;()]*)", opening)
    words = tokenise(match[1])[:8] if match else ()
    return frozenset(t.lower for t in (*words, *tokenise(title.qualifier)) if t.text[0].islower())


def _sentence(text: str, title: Title, nouns: frozenset[str], passage: int, number: int) -> Sentence:
    tokens = tokenise(text)
    subject = _subject(text, tokens, title, nouns, number)
    known = frozenset(i for s, e in subject if e - s > 1 for i in range(s, e))
    found = [c for c in candidates(text, tokens, known) if not any(s <= c.first and c.last <= e for s, e in subject)]
    found += [Candidate(title.base, "title", s, e) for s, e in subject]
    return Sentence(text, tokens, title.base, passage, number, tuple(found), subject, frozenset(content(tokens)))


def _subject(
    text: str, tokens: tuple[Token, ...], title: Title, nouns: frozenset[str], number: int
) -> tuple[tuple[int, int], ...]:
    """Where a sentence speaks of its passage's title: by name, last name, pronoun, or `The <noun>` at the start."""
    spans = [token_span(tokens, p, p + len(title.base)) for p in phrase_places(title.base.lower(), text.lower())]
    last_name = title.base.split()[-1].lower() if title.base else ""
    covered = {i for s, e in spans for i in range(s, e)}
    for i, token in enumerate(tokens):
        if i in covered:
            continue
        if token.lower in PRONOUNS or (token.capitalised and token.lower == last_name and len(last_name) > 2):
            spans.append((i, i + 1))
        elif token.lower in _NOUN_PHRASE_START and i + 1 < len(tokens) and tokens[i + 1].text in nouns | _THINGS:
            spans.append((i, i + 2))
    if not spans and number == 0 and tokens and tokens[0].capitalised:
        spans.append(_opening(tokens))
    return tuple(sorted(s for s in set(spans) if s[0] < s[1]))


def _opening(tokens: tuple[Token, ...]) -> tuple[int, int]:
    """The name that opens a passage, however it is spelt, up to the first verb of being or bracket."""
    for i, token in enumerate(tokens[:12]):
        if token.lower in ("is", "was", "are", "were") or token.text in ("(", ","):
            return (0, i)
    return (0, 0)


def passage_match(asked: Asked, passage: Passage) -> float:
    """0 to 1: how well the title names what the question is about; a qualifier found in the question counts."""
    title = read_title(passage.title)
    words = frozenset(content(asked.tokens))
    if not title.stems:
        return 0.0
    covered = len(title.stems & words) / len(title.stems)
    named = [frozenset(content(tokenise(n))) for n in asked.names]
    exact = max((len(title.stems & n) / len(title.stems | n) for n in named if n), default=0.0)
    if len(title.base.split()) > 2 and phrase_places(title.base.lower(), asked.text.lower()):
        exact = max(exact, 0.9)  # a title that reads as several names: `Ral and the Bridges`
    qualifier = frozenset(content(tokenise(title.qualifier)))
    bonus = 0.2 * len(qualifier & words) / len(qualifier) if qualifier else 0.0
    other = any(
        q.qualifier and q.base.lower() == title.base.lower() and q.qualifier != title.qualifier
        for q in map(read_title, asked.names)
    )
    return min(1.2, 0.4 * (covered == 1.0) + 0.6 * exact + bonus) * (0.5 if other else 1.0)
