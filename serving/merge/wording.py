"""What a question says of its answers: which operation it asks for, and by what names it calls the things compared."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from serving.retrieval import ASKING_WORDS

YES_NO = re.compile(
    r"^\s*(?:[\w\s]{,30}[,:?]\s)?(is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b(?! you\b)",
    re.IGNORECASE,
)
_WORDS = {
    "early": "earlier earliest first before older oldest elder eldest sooner soonest",
    "late": "recent recently later latest last after newer newest younger youngest",
    "more": "more most longer longest larger largest bigger biggest greater greatest higher highest taller tallest "
    "heavier heaviest deeper deepest farther farthest further furthest wider widest faster fastest thicker thickest "
    "hotter hottest warmer warmest louder loudest brighter brightest stronger strongest steeper steepest",
    "less": "less least fewer fewest shorter shortest smaller smallest lower lowest lighter lightest shallower "
    "shallowest cheaper cheapest nearer nearest closer closest narrower narrowest slower slowest thinner thinnest "
    "colder coldest cooler coolest quieter quietest dimmer dimmest weaker weakest flatter flattest",
}
_DIRECTIONS = {word: direction for direction, words in _WORDS.items() for word in words.split()}
AGE = frozenset(["older", "oldest", "elder", "eldest", "younger", "youngest"])
VALUE_ASKED = re.compile(r"\s*(when|how|(in |on )?(what|which) (year|date|month|day))\b", re.IGNORECASE)
NEGATED = re.compile(r"\b(?:not|no|neither|nor|except|[a-z]+n['’]t)\b")  # small letters: "Don't Look Now" is a title
ALIKE = re.compile(r"\b(same|both|share[sd]?|common|alike|identical|equal)\b")
OF_SEVERAL = re.compile(r"\bhow many of\b", re.IGNORECASE)  # asks how many members of a fan-out meet a condition
_COMPARED = "|".join(word for word in _DIRECTIONS if word.endswith(("er", "more", "less")) and word != "after")
_NUMBER = (
    r"(?:[$€£¥]?\d|(?:an?|half|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:thir|four|for|fif|six|seven|eigh|nine|twen)(?:teen|ty))\b)"
)
_BOUND = re.compile(rf"\b(?:(?:{_COMPARED}) than {_NUMBER}|at (?:least|most|first|last)\b)")  # a condition on each one
DIFFERENCE = re.compile(
    r"\b(?:apart|differ|difference|lie between"
    rf"|[Hh]ow (?:much|many) (?:(?:square )?(?P<noun>\w+) )?(?P<than>{_COMPARED}))\b"
)
_SUM = re.compile(r"\b(total|altogether|combined|together|in all|sum)\b", re.IGNORECASE)
_AVERAGE = re.compile(r"^(?=\s*(?:what|how)\b).*\b(average|mean)\b", re.IGNORECASE)
_JUDGED = re.compile(r"\b(or|than|same|both|common|share|compare|how many|why|which of|between)\b", re.IGNORECASE)
_NAMED_ALONE = re.compile(
    r"(?:^|[,;:–-]|\b(?:or|and|than|between|among|either|is|was|are|were|did|do|does)|^of|\b(?:which|who|one) of)$",
    re.IGNORECASE,
)


def says_neither(question: str, answers: Sequence[str]) -> bool:
    """Whether a question wants yes or no and its answers say neither. One that names a choice wants the name."""
    if not answers or not YES_NO.match(question) or re.search(r"\bor\b", question):
        return False
    return not any(re.match(r"(yes|no)\b", answer, re.IGNORECASE) for answer in answers)


def can_be_read(question: str, parts: Sequence[Sequence[str]], answers: Sequence[str]) -> bool:
    """Whether a passage may say these answers of a question with several parts, whose questions are given. Where it has
    to be yes or no, or one of the names that the question offers, nothing else is an answer; a number that is to be
    computed stands in no passage.

    >>> offered = [["How long is the Ouse?"], ["How long is the Tay?"]]
    >>> [can_be_read("Which is longer, the Ouse or the Tay?", offered, [each]) for each in ("the Tay", "188 km")]
    [True, False]
    """
    if asks_count(question) or asks_sum(question) or DIFFERENCE.search(question) or says_neither(question, answers):
        return False
    if not re.search(r"\bor\b", question):
        return True
    offered, said = ([f" {name} ".lower() for name in names] for names in (find_labels(question, parts), answers))
    return "  " in offered or all(any(own in name or name in own for name in offered) for own in said)


def needs_judgement(question: str) -> bool:
    """Whether a question asks for something that its parts' answers, one after the other, do not say."""
    asked = YES_NO.match(question) or DIFFERENCE.search(question) or _JUDGED.search(question)
    return bool(asked or find_order(question))


