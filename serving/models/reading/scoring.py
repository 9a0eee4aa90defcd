"""How well a span of a sentence answers a question: subject, relation words, side, distance, kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from serving.models.reading.kinds import kind_fit, word_before
from serving.models.reading.lexicon import noun_kinds, phrase_places, stem, word_set
from serving.models.reading.names import Candidate, token_span
from serving.models.reading.passage import Sentence
from serving.models.reading.question import Asked
from serving.models.reading.text import Token, content, tokenise

_THIN = word_set("thin")
_LIGHT = frozenset(map(stem, word_set("light")))
_IN_PARENTHESES = re.compile(r"\(([^()]*)\)")
_LIFE_STARTS = re.compile(r"[;,] ?")
_DASH = re.compile(r"[–—]| -")
LIFE_CHARACTERS = 200  # of a parenthesis that can hold two dates


@dataclass(frozen=True)
class Scored:
    """A candidate with its sentence and score; `trigger` is the token of the relation word it was read from, or -1."""

    candidate: Candidate
    sentence: Sentence
    score: float
    trigger: int


def score_sentence(asked: Asked, sentence: Sentence, match: float, weights: Mapping[str, float]) -> list[Scored]:
    """Every admissible candidate of a sentence with its score."""
    known = _known(asked, sentence, match)
    triggers = _triggers(asked, sentence)
    overlap = sum(weights.get(w, 0.0) for w in asked.words & sentence.stems) / (
        sum(weights.get(w, 0.0) for w in asked.words) or 1.0
    )
    about = (2.5 if len(asked.names) < 2 else 1.5) * match * bool(sentence.subject) + (
        2.0 if len(asked.names) < 2 else 6.0
    ) * _named(asked, sentence, match)
    base = about + 1.0 * overlap - 0.03 * sentence.number
    scored = []
    for candidate in sentence.candidates:
        fit = kind_fit(asked, sentence, candidate)
        if fit <= 0 or _in_question(asked, candidate, known):
            continue
        relation, trigger = max(
            ((_relation(asked, sentence, candidate, t, w, known), t) for t, w in triggers), default=(0.0, -1)
        )
        fit += 0.25 * (asked.several and candidate.sort in ("name", "title") and _listed(sentence, candidate))
        life = _life_span(asked, sentence, candidate)
        relation = max(relation, life) if life >= 0 else 0.0
        trigger = candidate.first if life > 0 else trigger
        scored.append(Scored(candidate, sentence, base + 2.0 * fit + 4.0 * relation, trigger if relation > 0 else -1))
    return scored


def _life_span(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    """What stands in `(12 May 1921, Ålevik – 3 June 1999, Oslo)` after a name: 1 on the side asked for, -1 on the
    other, 0 elsewhere."""
    wanted = {f.name for f, _ in asked.families} & {"birth", "death"}
    spans = _life(sentence.text) if len(wanted) == 1 and sentence.number == 0 else ()
    at = sentence.tokens[candidate.first].start
    for (start, end), family in zip(spans, ("birth", "death"), strict=False):
        if start <= at < end:
            return 1.0 if family in wanted else -1.0
    return 0.0


@lru_cache(maxsize=256)
def _life(text: str) -> tuple[tuple[int, int], ...]:
    """Where a life began and ended, in the first parenthesis that tells both: two spans of the text, or none."""
    for found in _IN_PARENTHESES.finditer(text):
        inside, offset = found[1], found.start(1)
        if len(inside) > LIFE_CHARACTERS:
            continue
        for start in (*(match.end() for match in _LIFE_STARTS.finditer(inside)), 0):
            for dash in _DASH.finditer(inside, start):
                born, died = inside[start : dash.start()], inside[dash.end() :]
                if "–" in born or "—" in born:
                    break
                if any(map(str.isdecimal, born)) and any(map(str.isdecimal, died)):
                    return (offset + start, offset + dash.start()), (offset + dash.end(), found.end(1))
    return ()


def _listed(sentence: Sentence, candidate: Candidate) -> bool:
    after = sentence.tokens[candidate.last].lower if candidate.last < len(sentence.tokens) else ""
    return after in (",", "and", ";", "&") or word_before(sentence, candidate) in (",", "and", ";")


def _named(asked: Asked, sentence: Sentence, match: float) -> float:
    """The share of the question's names that stand in the sentence or its title."""
    if not asked.names:
        return 0.0
    titled = sentence.subject or (match >= 0.4 and len(asked.names) > 1)
    here = sentence.stems | frozenset(content(tokenise(sentence.title))) if titled else sentence.stems
    shares = []
    for name in asked.names:
        stems = content(tokenise(name))
        shares.append(len(stems & here) / len(stems) if stems else 0.0)
    return sum(shares) / len(shares)


