"""What a question asks for: the kind of answer, one or several, about which names, by which relation."""

from __future__ import annotations

import re
from dataclasses import dataclass

from serving.models.reading.lexicon import Family, families, noun_kinds, phrase_places, stem, word_set
from serving.models.reading.names import candidates
from serving.models.reading.text import Token, content, tokenise

_AUXILIARIES = word_set("auxiliaries")
_WH = word_set("wh")
_PLACES_OF_STUDY = frozenset(("study", "employment"))
_HOW_NUMBER = word_set("how number")


@dataclass(frozen=True)
class Asked:
    """A question, read. `kind`: person, place, nation, organisation, work, name, date, year, number, role, thing, any
    or `yesno`; `focus`: stems of the noun that names the answer; `names`: what it is about; `words`: its other stems;
    `modifiers`: those of `words` that only qualify a noun (`record` in `record label`)."""

    text: str
    tokens: tuple[Token, ...]
    kind: str
    several: bool
    focus: frozenset[str]
    names: tuple[str, ...]
    words: frozenset[str]
    families: tuple[tuple[Family, float], ...]
    modifiers: frozenset[str]
    asker: str


def ask(text: str) -> Asked:
    """Reads a question; never fails: what cannot be told is kind `any`."""
    text = " ".join(text.split())
    tokens = tokenise(text)
    named = _names(text, tokens)
    inside = {i for c in named for i in range(c.first, c.last)}
    rest = tuple(t for i, t in enumerate(tokens) if i not in inside)
    outside = " ".join(t.lower for t in rest)
    asker, place = _asker(tokens)
    noun = _focus(tokens, place, inside) if asker in ("which", "what", "whose", "name") else ()
    matched = _families(rest, outside)
    kind = _kind(asker, tokens, place, noun, matched, outside)
    several = any(_plural(t) for t in noun[-1:]) or (asker in ("who", "whom") and _are_the(tokens, place))
    words = frozenset(content(rest)) - {stem(w) for w in _WH | _AUXILIARIES}
    focus = frozenset(t.stem for t in noun if t.stem)
    names = tuple(c.text for c in named)
    return Asked(
        text,
        tokens,
        kind,
        several and kind != "number",
        focus,
        names,
        words,
        matched,
        _modifiers(matched, outside),
        asker,
    )


def _names(text: str, tokens: tuple[Token, ...]) -> list:
    found = [c for c in candidates(text, tokens) if c.sort in ("name", "date", "year")]
    return [c for c in found if not (c.first == 0 and c.last == 1 and tokens[0].lower in _WH | _AUXILIARIES)]


def _asker(tokens: tuple[Token, ...]) -> tuple[str, int]:
    if tokens and tokens[0].lower in _AUXILIARIES and not any(t.lower in ("or", *_WH) for t in tokens[:1]):
        return "yesno", 0
    for i, token in enumerate(tokens):
        if token.lower in _WH:
            return token.lower, i
    if tokens and tokens[0].lower in ("name", "list", "give"):
        return "name", 0
    return "none", 0


def _focus(tokens: tuple[Token, ...], place: int, inside: set[int]) -> tuple[Token, ...]:
    """The noun phrase that names the answer: after `which` or `what`, or after `what is the`, up to `of` or a verb."""
    i = place + 1
    if i < len(tokens) and tokens[i].lower in ("is", "are", "was", "were") and tokens[place].lower != "which":
        i += 1
        possessed = [j for j in inside if j + 1 < len(tokens) and tokens[j].text.endswith(("'s", "’s", "s'"))]
        if possessed and i in inside:
            i = max(possessed) + 1
    while i < len(tokens) and tokens[i].lower in ("the", "a", "an", "of", "all", "these", "those"):
        i += 1
    phrase: list[Token] = []
    while i < len(tokens) and i not in inside and tokens[i].is_word and len(phrase) < 4:
        if tokens[i].lower in _AUXILIARIES or tokens[i].lower in ("of", "in", "for", "that", "by", "at", "on", "to"):
            break
        phrase.append(tokens[i])
        if _plural(tokens[i]) and tokens[i].stem in noun_kinds() and tokens[i].lower != "sports":
            break  # what follows is the verb: `Which musicians play in …`
        i += 1
    known = [j for j, token in enumerate(phrase) if token.stem in noun_kinds()]
    return tuple(phrase[: known[-1] + 1]) if known else tuple(phrase[:1])


def _plural(token: Token) -> bool:
    word = token.lower
    return word in ("people", "children", "men", "women") or (
        word.endswith("s")
        and not word.endswith(("ss", "us", "is", "series", "headquarters"))
        and word[:-1] != token.text
    )


def _are_the(tokens: tuple[Token, ...], place: int) -> bool:
    return place + 1 < len(tokens) and tokens[place + 1].lower in ("are", "were")


def _families(rest: tuple[Token, ...], outside: str) -> tuple[tuple[Family, float], ...]:
    """The relations that the question's own words tell of, with weights; a phrase outweighs a word."""
    weights: dict[Family, float] = {}
    covered: set[str] = set()
    for family in families():
        for phrase in (*family.asks, *family.words):
            if " " in phrase and phrase_places(phrase, outside):
                weights[family] = max(weights.get(family, 0.0), 1.5 + 0.1 * len(phrase.split()))
                stems = {stem(word) for word in phrase.split() if stem(word)}
                covered |= stems if len(stems) > 1 else set()
    stems = {t.stem for t in rest if t.stem} - covered
    for family in families():
        if family not in weights and stems & family.words:
            weights[family] = 1.2 if stems & {stem(noun) for noun in family.asks} else 1.0
    return tuple(weights.items())


def _modifiers(matched: tuple[tuple[Family, float], ...], outside: str) -> frozenset[str]:
    phrases = (p for family, _ in matched for p in family.asks if " " in p and phrase_places(p, outside))
    return frozenset(stem(word) for phrase in phrases for word in phrase.split()[:-1])


def _kind(
    asker: str,
    tokens: tuple[Token, ...],
    place: int,
    noun: tuple[Token, ...],
    matched: tuple[tuple[Family, float], ...],
    outside: str,
) -> str:
    if asker == "yesno":
        return "yesno"
    if asker == "how":
        following = tokens[place + 1].lower if place + 1 < len(tokens) else ""
        if following == "much" and any(f.kind == "money" for f, _ in matched):
            return "money"
        return "number" if following in _HOW_NUMBER else "thing"
    if asker == "when":
        return "date"
    if asker == "why":
        return "thing"
    implied = max(
        ((len(p), k) for f, _ in matched for p, k in f.asks.items() if phrase_places(p, outside)), default=(0, "")
    )[1]
    if noun:
        kinds = [noun_kinds()[t.stem] for t in noun if t.stem in noun_kinds()]
        if implied and asker == "what" and re.search(r"what (?:is|are|was|were)\b", outside):
            return implied
        if kinds:
            return kinds[-1]
        if noun[-1].lower.endswith(("er", "or", "ist", "ian", "man", "woman", "ers", "ors", "ists", "ians")):
            return "person"
    family_kind = next((f.kind for f, _ in sorted(matched, key=lambda p: -p[1]) if f.kind), None)
    if asker in ("who", "whom"):
        return "name" if family_kind in ("organisation", "name") else "person"
    if asker == "where":
        return "organisation" if any(f.name in _PLACES_OF_STUDY for f, _ in matched) else "place"
    return implied or family_kind or ("thing" if any(f.name == "study" for f, _ in matched) else "any")
