"""QDMR (Wolfson et al., 2020): the operators of a decomposition become questions in natural words.

A step that is a name, or a kind of thing with short filters, is no question that anyone asks: it is folded into the
steps that use it ("return poland; return cities of #1" asks "What are the cities of poland?"). Every other step is one
leaf. What compares or lists the parts of the whole question is left to the merge, as in a plan for 2WikiMultiHopQA.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from data_gen.annotate.phrases import (
    AUXILIARY,
    QUESTION,
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
from data_gen.annotate.plan import REFERENCE, GoldStep
from data_gen.annotate.wording import is_plural, name_answer, tidy, to_plural, to_singular
from data_gen.questions import DroppedError
from revelator.plans.art import Filter

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
class StepWords:
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
    call: Filter | None = None  # where it keeps some of a list; `#n` as in a text
    is_found: bool = True  # sources are asked for it; else it is computed from earlier values


@dataclass
class Writer:
    """The steps of one decomposition, put into words from the first to the last."""

    steps: list[str]
    words: dict[int, StepWords] = field(default_factory=dict)

    def list_users(self, k: int) -> list[str]:
        """The steps that refer to step k."""
        return [step for step in self.steps if re.search(rf"#{k}\b", step)]

    def spell(self, text: str, many: bool = False) -> str:
        """The text with folded steps written out and the others marked."""

        def one(match: re.Match[str]) -> str:
            step = self.words[int(match[1])]
            return step.phrase if step.folded else f"{match[0]}{'s' if many and step.many else ''}"

        return re.sub(R, one, text)

    def spell_all(self, number: str) -> str:
        """All values of a step."""
        step = self.words[int(number)]
        return step.phrase if step.folded else f"#{number}s"

    def ask_which(self, k: int, number: str, many: bool = True) -> str:
        """A choice from a list; where others use what is chosen, its noun says that they mean this and not the list."""
        noun = self.words[int(number)].noun
        chosen = f"which {to_plural(noun) if many else noun} among" if self.list_users(k) else "which of"
        return f"{chosen} {self.spell_all(number)}"


def select(writer: Writer, k: int, text: str) -> StepWords:
    users = writer.list_users(k)
    timed = bool(users) and all(TIMED.fullmatch(user) for user in users)
    if is_statement(text) or (timed and re.search(r"\b[a-z]{3,}ed\b", text) and not QUESTION.match(text)):
        if not timed:
            raise DroppedError("a step that states something")
        return StepWords("event", ask_statement(text), text, folded=True, attribute="event")
    question = ask_phrase(text)
    if question == tidy(text):
        return StepWords(name_answer(question)[0], question, attribute=name_attribute(text))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    gathered = [user for user in users if re.search(GATHERED.replace("N", str(k)), user)]
    folded = bool(users) and ((is_bare(text) and len(narrowed) == len(users)) or (is_name(text) and not gathered))
    noun = find_head(text)
    return StepWords(to_singular(noun), question, text, folded, is_plural(noun), attribute=noun, kind=text)


def project(writer: Writer, k: int, text: str) -> StepWords:
    if (timed := TIMED.fullmatch(text)) and (event := writer.words[int(timed[2] or timed[4])]).attribute == "event":
        word = timed[1] or {"place": "where", "location": "where", "date": "when"}.get(timed[3], f"in what {timed[3]}")
        said = event.question.replace("Is it true that", "Was it that")
        question = tidy(f"{word} {said[:1].lower()}{said[1:]}")
        return StepWords(name_answer(question)[0], question, attribute=name_attribute(question))
    phrase, told = writer.spell(text), name_attribute(text)
    question = ask_phrase(phrase)
    if question == tidy(phrase):
        return StepWords(name_answer(question)[0], question, attribute=told)
    noun = find_head(told)
    return StepWords(to_singular(noun), question, phrase, many=is_plural(noun), attribute=told, kind=phrase)


def narrow(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    return _narrow(writer, k, match[1], match[2])


def narrow_by_adjective(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    return _narrow(writer, k, match[2], f"that are {match[1]}")


def _narrow(writer: Writer, k: int, number: str, told: str) -> StepWords:
    base, said = writer.words[int(number)], writer.spell(told, many=True)
    filters, users = (*base.filters, said), writer.list_users(k)
    short = len(said.split()) <= SHORT_FILTER and "#" not in said and len(filters) <= MOST_FILTERS
    clausal = re.match(r"(?:that|which|who|where)\b(?! (?:is|are) in\b)", said)
    beside = short and not clausal and "#" not in base.kind and len(writer.list_users(int(number))) == 1
    if not base.kind or not (base.folded or beside):
        question = tidy(f"{writer.ask_which(k, number, base.many)} {word_condition(said, base.many)}")
        return _keep(base, number, said, question)
    phrase = join_filters(base.kind, list(filters))
    narrowed = [user for user in users if re.match(rf"#{k} (?!where #|besides |sorted )", user)]
    folded = short and len(filters) < MOST_FILTERS and len(narrowed) == len(users) > 0
    plain = [one[1] for text in filters if (one := re.fullmatch(r"(?:that|which|who) (?:is|are) (.+)", text))]
    predicate = f"which {base.kind} are {' and '.join(plain)}" if base.many and len(plain) == len(filters) else ""
    question = tidy(predicate) if predicate else ask_phrase(phrase)
    return StepWords(base.noun, question, phrase, folded, base.many, base.attribute, filters=filters, kind=base.kind)


def _keep(base: StepWords, number: str, condition: str, question: str, after: tuple[int, ...] = ()) -> StepWords:
    """A step that keeps some of the values of another one, which may only be spoken of."""
    call = None if base.folded else Filter((f"#{number}",), condition)
    return StepWords(base.noun, question, many=True, attribute=base.attribute, after=after, call=call)


def _write_count(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    counted = writer.words[int(match[1])]
    unit = f" {match[2]}" if match[2] else ""
    question = tidy(f"how many {writer.spell_all(match[1])} are there{unit}")
    return StepWords("number", question, attribute=f"number of {to_plural(counted.noun)}")


def _write_group(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    aggregate, what, each = match[1].casefold(), match[2], match[3]
    number = re.fullmatch(R, what)
    one = writer.words[int(number[1])] if number else None
    phrase = one.phrase if one else writer.spell(what)
    if each not in phrase and one and not one.folded:
        said = f"how many {what}s are there" if aggregate == "number" else f"what is the {aggregate} of {what}s"
        question = tidy(f"{said} for each of {writer.spell(each, True)}")
        return StepWords("number", question, attribute=f"{aggregate} of {to_plural(one.noun)}")
    if each not in phrase:
        phrase = f"{phrase} for {writer.spell(each)}"
    if aggregate == "number":
        said = f"how many {phrase.removeprefix('the ')} are there"
        return StepWords("number", tidy(said), attribute=f"number of {to_plural(one.noun if one else find_head(what))}")
    article = "" if phrase.startswith("the ") else "the "
    question = tidy(f"what is the {aggregate} of {article}{phrase}")
    return StepWords(find_head(phrase), question, attribute=f"{aggregate} {find_head(phrase)}")


def _write_aggregate(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    word, number = match[1].casefold(), match[2]
    one = writer.words[int(number)]
    if word in ("sum", "average", "total", "mean"):
        return StepWords(
            word, tidy(f"what is the {word} of {writer.spell_all(number)}"), attribute=f"{word} {one.attribute}"
        )
    several = word.startswith(("two", "three")) or word[0].isdigit()
    question = tidy(f"which of {writer.spell_all(number)} {'are' if several else 'is'} the {word}")
    noun = f"{word.split()[-1]}_{one.noun.split('_')[-1]}"
    return StepWords(noun, question, many=several, attribute=f"{word} {one.attribute}")


def _write_superlative(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    base, by = writer.words[int(match[1])], writer.words[int(match[2])]
    word, by_what = match[3].casefold(), _name_one(by.attribute)
    if find_head(by_what) in ("size", "area"):
        word = {"highest": "largest", "lowest": "smallest"}.get(word, word)
    question = tidy(f"{writer.ask_which(k, match[1], False)} has the {word} {by_what}")
    return StepWords(base.noun, question, attribute=base.attribute, after=_require_name(writer, match[2]))


def _name_one(attribute: str) -> str:
    """ "lengths" → length."""
    noun = find_head(attribute)
    return re.sub(rf"\b{re.escape(noun)}\b", to_singular(noun), attribute.removeprefix("the "), count=1, flags=re.I)


def _write_comparative(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    base, by = writer.words[int(match[1])], writer.words[int(match[2])]
    told, said = by.attribute, writer.spell(match[3])
    if told in ("date", "year", "day"):
        said = said.replace("higher than", "later than").replace("lower than", "earlier than")
    verb = "are" if is_plural(find_head(told)) else "is"
    question = tidy(f"for {writer.ask_which(k, match[1])} {verb} the {told.removeprefix('the ')} {said}")
    return _keep(base, match[1], f"{told} {said}", question, _require_name(writer, match[2]))


def _require_name(writer: Writer, number: str) -> tuple[int, ...]:
    by = writer.words[int(number)]
    if by.folded or by.attribute in ("", "answer"):
        raise DroppedError("a comparison of something that has no name")
    return (int(number),)


def _write_arithmetic(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    word, before, operands, after = match[1].casefold(), match[2], writer.spell(match[3]), match[4]
    unit = f" in {before or after}" if before or after else ""
    values = [part.strip() for part in re.split(r",|\band\b", operands)]
    values = sorted(values, key=_read_place) if word in ("difference", "sum") else values
    if len(values) < 2:
        raise DroppedError("arithmetic of one value")
    listed = f"{', '.join(values[:-1])} and {values[-1]}"
    said = {
        "difference": f"what is the difference between {listed}{unit}",
        "sum": f"what is the sum of {listed}{unit}",
        "division": f"what is {' divided by '.join(values)}",
        "multiplication": f"what is {' times '.join(values)}",
    }[word]
    return StepWords("number", tidy(said), attribute=word)


def _read_place(value: str) -> int:
    """Operands stand as their steps do: a difference is one either way."""
    return int(re.sub(r"\D", "", value) or 0) if value.startswith("#") else 0


def _write_discard(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    base, rest = writer.words[int(match[1])], writer.spell(match[2], many=True)
    among = "among " if re.fullmatch(R, match[2]) and writer.words[int(match[2][1:])].many else ""
    question = tidy(f"{writer.ask_which(k, match[1])} are not {among}{rest}")
    return _keep(base, match[1], f"other than {rest}", question)


def _write_intersection(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    what, first, second = match[1], writer.words[int(match[2])], writer.words[int(match[3])]
    if re.fullmatch(rf"{R}|(?:who|what|where)(?: (?:is|are|was|were))?", what) and not (first.folded or second.folded):
        chosen = f"which {to_plural(first.noun)} among" if writer.list_users(k) else "which of"
        return StepWords(
            first.noun,
            tidy(f"{chosen} {writer.spell_all(match[2])} are also among {writer.spell_all(match[3])}"),
            many=True,
        )
    if REFERRED.search(what) or not re.fullmatch(r"(?:the )?[^#]+", what):
        raise DroppedError("what two things share is not named")
    noun = what.removeprefix("the ")
    question = tidy(f"which {noun} do {writer.spell('#' + match[2])} and {writer.spell('#' + match[3])} have in common")
    return StepWords(to_singular(find_head(noun)), question, many=is_plural(find_head(noun)), attribute=noun)


REFERRED = re.compile(r"^(?:who|what|where|when|how)\b")


def _write_sort(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    base = writer.words[int(match[1])]
    by = re.sub(R, lambda number: f"the {writer.words[int(number[1])].attribute}", match[2])
    after = tuple(int(number) for number in re.findall(R, match[2]) if not writer.words[int(number)].folded)
    return StepWords(
        base.noun, tidy(f"what is the order of {writer.spell_all(match[1])} by {by}"), many=True, after=after
    )


def _write_boolean(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    text = re.sub(r"^if\s+", "", match[0])
    many = re.match(rf"(?:are|were|have|do) |{R} (?:are|were|have)\b|(?:is|are) there any", text, re.I) is not None
    if there := re.fullmatch(r"there\s+(is|are|was|were)\s+(.+)", text):
        return StepWords("claim", tidy(f"{there[1]} there {writer.spell(there[2], many)}"))
    if stated := re.fullmatch(rf"((?:both )?{R}(?: (?:and|or) {R})*) ({AUXILIARY}) (.+)", text):
        subject, verb, rest = writer.spell(stated[1], many), stated[4], writer.spell(stated[5])
        if verb in ("has", "have", "had"):
            verb, rest = {"has": "does", "have": "do", "had": "did"}[verb], f"have {rest}"
        return StepWords("claim", tidy(f"{verb} {subject} {rest}"))
    spelt = writer.spell(text, many)
    return StepWords("claim", tidy(spelt) if re.match(rf"{AUXILIARY}\b", text, re.I) else ask_statement(spelt))


def _write_union(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    """Several steps that a later one speaks of together."""
    numbers = re.findall(R, match[0])
    one = writer.words[int(numbers[0])]
    phrase = " and ".join(writer.spell_all(number) for number in numbers)
    return StepWords(one.noun, "", phrase, True, True, one.attribute)


def _refuse_inner_comparison(writer: Writer, k: int, match: re.Match[str]) -> StepWords:
    raise DroppedError("a comparison that is not the last step")


Rule = tuple[str, Callable[[Writer, int, re.Match[str]], StepWords]]
RULES: list[Rule] = [
    (rf"{R}(?:\s*(?:,|and|or)\s*{R})+", _write_union),
    (rf"which\b[^#]* {R}(?:\s*(?:,|and|or)\s*{R})+", _refuse_inner_comparison),
    (r"(?:the )?(number|average|sum|maximum|minimum|highest|lowest) of (.+?) for each (?:of )?(.+)", _write_group),
    (rf"(?:the )?number of (?:of )?{R}(?: (in \w+))?", _write_count),
    (rf"(?:the )?(sum|average|total|mean|{EXTREME}) (?:of )?{R}", _write_aggregate),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(?:the )?({EXTREME})", _write_superlative),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(.+)", _write_comparative),
    (
        r"(?:the )?(difference|sum|division|multiplication)(?: in (\w+))?(?: of)? "
        r"(#?[\d.]+(?:\s*(?:,|and)\s*#?[\d.]+)+)(?: in (\w+))?",
        _write_arithmetic,
    ),
    (rf"{R} besides (.+)", _write_discard),
    (rf"(.+?)(?: (?:in|of|between|for))? both (?:of )?{R} and {R}", _write_intersection),
    (rf"{R} (?:that can be )?sorted by (.+)", _write_sort),
    (r"(?:if\s|(?:is|are|was|were|do|does|did|has|have|can)\s).+", _write_boolean),
    (rf"{R} (.+)", narrow),
    (rf"(?:the )?((?!(?:explain|describe|define|list|who|what|when|where|how)\b)[a-z-]+) {R}", narrow_by_adjective),
]


FINDING = (_write_union, _write_discard, narrow, narrow_by_adjective)
REFERRED_STEP = re.compile(R)
PARTS = re.compile(
    r"(?:which\b[^#]*|(?:if|are|is) both )?(#\d+(?:\s*(?:,|and|or)\s*#\d+)+)(?: (?:are|is) true)?", re.IGNORECASE
)


def split_steps(decomposition: str) -> list[str]:
    """The steps of `return …; return …` without that word. Raises DroppedError where one refers to a later one."""
    steps = [re.sub(r"^return\s+", "", " ".join(step.split()), flags=re.I) for step in decomposition.split(";")]
    steps = [re.sub(r"(?<!\s)\s+(,|'s\b)|^the (?=#)|(?<!\w)'(?=\w)(?![^']*')", r"\1", step) for step in steps if step]
    steps = [re.sub(r"(?<=\()\s+|(?<!\s)\s+(?=\))", "", step) for step in steps]
    for index, step in enumerate(steps, start=1):
        if any(not 0 < int(number) < index for number in REFERRED_STEP.findall(step)):
            raise DroppedError("a step refers to a later step or to none")
    return steps


def read_gold_steps(decomposition: str) -> list[GoldStep]:
    """The leaves of a decomposition, `#n` counting leaves from 1. Raises DroppedError: its message is counted."""
    steps = split_steps(decomposition)
    if not steps:
        raise DroppedError("a decomposition without steps")
    parts = PARTS.fullmatch(steps[-1])
    results = [int(number) for number in REFERRED_STEP.findall(parts[1])] if parts else [len(steps)]
    writer = Writer(steps)
    for k, step in enumerate(steps[:-1] if parts else steps, start=1):
        writer.words[k] = _word_step(writer, k, step)
    kept = sorted(_find_needed(writer.words, results))
    place = {k: number for number, k in enumerate(kept, start=1)}
    return [_make_gold_step(writer.words[k], place) for k in kept]


def _word_step(writer: Writer, k: int, step: str) -> StepWords:
    for pattern, make in RULES:
        if match := re.fullmatch(pattern, step, re.IGNORECASE):
            return replace(make(writer, k, match), is_found=make in FINDING)
    return project(writer, k, step) if REFERRED_STEP.search(step) else select(writer, k, step)


def _find_needed(said: dict[int, StepWords], results: list[int]) -> set[int]:
    """The steps that are asked for the results; one that is only spoken of is not."""
    found: set[int] = set()
    waiting = list(results)
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += [int(number) for number, _ in REFERENCE.findall(said[k].question)] + list(said[k].after)
    return found


def _make_gold_step(one: StepWords, place: dict[int, int]) -> GoldStep:
    """The step with its references to leaves."""

    def move(text: str) -> str:
        return REFERENCE.sub(lambda match: f"#{place[int(match[1])]}{match[2]}", text)

    names = tuple(dict.fromkeys([one.noun, modify_noun(one.phrase, one.filters, one.noun)]))
    after = tuple(place[k] for k in one.after)
    call = one.call and Filter(tuple(map(move, one.call.entities)), move(one.call.condition))
    return GoldStep(move(one.question), names=names, after=after, call=call, is_found=one.is_found)