def _known(asked: Asked, sentence: Sentence, match: float) -> list[tuple[int, int]]:
    """Spans that speak of what the question names."""
    spans = list(sentence.subject) if match >= 0.4 else []
    lower = sentence.text.lower()
    for name in asked.names:
        spans += [token_span(sentence.tokens, p, p + len(name)) for p in phrase_places(name.lower(), lower)]
        stems = content(tokenise(name))
        spans += [
            (c.first, c.last)
            for c in sentence.candidates
            if c.sort == "name" and stems and content(tokenise(c.text)) == stems
        ]
    return sorted({s for s in spans if s[0] < s[1]})


def _triggers(asked: Asked, sentence: Sentence) -> list[tuple[int, float]]:
    """Tokens that tell of the relation asked for, with weights: the question's own word, its family, a hint."""
    found: dict[int, float] = {}
    lower = sentence.text.lower()

    def note(place: int, weight: float) -> None:
        found[place] = max(found.get(place, 0.0), weight)

    for i, token in enumerate(sentence.tokens):
        if token.capitalised and i:
            continue  # a word of a name tells of no relation
        if token.stem and token.stem in asked.words:
            light = token.stem in _LIGHT | asked.modifiers or (token.stem in asked.focus and len(asked.words) > 1)
            note(i, 0.4 if light else 1.0)
        for family, weight in asked.families:
            if token.stem and token.stem in family.words:
                note(i, min(1.0, 0.9 * weight))
            elif token.stem and token.stem in family.near:
                note(i, 0.35)
    for family, weight in asked.families:
        for phrases, strength in ((family.words, min(1.0, 0.9 * weight)), (family.near, 0.4)):
            for phrase in phrases:
                if " " in phrase:
                    for p in phrase_places(phrase, lower):
                        first, last = token_span(sentence.tokens, p, p + len(phrase))
                        if first < last:
                            note(last - 1, strength)
    return [(i, weight * _head_share(asked, sentence.tokens, i)) for i, weight in sorted(found.items())]


def _head_share(asked: Asked, tokens: tuple[Token, ...], i: int) -> float:
    """Less than 1 for a word that only qualifies a noun of another kind: `native language` tells of no birth."""
    following = tokens[i + 1] if i + 1 < len(tokens) else None
    if following is None or following.capitalised or following.stem in asked.words:
        return 1.0
    kind = noun_kinds().get(following.stem)
    return 1.0 if kind is None or kind == asked.kind else 0.3


def _relation(
    asked: Asked,
    sentence: Sentence,
    candidate: Candidate,
    trigger: int,
    weight: float,
    known: list[tuple[int, int]],
) -> float:
    """0 to about 1.6: nearness of the candidate to the relation word, and whether it stands on the right side of it."""
    tokens = sentence.tokens
    inside = candidate.first <= trigger < candidate.last
    if inside:
        return 0.5 * weight
    right = candidate.first > trigger
    begin, end = (trigger + 1, candidate.first) if right else (candidate.last, trigger)
    gap = sum((0.3 if t.lower in _THIN else 1.0) if t.is_word else 1.5 for t in tokens[begin:end])
    gap -= sum(max(0, min(e, end) - max(s, begin)) for s, e in known)
    near = 1.0 / (1.0 + 0.25 * max(gap, 0.0))
    return weight * near + 0.5 * weight * _side(tokens, candidate, trigger, right, known)


def _side(
    tokens: tuple[Token, ...], candidate: Candidate, trigger: int, right: bool, known: list[tuple[int, int]]
) -> float:
    """1 on the side that the sentence's build asks for, -1 on the other, 0 where it says nothing."""
    after = [t.lower for t in tokens[trigger + 1 : trigger + 3]]
    if right and any(candidate.last <= s <= candidate.last + 2 and s > trigger for s, e in known):
        return 0.5  # `Born in Ostrava, she …`
    known_right = any(s > trigger and s - trigger <= 6 for s, e in known)
    known_left = any(e <= trigger for s, e in known)
    if "by" in after[:1] or (len(after) == 2 and after[1] == "by" and after[0] not in ("and", "was")):
        if known_right and not known_left:
            return -1.0 if right else 1.0
        return 1.0 if right else -1.0
    if known_right and not known_left:
        return -0.5 if right else 1.0
    if known_left and not known_right:
        return 1.0 if right else -0.5
    return 0.2 if right else 0.0


def _in_question(asked: Asked, candidate: Candidate, known: list[tuple[int, int]]) -> bool:
    if candidate.sort == "title" and (candidate.first, candidate.last) in known:
        return True
    stems = content(tokenise(candidate.text))
    asked_stems = content(asked.tokens)
    if candidate.sort in ("number", "date", "year"):
        return candidate.text.lower() in asked.text.lower()
    return not stems or stems <= asked_stems
