"""The revelator as reader: the model that plans and judges reads the passages, too, by its task `read`.

A prompt holds as many passages as it has room for. Of several prompts the answer is taken whose passages most likely
answer; one that stands in none of them is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from revelator.errors import InvalidRequest, TaskOutputError
from revelator.tasks import TASKS, ReadAnswer, ReadInput
from revelator.tasks.task import MOST_PASSAGES, UNANSWERABLE
from revelator.trace import Passage
from serving.models.embedded import NO_LANGUAGE_MODEL, SENTENCES, quote_sentence
from serving.protocols import Completion, GenerateRequest, Reading, Revelator
from serving.retrieval.snippets import choose_sentences

READ = TASKS["read"]
METHOD = "revelator"
LEAST = 150  # characters of passages in a prompt, where more have too many tokens for the model
NO_ANSWER = "the revelator finds no answer in the passages"
NOT_THERE = "what the revelator wrote stands in no passage"


class RevelatorReader:
    """`serving.protocols.Generator` of a revelator that has learned to read. `Reading.probability` is that of the
    passages to answer at all, by the first token. Questions without passages, steps to merge and prompts are a language
    model's work: they have no answer here. Raises what the revelator's `complete` does."""

    def __init__(self, revelator: Revelator) -> None:
        self._revelator = revelator

    async def answer(self, request: GenerateRequest) -> Reading:
        if request.mode != "read":
            return Reading("", (), method=METHOD, reason=NO_LANGUAGE_MODEL)
        groups, written = await self._read(request)
        readings = [
            make_reading(request.question, group, completion) for group, completion in zip(groups, written, strict=True)
        ]
        best = max(readings, key=lambda reading: (bool(reading.answers), reading.probability or 0.0), default=None)
        if best is None:
            return Reading("", (), method=METHOD, probability=0.0, reason=NO_ANSWER)
        tokens = sum(each.tokens_in for each in written), sum(each.tokens_out for each in written)
        return replace(best, tokens_in=tokens[0], tokens_out=tokens[1])

    async def _read(self, request: GenerateRequest) -> tuple[list[list[Passage]], list[Completion]]:
        """The passages by prompts, and what was written of each. Tables and other scripts have more tokens than English
        of as many characters: where a prompt is too long, all are shorter."""
        room = READ.characters
        while True:
            groups = list(group_passages(request.passages, room))
            shown = [ReadInput(request.question, tuple((p.title, p.text) for p in group)) for group in groups]
            try:
                return groups, await self._revelator.complete(READ.name, [READ.render(each) for each in shown])
            except InvalidRequest:
                room //= 2
                if room < LEAST:
                    raise


def group_passages(passages: Sequence[Passage], room: int = READ.characters) -> Iterator[list[Passage]]:
    """The passages by prompts, in their order; a longer one than a prompt's room is cut at white space."""
    group: list[Passage] = []
    left = room
    for passage in (part for whole in passages for part in _cut_passage(whole, room)):
        length = _measure(passage)
        if group and (length > left or len(group) == MOST_PASSAGES):
            yield group
            group, left = [], room
        group.append(passage)
        left -= length
    if group:
        yield group


def _cut_passage(passage: Passage, room: int) -> Iterator[Passage]:
    text, head = passage.text, _measure(replace(passage, text=""))
    most = max(room - head, room // 2)
    while len(text) > most:
        end = max(text.rfind(" ", 0, most), text.rfind("\n", 0, most))
        end = end if end > 0 else most
        yield replace(passage, text=text[:end])
        text = text[end:].lstrip()
    yield replace(passage, text=text)


def _measure(passage: Passage) -> int:
    """The characters of its line in a prompt."""
    return len(passage.title) + len(": ") + len(passage.text)


def make_reading(question: str, passages: Sequence[Passage], completion: Completion) -> Reading:
    """What was written over these passages, with the passage and the sentences that say it."""
    try:
        answer: ReadAnswer = READ.parse(completion.text)
    except TaskOutputError as error:
        return Reading("", (), method=METHOD, probability=0.0, reason=error.message)
    probability = 1.0 - completion.probabilities.get(UNANSWERABLE, float(answer.verdict == UNANSWERABLE))
    if answer.verdict == UNANSWERABLE:
        return Reading("", (), method=METHOD, probability=probability, reason=NO_ANSWER)
    if answer.verdict:
        said = {p.id: text for p, text in zip(passages, choose_sentences(question, passages), strict=True) if text}
        said = said or {passages[0].id: passages[0].text}
        document, sentences = next(iter(said)), [*said.values()]
        answers: tuple[str, ...] = (answer.verdict,)
    else:
        places = [find_answer(passages, text) for text in answer.answers]
        found = [place for place in places if place]
        if len(found) < len(places):
            return Reading("", (), method=METHOD, probability=0.0, reason=NOT_THERE)
        document = found[0][0].id
        sentences = list(dict.fromkeys(quote_sentence(passage.text, start, end) for passage, start, end in found))
        answers = tuple(dict.fromkeys(passage.text[start:end] for passage, start, end in found))
    return Reading(
        "\n".join(sentences[:SENTENCES]),
        answers,
        method=METHOD,
        document=document,
        probability=probability,
        is_verdict=bool(answer.verdict),
    )


def find_answer(passages: Sequence[Passage], answer: str) -> tuple[Passage, int, int] | None:
    """The first passage whose text, or title, says the answer, and where: as words of their own if it does so anywhere;
    in whatever case and white space."""
    spelled = r"\s+".join(map(re.escape, answer.split()))
    for pattern in (rf"(?<!\w){spelled}(?!\w)", spelled):
        for passage in passages:
            for text in (passage.text, passage.title):
                if match := re.search(pattern, text, re.IGNORECASE):
                    return replace(passage, text=text), *match.span()
    return None
