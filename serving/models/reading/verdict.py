"""Yes or no from passages: yes when a sentence says it, no when a sentence says otherwise, else nothing."""

from __future__ import annotations

from serving.models.reading.lexicon import stem, word_set
from serving.models.reading.passage import Sentence
from serving.models.reading.question import Asked
from serving.models.reading.text import content, tokenise
from serving.protocols import Reading

_NEGATIONS = word_set("negations")


def verdict(asked: Asked, read: list[Sentence], matches: list[float]) -> Reading | None:
    """Decides by the last name or figure of the question: is it where the relation puts it?"""
    if not asked.names:
        return None
    objects = [content(tokenise(n)) for n in asked.names[1:]] or [set(asked.words)]
    relation = {w for w in asked.words if w not in {stem(n) for n in ("same",)}}
    families = frozenset().union(*(f.words for f, _ in asked.families)) if asked.families else frozenset()
    best: tuple[float, Sentence] | None = None
    for sentence in read:
        if not sentence.subject and not content(tokenise(asked.names[0])) <= sentence.stems:
            continue
        if matches[sentence.passage] < 0.4 and not content(tokenise(asked.names[0])) <= sentence.stems:
            continue
        told = bool(sentence.stems & families) or not asked.families
        share = len(relation & sentence.stems) / len(relation) if relation else 1.0
        score = told + share
        if told and (best is None or score > best[0]):
            best = (score, sentence)
        if told and all(o <= sentence.stems for o in objects):
            answer = "no" if _NEGATIONS & {t.lower for t in sentence.tokens} else "yes"
            return Reading(sentence.text, (answer,), method="extractive")
    if best is not None and asked.families and len(asked.names) > 1:
        return Reading(best[1].text, ("no",), method="extractive")
    return None
