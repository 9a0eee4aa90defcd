"""Operations over the answers of a plan's parts: compare, same, in common, count, superlative.

A generator need not be asked which of two dates is earlier. `compute` reads the operation from the question's own
words, the values from the answers, and gives None when it cannot be sure: an unreadable value, values of different
dimensions, a tie, a candidate that the question does not name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from serving.candidates import candidates, is_described
from serving.values import Date, Quantity, country, normalise, number_text, parse_date, parse_quantity, unit


@dataclass(frozen=True)
class Member:
    """One way through a chain: the value taken for each placeholder, first taken first, and the answers at its end."""

    lineage: Mapping[str, str]
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """One chain of a plan: its questions as planned, first asked first, and its members (several after a fan-out)."""

    questions: tuple[str, ...]
    members: tuple[Member, ...]

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(answer for member in self.members for answer in member.answers))


@dataclass(frozen=True)
class Merged:
    """The answers of the whole question and the operation that gave them."""

    answers: tuple[str, ...]
    method: str


_YES_NO = re.compile(
    r"^\s*(?:[\w\s]{,30}[,:?]\s)?(is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b(?! you\b)",
    re.IGNORECASE,
)
_WORDS = {
    "early": "earlier earliest first before older oldest elder eldest sooner soonest",
    "late": "recent recently later latest last after newer newest younger youngest",
    "more": "more most longer longest larger largest bigger biggest greater greatest higher highest taller tallest "
    "heavier heaviest deeper deepest farther farthest further furthest wider widest faster fastest",
    "less": "less least fewer fewest shorter shortest smaller smallest lower lowest lighter lightest shallower "
    "shallowest nearer nearest closer closest narrower narrowest slower slowest",
}
_DIRECTIONS = {word: direction for direction, words in _WORDS.items() for word in words.split()}
_AGE = frozenset(["older", "oldest", "elder", "eldest", "younger", "youngest"])


_VALUE_ASKED = re.compile(r"\s*(when|how|(in |on )?(what|which) (year|date|month|day))\b", re.IGNORECASE)
_DIFFERENCE = re.compile(
    r"\b(apart|differ|difference|lie between|how many (?:\w+ )?(?:more|fewer|less))\b", re.IGNORECASE
)


def compute(question: str, parts: Sequence[Part]) -> Merged | None:
    """The answer of `question` by code over the answers of its parts, or None."""
    if not parts or not all(part.answers for part in parts):
        return None
    if len(parts) == 2 and _DIFFERENCE.search(question):
        return _difference(question, [part.answers for part in parts])
    if re.search(r"\b(how many|number of)\b", question, re.IGNORECASE):
        return _count(question, parts)
    several = len(parts) > 1
    if several and re.search(r"\b(same|both|share[sd]?|common|alike|identical)\b", question):
        return _same(question, parts) if _YES_NO.match(question) else _common(parts)
    if _order(question, ()) is None or re.search(r"\beach\b", question) or (several and _VALUE_ASKED.match(question)):
        return None
    if len(parts) == 4 and re.search(r"\b(lived|life ?span|lifetime)\b", question):
        parts = _lifetimes(parts)
    labels = candidates(question, [part.questions for part in parts]) if several else []
    order = _order(question, labels, [text for part in parts for text in part.questions])
    if order is None:
        return None
    if not several:
        return _superlative(question, parts[0], *order)
    return _comparison(question, parts, labels, *order)


def needs_judgement(question: str) -> bool:
    """Whether a question asks for something that its parts' answers, one after the other, do not say."""
    if _order(question, ()) or _YES_NO.match(question) or _DIFFERENCE.search(question):
        return True
    return (
        re.search(r"\b(or|than|same|both|common|share|compare|how many|why|which of|between)\b", question, re.I)
        is not None
    )


def _order(question: str, labels: Sequence[str], asked: Sequence[str] = ()) -> tuple[str, str] | None:
    """The comparing word outside the candidates, and its direction: "early", "late", "more" or "less"."""
    for label in filter(None, labels):
        question = question.replace(label, " ")
    question = re.sub(r"\b(more|most|less|least) (?=recent)", "", question)
    words = [word for word in re.findall(r"\b[a-z]+\b", question) if word in _DIRECTIONS]
    known = {
        "first",
        *re.findall(r"\b[a-z]+\b", " ".join(asked)),
    }  # "the largest city" is a description, not a comparison
    word = next((word for word in words if word not in known), words[0] if words else None)
    return (word, _DIRECTIONS[word]) if word else None


