"""Follow-ups: what a question is called once its subject was named, "When was he born?" after "Who directed UHF?".

Published plans know which step asks about the answer of which, and joined questions what all their parts are about. So
the names that a message leaves out are known, and each message stands beside the question that it means. As many
messages stay as they are: they can be understood alone, though they are about the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

from data_gen.annotate.names import find_mention
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from revelator import plans
from revelator.trace import join_answers

FollowUp = tuple[str, str, tuple[AnnotatedStep, ...], str]  # key, message, what was asked before, what it means

Pronouns = tuple[str, str, str]  # for a name that is a subject, for one that is an object, and for its genitive
THEY: Pronouns = ("they", "them", "their")
PERSON: tuple[Pronouns, ...] = (("he", "him", "his"), ("she", "her", "her"), THEY)
SEVERAL: tuple[Pronouns, ...] = (THEY, THEY, ("these", "these", "their"), ("those", "those", "their"))
THING: tuple[Pronouns, ...] = (("it", "it", "its"),) * 5 + (("this", "this", "its"), ("that", "that", "its"), THEY)
NAMED = (*THING, *PERSON)  # of what a question names, nobody says whether it is a person
PLACE = re.compile(r"(?i) (?:in|at|to)$")  # before a name at the end: "there"
ASKED_KIND = re.compile(r"(?i)^(?:in |to |at |on |from )?(?:which|what) ([a-z]{3,})(?! of\b)\b")  # "which company"
BY_KIND = 0.3  # of the messages after such a question say "the company"
LISTED = 0.1  # of the messages are about two answers
OPENED = 0.35  # of the messages begin with "And" or the like
CARELESS = 0.15  # of the messages are typed in small letters, without a mark
VERB = re.compile(r"(?i)(?:^|\b(?:is|are|was|were|did|do|does|has|have|had|can|could|will|would|when|where|how))$")
KIND = re.compile(r"(?i)\b(?:the|a|an) (?!of\b|in\b|on\b|at\b)([a-z-]+)$")  # "the film", which a name follows
ARTICLE = re.compile(r"(?i)\b(?:the|a|an)$")
OF = re.compile(r"(?i)\bthe ((?:[a-z-]+ ){1,3})of$")  # "the date of death of", which a name follows
OWNED = re.compile(r"^(?:['’]s\b|['’](?=\s))")
LEAST_SHARED = 3  # words that two questions share, so that the second can be said by its name alone


def list_follow_ups(question: AnnotatedQuestion, rng: Random) -> Iterator[FollowUp]:
    """Messages about what the steps before them asked and answered."""
    before, steps = question.history, question.steps
    if question.message:
        yield "message", question.message, before, question.question
        return
    whole = question.question
    if before or len(steps) > 1:
        yield "whole", whole, (*before, *(steps if len(steps) > 1 else ())), whole
    if before:
        for number, step in enumerate(steps):
            asked = _type_carelessly(step.question) if rng.random() < CARELESS else step.question
            yield f"{number}.new topic", asked, before, asked
    references = list(_list_references(question))
    for number, known, name in references:
        asked, answers = steps[number].question, steps[known].answers
        earlier: tuple[AnnotatedStep, ...] = (*before, *steps[rng.randrange(known + 1) : known + 1])
        if name:
            pronouns = rng.choice(NAMED)
            if name in answers:
                pronouns = _choose_pronouns(steps[known].question, rng)
                others = [one for step in steps for one in step.answers if one not in name and name not in one]
                if others and rng.random() < LISTED:
                    other, pronouns = rng.choice(others), rng.choice(SEVERAL)
                    earlier = (*earlier[:-1], replace(steps[known], answers=(name, other)))
                    asked, name = asked.replace(name, f"{name} and {other}"), f"{name} and {other}"
            if said := say_without_name(asked, name, pronouns, rng):
                yield f"{number}.said", said, earlier, asked
        yield f"{number}.alone", asked, earlier, asked
    following = {number for number, *_ in references}
    for first, second in pairwise([step for number, step in enumerate(steps) if number not in following]):
        if part := find_new_part(first.question, second.question):
            said = rng.choice(("And {}?", "What about {}?", "and {}", "and for {}?", "And what about {}?"))
            yield f"{part}.new", said.format(part), (*before, first), second.question


def _list_references(question: AnnotatedQuestion) -> Iterator[tuple[int, int, str]]:
    """(place of a step, place of an earlier one, the name in the first that the earlier one has made known)."""
    steps = question.steps
    if question.route == "compound" and len(question.entities) == 1:  # all parts are about one thing
        for number in range(1, len(steps)):
            said = [find_mention(question.entities[0], steps[place].question) or "" for place in (number - 1, number)]
            yield number, number - 1, said[1] if said[0] else ""
    elif question.route == "complex" and question.expression:
        expression = plans.parse(question.expression)
        sources = plans.bind(expression).sources
        if len(sources) == len(steps):
            for number, wired in enumerate(sources):
                if len(wired) == 1:
                    [known] = wired.values()
                    yield number, known, join_answers(steps[known].answers)


def say_without_name(text: str, name: str, pronouns: Pronouns, rng: Random) -> str:
    """`text` with a pronoun, "that film" or "his spouse" in place of its name; "" for one without, or of that alone."""
    start = text.find(name)
    before, after = text[: max(start, 0)].rstrip(), text[start + len(name) :]
    if start < 0 or not f"{before}{after}".strip("? "):
        return ""
    if kind := KIND.search(before):
        said = f"{rng.choice(('that', 'this', 'the'))} {kind[1]}"
        before = before[: kind.start()].rstrip()
    elif (of := OF.search(before)) and not after.strip("? "):
        before, said = before[: of.start()].rstrip(), f"{pronouns[2]} {of[1].rstrip()}"
    elif pronouns in THING and (place := PLACE.search(before)) and not after.strip("? "):
        before, said = before[: place.start()], "there"
    else:
        before = ARTICLE.sub("", before).rstrip()
        subject, other, owner = pronouns
        is_owned = OWNED.match(after)
        said = owner if is_owned else subject if VERB.search(before) else other
        after = after[is_owned.end() :] if is_owned else after
    text = f"{before} {said}{after}".strip()
    text = text[:1].upper() + text[1:]
    if rng.random() < OPENED:
        text = f"{rng.choice(('And', 'and', 'So', 'Ok,'))} {text[:1].lower()}{text[1:]}"
    return _type_carelessly(text) if rng.random() < CARELESS else text


def _type_carelessly(text: str) -> str:
    return (text[:1].lower() + text[1:]).rstrip("?. ")


def _choose_pronouns(asked: str, rng: Random) -> Pronouns:
    """Pronouns, or "the company", for the answer of a question."""
    if asked.casefold().startswith(("who ", "whom ", "whose ")):
        return rng.choice(PERSON)
    if (kind := ASKED_KIND.match(asked)) and rng.random() < BY_KIND:
        return f"the {kind[1].lower()}", f"the {kind[1].lower()}", f"the {kind[1].lower()}'s"
    return rng.choice(THING)


def find_new_part(first: str, second: str) -> str:
    """What the second question has in place of a part of the first, if all else is the same; else ""."""
    ours, theirs = first.rstrip("? ").split(), second.rstrip("? ").split()
    shared = min(len(ours), len(theirs))
    start = next((at for at in range(shared) if ours[at] != theirs[at]), shared)
    end = next((at for at in range(shared - start) if ours[-1 - at] != theirs[-1 - at]), shared - start)
    part, other = theirs[start : len(theirs) - end], ours[start : len(ours) - end]
    return " ".join(part) if part and other and start + end >= LEAST_SHARED else ""
