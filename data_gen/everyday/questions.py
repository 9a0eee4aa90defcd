"""Questions as people ask them at work: comparisons, one question about several things, what hangs on an answer.

Published questions with several hops are about films, people and places. "Which tug pulls more, Orlik or Mewa?" and
"Who leads the investigation, and where did she work before?" are not among them. `words.yaml` has wordings and
words; a question is one wording with words and names drawn anew, and its plan follows from the wording. Nobody knows
the answer: like composed questions, these teach where a question divides, and that its words are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from data_gen.everyday.words import Namer, capitalise, choose_forms, list_words, read_words
from data_gen.questions import AnnotatedQuestion
from data_gen.records import hash_fraction
from revelator.plans import Atomic, Dependent, Expression, render
from revelator.plans import Sequence as ListOf

QUESTION_KINDS = {"compare": 0.36, "both": 0.14, "sides": 0.06, "single": 0.12, "followed": 0.14, "nested": 0.18}
ROUTES = {"both": "compound", "sides": "compound", "single": "single"}  # the others are complex
LISTED = ("compare", "both", "sides", "single")  # what has a list of wordings
DEEPER = 0.25  # of the nested questions have a name that is itself a phrase for an answer
LESSER = 0.5  # of the comparisons ask for the lesser of two
DEV = 0.04  # of the words that are asked about; their questions are of split dev


class Asker:
    """Draws questions about things with the given names."""

    def __init__(self, names: Sequence[str], random: Random) -> None:
        self._random = random
        self._namer = Namer(names, random)
        entries = [entry for kind in LISTED for entry in read_words()[kind]]
        self._words = {words: list(list_words(words)) for words in {entry["words"]: None for entry in entries}}

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A question with its plan; None where two of its words came out alike."""
        [kind] = self._random.choices(list(QUESTION_KINDS), list(QUESTION_KINDS.values()))
        match kind:
            case "followed":
                question, expression, word, ending = *self._draw_followed(), ""
            case "nested":
                question, expression, word, ending = *self._draw_nested(), ""
            case _:
                question, expression, word, ending = self._draw_listed(kind)
        items = expression.items if isinstance(expression, ListOf) else ()
        parts = tuple(item.text for item in items if isinstance(item, Atomic))
        if len(set(parts)) < len(parts):
            return None
        route = ROUTES.get(kind, "complex")
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="dev" if hash_fraction(f"everyday:{word}") < DEV else "train",
            question=question,
            route=route,
            expression=render(expression),
            parts=parts if route == "compound" else (),
            ending=ending,
            teacher="everyday",
        )

    def _draw_listed(self, kind: str) -> tuple[str, Expression, str, str]:
        """A wording that asks the same of several things, or two sides of one, and what is done with the answers."""
        entry = self._random.choice(read_words()[kind])
        words = choose_forms(self._random.choice(self._words[entry["words"]]), self._random)
        way, _, ending = self._random.choice(entry.get("ways", [entry["ask"]])).partition(" => ")
        end = "argmax"
        if "less" in words and self._random.random() < LESSER:
            words["more"], end = words["less"], "argmin"
        ending = ending.format(end=end, top=words.get("top", "argmax"))
        said, full = self._namer.draw_names("{k}" in way)
        word = words.get("v") or words.get("n") or words.get("adj") or words["did"]
        if kind == "sides":
            other = self._random.choice(self._words[entry["words"]])
            words["m"] = choose_forms(other, self._random).get("n") or other["did"]
            words.setdefault("n", words.get("did", ""))
            asked = [entry["ask"].format(x=full[0], **{**words, "n": side}) for side in (words["n"], words["m"])]
        elif kind == "single":
            asked = [way.format(**said, **words)]
        else:
            asked = [entry["ask"].format(x=name, **words) for name in full[: 3 if "{c}" in way else 2]]
        question = capitalise(way.format(**said, **words))
        leaves = tuple(Atomic(capitalise(text)) for text in asked)
        return question, leaves[0] if len(leaves) == 1 else ListOf(leaves), word, ending

    def _draw_followed(self) -> tuple[str, Expression, str]:
        """Two questions in one, of which the second says "he" or "it" for the first's answer. Both are answered."""
        first, noun, thing, _ = self._draw_link()
        asked, spoken = self._random.choice(read_words()["asked"][thing])
        pronouns = self._random.choice(read_words()["pronouns"][thing])
        said = spoken.format(**{key: value.format(noun=noun) for key, value in pronouns.items()})
        joint = self._random.choice(read_words()["joints"])
        second = capitalise(said) if joint == "? " else said
        plan = ListOf((Atomic(first), Dependent(Atomic(first), Atomic(asked.format(x="{2}")))))
        return f"{first.removesuffix('?')}{joint}{second}?", plan, noun

    def _draw_nested(self) -> tuple[str, Expression, str]:
        """A question about what a phrase stands for; in some, a phrase within a phrase."""
        first, noun, thing, phrase = self._draw_link()
        steps = [first]
        if self._random.random() < DEEPER:
            link, outer, thing, outer_phrase = self._draw_link(blank=True)
            steps.append(link.format(a="{1}"))
            noun, phrase = outer, outer_phrase.format(a=phrase)
        asked, _ = self._random.choice(read_words()["asked"][thing])
        plan: Expression = Atomic(steps[0])
        for step in (*steps[1:], asked.format(x=f"{{{len(steps)}}}")):
            plan = Dependent(plan, Atomic(step))
        return capitalise(asked.format(x=phrase)), plan, noun

    def _draw_link(self, blank: bool = False) -> tuple[str, str, str, str]:
        """(question, what its answer is called, kind of thing, phrase for the answer); `blank` leaves {a} in them."""
        first, noun, thing, *phrases = self._random.choice(read_words()["links"])
        if blank:  # what follows a clause may seem part of it: "the pump that failed's maker"
            phrases = [phrase for phrase in phrases if "'s" not in phrase]
        phrase = self._random.choice(phrases)
        if blank:
            return first, noun, thing, phrase
        name = self._namer.draw_names()[1][0]
        return capitalise(first.format(a=name)), noun, thing, phrase.format(a=name)
