"""Natural words for the steps of a gold decomposition.

A short form such as `UHF >> distributed by` becomes a question a person would ask. Of the ways to ask for a relation
(`wordings.yaml`) the one that shares most words with the whole question is taken: a plan that keeps the question's own
words can be learnt by copying.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from data_gen.annotate.inflection import to_singular
from revelator.config import read_table
from revelator.files import sha256_text

WORDS = read_table("data_gen.annotate", "words.yaml")
STOP_WORDS, DIVISIONS = (frozenset(WORDS[name].split()) for name in ("stop_words", "divisions"))
DOERS: dict[str, str] = WORDS["doers"]


NO_NAMES = STOP_WORDS | {"after", "now", "today", "currently"}
KIND_PATTERNS = (
    (r"\bhow much .*\bweigh\b|\bhow heavy\b", ("weight",)),
    (r"\bhow much .*\bcost\b|\bhow expensive\b", ("price",)),
    (r"\bhow (?:many|much)\b", ("number",)),
    (r"\bhow old\b", ("age",)),
    (r"\bhow long\b", ("duration",)),
    (r"\bhow (?:tall|high)\b", ("height",)),
    (r"\bhow (?:big|large)\b", ("size",)),
    (r"\bhow fast\b", ("speed",)),
    (r"\bhow far\b", ("distance",)),
    (r"\bhow deep\b", ("depth",)),
    (r"\bhow wide\b", ("width",)),
    (r"\bwhen\b", ("date",)),
    (r"\bwhere\b", ("place", "location")),
    (r"\bwho(?:m|se)?\b", ("person", "name")),
)
HEAD_END = re.compile(
    r"\b(?:is|are|was|were|be|do|does|did|has|have|had|can|could|will|would|of|in|on|at|to|for|from|by|with|that|who|which"
    r"|gave|built|made|owns|won|shares|borders|became|began|hosts?|holds?|(?!united)[a-z]{3,}ed)\b"
)


@dataclass(frozen=True)
class WordedStep:
    """A question about `{x}`, and what its answer is called."""

    question: str
    name: str


def ask(
    relation: str, subject: str, answer: str, question: str, place: float, taken: Sequence[str], seed: str
) -> WordedStep:
    """The question for (subject, relation, answer) in the words of the whole `question`.

    `place` is where in the question (in words) this step is likely to be spoken of, `taken` is what the answers of
    earlier steps are called; `seed` decides between equally good wordings. A relation without wordings gets "What is
    the {relation} of …?".
    """
    ways = _load_wordings().get(relation)
    if ways is None:
        head = re.findall(r"[a-z]+", relation.casefold())
        return WordedStep(f"What is the {relation} of {subject}?", head[-1] if head else "answer")
    said = split_words(question)
    kin = {_stem(word) for word in said}
    kinds = DIVISIONS & set(split_words(answer))

    def rank(way: Sequence[str]) -> tuple[float, float, str]:
        score, far = _distance(way[1], said, place)
        exhausted = way[0] in said and list(taken).count(way[0]) >= said.count(way[0])
        unsaid = way[0] != ways[0][0] and _stem(way[0]) not in kin
        wrong = bool(kinds) and way[0] in DIVISIONS - kinds  # "In which state …?" is not answered by "Pima County"
        return score + 0.6 * exhausted + 0.3 * unsaid + 0.9 * wrong, far, sha256_text(f"{seed}|{way[1]}")

    name, template = min(ways, key=rank)
    return WordedStep(template.replace("{x}", subject), name)


def _distance(template: str, said: Sequence[str], place: float) -> tuple[float, float]:
    """Smaller is nearer: the wording's words that the question lacks, less those it has; then how far these stand.

    A word of the same stem counts for less than the word itself, a question word for less again.
    """
    asked, *others = split_words(template.replace("{x}", " "))
    score, far = -0.3 * (asked in said), 0.0
    for word in others:
        if word in STOP_WORDS:
            continue
        places = [i for i, other in enumerate(said) if _stem(other) == _stem(word)]
        score += (-0.5 if word in said else -0.3) if places else 0.5
        far += min((abs(i - place) for i in places), default=0)
    return score, far


def split_words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.casefold())


def _stem(word: str) -> str:
    for ending in ("ing", "ors", "ers", "ies", "ed", "or", "er", "es", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def name_answer(question: str) -> tuple[str, ...]:
    """Names for the answer of a question in free words: its head noun ("which river" → river), then its kind."""
    text = re.sub(r"\{[^{}]*\}|#\d+", " x ", question.casefold())
    found = [name for name in (_find_asked_noun(text), _find_doer(text), _find_role(text)) if name]
    asked = [(match.start(), names) for pattern, names in KIND_PATTERNS if (match := re.search(pattern, text))]
    return tuple(dict.fromkeys([*found, *min(asked, default=(0, ("answer", "result")))[1]]))


def _find_asked_noun(text: str) -> str | None:
    """The noun after "what" or "which": "in which river basin is …" → basin."""
    match = re.search(r"\b(what|which|who|whom|whose|where|when|how)\s+(?!'s\b)([a-z][a-z \-]*)", text)
    if match is None or match[1] not in ("what", "which"):
        return None
    asked = HEAD_END.split(match[2], maxsplit=1)[0]
    words = re.split(r"\b(?:the|an?|some)\b", asked, maxsplit=1)[0].split()[:4]
    known = [word for word in words if word in _load_nouns() or to_singular(word) in _load_nouns()]
    ended = HEAD_END.search(match[2]) is not None and 0 < len(words) < 3
    usable = ended and words[-1] not in STOP_WORDS and not re.search(r"(?:[^s]s|ed|ly|er|x)$", to_singular(words[-1]))
    return to_singular(known[-1]) if known else to_singular(words[-1]) if usable else None


def _find_role(text: str) -> str | None:
    """ "who was the first president of x" → president; "what is x's currency" → currency."""
    match = re.match(
        r"(?:who|what|which) (?:is|are|was|were) "
        r"(?:(?:the|a) (?:name of (?:the )?)?([a-z\- ]+?) (?:of|in|for|at)\b|([a-z]+) of)",
        text,
    )
    until = r"(?: (?:on|in|of|for|at|to|from)\b.*)?\s*\?*$"
    own = re.match(rf"(?:who|what) (?:is|are|was|were) .*?(?:'s|s') ([a-z\- ]+?){until}", text)
    words = (match[1] or match[2]).split() if match else []
    if not words and own:
        words = own[1].split()
    formed = words and words[-1].endswith(("ed", "ing")) and words[-1] not in _load_nouns()
    usable = words and len(words) <= 4 and words[-1] not in NO_NAMES and not formed
    return to_singular(words[-1]) if usable else _find_listed_kind(text)


def _find_listed_kind(text: str) -> str | None:
    """ "what is x's father's name" → father; "name a division of x", "a party that …" → division, party."""
    named = re.match(r"(?:who|what) (?:is|are|was|were) .*?(?:'s|s') ([a-z]+)(?:'s|s') name\b", text)
    listed = re.match(r"(?:name|list|find|identify) (?:an?|the|one) ([a-z\- ]+?) (?:of|in|for|that|who|which)\b", text)
    listed = listed or re.match(r"the ([a-z\- ]+?) (?:of|in|for) .* (?:is|are|was|were) (?:who|what|which)\b", text)
    if named or listed is None:
        return named[1] if named else None
    word = listed[1].split()[-1]
    return to_singular(word)


def _find_doer(text: str) -> str | None:
    """ "who wrote x" → writer."""
    match = re.search(r"\bwho (?:was |is |were )?([a-z]+(?: up)?)\b", text)
    return DOERS.get(match[1]) or DOERS.get(match[1].split()[0]) if match else None


def tidy(text: str) -> str:
    """A question as written, with the blanks around marks mended, a capital at the start and a mark at the end."""
    text = " ".join(text.replace("’", "'").split())
    text = re.sub(r"(?<!\s)\s+([?,.!;:])", r"\1", text)
    text = re.sub(r"(\}|\w) 's\b", r"\1's", text)
    if text and text[-1] not in "?.!":
        text += "?"
    return text[:1].upper() + text[1:]


@cache
def list_relation_questions() -> tuple[str, ...]:
    """Every way to ask for a relation, with `{x}` for its subject."""
    return tuple(template for ways in _load_wordings().values() for _, template in ways)


@cache
def _load_nouns() -> frozenset[str]:
    """Nouns that questions ask for after "what" or "which"."""
    return frozenset(files("data_gen.annotate").joinpath("nouns.txt").read_text(encoding="utf-8").split())


def _load_wordings() -> dict[str, list[list[str]]]:
    return read_table("data_gen.annotate", "wordings.yaml")