def asks_count(question: str) -> bool:
    return re.search(r"\b(how many|number of)\b", question, re.IGNORECASE) is not None


def asks_sum(question: str) -> str | None:
    """Which one a question asks for, "average" or "sum"."""
    return "average" if _AVERAGE.search(question) else "sum" if _SUM.search(question) else None


def find_order(question: str, labels: Sequence[str] = (), asked: Sequence[str] = ()) -> tuple[str, str] | None:
    """The comparing word outside the names compared, and its direction: "early", "late", "more" or "less".

    A word of the questions `asked` before describes something: "the largest city" is no comparison.
    """
    for label in filter(None, labels):
        question = question.replace(label, " ")
    question = _BOUND.sub(" ", re.sub(r"\b(more|most|less|least) (?=recent)", "", question))
    words = [word for word in re.findall(r"\b[a-z]+\b", question) if word in _DIRECTIONS]
    known = {"first", *re.findall(r"\b[a-z]+\b", " ".join(asked).lower())}
    word = next((word for word in words if word not in known), words[0] if words else None)
    return (word, _DIRECTIONS[word]) if word else None


def find_labels(question: str, parts: Sequence[Sequence[str]]) -> list[str]:
    """What the question calls each part: the longest span of it that stands in the part's questions and in those of no
    other part, or "". The asking word that it begins with is no name. Of a part with one question only the last ones of
    others count: in "Ayr or its twin city" Ayr is named on the way to the other, too.

    >>> find_labels("Which came first, Taxi! or What Now??", [["When did Taxi! come?"], ["When did What Now? come?"]])
    ['Taxi!', 'What Now?']
    """
    words = question.split()
    keys = [_key(word) for word in words]
    if keys and keys[0].lower() in ASKING_WORDS:
        keys[0] = ""
    texts = [[f" {' '.join(map(_key, text.split()))} " for text in part] for part in parts]
    labels = []
    for number, own in enumerate(texts):
        told = slice(None) if len(own) > 1 else slice(-1, None)
        others = [text for other, part in enumerate(texts) if other != number for text in part[told]]
        start, end = _find_longest(keys, own, others)
        text = " ".join(words[start:end]).rstrip(",;:")
        if text and end == len(words):
            text = text.removesuffix("?").removesuffix(".")
        labels.append(_without_possessive(text))
    return labels


def is_described(question: str, label: str) -> bool:
    """Whether the question uses a name to speak of something else: "the director of Taxi!", "Taxi!'s director"."""
    if not label or label[0].islower():
        return True
    before, _, after = question.partition(label)
    return re.match(r"['’]s?\s", after) is not None or _NAMED_ALONE.search(before.strip().removesuffix(" the")) is None


def _find_longest(keys: Sequence[str], own: Sequence[str], others: Sequence[str]) -> tuple[int, int]:
    best = (0, 0)
    for start in range(len(keys)):
        shortest = start + best[1] - best[0] + 1
        ends = range(shortest, len(keys) + 1)  # of spans that stand in a text only where every shorter one does
        matched = bisect_left(ends, True, key=lambda end: not _stands_in(keys[start:end], own))
        end = shortest + matched - 1
        if matched and not _stands_in(keys[start:end], others):
            best = (start, end)
    start, end = best
    known = {word for text in others for word in text.split()}
    while start < end - 1 and keys[start] in known and keys[start].islower():
        start += 1
    while start < end - 1 and keys[end - 1] in known and keys[end - 1].islower():
        end -= 1
    return start, end


def _stands_in(words: Sequence[str], texts: Sequence[str]) -> bool:
    return any(f" {' '.join(words)} " in text for text in texts)


def _key(word: str) -> str:
    """A word without the marks at its end, so that "Taxi!," and "Taxi!'s" and "Taxi!" are one; case is kept."""
    return _without_possessive(word.strip(",;:?!.\"'“”")).strip(",;:?!.\"'“”") or word


def _without_possessive(text: str) -> str:
    return re.sub(r"['’]s$", "", text)