def _lifetimes(parts: Sequence[Part]) -> list[Part]:
    """Birth and death of each of two people as one part a person: the days between."""
    lives = []
    for begin, end in (parts[:2], parts[2:]):
        born, died = (parse_date(part.answers[0]) for part in (begin, end))
        days = str(round(died.day_number - born.day_number)) + " days" if born and died else ""
        lives.append(Part((*begin.questions, *end.questions), (Member(end.members[0].lineage, (days,)),)))
    return lives


def _extreme(question: str, values: Sequence[str], word: str, direction: str) -> int | None:
    """Index of the one value that is earliest, latest, most or least; None when values cannot be compared or tie."""
    sign = 1 if direction in ("early", "less") else -1
    dates = [parse_date(value) for value in values]
    if word in ("longer", "longest", "shorter", "shortest") and "existed" in question and all(dates):
        direction = "early" if word.startswith("long") else "late"
    if direction in ("early", "late"):
        if all(dates):
            return _earliest([d for d in dates if d], last=direction == "late")
        if word not in _AGE:
            return None
        sign = -sign  # of two ages, the older is the greater
    if any(date and date.month for date in dates):
        return None
    quantities = [parse_quantity(value) for value in values]
    if not all(quantities) or len({q.dimension for q in quantities if q}) > 1:
        return None
    keys = [sign * q.value for q in quantities if q]
    return keys.index(min(keys)) if keys.count(min(keys)) == 1 else None


def _earliest(dates: Sequence[Date], *, last: bool) -> int | None:
    for index, date in enumerate(dates):
        others = [other for position, other in enumerate(dates) if position != index]
        if all((other.before(date) if last else date.before(other)) for other in others):
            return index
    return None


def _comparison(
    question: str, parts: Sequence[Part], labels: Sequence[str], word: str, direction: str
) -> Merged | None:
    values = [part.answers[0] for part in parts]
    if any(len(part.answers) != 1 for part in parts):
        if direction not in ("more", "less") or all(a[0].isdigit() for part in parts for a in part.answers):
            return None
        values = [str(len(part.answers)) for part in parts]
    winner = _extreme(question, values, word, direction)
    if winner is None:
        return None
    if _YES_NO.match(question) and " or " not in question:
        if len(parts) != 2 or not all(labels):
            return None
        first = min(range(2), key=lambda i: question.find(labels[i]))
        return Merged(("yes" if winner == first else "no",), f"comparison: {word}")
    lineage = parts[winner].members[0].lineage
    answer = _asked_for(question, lineage) or labels[winner]
    if lineage and is_described(question, labels[winner]):
        answer = list(lineage.values())[-1]
    return Merged((answer,), f"comparison: {word}") if answer else None


_HEAD = re.compile(
    r"\b(?:which|what)\s+(?:of (?:the )?)?(.*?)(?:['’]s\b|\b(?:whose|who|that|of|has|have|is|are|was|were|did|do)\b|$)",
    re.IGNORECASE,
)


def _asked_for(question: str, lineage: Mapping[str, str]) -> str | None:
    """The value on the way that the question asks for by its name: "which director …" the director."""
    head = _HEAD.search(question)
    nouns = set(head[1].lower().split()[:3]) if head else set()
    named = (value for name, value in lineage.items() if {name, name + "s", name.removesuffix("s")} & nouns)
    return next(named, None)


def _superlative(question: str, part: Part, word: str, direction: str) -> Merged | None:
    if len(part.members) < 2 or any(len(member.answers) != 1 for member in part.members):
        return None
    best = _extreme(question, [member.answers[0] for member in part.members], word, direction)
    if best is None:
        return None
    member = part.members[best]
    if _VALUE_ASKED.match(question):
        return Merged(member.answers, f"superlative: {word}")
    varying = {
        name: value
        for name, value in member.lineage.items()
        if len({other.lineage.get(name) for other in part.members}) > 1
    }
    answer = _asked_for(question, varying) or next(iter(varying.values()), None)
    return Merged((answer,), f"superlative: {word}") if answer else None


