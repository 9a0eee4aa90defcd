"""QDMR (Wolfson et al., 2020): the steps of a decomposition that filters become questions in natural words.

A step that is a name, or a kind of thing with short filters, is no question that anyone asks: it is folded into the
steps that use it ("return poland; return cities of #1" asks "What are the cities of poland?"). Every other step is one
leaf. Operators that no source is asked for, such as counts and comparisons, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from data_gen.annotate.inflection import is_plural, to_singular
from data_gen.annotate.plan import REFERENCE, GoldStep, replace_references
from data_gen.annotate.wording import WORDS, tidy
from data_gen.questions import DroppedError
from revelator.plans.operators import Filter

SHORT_FILTER = 4  # words; a longer one is a fact of its own, and so a leaf of its own
MOST_FILTERS = 3
R = r"#(\d+)"
REFERRED = re.compile(R)
AUXILIARY = r"(?:is|are|was|were|has|have|had|does|do|did|can|could|will|would|may|might|must)"
VERB = (
    r"[a-z]{3,}(?:ed|es|(?<!s)s)|won|wrote|made|became|took|led|went|sang|held|ran|began|built|met|left|lost|got|gave"
    r"|fought"
)
QUESTION = re.compile(
    r"(?:(?:in|on|at|from|for|to|of|by|with|under|during) )?(?:who|whom|whose|what|which|when|where|why|how)\b"
    rf"|{AUXILIARY}\b",
    re.IGNORECASE,
)
RELATIVE = r"\b(?:that|which|who|whom|whose|where|when|how|what|if|as|than)\b"
LINK = re.compile(
    r"\b(?:of|in|on|at|to|for|from|by|with|without|between|behind|near|during|before|after|than|as|about|not|besides"
    r"|named|along|since|until|through|across|above|below|inside|outside|around|against|within|per|next|closest"
    r"|(?:older|younger|higher|lower|larger|smaller|longer|shorter|more|less) than"
    r"|written|won|born|made|built|known|held|taken|given|led|sung|drawn|spoken|into|over|under"
    r"|that|who|whom|whose|which|where|when|is|are|was|were|has|have|had|(?!breed|speed)[a-z]{3,}ed|[a-z]{3,}ing)\b|[#,]"
)
DETERMINED = re.compile(r"(?:the|a|an|each|all|any|both|some|every|his|her|their|its|this|that)\b|[#\d\"']")
PEOPLE = frozenset(WORDS["people"].split())
EXTREME = (
    r"(?:most|least|first|last|second|third|fourth|final|maximum|minimum|max|min"
    r"|(?:most|least|second|third|two|three) \w+|\w+est)"
)
COMPUTED = re.compile(  # from earlier values: no source is asked
    rf"{R}(?:\s*(?:,|and|or)\s*{R})+|which\b[^#]* {R}(?:\s*(?:,|and|or)\s*{R})+"
    r"|(?:the )?(?:number|average|sum|maximum|minimum|highest|lowest) of .+? for each .+"
    rf"|(?:the )?(?:number|sum|average|total|mean|{EXTREME}) (?:of )*{R}(?: in \w+)?|{R} where {R} .+"
    r"|(?:the )?(?:difference|sum|division|multiplication) [^#]*#.+"
    rf"|.+ both (?:of )?{R} and {R}|{R} (?:that can be )?sorted by .+"
    r"|(?:if\s|(?:is|are|was|were|do|does|did|has|have|can)\s).+",
    re.IGNORECASE,
)
ADJECTIVE = re.compile(
    rf"(?:the )?((?!(?:explain|describe|define|list|who|what|when|where|how)\b)[a-z-]+) {R}", re.IGNORECASE
)


@dataclass(frozen=True)
class StepWords:
    """A step in words. In a text `#n` is a value of step n, `#ns` all its values."""

    question: str
    phrase: str = ""  # the noun phrase that speaks of the step without asking it
    folded: bool = False  # it is only spoken of
    many: bool = False
    filters: tuple[str, ...] = ()  # those that the phrase has beside its noun
    kind: str = ""  # the phrase without filters
    call: Filter | None = None  # where it keeps some of a list; `#n` as in a text


@dataclass
class Writer:
    """The steps of one decomposition, put into words from the first to the last."""

    steps: list[str]
    words: dict[int, StepWords] = field(default_factory=dict)

    def write_step(self, k: int, text: str) -> StepWords:
        """Step k in words, of the steps before it. Raises DroppedError."""
        if COMPUTED.fullmatch(text):
            raise DroppedError("an operator that no source is asked for")
        if match := re.fullmatch(rf"{R} besides (.+)", text, re.IGNORECASE):
            return self._discard(match[1], match[2])
        if match := re.fullmatch(rf"{R} (.+)", text):
            return self._narrow(k, match[1], match[2])
        if match := ADJECTIVE.fullmatch(text):
            return self._narrow(k, match[2], f"that are {match[1]}")
        if not REFERRED.search(text) and _is_statement(text):
            raise DroppedError("a step that states something")
        phrase = self._spell(text)
        question = _ask_phrase(phrase)
        if question == tidy(phrase):
            return StepWords(question)
        if REFERRED.search(text):
            return StepWords(question, phrase, many=is_plural(_find_head(text)), kind=phrase)
        users = self._list_users(k)
        bare = _is_bare(text) and len(self._list_narrowed(k)) == len(users)
        name = _is_name(text) and not any(user.startswith(f"#{k} besides") for user in users)
        folded = bool(users) and (bare or name)
        return StepWords(question, text, folded, is_plural(_find_head(text)), kind=text)

    def number_needed(self, used: Mapping[int, Iterable[int]]) -> dict[int, int]:
        """The steps that lead to the last one, each with its number among them; one that is only spoken of does not.
        `used` are those that a step uses which has no question."""
        needed = {len(self.steps)}
        for k in range(len(self.steps), 0, -1):
            if k in needed:
                needed.update(used.get(k, ()), (int(number) for number, _ in REFERENCE.findall(self.words[k].question)))
        return {k: number for number, k in enumerate(sorted(needed), start=1)}

    def _list_users(self, k: int) -> list[str]:
        """The steps that refer to step k."""
        return [step for step in self.steps if re.search(rf"#{k}\b", step)]

    def _list_narrowed(self, k: int) -> list[str]:
        """The steps that keep some of the values of step k by what is said of them."""
        return [step for step in self.steps if re.match(rf"#{k} (?!besides )", step)]

    def _spell(self, text: str, many: bool = False) -> str:
        """The text with folded steps written out and the others marked."""

        def one(match: re.Match[str]) -> str:
            step = self.words[int(match[1])]
            return step.phrase if step.folded else f"{match[0]}{'s' if many and step.many else ''}"

        return REFERRED.sub(one, text)

    def _narrow(self, k: int, number: str, told: str) -> StepWords:
        base, said = self.words[int(number)], self._spell(told, many=True)
        filters, users = (*base.filters, said), self._list_users(k)
        short = len(said.split()) <= SHORT_FILTER and "#" not in said and len(filters) <= MOST_FILTERS
        clausal = re.match(r"(?:that|which|who|where)\b(?! (?:is|are) in\b)", said)
        beside = short and not clausal and "#" not in base.kind and len(self._list_users(int(number))) == 1
        if not base.kind or not (base.folded or beside):
            return _keep(base, number, said, _write_condition(said, base.many))
        phrase = _join_filters(base.kind, filters)
        folded = short and len(filters) < MOST_FILTERS and len(self._list_narrowed(k)) == len(users) > 0
        plain = [one[1] for text in filters if (one := re.fullmatch(r"(?:that|which|who) (?:is|are) (.+)", text))]
        predicate = f"which {base.kind} are {' and '.join(plain)}" if base.many and len(plain) == len(filters) else ""
        question = tidy(predicate) if predicate else _ask_phrase(phrase)
        return StepWords(question, phrase, folded, base.many, filters, base.kind)

    def _discard(self, number: str, told: str) -> StepWords:
        base, rest = self.words[int(number)], self._spell(told, many=True)
        among = "among " if re.fullmatch(R, told) and self.words[int(told[1:])].many else ""
        return _keep(base, number, f"other than {rest}", f"are not {among}{rest}")


def _keep(base: StepWords, number: str, condition: str, predicate: str) -> StepWords:
    """A step that keeps some of the values of another one, which may only be spoken of."""
    if base.folded:
        return StepWords(tidy(f"which of {base.phrase} {predicate}"), many=True)
    return StepWords(f"Which of #{number}s {predicate}?", many=True, call=Filter((f"#{number}",), condition))


def read_gold_steps(decomposition: str) -> list[GoldStep]:
    """The leaves of `return …; return …`, `#n` counting leaves from 1. Raises DroppedError: its message is counted."""
    steps = split_steps(decomposition)
    writer = Writer(steps)
    for k, step in enumerate(steps, start=1):
        writer.words[k] = writer.write_step(k, step)
    numbers = writer.number_needed({})
    return [_make_gold_step(writer.words[k], numbers) for k in numbers]


def split_steps(decomposition: str) -> list[str]:
    """The steps of `return …; return …`, tidied. Raises DroppedError."""
    steps = [re.sub(r"^return\s+", "", " ".join(step.split()), flags=re.I) for step in decomposition.split(";")]
    steps = [re.sub(r"(?<!\s)\s+(,|'s\b)|^the (?=#)|(?<!\w)'(?=\w)(?![^']*')", r"\1", step) for step in steps if step]
    steps = [re.sub(r"(?<=\()\s+|(?<!\s)\s+(?=\))", "", step) for step in steps]
    for index, step in enumerate(steps, start=1):
        if any(not 0 < int(number) < index for number in REFERRED.findall(step)):
            raise DroppedError("a step refers to a later step or to none")
    if not steps:
        raise DroppedError("a decomposition without steps")
    return steps


def _make_gold_step(one: StepWords, numbers: Mapping[int, int]) -> GoldStep:
    """The step with its references to leaves."""
    call = one.call and one.call.rewrite(lambda text: _renumber(text, numbers))
    return GoldStep(_renumber(one.question, numbers), call=call)


def _renumber(text: str, numbers: Mapping[int, int]) -> str:
    return replace_references(text, lambda k, s: f"#{numbers[k]}{s}")


# ---- noun phrases and questions of the short English in which QDMR writes its steps


def _find_head(phrase: str) -> str:
    """The noun that a phrase is about: "field goals of Kasay" → goals."""
    before = re.split(rf"(?<!\s)\s+(?={LINK.pattern})", re.sub(r"^(?:the|a|an)\s+", "", phrase), maxsplit=1)[0]
    words = re.findall(r"[^\W\d_][\w'-]*", before)
    return words[-1].casefold() if words else "answer"


def _is_bare(phrase: str) -> bool:
    """One or two words for a kind of thing, in the plural: "flights", "green balls"."""
    words = phrase.removeprefix("the ").split()
    return len(words) <= 2 and not LINK.search(phrase) and is_plural(words[-1]) and words[-1].islower()


def _is_name(phrase: str) -> bool:
    """What is there already and need not be asked for: a name, or a word or two for one thing."""
    words = re.sub(r"^(?:the|a|an)\s+|\([^)]*+\)", "", phrase).split()
    content = [word for word in words if len(word) > 3 or not word.isalpha()]
    if words and all(word[0].isupper() or not word[0].isalpha() for word in content) and words[0][:1].isupper():
        return True
    return (
        not LINK.search(phrase) and not QUESTION.match(phrase) and len(words) <= 4 and not is_plural(_find_head(phrase))
    )


def _ask_phrase(phrase: str) -> str:
    """The question for a noun phrase, or the phrase itself if it is a question."""
    phrase = re.sub(r"\s+", " ", phrase).strip()
    if QUESTION.match(phrase):
        return tidy(phrase)
    if re.match(r"(?:explain|describe|define|list)\b", phrase):
        return tidy(f"{phrase}.")
    noun, many = _find_head(phrase), REFERENCE.match(phrase) is None and is_plural(_find_head(phrase))
    who = to_singular(noun) in PEOPLE or re.match(r"[^#]*\bwho\b", phrase) is not None
    article = "" if DETERMINED.match(phrase) or (phrase[:1].isupper() and _is_name(phrase)) else "the "
    return tidy(f"{'who' if who else 'what'} {'are' if many else 'is'} {article}{phrase}")


def _write_condition(text: str, many: bool) -> str:
    """What a filter says as a predicate: "that is small" → "are small", "from boston" → "are from boston"."""
    text = re.sub(r"^(?:,|if)\s+", "", text.strip())
    clause = re.match(rf"(?:that|which|who)\s+({AUXILIARY})\b\s*(.*)", text)
    many = many or (clause is not None and clause[1] in ("are", "were", "have"))
    be = "are" if many else "is"
    if clause:
        forms = {"is": be, "are": be, "was": "were" if many else "was", "has": "have" if many else "has"}
        return f"{forms.get(clause[1], clause[1])} {clause[2]}"
    if verb := re.match(rf"(?:that|which|who)\s+((?:{VERB})\b.*)", text):
        return verb[1]
    if re.match(r"(?:that|which|who|whom|whose|where|when)\b", text):
        return f"{be} the one{'s' if many else ''} {text}"
    return text if re.match(rf"{AUXILIARY}\b", text) else f"{be} {text}"


def _join_filters(noun: str, conditions: Sequence[str]) -> str:
    """A noun with its filters: "flights from denver to dallas that are cheap and late"."""
    plain = [text for text in conditions if not re.match(r"(?:that|which|who|where|when)\b", text)]
    clauses = [text for text in conditions if text not in plain]
    words = " ".join([noun, *plain])
    for number, clause in enumerate(clauses):
        same = number and re.match(r"(?:that|which|who)\s+(?:is|are)\s+", clause)
        words += f" and {clause[same.end() :]}" if same else f" and {clause}" if number else f" {clause}"
    return words


def _is_statement(text: str) -> bool:
    """Whether a text states something: "war was declared"."""
    found = re.match(rf"(?!if\b)[^#]*?\s({AUXILIARY})\s+\S", text)
    if found is None or QUESTION.match(text) or re.search(RELATIVE, text[: found.start(1)]):
        return False
    first = text.split(maxsplit=1)[0]
    return not (first.islower() and is_plural(first))  # "galleys France did promise" are galleys
