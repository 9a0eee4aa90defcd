"""Single questions taken apart: the noun phrase that stands for a question's answer, and the spans that another such
phrase may take the place of.

"who sings the theme of Frasier" is answered by "the person who sings the theme of Frasier", and "the theme of Frasier"
in it may be any other thing. MuSiQue was composed of single questions in this way, by hand (Trivedi et al. 2022,
section 3). The rules are English and read the plainest forms of questions only; what they do not know they leave.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from data_gen.annotate.inflection import make_third_person, to_singular
from data_gen.annotate.wording import STOP_WORDS, WORDS

LONGEST = 16  # words of a question
UNREADABLE = re.compile(r"[{}()+*#\"“”‘`;:\[\]<>]|(?<!\w)'|, |\band (?:how|why|when|what)\b")
ASKS = re.compile(r"\b(?:who|what|which|where|when|how)\b")
NO_NOUN = re.compile(r"(?:[^s]s|ed|ly|er|x)$")  # ends of words that are none, unless they are known
NOUNS = frozenset(WORDS["nouns"].split())  # that questions ask for after "what" or "which"
DOERS: dict[str, str] = WORDS["doers"]
DID: dict[str, str] = WORDS["past"]
DOES = {base: make_third_person(base) for base in (*DID, "have", "flow", "belong")}
FINITE = WORDS["finite"].replace(" ", "|")
PART = f"(?:{WORDS['participles'].replace(' ', '|')})"
LOOSE = re.compile(r"\b(?:in|on|at|of|to|from|by|for|with|about|like|called|named|known|used|made|mean|do|have|be)$")
PREPOSITION = r"(?:of|in|by|from|for|with|to|at|on|against|near|through|into|over|between|before|after)"
NAME = r"(?:(?:the|a|an) )?[\w'.&-]+(?: [\w'.&-]+){0,5}?"
UNFIT = re.compile(
    r"^(?:a|an|all|charge|her|his|it|its|order|our|that|their|them|there|this|time|us|what|which|who|you|your)\b"
    r"|^\w+ly$|\d"
    r"|\b(?:and|or|who|which|that|what|where|when|is|was|are|were|did|does|do|has|have|had|world|time|history|first|last"
    r"|end|most)\b"
    rf"|^{PREPOSITION}\b"
    rf"| (?:{'|'.join(DID)}|called|known|mean|named|out|off|up|down|away)$"  # a verb that the name took with it
)


@dataclass(frozen=True)
class Clause:
    """A single question and what it may become part of.

    `question` begins in lower case and is without a mark at its end; `phrases` stand for its answer; `spans` are the
    texts in it, and in every phrase, that a phrase may replace.
    """

    question: str
    phrases: tuple[str, ...]
    spans: tuple[str, ...]


def read_clause(asked: str) -> Clause | None:
    """What the rules make of a question; None where they know no way to speak of it or to put something into it."""
    text = re.sub(r" (?='s\b)", "", " ".join(asked.split())).rstrip("?. ")
    text = text[:1].lower() + text[1:]
    if UNREADABLE.search(text) or not ASKS.search(text) or not 3 <= len(text.split()) <= LONGEST:
        return None
    phrases = tuple(dict.fromkeys(_find_phrases(text)))
    spans: list[str] = []
    for span in dict.fromkeys(_find_spans(text)):
        start = text.find(span)
        apart = all(start + len(span) <= text.find(other) or text.find(other) + len(other) <= start for other in spans)
        if apart and all(said.count(span) == 1 for said in (text, *phrases)):
            spans.append(span)
    return Clause(text, phrases, tuple(spans)) if phrases or spans else None


def _find_phrases(text: str) -> Iterator[str]:
    """Noun phrases for the answer."""
    if match := re.fullmatch(r"(?:who|what|which) (?:is|was) (the .+)", text):
        if not LOOSE.search(text):
            yield match[1]
    elif match := re.fullmatch(rf"who ((?:{FINITE}) .+)", text):
        yield f"the person who {match[1]}"
        if doer := DOERS.get(match[1].split()[0]):
            yield f"the {doer} who {match[1]}"
            if not re.search(rf" {PREPOSITION} ", match[1]):
                yield f"the {doer} of {match[1].split(maxsplit=1)[1]}"
    elif match := re.fullmatch(rf"who ((?:is|was) {PART} .+)", text):
        yield f"the person who {match[1]}"
    elif match := re.fullmatch(rf"(?:what|which) ((?:[a-z]+ ){{0,2}}[a-z]+) ((?:{FINITE}|(?:is|was) {PART}) .+)", text):
        if _is_noun(match[1]) and not LOOSE.search(text):
            yield f"the {match[1]} that {match[2]}"
            reduced = match[2].removeprefix("is ").removeprefix("was ")
            yield f"the {match[1]} {reduced if reduced != match[2] else f'which {match[2]}'}"
    else:
        yield from _find_inverted(text)


def _find_inverted(text: str) -> Iterator[str]:
    """Phrases of questions whose verb stands before the subject."""
    match = re.fullmatch(rf"where (is|was|are|were) (.+?) ({PART}(?: .+)?)", text)
    if match and not LOOSE.search(match[3].removesuffix(" made")):
        if match[3] == "born":
            yield f"the birthplace of {match[2]}"
        for noun in ("place", "city", "country", "state", "region"):
            yield f"the {noun} where {match[2]} {match[1]} {match[3]}"
        return
    match = re.fullmatch(rf"(in |on )?(?:what|which) ([a-z]+) (is|was) (.+?) ({PART})( in| on| to)?", text)
    if match and (match[1] or match[6]) and _is_noun(match[2]):
        held = f"{match[4]} {match[3]} {match[5]}"
        yield f"the {match[2]} where {held}"
        place = (match[1] or match[6]).strip()
        yield f"the {match[2]} {place} which {held}" if match[1] else f"the {match[2]} that {held} {place}"
        return
    if match := re.fullmatch(rf"when (is|was|were) (.+?) ({PART}(?: .+)?)", text):
        yield f"the year when {match[2]} {match[1]} {match[3]}"
        return
    if match := re.fullmatch(r"((?:in |on |for |at )?)(who|where|(?:what|which) [a-z]+) (did|does) (.+)", text):
        words, verb = _split_at_verb(match[4], match[3])
        noun = match[2].split()[-1]
        if not verb or (" " in match[2] and not _is_noun(noun)):
            return
        form = (DID if match[3] == "did" else DOES)[words[verb]]
        said = " ".join([*words[:verb], form, *words[verb + 1 :]])
        kinds = {"who": ("person", "who"), "where": ("place", "where")}
        one, link = kinds.get(noun, (noun, f"{match[1]}which" if match[1] else "that"))
        yield f"the {one} {link} {said}"


def _is_noun(phrase: str) -> bool:
    """Whether the words after "what" or "which" end in a noun, with nothing but more of its kind before it."""
    *before, word = phrase.split()
    one = to_singular(word)
    return STOP_WORDS.isdisjoint(before) and (one in NOUNS or not (word in STOP_WORDS or NO_NOUN.search(one)))


def _find_spans(text: str) -> Iterator[str]:
    """Texts that name what the question is about: its subject, its object, what stands after its last preposition."""
    objects = rf"(?:who|(?:what|which) [a-z]+) (?:{FINITE}) ({NAME})(?: (?!of ){PREPOSITION} .+)?"
    subjects = rf"(?:(?:in|on) )?(?:where|when|(?:what|which) [a-z]+) (?:is|was|are|were) ({NAME}) {PART}(?: .+)?"
    for pattern in (objects, subjects, rf".* {PREPOSITION} ({NAME})"):
        if (match := re.fullmatch(pattern, text)) and not UNFIT.search(match[1].casefold()):
            yield match[1]
    if match := re.fullmatch(r".*?(?:who|where|when|(?:what|which) [a-z]+) (did|does) (.+)", text):
        words, verb = _split_at_verb(match[2], match[1])
        subject = " ".join(words[:verb])
        if 0 < verb <= 6 and not UNFIT.search(subject.casefold()):
            yield subject


def _split_at_verb(said: str, auxiliary: str) -> tuple[list[str], int]:
    """The words after `did` or `does`, and the place of the verb among them; 0 where none is known."""
    words, known = said.split(), DID if auxiliary == "did" else DOES
    return words, next((i for i, word in enumerate(words) if i and word in known), 0)
