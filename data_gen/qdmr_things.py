"""The steps of QDMR that give things or tell of them (select, project, filter), and how one step speaks of another."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from data_gen.annotation import UnplannableError
from data_gen.nouns import is_plural, plural, singular
from data_gen.qdmr_phrases import (
    QUESTION,
    asked,
    attribute,
    clause,
    condition,
    head,
    is_bare,
    is_name,
    joined,
    statement,
)
from data_gen.wording import names_of, tidy

SHORT_FILTER = 4  # words; a longer one is a fact of its own, and so a leaf of its own
MOST_FILTERS = 3
R = r"#(\d+)"
EXTREME = (
    r"(?:most|least|first|last|second|third|fourth|final|maximum|minimum|max|min"
    r"|(?:most|least|second|third|two|three) \w+|\w+est)"
)
GATHERED = rf"(?:{EXTREME}|number|sum|average|total) (?:of )?#N\b|#N (?:where #|besides|sorted)|for each (?:of )?#N"


TIMED = re.compile(
    rf"(when|where|why|how)(?: (?:was|were|is|are|did|does|do))? {R}"
    rf"|(?:the )?(date|year|month|day|time|century|place|location|country|city) (?:of|when|that|in which) {R}"
)


@dataclass(frozen=True)
class Said:
    """A step in words. In a text `#n` is a value of step n, `#ns` all its values."""

    noun: str  # what a value is called
    question: str
    phrase: str = ""  # the noun phrase that speaks of the step without asking it
    folded: bool = False  # it is only spoken of
    many: bool = False
    attribute: str = ""  # what the step tells of the thing that it is about: "population"
    after: tuple[int, ...] = ()  # steps whose values it looks at without naming them
    filters: tuple[str, ...] = ()  # those that the phrase has beside its noun
    kind: str = ""  # the phrase without filters


@dataclass
class Sayer:
    """The steps of one decomposition, put into words from the first to the last."""

    steps: list[str]
    said: dict[int, Said] = field(default_factory=dict)

    def users(self, k: int) -> list[str]:
        """The steps that refer to step k."""
        return [step for step in self.steps if re.search(rf"#{k}\b", step)]

    def spelt(self, text: str, many: bool = False) -> str:
        """The text with folded steps written out and the others marked."""

        def one(match: re.Match[str]) -> str:
            step = self.said[int(match[1])]
            return step.phrase if step.folded else f"{match[0]}{'s' if many and step.many else ''}"

        return re.sub(R, one, text)

    def all(self, number: str) -> str:
        """All values of a step."""
        step = self.said[int(number)]
        return step.phrase if step.folded else f"#{number}s"

    def which(self, k: int, number: str, many: bool = True) -> str:
        """A choice from a list; where others use what is chosen, its noun says that they mean this and not the list."""
        noun = self.said[int(number)].noun
        chosen = f"which {plural(noun) if many else noun} among" if self.users(k) else "which of"
        return f"{chosen} {self.all(number)}"


def select(sayer: Sayer, k: int, text: str) -> Said:
    users = sayer.users(k)
    timed = bool(users) and all(TIMED.fullmatch(user) for user in users)
    if clause(text) or (timed and re.search(r"\b[a-z]{3,}ed\b", text) and not QUESTION.match(text)):
        if not timed:
            raise UnplannableError("a step that states something")
        return Said("event", statement(text), text, folded=True, attribute="event")
    question = asked(text)
    if question == tidy(text):
        return Said(names_of(question)[0], question, attribute=attribute(text))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    gathered = [user for user in users if re.search(GATHERED.replace("N", str(k)), user)]
    folded = bool(users) and ((is_bare(text) and len(narrowed) == len(users)) or (is_name(text) and not gathered))
    noun = head(text)
    return Said(singular(noun), question, text, folded, is_plural(noun), attribute=noun, kind=text)


def project(sayer: Sayer, k: int, text: str) -> Said:
    if (timed := TIMED.fullmatch(text)) and (event := sayer.said[int(timed[2] or timed[4])]).attribute == "event":
        word = timed[1] or {"place": "where", "location": "where", "date": "when"}.get(timed[3], f"in what {timed[3]}")
        said = event.question.replace("Is it true that", "Was it that")
        question = tidy(f"{word} {said[:1].lower()}{said[1:]}")
        return Said(names_of(question)[0], question, attribute=attribute(question))
    phrase, told = sayer.spelt(text), attribute(text)
    question = asked(phrase)
    if question == tidy(phrase):
        return Said(names_of(question)[0], question, attribute=told)
    noun = head(told)
    return Said(singular(noun), question, phrase, many=is_plural(noun), attribute=told, kind=phrase)


def filtered(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    return _filtered(sayer, k, match[1], match[2])


def adjective(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    return _filtered(sayer, k, match[2], f"that are {match[1]}")


def _filtered(sayer: Sayer, k: int, number: str, told: str) -> Said:
    base, said = sayer.said[int(number)], sayer.spelt(told, many=True)
    filters, users = (*base.filters, said), sayer.users(k)
    short = len(said.split()) <= SHORT_FILTER and "#" not in said and len(filters) <= MOST_FILTERS
    clausal = re.match(r"(?:that|which|who|where)\b(?! (?:is|are) in\b)", said)
    beside = short and not clausal and "#" not in base.kind and len(sayer.users(int(number))) == 1
    if not base.kind or not (base.folded or beside):
        question = tidy(f"{sayer.which(k, number, base.many)} {condition(said, base.many)}")
        return Said(base.noun, question, many=True, attribute=base.attribute)
    phrase = joined(base.kind, list(filters))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    folded = short and len(filters) < MOST_FILTERS and len(narrowed) == len(users) > 0
    plain = [one[1] for text in filters if (one := re.fullmatch(r"(?:that|which|who) (?:is|are) (.+)", text))]
    predicate = f"which {base.kind} are {' and '.join(plain)}" if base.many and len(plain) == len(filters) else ""
    question = tidy(predicate) if predicate else asked(phrase)
    return Said(base.noun, question, phrase, folded, base.many, base.attribute, filters=filters, kind=base.kind)