def _same(question: str, parts: Sequence[Part]) -> Merged | None:
    answers = [{answer.lower().strip(" .") for answer in part.answers} for part in parts]
    if all(one <= {"yes", "no"} for one in answers):
        agreed = answers[0] == {"yes"} or "same" in question
        return Merged(("yes" if agreed and all(one == answers[0] for one in answers) else "no",), "all parts")
    keys = [{_key(question, answer) for answer in part.answers} for part in parts]
    return Merged(("yes" if set.intersection(*keys) else "no",), "same")


def _key(question: str, answer: str) -> str:
    """What two answers must share: the year of a date where years are asked for, the country of a place."""
    date = parse_date(answer)
    if date and (date.day or re.search(r"\byear\b", question)):
        return str(date.year) if re.search(r"\byear\b", question) else str(date)
    if re.search(r"\b(country|nationality|nationalities|citizens?|citizenship)\b", question):
        return country(answer.rsplit(",", 1)[-1])
    return normalise(answer)


def _common(parts: Sequence[Part]) -> Merged | None:
    keys = [{normalise(answer) for answer in part.answers} for part in parts]
    shared = tuple(answer for answer in parts[0].answers if normalise(answer) in set.intersection(*keys))
    return Merged(shared, "in common") if shared else None


def _count(question: str, parts: Sequence[Part]) -> Merged | None:
    if len(parts) == 1 and len(parts[0].members) > 1 and re.search(r"\bhow many of\b", question, re.IGNORECASE):
        return _count_meeting(question, parts[0])
    values = [member.answers for part in parts for member in part.members]
    numbers = [parse_quantity(answers[0]) for answers in values if len(answers) == 1]
    quantities = [q for q in numbers if q and q.dimension == ""]
    if len(quantities) == len(values):
        return _arithmetic(question, quantities)
    if any(numbers) or any(re.search(r"\bhow many\b", part.questions[-1], re.IGNORECASE) for part in parts):
        return None
    keys = [{normalise(answer) for answer in part.answers} for part in parts]
    both = len(parts) > 1 and re.search(r"\b(both|common)\b", question)
    counted = set.intersection(*keys) if both else set.union(*keys)
    return Merged((str(len(counted)),), "count")


def _count_meeting(question: str, part: Part) -> Merged | None:
    """How many members of a fan-out meet the condition in the question: their value is named there, or their date lies
    after or before a year that is."""
    bound = re.search(r"\b(after|before|since|until|later than|earlier than) (?:the year )?(\d{3,4})\b", question)
    if bound:
        year, later = int(bound[2]), bound[1] in ("after", "since", "later than")
        dates = [parse_date(answer) for member in part.members for answer in member.answers]
        if not all(dates):
            return None
        inside = [d for d in dates if d and (d.year > year if later else d.year < year)]
        exact = [d for d in dates if d and d.year == year and bound[1] in ("since", "until")]
        return Merged((str(len(inside) + len(exact)),), f"count: {bound[1]}")
    text = f" {normalise(question)} "
    named = {key for answer in part.answers if f" {(key := normalise(answer))} " in text}
    if not named:
        return None
    value = max(named, key=lambda key: (text.rindex(f" {key} "), len(key)))
    meeting = sum(value in {normalise(answer) for answer in member.answers} for member in part.members)
    return Merged((str(meeting),), "count: of the value named")


def _arithmetic(question: str, quantities: Sequence[Quantity]) -> Merged | None:
    values = [q.value for q in quantities]
    if re.search(r"\b(total|altogether|combined|together|in all|sum)\b", question, re.IGNORECASE):
        return Merged((number_text(sum(values)),), "sum")
    return None


def _difference(question: str, answers: Sequence[tuple[str, ...]]) -> Merged | None:
    """How far two values lie apart, in the unit that the question names; dates in years."""
    if any(len(one) != 1 for one in answers):
        return None
    asked = re.search(r"\bhow many (\w+)", question, re.IGNORECASE)
    noun = asked[1].lower() if asked else ""
    dates = [parse_date(one[0]) for one in answers]
    if noun == "years" and dates[0] and dates[1]:
        return Merged((str(abs(dates[0].year - dates[1].year)),), "difference")
    a, b = (parse_quantity(one[0]) for one in answers)
    if a is None or b is None or a.dimension != b.dimension:
        return None
    dimension, scale = unit(noun) or ("", 1.0)
    scale = scale if dimension == a.dimension else 1.0
    return Merged((number_text(round(abs(a.value - b.value) / scale, 6)),), "difference")
