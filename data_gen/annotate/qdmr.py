"""QDMR (Wolfson et al., 2020): the steps of a decomposition that are asked become questions in natural words.

A step that is a name, or a kind of thing with short filters, is no question that anyone asks: it is folded into the
steps that use it ("return poland; return cities of #1" asks "What are the cities of poland?"). Every other step is one
leaf. Operators, such as counts and comparisons, are read by `data_gen.annotate.qdmr_operations`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from data_gen.annotate.inflection import is_plural, to_singular
from data_gen.annotate.plan import REFERENCE
from data_gen.annotate.wording import WORDS, tidy
from data_gen.questions import DroppedError

SHORT_FILTER = 4  # words; a longer one is a fact of its own, and so a leaf of its own
MOST_FILTERS = 3
R = r"#(\d+)"
REFERRED = re.compile(R)
AUXILIARY = r"(?:is|are|was|were|has|have|had|does|do|did|can|could|will|would|may|might|must)"
VERB = rf"(?:[a-z]{{3,}}(?:ed|es|(?<!s)s)|{'|'.join(WORDS['finite'].split())})"
ASKING = r"(?:who|whom|whose|what|which|when|where|why|how)"
QUESTION = re.compile(rf"(?:(?:in|on|at|from|for|to|of|by|with|under|during) )?{ASKING}\b|{AUXILIARY}\b", re.IGNORECASE)
STATEMENT = re.compile(rf"(?:(?!\b(?i:{ASKING}|that|if|as|than)\b)[^#])*?\s{AUXILIARY}\s\S")  # "war was declared"
LINK = re.compile(  # what ends the words of a noun
    r"\b(?:of|in|on|at|to|for|from|by|with|without|between|behind|near|during|before|after|as|about|not|above|below"
    r"|against|within|into|over|under|next|closest|per|besides|given|known|won|(?:\w+er |more |less )?than|that"
    rf"|{ASKING}|{AUXILIARY}|{'|'.join(WORDS['participles'].split())}|(?!breed|speed)[a-z]{{3,}}ed|[a-z]{{3,}}ing)\b|[#,]"
)
DETERMINED = re.compile(r"(?:the|a|an|each|all|any|both|some|every|his|her|their|its|this|that)\b|[#\d\"']")
PEOPLE = frozenset(WORDS["people"].split())
UNASKED = re.compile(  # computed from earlier values, whatever Break calls it: no source is asked
    r"(?:the )?(?:difference|sum|division|multiplication) .+"
    rf"|(?:the )?(?:\w+est|(?:most|least) \w+|second|third|two|three|number) (?:of )?{R}|{R} where {R} .+",
    re.IGNORECASE,
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


@dataclass
class Writer:
    """The steps of one decomposition, put into words from the first to the last."""

    steps: list[str]
    words: dict[int, StepWords] = field(default_factory=dict)

    def write_step(self, k: int, text: str) -> StepWords:
        """Step k in words, of the steps before it. Raises DroppedError."""
        if UNASKED.fullmatch(text):
            raise DroppedError("an operator that no source is asked for")
        if match := re.fullmatch(rf"{R} besides (.+)", text, re.IGNORECASE):
            return StepWords(f"Which of #{match[1]}s are other than {self._spell(match[2], many=True)}?", many=True)
        if match := re.fullmatch(rf"{R} (.+)", text):
            return self._narrow(k, match[1], match[2])
        if match := re.fullmatch(rf"(?:the )?([a-z-]+) {R}", text, re.IGNORECASE):
            return self._narrow(k, match[2], f"that are {match[1]}")
        if not REFERRED.search(text) and STATEMENT.match(text):
            raise DroppedError("a step that states something")
        phrase = self._spell(text)
        question = _ask_phrase(phrase)
        if question == tidy(phrase):
            return StepWords(question)
        known = (_is_name(text) and bool(self._list_users(k))) or (_is_bare(text) and self._is_only_narrowed(k))
        folded = known and not REFERRED.search(text)
        return StepWords(question, phrase, folded, is_plural(_find_head(text)), kind=phrase)

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

    def _is_only_narrowed(self, k: int) -> bool:
        """Whether steps refer to step k, and each keeps some of its values by what is said of them."""
        users = self._list_users(k)
        return bool(users) and all(re.match(rf"#{k} (?!besides )", user) for user in users)

    def _spell(self, text: str, many: bool = False) -> str:
        """The text with folded steps written out and the others marked."""

        def one(match: re.Match[str]) -> str:
            step = self.words[int(match[1])]
            return step.phrase if step.folded else f"{match[0]}{'s' if many and step.many else ''}"

        return REFERRED.sub(one, text)

    def _narrow(self, k: int, number: str, told: str) -> StepWords:
        base, said = self.words[int(number)], self._spell(told, many=True)
        filters = (*base.filters, said)
        short = len(said.split()) <= SHORT_FILTER and "#" not in said and len(filters) <= MOST_FILTERS
        clausal = re.match(r"(?:that|which|who|where)\b(?! (?:is|are) in\b)", said)
        beside = short and not clausal and "#" not in base.kind and len(self._list_users(int(number))) == 1
        if not base.kind or not (base.folded or beside):
            return StepWords(f"Which of #{number}s {_write_condition(said, base.many)}?", many=True)
        phrase = _join_filters(base.kind, filters)
        folded = short and len(filters) < MOST_FILTERS and self._is_only_narrowed(k)
        plain = [one[1] for text in filters if (one := re.fullmatch(r"(?:that|which|who) (?:is|are) (.+)", text))]
        predicate = f"which {base.kind} are {' and '.join(plain)}" if base.many and len(plain) == len(filters) else ""
        question = tidy(predicate) if predicate else _ask_phrase(phrase)
        return StepWords(question, phrase, folded, base.many, filters, base.kind)


def split_steps(decomposition: str) -> list[str]:
    """The steps of `return …; return …`, tidied. Raises DroppedError."""
    steps = [re.sub(r"^return\s+", "", " ".join(step.split()), flags=re.I) for step in decomposition.split(";")]
    steps = [re.sub(r"(?<!\s)\s+(,|'s\b)|^the (?=#)|(?<!\w)'(?=\w)(?![^']*')", r"\1", step) for step in steps if step]
    steps = [re.sub(r"(?<=\()\s+|(?<!\s)\s+(?=\))", "", step) for step in steps]
    for index, step in enumerate(steps, start=1):
        if any(not 0 < int(number) < index for number in REFERRED.findall(step)):
            raise DroppedError("a step refers to a later step or to none")
    return steps


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
    return not LINK.search(phrase) and len(words) <= 4 and not is_plural(_find_head(phrase))


def _ask_phrase(phrase: str) -> str:
    """The question for a noun phrase, or the phrase itself if it is a question."""
    if QUESTION.match(phrase):
        return tidy(phrase)
    noun, many = _find_head(phrase), REFERENCE.match(phrase) is None and is_plural(_find_head(phrase))
    who = to_singular(noun) in PEOPLE or re.match(r"[^#]*\bwho\b", phrase) is not None
    article = "" if DETERMINED.match(phrase) or (phrase[:1].isupper() and _is_name(phrase)) else "the "
    return tidy(f"{'who' if who else 'what'} {'are' if many else 'is'} {article}{phrase}")


def _write_condition(text: str, many: bool) -> str:
    """What a filter says as a predicate: "that is small" → "are small", "from boston" → "are from boston"."""
    be = "are" if many else "is"
    if clause := re.match(rf"(?:that|which|who)\s+({AUXILIARY})\b\s*(.*)", text):
        forms = {"is": be, "are": be, "was": "were" if many else "was", "has": "have" if many else "has"}
        return f"{forms.get(clause[1], clause[1])} {clause[2]}"
    if verb := re.match(rf"(?:that|which|who)\s+((?:{VERB})\b.*)", text):
        return verb[1]
    if re.match(r"(?:that|which|who|whom|whose|where|when)\b", text):
        return f"{be} the one{'s' if many else ''} {text}"
    return f"{be} {text}"


def _join_filters(noun: str, conditions: Sequence[str]) -> str:
    """A noun with its filters: "flights from denver to dallas that are cheap and that are late"."""
    clauses = [text for text in conditions if re.match(r"(?:that|which|who|where|when)\b", text)]
    plain = [text for text in conditions if text not in clauses]
    return " ".join([noun, *plain, " and ".join(clauses)]).rstrip()
