"""Examples of the task `read`: a question over one to three passages, and what they answer.

Among the passages that answer a question stand others that do not say its answer. Some questions are asked over such
passages alone, or, where several passages are needed, without those that tell; the answer is then `unanswerable`. An
answer is spelled as it stands in the prompt, and a question whose answer does not stand there gives no example.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random

from data_gen.questions import AnnotatedPassage, AnnotatedQuestion
from revelator.reading import Answer
from revelator.tasks import TASKS, ReadAnswer, ReadInput
from revelator.tasks.task import MOST_PASSAGES, UNANSWERABLE

READ = TASKS["read"]
LONGEST = 240  # characters of an answer: some 60 tokens beside the passages
NUMBERS = (1, 2, 2, 3)  # of passages in a prompt, each as likely
SILENT = {"single": 0.2, "complex": 0.5}  # of the questions with an answer are asked without it, too


def list_readings(question: AnnotatedQuestion, random: Random) -> Iterator[tuple[str, ReadInput, ReadAnswer]]:
    """Key, input and gold: with the passages that answer, where they do, and, of some questions, without them.

    Of a complex question the whole is asked, and of a single one all answers of its step."""
    there = [passage for passage in question.passages if passage.text and not passage.asked]
    if not there or question.route not in ("single", "complex"):
        return
    said = question.steps[0].answers if question.route == "single" and question.steps else question.answers[:1]
    relevant = [passage for passage in there if passage.relevant]
    silent = [passage for passage in there if not passage.relevant and not _says(passage, question)]
    number = random.choice(NUMBERS)
    if not said:
        first, *others = there
        yield "none", *_make_unanswerable(question, [first, *others[: number - 1]], random)
        return
    random.shuffle(silent)
    if 0 < len(relevant) <= MOST_PASSAGES:
        yield from _make_answerable(question, said, relevant, silent[: max(0, number - len(relevant))], random)
    rest = _leave_out_telling(question, relevant, random)
    if rest is not None and (alone := [*rest, *silent][:number]) and random.random() < SILENT[question.route]:
        yield "none", *_make_unanswerable(question, alone, random)


def _make_answerable(
    question: AnnotatedQuestion,
    said: Sequence[str],
    relevant: Sequence[AnnotatedPassage],
    others: Sequence[AnnotatedPassage],
    random: Random,
) -> Iterator[tuple[str, ReadInput, ReadAnswer]]:
    """The passages with as many others as leave room for the answer; none if it has no room alone."""
    for count in range(len(others), -1, -1):
        shown = _show(question, [*relevant, *others[:count]], random)
        answer = _spell_answer(shown, said)
        if answer and len(READ.write(answer)) <= LONGEST:
            yield "answer", shown, answer
            return


def _make_unanswerable(
    question: AnnotatedQuestion, passages: Sequence[AnnotatedPassage], random: Random
) -> tuple[ReadInput, ReadAnswer]:
    return _show(question, passages, random), ReadAnswer(verdict=UNANSWERABLE)


def _leave_out_telling(
    question: AnnotatedQuestion, relevant: Sequence[AnnotatedPassage], random: Random
) -> list[AnnotatedPassage] | None:
    """The relevant passages without those that say the answer; of a yes or no, without one. None where other passages
    may answer the question, too."""
    if _is_verdict(question.answers):
        return random.sample(list(relevant), len(relevant) - 1) if len(relevant) > 1 else None
    return [passage for passage in relevant if not _says(passage, question)]


def _show(question: AnnotatedQuestion, passages: Sequence[AnnotatedPassage], random: Random) -> ReadInput:
    drawn = random.sample(list(passages), len(passages))
    return ReadInput(question.question, tuple((passage.title, passage.text) for passage in drawn))


def _spell_answer(shown: ReadInput, said: Sequence[str]) -> ReadAnswer | None:
    """The answer as it stands in the prompt; None where a part of it does not."""
    if _is_verdict(said):
        return ReadAnswer(verdict=said[0].casefold())
    values = READ.read_values(READ.render(shown))
    text = "\n".join(value for name, value in values.items() if name != "question")
    found = [find_answers(text, [" ".join(answer.split())]) for answer in said]
    return ReadAnswer(tuple(dict.fromkeys(places[0].text for places in found))) if all(found) else None


def _is_verdict(answers: Sequence[str]) -> bool:
    return len(answers) == 1 and answers[0].casefold() in ("yes", "no")


def _says(passage: AnnotatedPassage, question: AnnotatedQuestion) -> bool:
    """Whether a passage says any spelling of the answer, in its title or its text."""
    texts = dict.fromkeys([*question.answers, *(answer for step in question.steps[-1:] for answer in step.answers)])
    own = " ".join(f"{passage.title}\n{passage.text}".split())
    return bool(find_answers(own, [" ".join(text.split()) for text in texts if text.strip()]))


def find_answers(passage: str, answers: Iterable[str]) -> tuple[Answer, ...]:
    """Where the answers stand in a passage as whole words, letters' case aside; at most four places."""
    found = set()
    for text in answers:
        for match in re.finditer(rf"(?<!\w){re.escape(text)}(?!\w)", passage, re.IGNORECASE):
            found.add(Answer(match[0], match.start()))
    return tuple(sorted(found, key=lambda answer: (answer.start, -len(answer.text))))[:4]
