"""The same question in other words: what is asked stays, with its names and its plan, and how it is asked changes.

"Who is the spouse of the producer of UHF?" may be asked as "Tell me who the spouse of UHF's producer is.". Two kinds of
rules, both English: a phrase within the question is turned (the R of X, X's R; where X is located, in which X lies),
and the asking itself (which for what, an order in place of a question, the question word at the end). What they do
not know they leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

from data_gen.annotate.names import find_mention, find_planned_names
from data_gen.augment.clauses import DID, FINITE, LOOSE, PART
from data_gen.questions import AnnotatedQuestion

# "the county of Hertfordshire" is not what belongs to Hertfordshire
NAMED = (
    "album|band|book|borough|city|company|country|county|date|day|district|duchy|film|group|island|kind|kingdom|lake|land"
    "|month|movie|name|number|part|place|play|province|region|republic|river|show|song|sort|state|story|term|title|town"
    "|type|university|use|village|year|gulf"
)
VERB = rf"(?:{'|'.join(DID)}|died|worked|compete|{PART[3:-1]})"
RELATION = rf"(?!(?:{NAMED})\b)[a-z]+(?: (?!(?:of|in|to|and|that|who|which|is|was|{VERB})\b)[a-z]+)?"
END = r"$|[?,.]| (?:is|was|are|were|did|does|do|has|had)\b"
STRANDED = re.compile(rf"{LOOSE.pattern}|\b(?:after|as|under|called)$")  # a question that its own word must end
NO_NOUN = rf"(?:is|was|are|were|did|does|do|else|one|percentage|went|dissolved|happened|{FINITE})"
AUXILIARY = ("had", "has", "have", "to", "did", "does", "be")
ORDERS = ("Tell me", "Please tell me", "Find out", "I would like to know", "I want to know")
QUESTIONS = ("Do you know", "Can you tell me", "Could you find out")


def reword(question: AnnotatedQuestion, rng: Random) -> AnnotatedQuestion:
    """A question with several hops in other words, its plan, steps and names as they are. Other routes are left: a
    single question is its own plan."""
    if question.route != "complex":
        return question
    return replace(question, question=reword_text(question.question, find_planned_names(question), rng))


def reword_text(question: str, names: Sequence[str], rng: Random) -> str:
    """One of the ways to ask the question that keep its `names`, drawn by `rng`; itself where no rule fits."""
    text = rng.choice([question, *_turn_phrases(question, names)])
    text = rng.choice([text, *_change_asking(text, rng)])
    return text if all(find_mention(name, text) for name in names) else question


def _turn_phrases(text: str, names: Sequence[str]) -> Iterator[str]:
    """One phrase of the question turned."""
    for name in names:
        said = re.escape(name)
        if match := re.search(rf"\bthe ({RELATION}) of ((?:the )?(film |song |album )?{said})(?={END})", text):
            owner = f"the {match[2]}" if match[3] and not match[2].startswith("the ") else match[2]
            yield _replace_match(text, match, f"{owner}'{'' if name.endswith('s') else 's'} {match[1]}")
        if match := re.search(rf"(?<![\w'])((?:the )?{said})'s? ({RELATION})(?={END})", text):
            yield _replace_match(text, match, f"the {match[2]} of {match[1]}")
        if match := re.search(rf"\bthe ([a-z]+) where ({said}) is located\b(?! in\b)", text):
            for way in ("in which %s is located", "in which %s lies", "that %s is located in", "containing %s"):
                yield _replace_match(text, match, f"the {match[1]} {way % match[2]}")
        if match := re.search(rf"((?:the )?{said})'s birthplace\b", text):
            yield _replace_match(text, match, f"the place where {match[1]} was born")
    if match := re.search(rf"\bthe ([a-z]+) which (?={FINITE})", text):
        yield _replace_match(text, match, f"the {match[1]} that ")
    if match := re.search(r"\bthe person who\b", text):
        yield _replace_match(text, match, "the one who")


def _change_asking(text: str, rng: Random) -> Iterator[str]:
    """The asking changed."""
    bare = text.rstrip("?. ")
    if match := re.match(rf"((?:In |On |At |For )?)(What|Which|what|which) (?=[a-z]+ )(?!{NO_NOUN}\b)", bare):
        other = {"What": "Which", "Which": "What", "what": "which", "which": "what"}[match[2]]
        yield f"{match[1]}{other} {bare[match.end() :]}?"
    match = re.fullmatch(r"(Who|What) (is|was) ((?:the|[A-Z]).+)", bare)
    if match and not STRANDED.search(bare):
        yield f"{match[3][0].upper()}{match[3][1:]} {match[2]} {match[1].lower()}?"
    if said := _ask_indirectly(bare):
        yield rng.choice([*(f"{order} {said}." for order in ORDERS), *(f"{asking} {said}?" for asking in QUESTIONS)])


def _ask_indirectly(bare: str) -> str | None:
    """The question as it is asked within another: "Where was Ada born" is "where Ada was born". None where unsure."""
    small = bare[:1].lower() + bare[1:]
    asked = r"((?:(?:in|on|at|for) )?(?:who|where|when|(?:what|which)(?: [a-z]+){0,2}))"
    if re.match(rf"(?:who|what|which)(?: [a-z]+){{0,2}} (?:{FINITE}|(?:is|was|are|were) {PART}) ", small):
        return small
    if match := re.fullmatch(rf"{asked} (is|was|are|were) (.+?) ({PART}(?: (?:in|on|to|at|by|for))?)", small):
        unsure = re.search(r"\b(?:is|was|are|were)\b|(?:,|\b(?:later|also|first))$", match[3])
        return None if unsure else f"{match[1]} {match[3]} {match[2]} {match[4]}"
    match = re.fullmatch(r"(who|what) (is|was) ((?:the|an?|another|[A-Z]).+)", small)
    if match and not STRANDED.search(small):
        return f"{match[1]} {match[3]} {match[2]}"
    if match := re.fullmatch(rf"{asked} did (.+)", small):
        words = match[2].split()
        verbs = [i for i, word in enumerate(words) if i and word in DID and words[i - 1] not in AUXILIARY]
        if len(verbs) == 1:
            return " ".join([match[1], *words[: verbs[0]], DID[words[verbs[0]]], *words[verbs[0] + 1 :]])
    return None


def _replace_match(text: str, match: re.Match[str], new: str) -> str:
    """`text` with the match replaced, and a capital at its beginning."""
    whole = text[: match.start()] + new + text[match.end() :]
    return whole[:1].upper() + whole[1:]
