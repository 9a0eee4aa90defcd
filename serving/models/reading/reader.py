"""The embedded reader: answers from passages, from figures in the question, or from steps, with no model at all.

It is extractive and deterministic. A question is read into the kind of answer, the names it is about and the relation
it asks for (`question`); every span of the passages that could be such an answer is scored by how the sentence relates
it to those names (`scoring`); a list question takes the spans that are enumerated with the best one. What cannot be
told is no answer.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from revelator.trace import Passage, join_answers
from serving.models.direct import answer_directly
from serving.models.reading.passage import Sentence, passage_match, read_passage
from serving.models.reading.question import Asked, ask
from serving.models.reading.scoring import Scored, score_sentence
from serving.models.reading.verdict import verdict
from serving.protocols import GenerateRequest, Reading

NO_ANSWER = Reading(sentence="", answers=(), method="unknown")
THRESHOLD = 3.0


class ExtractiveReader:
    """Answers a request of any mode; no answer is `answers == ()`. Holds no state: safe to share between threads."""

    def answer(self, request: GenerateRequest) -> Reading:
        if request.mode == "read":
            return self.read(request.question, request.passages)
        if request.mode == "merge":
            return _merge(request)
        if request.mode == "write":
            return NO_ANSWER
        return answer_directly(request.question) or NO_ANSWER

    def read(self, question: str, passages: Sequence[Passage]) -> Reading:
        """The answer that the passages give, and the sentence it stands in."""
        asked = ask(question)
        matches = [passage_match(asked, p) for p in passages]
        read = [s for i, p in enumerate(passages) for s in read_passage(p, i)]
        weights = _weights(read)
        if asked.kind == "yesno":
            return verdict(asked, read, matches) or NO_ANSWER
        scored = [c for s in read for c in score_sentence(asked, s, matches[s.passage], weights)]
        if not scored:
            return NO_ANSWER
        best = max(scored, key=lambda c: (c.score, -c.sentence.passage, -c.sentence.number, -c.candidate.first))
        if best.score < THRESHOLD or (best.trigger < 0 and not matches[best.sentence.passage]):
            return NO_ANSWER
        chosen = _enumerated(asked, best, scored)
        answers = tuple(dict.fromkeys(_clean(asked, c) for c in chosen))
        return Reading(best.sentence.text, answers, method="extractive")


def _weights(read: list[Sentence]) -> dict[str, float]:
    """Inverse sentence frequency of each stem."""
    counts = Counter(stem for s in read for stem in s.stems)
    return {stem: math.log(1 + len(read) / count) for stem, count in counts.items()}


def _enumerated(asked: Asked, best: Scored, scored: list[Scored]) -> list[Scored]:
    """The best candidate and those that are listed with it: `X, Y (1990) and Z`."""
    here = sorted((c for c in scored if c.sentence == best.sentence), key=lambda c: c.candidate.first)
    if not asked.several or best.candidate.sort == "title":
        return [best]
    place = here.index(best)
    chosen = [best]
    for step in (-1, 1):
        i, current = place + step, best
        while 0 <= i < len(here):
            if here[i].candidate.sort == best.candidate.sort:
                if not _coordinated(current, here[i]):
                    break
                chosen.append(here[i])
                current = here[i]
            i += step
    return sorted(chosen, key=lambda c: c.candidate.first)


_LINK = re.compile(  # what stands between two items: `, `, ` and `, `" (1966), the `
    r"""['"”’]?\s*+(?:\([^()]*+\)\s*+)?+(?:in \d{4}\s*+)?+"""
    r"""(?:,|;|and|&|or|, ?and|, or|,?\s*+as well as)\s*+(?:the |a |an |with |in )?['"“]?"""
)


def _coordinated(a: Scored, b: Scored) -> bool:
    first, second = sorted((a.candidate, b.candidate), key=lambda c: c.first)
    tokens = a.sentence.tokens
    return bool(
        _LINK.fullmatch(a.sentence.text[tokens[first.last - 1].end : tokens[second.first].start].rstrip(" ") + " ")
    )


def _clean(asked: Asked, scored: Scored) -> str:
    text = scored.candidate.text.strip(' ,;."“”') if scored.candidate.sort != "name" else scored.candidate.text
    if asked.kind == "year":
        year = re.search(r"\d{4}|\d{1,4}(?= ?(?:BC|AD))", text)
        return year[0] if year else text
    if asked.kind == "person":
        return re.sub(r"^(?:President|Mr|Mrs|Ms|Dr)\.? (?=[^\W\d_])", "", text)
    return text


def _merge(request: GenerateRequest) -> Reading:
    """The last step's answer when each step builds on the one before it, else all answers in order."""
    steps = [step for step in request.steps if step.answers]
    if not steps:
        return NO_ANSWER
    chained = any(_mentions(steps[-1].question, step.answers) for step in steps[:-1])
    used = steps[-1:] if chained or len(steps) == 1 else steps
    answers = tuple(dict.fromkeys(answer for step in used for answer in step.answers))
    return Reading(join_answers(answers), answers, method="last step" if len(used) == 1 else "joined steps")


def _mentions(question: str, answers: Sequence[str]) -> bool:
    return any(answer.lower() in question.lower() for answer in answers)
