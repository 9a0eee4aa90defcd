"""Noun phrases and questions of the short English in which QDMR writes its steps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from data_gen.annotate.plan import REFERENCE
from data_gen.annotate.wording import STOP_WORDS, WORDS, is_plural, name_answer, tidy, to_singular

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
LINK = re.compile(
    r"\b(?:of|in|on|at|to|for|from|by|with|without|between|behind|near|during|before|after|than|as|about|not|besides"
    r"|named|along|since|until|through|across|above|below|inside|outside|around|against|within|per|next|closest"
    r"|(?:older|younger|higher|lower|larger|smaller|longer|shorter|more|less) than"
    r"|written|won|born|made|built|known|held|taken|given|led|sung|drawn|spoken|into|over|under"
    r"|that|who|whom|whose|which|where|when|is|are|was|were|has|have|had|(?!breed|speed)[a-z]{3,}ed|[a-z]{3,}ing)\b|[#,]"
)
DETERMINED = re.compile(r"(?:the|a|an|each|all|any|both|some|every|his|her|their|its|this|that)\b|[#\d\"']")
PEOPLE = frozenset(WORDS["people"].split())


def find_head(phrase: str) -> str:
    """The noun that a phrase is about: "field goals of Kasay" → goals."""
    words = _find_head_words(phrase)
    return words[-1].casefold() if words else "answer"


def modify_noun(phrase: str, filters: Sequence[str], noun: str) -> str:
    """The noun with a word that tells it apart: "white residents of #1" → white_resident, "that is red" → red_cube."""
    words = _find_head_words(phrase)[-2:-1]
    for text in filters:
        words += [word for word in re.findall(r"[^\W\d_]+", text) if word not in STOP_WORDS][-1:]
    return f"{words[0].casefold()}_{noun}" if words and words[0].isalpha() else noun


def _find_head_words(phrase: str) -> list[str]:
    kind = re.sub(r"\b(most|least|best|top|\w+ly|\w+est)\s+[a-z]+(?:ed|ing)\b", r"\1", phrase)  # "most visited parks"
    before = re.split(rf"(?<!\s)\s+(?={LINK.pattern})", re.sub(r"^(?:the|a|an)\s+", "", kind), maxsplit=1)[0]
    words = re.findall(r"[^\W\d_][\w'-]*", before)
    pairs = enumerate(itertools.pairwise(words), start=1)
    end = next((i for i, (one, two) in pairs if one.islower() and is_plural(one) and two[0].isupper()), None)
    return words[:end]  # "times Korea was attacked" is about times


def is_bare(phrase: str) -> bool:
    """One or two words for a kind of thing, in the plural: "flights", "green balls"."""
    words = phrase.removeprefix("the ").split()
    return len(words) <= 2 and not LINK.search(phrase) and is_plural(words[-1]) and words[-1].islower()


def is_name(phrase: str) -> bool:
    """What is there already and need not be asked for: a name, or a word or two for one thing."""
    words = re.sub(r"^(?:the|a|an)\s+|\([^)]*+\)", "", phrase).split()
    content = [word for word in words if len(word) > 3 or not word.isalpha()]
    if words and all(word[0].isupper() or not word[0].isalpha() for word in content) and words[0][:1].isupper():
        return True
    return (
        not LINK.search(phrase) and not QUESTION.match(phrase) and len(words) <= 4 and not is_plural(find_head(phrase))
    )


def ask_phrase(phrase: str) -> str:
    """The question for a noun phrase, or the phrase itself if it is a question."""
    phrase = re.sub(r"\s+", " ", phrase).strip()
    if QUESTION.match(phrase):
        return tidy(phrase)
    if re.match(r"(?:explain|describe|define|list)\b", phrase):
        return tidy(f"{phrase}.")
    noun, many = find_head(phrase), REFERENCE.match(phrase) is None and is_plural(find_head(phrase))
    who = to_singular(noun) in PEOPLE or re.match(r"[^#]*\bwho\b", phrase) is not None
    article = "" if DETERMINED.match(phrase) or (phrase[:1].isupper() and is_name(phrase)) else "the "
    return tidy(f"{'who' if who else 'what'} {'are' if many else 'is'} {article}{phrase}")


def word_condition(text: str, many: bool) -> str:
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


RELATIVE = r"\b(?:that|which|who|whom|whose|where|when|how|what|if|as|than)\b"


def join_filters(noun: str, conditions: list[str]) -> str:
    """A noun with its filters: "flights from denver to dallas that are cheap and late"."""
    plain = [text for text in conditions if not re.match(r"(?:that|which|who|where|when)\b", text)]
    clauses = [text for text in conditions if text not in plain]
    words = " ".join([noun, *plain])
    for number, clause in enumerate(clauses):
        same = number and re.match(r"(?:that|which|who)\s+(?:is|are)\s+", clause)
        words += f" and {clause[same.end() :]}" if same else f" and {clause}" if number else f" {clause}"
    return words


def ask_statement(text: str) -> str:
    """A yes/no question from a statement: "X is a breed" → "Is X a breed?"."""
    found = re.match(rf"((?:(?!\b(?:that|who|which|where)\b).){{1,60}}?)\s+({AUXILIARY})\s+(.+)", text)
    if found and found[2] not in ("has", "have", "had") and len(found[1].split()) <= 7:
        return tidy(f"{found[2]} {found[1]} {found[3]}")
    return tidy(f"is it true that {text}")


def is_statement(text: str) -> bool:
    """Whether a text states something: "war was declared"."""
    found = re.match(rf"(?!if\b)[^#]*?\s({AUXILIARY})\s+\S", text)
    if found is None or QUESTION.match(text) or re.search(RELATIVE, text[: found.start(1)]):
        return False
    first = text.split(maxsplit=1)[0]
    return not (first.islower() and is_plural(first))  # "galleys France did promise" are galleys


def name_attribute(text: str) -> str:
    """What the values of a step are called: "population of #1" → population, "when did #1 open" → date."""
    if QUESTION.match(text):
        return name_answer(text)[0]
    found = re.match(r"(?:the\s++)?([^#]+?)(?<!\s)\s++(?:of|in|on|for|from|by|at|to|that|which|who)\s++[^#]*#", text)
    return found[1] if found else find_head(text)
