"""Whether a span can be the kind of answer that is asked for, by its own look and the word before it."""

from __future__ import annotations

import re

from serving.models.reading.lexicon import stem, word_set
from serving.models.reading.names import FUNCTION_WORDS, Candidate
from serving.models.reading.passage import Sentence
from serving.models.reading.question import Asked

_ORGANISATION = word_set("organisation")
_NO_PERSON = _ORGANISATION | word_set("no person")
_IN = word_set("in")
_WATERS = word_set("waters")
_SAME_UNIT = {"km": "kilometr", "m": "metr", "cm": "centimetr", "min": "minut", "kilomet": "kilometr"}
_ADJECTIVE_END = re.compile(r"(?:an|ish|ese|ic|ch|sh|ss|i|ean)$")


def kind_fit(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    """0: cannot be the answer; 1: just what is asked for."""
    fit = _FIT[asked.kind](asked, sentence, candidate) if asked.kind in _FIT else 0.0
    if fit > 0 and asked.focus:
        stems = {stem(w) for w in candidate.text.lower().split()}
        before = {t.stem for t in sentence.tokens[max(0, candidate.first - 3) : candidate.first]}
        fit += 0.3 * bool(asked.focus & stems) + 0.25 * bool(asked.focus & before)
    return fit


def word_before(sentence: Sentence, candidate: Candidate) -> str:
    """The lower-case token before a candidate, or ""."""
    return sentence.tokens[candidate.first - 1].lower if candidate.first else ""


def _words(candidate: Candidate) -> set[str]:
    return {w.strip(".,").lower() for w in candidate.text.split()}


def _named_fit(candidate: Candidate) -> float:
    return {"name": 1.0, "title": 0.9}.get(candidate.sort, 0.0)


def _person(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    fit = _named_fit(candidate)
    if not fit:
        return 0.0
    words = _words(candidate)
    fit -= 0.5 * (word_before(sentence, candidate) in ("in", "at", "near", "the"))
    fit -= 0.5 * bool(words & _NO_PERSON or any(c.isdigit() for c in candidate.text))
    fit -= 0.2 * (len(words) == 1) + 0.3 * candidate.text.startswith("The ") + 0.8 * _adjective(sentence, candidate)
    return max(fit, 0.05)


def _place(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    fit = _named_fit(candidate)
    if not fit:
        return 0.0
    before = word_before(sentence, candidate)
    fit += (0.4 if before == "in" else 0.25) * (before in _IN) - 0.3 * (word_before(sentence, candidate) == "by")
    fit -= 0.3 * bool(_words(candidate) & _ORGANISATION) + 0.5 * (word_before(sentence, candidate) in ("a", "an"))
    fit -= 0.6 * bool(_words(candidate) & _WATERS)
    if asked.kind == "nation":
        fit += _nation(asked, sentence, candidate)
    return max(fit - 0.2, 0.05)


def _nation(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    """A country ends the places that are named from small to large; a nationality stands as `an American writer`."""
    tokens = sentence.tokens
    follows = tokens[candidate.last].text if candidate.last < len(tokens) else "."
    if any(f.name == "nationality" for f, _ in asked.families) and word_before(sentence, candidate) in ("a", "an"):
        return 0.9
    chained = word_before(sentence, candidate) == ","
    goes_on = follows == "," and candidate.last + 1 < len(tokens) and tokens[candidate.last + 1].capitalised
    return 0.8 * (chained and not goes_on) - 0.3 * (goes_on and not chained)


def _adjective(sentence: Sentence, candidate: Candidate) -> bool:
    """Whether a name only qualifies the noun after it: `British rapper`."""
    following = sentence.tokens[candidate.last] if candidate.last < len(sentence.tokens) else None
    return (
        candidate.last - candidate.first == 1
        and following is not None
        and following.text[0].islower()
        and following.lower not in FUNCTION_WORDS
        and bool(_ADJECTIVE_END.search(candidate.text))
    )


def _organisation(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    fit = _named_fit(candidate)
    return fit + 0.3 * bool(_words(candidate) & _ORGANISATION) if fit else 0.0


def _name(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    return _named_fit(candidate) - 0.8 * _adjective(sentence, candidate)


def _date(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    return {"date": 1.0, "year": 0.8}.get(candidate.sort, 0.6 * _bare_year(sentence, candidate))


def _year(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    return {"date": 0.9, "year": 1.0}.get(candidate.sort, 0.6 * _bare_year(sentence, candidate))


def _bare_year(sentence: Sentence, candidate: Candidate) -> bool:
    return bool(re.fullmatch(r"\d{1,4}", candidate.text)) and word_before(sentence, candidate) in (
        "in",
        "since",
        "year",
    )


def _number(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    if candidate.sort != "number":
        return 0.0
    unit = {_SAME_UNIT.get(u, u) for u in (stem(w) for w in candidate.text.lower().split()[1:])}
    bare_one = candidate.text.lower() in ("one", "first")
    counted = any(u not in asked.words for u in unit) and candidate.text[0].isalpha()
    return 0.8 + 0.4 * bool(unit & asked.words) + 0.1 * bool(unit) - 0.4 * bare_one - 0.3 * counted


def _money(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    if candidate.sort != "number":
        return 0.0
    return 1.0 if re.search(r"[$£€¥]|dollar|euro|pound|crown|franc|yen|rupee|peso", candidate.text) else 0.3


def _role(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    opened = word_before(sentence, candidate) in ("a", "an", "as") or (
        candidate.first > 0 and sentence.tokens[candidate.first - 1].text.endswith(("'s", "’s", "'"))
    )
    return {"phrase": 1.0 if opened else 0.7, "name": 0.4}.get(candidate.sort, 0.0)


def _thing(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    return {"phrase": 0.8, "name": 0.7, "number": 0.2}.get(candidate.sort, 0.0)


def _any(asked: Asked, sentence: Sentence, candidate: Candidate) -> float:
    return {"name": 0.8, "title": 0.7, "date": 0.6, "year": 0.5, "number": 0.5, "phrase": 0.6}[candidate.sort]


_FIT = {
    "person": _person,
    "place": _place,
    "nation": _place,
    "organisation": _organisation,
    "work": _name,
    "name": _name,
    "date": _date,
    "year": _year,
    "number": _number,
    "money": _money,
    "role": _role,
    "thing": _thing,
    "any": _any,
    "yesno": _any,
}
