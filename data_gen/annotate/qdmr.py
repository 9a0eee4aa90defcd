"""QDMR (Wolfson et al., 2020): the operators of a decomposition become questions in natural words.

A step that is a name, or a kind of thing with short filters, is no question that anyone asks: it is folded into the
steps that use it ("return poland; return cities of #1" asks "What are the cities of poland?"). Every other step is one
leaf. What compares or lists the parts of the whole question is left to the merge, as in a plan for 2WikiMultiHopQA.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from data_gen.annotate.phrases import (
    AUXILIARY,
    QUESTION,
    REFERENCE,
    ask_phrase,
    ask_statement,
    find_head,
    is_bare,
    is_name,
    is_statement,
    join_filters,
    modify_noun,
    name_attribute,
    word_condition,
)
from data_gen.annotate.plan import GoldStep, UnplannableError
from data_gen.annotate.wording import is_plural, name_answer, tidy, to_plural, to_singular

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
        chosen = f"which {to_plural(noun) if many else noun} among" if self.users(k) else "which of"
        return f"{chosen} {self.all(number)}"


def select(sayer: Sayer, k: int, text: str) -> Said:
    users = sayer.users(k)
    timed = bool(users) and all(TIMED.fullmatch(user) for user in users)
    if is_statement(text) or (timed and re.search(r"\b[a-z]{3,}ed\b", text) and not QUESTION.match(text)):
        if not timed:
            raise UnplannableError("a step that states something")
        return Said("event", ask_statement(text), text, folded=True, attribute="event")
    question = ask_phrase(text)
    if question == tidy(text):
        return Said(name_answer(question)[0], question, attribute=name_attribute(text))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    gathered = [user for user in users if re.search(GATHERED.replace("N", str(k)), user)]
    folded = bool(users) and ((is_bare(text) and len(narrowed) == len(users)) or (is_name(text) and not gathered))
    noun = find_head(text)
    return Said(to_singular(noun), question, text, folded, is_plural(noun), attribute=noun, kind=text)


def project(sayer: Sayer, k: int, text: str) -> Said:
    if (timed := TIMED.fullmatch(text)) and (event := sayer.said[int(timed[2] or timed[4])]).attribute == "event":
        word = timed[1] or {"place": "where", "location": "where", "date": "when"}.get(timed[3], f"in what {timed[3]}")
        said = event.question.replace("Is it true that", "Was it that")
        question = tidy(f"{word} {said[:1].lower()}{said[1:]}")
        return Said(name_answer(question)[0], question, attribute=name_attribute(question))
    phrase, told = sayer.spelt(text), name_attribute(text)
    question = ask_phrase(phrase)
    if question == tidy(phrase):
        return Said(name_answer(question)[0], question, attribute=told)
    noun = find_head(told)
    return Said(to_singular(noun), question, phrase, many=is_plural(noun), attribute=told, kind=phrase)


def narrow(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    return _narrow(sayer, k, match[1], match[2])


def narrow_by_adjective(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    return _narrow(sayer, k, match[2], f"that are {match[1]}")


def _narrow(sayer: Sayer, k: int, number: str, told: str) -> Said:
    base, said = sayer.said[int(number)], sayer.spelt(told, many=True)
    filters, users = (*base.filters, said), sayer.users(k)
    short = len(said.split()) <= SHORT_FILTER and "#" not in said and len(filters) <= MOST_FILTERS
    clausal = re.match(r"(?:that|which|who|where)\b(?! (?:is|are) in\b)", said)
    beside = short and not clausal and "#" not in base.kind and len(sayer.users(int(number))) == 1
    if not base.kind or not (base.folded or beside):
        question = tidy(f"{sayer.which(k, number, base.many)} {word_condition(said, base.many)}")
        return Said(base.noun, question, many=True, attribute=base.attribute)
    phrase = join_filters(base.kind, list(filters))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    folded = short and len(filters) < MOST_FILTERS and len(narrowed) == len(users) > 0
    plain = [one[1] for text in filters if (one := re.fullmatch(r"(?:that|which|who) (?:is|are) (.+)", text))]
    predicate = f"which {base.kind} are {' and '.join(plain)}" if base.many and len(plain) == len(filters) else ""
    question = tidy(predicate) if predicate else ask_phrase(phrase)
    return Said(base.noun, question, phrase, folded, base.many, base.attribute, filters=filters, kind=base.kind)


def _count(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    counted = sayer.said[int(match[1])]
    unit = f" {match[2]}" if match[2] else ""
    question = tidy(f"how many {sayer.all(match[1])} are there{unit}")
    return Said("number", question, attribute=f"number of {to_plural(counted.noun)}")


def _group(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    aggregate, what, each = match[1].casefold(), match[2], match[3]
    number = re.fullmatch(R, what)
    one = sayer.said[int(number[1])] if number else None
    phrase = one.phrase if one else sayer.spelt(what)
    if each not in phrase and one and not one.folded:
        said = f"how many {what}s are there" if aggregate == "number" else f"what is the {aggregate} of {what}s"
        question = tidy(f"{said} for each of {sayer.spelt(each, True)}")
        return Said("number", question, attribute=f"{aggregate} of {to_plural(one.noun)}")
    if each not in phrase:
        phrase = f"{phrase} for {sayer.spelt(each)}"
    if aggregate == "number":
        said = f"how many {phrase.removeprefix('the ')} are there"
        return Said("number", tidy(said), attribute=f"number of {to_plural(one.noun if one else find_head(what))}")
    article = "" if phrase.startswith("the ") else "the "
    question = tidy(f"what is the {aggregate} of {article}{phrase}")
    return Said(find_head(phrase), question, attribute=f"{aggregate} {find_head(phrase)}")


def _aggregate(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    word, number = match[1].casefold(), match[2]
    one = sayer.said[int(number)]
    if word in ("sum", "average", "total", "mean"):
        return Said(word, tidy(f"what is the {word} of {sayer.all(number)}"), attribute=f"{word} {one.attribute}")
    several = word.startswith(("two", "three")) or word[0].isdigit()
    question = tidy(f"which of {sayer.all(number)} {'are' if several else 'is'} the {word}")
    noun = f"{word.split()[-1]}_{one.noun.split('_')[-1]}"
    return Said(noun, question, many=several, attribute=f"{word} {one.attribute}")


def _superlative(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, by = sayer.said[int(match[1])], sayer.said[int(match[2])]
    word, by_what = match[3].casefold(), _one_of(by.attribute)
    if find_head(by_what) in ("size", "area"):
        word = {"highest": "largest", "lowest": "smallest"}.get(word, word)
    question = tidy(f"{sayer.which(k, match[1], False)} has the {word} {by_what}")
    return Said(base.noun, question, attribute=base.attribute, after=_require_name(sayer, match[2]))


def _one_of(attribute: str) -> str:
    """ "lengths" → length."""
    noun = find_head(attribute)
    return re.sub(rf"\b{re.escape(noun)}\b", to_singular(noun), attribute.removeprefix("the "), count=1, flags=re.I)


def _comparative(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, by = sayer.said[int(match[1])], sayer.said[int(match[2])]
    told, said = by.attribute, sayer.spelt(match[3])
    if told in ("date", "year", "day"):
        said = said.replace("higher than", "later than").replace("lower than", "earlier than")
    verb = "are" if is_plural(find_head(told)) else "is"
    question = tidy(f"for {sayer.which(k, match[1])} {verb} the {told.removeprefix('the ')} {said}")
    return Said(base.noun, question, many=True, attribute=base.attribute, after=_require_name(sayer, match[2]))


def _require_name(sayer: Sayer, number: str) -> tuple[int, ...]:
    by = sayer.said[int(number)]
    if by.folded or by.attribute in ("", "answer"):
        raise UnplannableError("a comparison of something that has no name")
    return (int(number),)


def _arithmetic(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    word, before, operands, after = match[1].casefold(), match[2], sayer.spelt(match[3]), match[4]
    unit = f" in {before or after}" if before or after else ""
    values = [part.strip() for part in re.split(r",|\band\b", operands)]
    values = sorted(values, key=_place) if word in ("difference", "sum") else values
    if len(values) < 2:
        raise UnplannableError("arithmetic of one value")
    listed = f"{', '.join(values[:-1])} and {values[-1]}"
    said = {
        "difference": f"what is the difference between {listed}{unit}",
        "sum": f"what is the sum of {listed}{unit}",
        "division": f"what is {' divided by '.join(values)}",
        "multiplication": f"what is {' times '.join(values)}",
    }[word]
    return Said("number", tidy(said), attribute=word)


def _place(value: str) -> int:
    """Operands stand as their steps do: a difference is one either way."""
    return int(re.sub(r"\D", "", value) or 0) if value.startswith("#") else 0


def _discard(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, rest = sayer.said[int(match[1])], sayer.spelt(match[2], many=True)
    among = "among " if re.fullmatch(R, match[2]) and sayer.said[int(match[2][1:])].many else ""
    question = tidy(f"{sayer.which(k, match[1])} are not {among}{rest}")
    return Said(base.noun, question, many=True, attribute=base.attribute)


def _intersection(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    what, first, second = match[1], sayer.said[int(match[2])], sayer.said[int(match[3])]
    if re.fullmatch(rf"{R}|(?:who|what|where)(?: (?:is|are|was|were))?", what) and not (first.folded or second.folded):
        chosen = f"which {to_plural(first.noun)} among" if sayer.users(k) else "which of"
        return Said(first.noun, tidy(f"{chosen} {sayer.all(match[2])} are also among {sayer.all(match[3])}"), many=True)
    if REFERRED.search(what) or not re.fullmatch(r"(?:the )?[^#]+", what):
        raise UnplannableError("what two things share is not named")
    noun = what.removeprefix("the ")
    question = tidy(f"which {noun} do {sayer.spelt('#' + match[2])} and {sayer.spelt('#' + match[3])} have in common")
    return Said(to_singular(find_head(noun)), question, many=is_plural(find_head(noun)), attribute=noun)


REFERRED = re.compile(r"^(?:who|what|where|when|how)\b")


def _sort(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base = sayer.said[int(match[1])]
    by = re.sub(R, lambda number: f"the {sayer.said[int(number[1])].attribute}", match[2])
    after = tuple(int(number) for number in re.findall(R, match[2]) if not sayer.said[int(number)].folded)
    return Said(base.noun, tidy(f"what is the order of {sayer.all(match[1])} by {by}"), many=True, after=after)


def _boolean(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    text = re.sub(r"^if\s+", "", match[0])
    many = re.match(rf"(?:are|were|have|do) |{R} (?:are|were|have)\b|(?:is|are) there any", text, re.I) is not None
    if there := re.fullmatch(r"there\s+(is|are|was|were)\s+(.+)", text):
        return Said("claim", tidy(f"{there[1]} there {sayer.spelt(there[2], many)}"))
    if stated := re.fullmatch(rf"((?:both )?{R}(?: (?:and|or) {R})*) ({AUXILIARY}) (.+)", text):
        subject, verb, rest = sayer.spelt(stated[1], many), stated[4], sayer.spelt(stated[5])
        if verb in ("has", "have", "had"):
            verb, rest = {"has": "does", "have": "do", "had": "did"}[verb], f"have {rest}"
        return Said("claim", tidy(f"{verb} {subject} {rest}"))
    spelt = sayer.spelt(text, many)
    return Said("claim", tidy(spelt) if re.match(rf"{AUXILIARY}\b", text, re.I) else ask_statement(spelt))


def _union(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    """Several steps that a later one speaks of together."""
    numbers = re.findall(R, match[0])
    one = sayer.said[int(numbers[0])]
    phrase = " and ".join(sayer.all(number) for number in numbers)
    return Said(one.noun, "", phrase, True, True, one.attribute)


def _refuse_inner_comparison(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    raise UnplannableError("a comparison that is not the last step")


Rule = tuple[str, Callable[[Sayer, int, re.Match[str]], Said]]
RULES: list[Rule] = [
    (rf"{R}(?:\s*(?:,|and|or)\s*{R})+", _union),
    (rf"which\b[^#]* {R}(?:\s*(?:,|and|or)\s*{R})+", _refuse_inner_comparison),
    (r"(?:the )?(number|average|sum|maximum|minimum|highest|lowest) of (.+?) for each (?:of )?(.+)", _group),
    (rf"(?:the )?number of (?:of )?{R}(?: (in \w+))?", _count),
    (rf"(?:the )?(sum|average|total|mean|{EXTREME}) (?:of )?{R}", _aggregate),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(?:the )?({EXTREME})", _superlative),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(.+)", _comparative),
    (
        r"(?:the )?(difference|sum|division|multiplication)(?: in (\w+))?(?: of)? "
        r"(#?[\d.]+(?:\s*(?:,|and)\s*#?[\d.]+)+)(?: in (\w+))?",
        _arithmetic,
    ),
    (rf"{R} besides (.+)", _discard),
    (rf"(.+?)(?: (?:in|of|between|for))? both (?:of )?{R} and {R}", _intersection),
    (rf"{R} (?:that can be )?sorted by (.+)", _sort),
    (r"(?:if\s|(?:is|are|was|were|do|does|did|has|have|can)\s).+", _boolean),
    (rf"{R} (.+)", narrow),
    (rf"(?:the )?((?!(?:explain|describe|define|list|who|what|when|where|how)\b)[a-z-]+) {R}", narrow_by_adjective),
]


NUMBER = re.compile(r"#(\d+)")
PARTS = re.compile(
    r"(?:which\b[^#]*|(?:if|are|is) both )?(#\d+(?:\s*(?:,|and|or)\s*#\d+)+)(?: (?:are|is) true)?", re.IGNORECASE
)


def split_steps(decomposition: str) -> list[str]:
    """The steps of `return …; return …` without that word. Raises UnplannableError where one refers to a later one."""
    steps = [re.sub(r"^return\s+", "", " ".join(step.split()), flags=re.I) for step in decomposition.split(";")]
    steps = [re.sub(r"(?<!\s)\s+(,|'s\b)|^the (?=#)|(?<!\w)'(?=\w)(?![^']*')", r"\1", step) for step in steps if step]
    steps = [re.sub(r"(?<=\()\s+|(?<!\s)\s+(?=\))", "", step) for step in steps]
    for index, step in enumerate(steps, start=1):
        if any(not 0 < int(number) < index for number in NUMBER.findall(step)):
            raise UnplannableError("a step refers to a later step or to none")
    return steps


def read_gold_steps(decomposition: str) -> list[GoldStep]:
    """The leaves of a decomposition, `#n` counting leaves from 1. Raises UnplannableError: its message is counted."""
    steps = split_steps(decomposition)
    if not steps:
        raise UnplannableError("a decomposition without steps")
    parts = PARTS.fullmatch(steps[-1])
    results = [int(number) for number in NUMBER.findall(parts[1])] if parts else [len(steps)]
    sayer = Sayer(steps)
    for k, step in enumerate(steps[:-1] if parts else steps, start=1):
        sayer.said[k] = _word_step(sayer, k, step)
    kept = sorted(_find_needed(sayer.said, results))
    place = {k: number for number, k in enumerate(kept, start=1)}
    return [_make_gold_step(sayer.said[k], place) for k in kept]


def _word_step(sayer: Sayer, k: int, step: str) -> Said:
    for pattern, make in RULES:
        if match := re.fullmatch(pattern, step, re.IGNORECASE):
            return make(sayer, k, match)
    return project(sayer, k, step) if NUMBER.search(step) else select(sayer, k, step)


def _find_needed(said: dict[int, Said], results: list[int]) -> set[int]:
    """The steps that are asked for the results; one that is only spoken of is not."""
    found: set[int] = set()
    waiting = list(results)
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += [int(number) for number, _ in REFERENCE.findall(said[k].question)] + list(said[k].after)
    return found


def _make_gold_step(one: Said, place: dict[int, int]) -> GoldStep:
    text = REFERENCE.sub(lambda match: f"#{place[int(match[1])]}{match[2]}", one.question)
    names = tuple(dict.fromkeys([one.noun, modify_noun(one.phrase, one.filters, one.noun)]))
    return GoldStep(text, names=names, after=tuple(place[k] for k in one.after))
