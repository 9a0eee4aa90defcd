"""`rows: composed` of `revelator data build`: questions with several hops, composed of published single ones.

The noun phrase for one question's answer takes the place of a span of the next question. So the plan of the whole is
known, and it keeps the words of the single questions. Published plans with several hops are few; single questions are
many. What a composed question asks is mostly nonsense, and nobody knows its answer: it teaches where a question divides
and that its words are copied, which other names alone (`data_gen.augment.substitution`) do not. A question has one of
the six graphs of MuSiQue (Trivedi et al. 2022, table 1).

Joined questions are compound ones about one thing: "Who wrote Ost, and when did Ost appear?" What two questions are
about is the title of the page that answers them, or a name that both mention (`data_gen.augment.clauses`). Each part
stays as it was asked, so its answer is known to be found alone.

OUT/questions.jsonl   annotated questions, a source of format `world`
OUT/manifest.json     the configuration, what was read and drawn, and the digest of the questions; written last
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field

from data_gen.annotate.names import find_mention
from data_gen.annotate.plan import GoldStep, write_gold_plan
from data_gen.annotate.wording import list_relation_questions, tidy
from data_gen.augment.clauses import UNREADABLE, Clause, read_clause
from data_gen.augment.substitution import load_names
from data_gen.config import QuestionSource
from data_gen.leakage import QuestionFilter
from data_gen.questions import QUESTIONS, AnnotatedQuestion, AnnotatedStep, DroppedError, write_questions
from data_gen.records import hash_fraction
from data_gen.sources.formats import read_questions
from revelator import plans
from revelator.config import FilePath, Share, Strict
from revelator.errors import DataError
from revelator.files import stage_folder
from revelator.folders import FolderKind

COMPOSED = FolderKind("a folder of composed questions", "revelator-composed-1", "revelator data build CONFIG.yaml")
PATIENCE = 100  # draws for each question wanted


class ComposeConfig(Strict):
    """What to compose. Of the sources the questions of route single are taken; `names` is as in a set's `augment`."""

    rows: Literal["composed"]
    name: str
    seed: int = 13
    size: Annotated[int, Field(ge=1)] = 20_000  # questions to write
    sources: tuple[QuestionSource, ...] = Field(min_length=1)
    joined: Share = 0.0  # the share of compound ones
    names: FilePath
    held_out: FilePath | None = None
    keep_back: Share = 0.0  # as in a set


def compose(config: ComposeConfig, out: Path, progress: Callable[[int], None] = lambda count: None) -> dict[str, Any]:
    """Writes `size` questions to the folder `out` and returns its manifest; `progress` is called with 1 after each.

    The same configuration and files give the same bytes. Raises DataError where the sources have too few questions,
    ConfigError for a folder that holds something else.
    """
    COMPOSED.check_place(out)
    dropped = Counter[str]()
    singles = list(_read_singles(config, dropped))
    licence = ", ".join(dict.fromkeys(single.licence for single in singles))
    clauses = list(_read_clauses(singles, dropped))
    random = Random(config.seed)
    names = load_names(Path(config.names))
    shares = {"joined": config.joined, "composed": 1 - config.joined}
    make: dict[str, Callable[[], Composer | Joiner]] = {
        "joined": lambda: Joiner(singles, Random(config.seed)),
        "composed": lambda: Composer(clauses, names, Random(config.seed)),
    }
    try:
        drawn_by = {kind: make[kind]() for kind, share in shares.items() if share > 0}
    except DataError as error:
        raise DataError(
            error.message, hint=f"{error.hint}; left out of these: {list_counts(dropped) or 'none'}"
        ) from None
    graphs: Counter[str] = Counter()
    question_filter = QuestionFilter(config.held_out, config.keep_back)
    with stage_folder(out) as folder:
        with write_questions(folder / QUESTIONS) as write:
            for draw in range(config.size * PATIENCE):
                if graphs.total() == config.size:
                    break
                [kind] = random.choices(list(drawn_by), [shares[kind] for kind in drawn_by])
                identity = f"{config.name}:{config.seed}-{draw}"
                question = drawn_by[kind].draw(identity, config.name, licence)
                if question is None or not question_filter.admits(question, Counter()):
                    continue
                write(question)
                graphs[plans.to_letters(plans.parse(question.expression))] += 1
                progress(1)
        about = {
            "config": config.model_dump(mode="json"),
            "clauses": len(clauses),
            "dropped": dict(sorted(dropped.items())),
            "graphs": dict(graphs.most_common()),
            "questions": graphs.total(),
        }
        return COMPOSED.write_manifest(folder, about)


def list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _read_singles(config: ComposeConfig, dropped: Counter[str]) -> Iterator[AnnotatedQuestion]:
    """The questions of route single of all sources, each once, without those that are held out."""
    for question in read_questions(config.sources, config.held_out, dropped, config.keep_back):
        if question.route == "single":
            yield question
        else:
            dropped["no single question"] += 1


def _read_clauses(singles: Sequence[AnnotatedQuestion], dropped: Counter[str]) -> Iterator[Clause]:
    """Those that the rules can take apart."""
    for single in singles:
        if found := read_clause(single.question):
            yield found
        else:
            dropped["no rule reads it"] += 1


# Composing

# How many single questions stand in each chain, and whether another question follows the one that joins two chains.
GRAPHS: dict[tuple[tuple[int, ...], bool], float] = {
    ((2,), False): 0.40,  # A * B
    ((3,), False): 0.22,  # A * B * C
    ((4,), False): 0.08,
    ((1, 1), False): 0.14,  # (A + B) * C
    ((2, 1), False): 0.09,  # (A * B + C) * D
    ((1, 1), True): 0.07,  # (A + B) * C * D
}
RELATIONS = 0.3  # of the questions of a chain ask for a relation, in the words that plans have for it
RENAMED = 0.5  # of the spans that stay get another name
AT_THE_END = 0.75  # of the phrases take the place of the last span
LONGEST = 44  # words of a question


@dataclass(frozen=True)
class _Part:
    """A noun phrase, the steps that lead to what it stands for, and the questions that these were made from."""

    phrase: str
    steps: tuple[GoldStep, ...]
    made_from: tuple[str, ...]


class Composer:
    """Draws questions from clauses and from relations; `names` are put where spans stay."""

    def __init__(self, clauses: Sequence[Clause], names: Sequence[str], random: Random) -> None:
        self._random = random
        self._names = [name for name in names if name.isprintable()]
        self._speakable = [name for name in self._names if not UNREADABLE.search(name)]
        self._relations = [ask for ask in list_relation_questions() if _ask_relation("Ost", ask)]
        self._published = {c.question for c in clauses}
        self._first = [c for c in clauses if c.phrases]
        self._middle = [c for c in self._first if c.spans]
        self._last = [c for c in clauses if c.spans]
        self._joins = [c for c in clauses if len(c.spans) > 1]
        self._joins_said = [c for c in self._joins if c.phrases]
        for kind, found in (("answers of which one can speak", self._middle), ("two names", self._joins_said)):
            if not found:
                raise DataError(f"no question with {kind}", hint="give more single questions")

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A question with its plan; None where it came out too long, or its plan does not bind."""
        (chains, followed), *_ = self._random.choices(list(GRAPHS), list(GRAPHS.values()))
        parts = [self._draw_chain(length - (len(chains) == 1)) for length in chains]
        if followed:
            parts = [self._speak_of(self._random.choice(self._joins_said), parts)]
        link = self._draw_clause(self._last) if len(parts) == 1 else self._random.choice(self._joins)
        asked, steps = self._fill(link, parts, link.question)
        question = tidy(f"{asked}?")
        if len(question.split()) > LONGEST:
            return None
        try:
            planned = write_gold_plan(question, [replace(step, text=f"{step.text}?") for step in steps], identity)
        except DroppedError:
            return None
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="train",
            question=question,
            route="complex",
            expression=planned.expression,
            teacher="composed",
            made_from=self._list_published(link, parts),
        )

    def _draw_clause(self, pool: Sequence[Clause]) -> Clause:
        """One of the pool, or the question for a relation of a name, which can be spoken of and put into."""
        if self._random.random() < RELATIONS:
            found = _ask_relation(self._random.choice(self._speakable), self._random.choice(self._relations))
            if found:
                return found
        return self._random.choice(pool)

    def _draw_chain(self, length: int) -> _Part:
        part = self._speak_of(self._draw_clause(self._first), [])
        for _ in range(length - 1):
            part = self._speak_of(self._draw_clause(self._middle), [part])
        return part

    def _speak_of(self, link: Clause, parts: Sequence[_Part]) -> _Part:
        """The phrase for a clause's answer, with the phrases of `parts` in it."""
        phrase = self._random.choice(link.phrases)
        said, steps = self._fill(link, parts, phrase)
        return _Part(said, steps, self._list_published(link, parts))

    def _list_published(self, link: Clause, parts: Sequence[_Part]) -> tuple[str, ...]:
        """The published questions, as clauses have them, behind a clause and the parts that are put into it."""
        own = (link.question,) if link.question in self._published else ()
        return (*(text for part in parts for text in part.made_from), *own)

    def _fill(self, link: Clause, parts: Sequence[_Part], said: str) -> tuple[str, tuple[GoldStep, ...]]:
        """`said`, which has the clause's spans, with a part's phrase in the place of one span each; and the steps."""
        chosen = self._choose_spans(link, len(parts), said)
        steps, phrases, references = list[GoldStep](), {}, {}
        for span in link.spans:
            kept = span if self._random.random() >= RENAMED else self._random.choice(self._names)
            phrases[span] = references[span] = kept
        for span, part in zip(chosen, parts, strict=True):
            steps += [_shift_references(step, len(steps)) for step in part.steps]
            phrases[span], references[span] = part.phrase, f"#{len(steps)}"
        return _replace_spans(said, phrases), (*steps, GoldStep(_replace_spans(link.question, references)))

    def _choose_spans(self, link: Clause, count: int, said: str) -> list[str]:
        """The spans that give way, as they stand; mostly the last, for what follows a phrase may seem part of it."""
        spans = sorted(link.spans, key=said.index)
        if count == 1 and self._random.random() < AT_THE_END:
            return spans[-1:]
        return sorted(self._random.sample(spans, count), key=said.index)


def _ask_relation(name: str, ask: str) -> Clause | None:
    found = read_clause(ask.replace("{x}", name))
    return found if found and found.phrases and found.spans == (name,) else None


def _replace_spans(text: str, values: Mapping[str, str]) -> str:
    """The text with every span replaced, all at once."""
    return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], text) if values else text


def _shift_references(step: GoldStep, by: int) -> GoldStep:
    return GoldStep(re.sub(r"#(\d+)", lambda match: f"#{int(match[1]) + by}", step.text))


# Joining

SIZES = {2: 0.8, 3: 0.2}  # parts of a question, and how often
LINKS = (" and ", ", and ", "? And ", "? ")  # before the last part
DEV = 0.05  # of the things; their questions are of split dev
OPENINGS = {
    "who", "whose", "what", "which", "where", "when", "why", "how", "is", "are", "was", "were", "do", "does",
    "did", "can", "has", "have", "in", "on", "at",
}  # fmt: skip


class Joiner:
    """Draws compound questions from single ones. Those about one thing are of one split."""

    def __init__(self, singles: Iterable[AnnotatedQuestion], random: Random) -> None:
        self._random = random
        about: dict[str, dict[str, str]] = defaultdict(dict)
        self._answers = dict[str, tuple[str, ...]]()
        for single in singles:
            asked = " ".join(single.question.split()).rstrip("?. ")
            self._answers[asked] = single.steps[0].answers if single.steps else single.answers[:1]
            for thing in sorted(_name_things(single)):
                about[thing][asked.casefold()] = asked
        self._asked = list(self._answers)
        self._groups = [(thing, list(asked.values())) for thing, asked in about.items() if len(asked) > 1]
        if not self._groups:
            raise DataError("no two single questions about one thing", hint="give more single questions")

    def draw(self, identity: str, source: str, licence: str) -> AnnotatedQuestion | None:
        """A compound question with its parts and its plan; None where it came out too long."""
        thing, group = self._random.choice(self._groups)
        [size] = self._random.choices(list(SIZES), list(SIZES.values()))
        parts = self._random.sample(group, min(size, len(group)))
        expression = plans.Sequence(tuple(plans.Atomic(f"{part}?") for part in parts))
        question = self._join(parts)
        if len(question.split()) > LONGEST:
            return None
        return AnnotatedQuestion(
            id=identity,
            source=source,
            licence=licence,
            split="dev" if hash_fraction(f"joined:{thing}") < DEV else "train",
            question=question,
            route="compound",
            expression=plans.render(expression),
            parts=tuple(f"{part}?" for part in parts),
            steps=tuple(map(self._make_step, parts)),
            entities=(thing,) if find_mention(thing, question) else (),
            teacher="joined",
            history=(self._make_step(self._random.choice(self._asked)),),
        )

    def _make_step(self, asked: str) -> AnnotatedStep:
        return AnnotatedStep(f"{asked}?", self._answers[asked])

    def _join(self, parts: list[str]) -> str:
        link = self._random.choice(LINKS)
        first, *others = parts
        if link != "? ":
            others = [_continue(part) for part in others]
        *middle, last = others
        between = link if link == "? " else ", "
        return between.join([first, *middle]) + link + last + "?"


def _name_things(single: AnnotatedQuestion) -> set[str]:
    titles = {passage.title.casefold() for passage in single.passages if passage.relevant and passage.title}
    clause = read_clause(single.question)
    return titles or {span.casefold() for span in clause.spans if len(span) > 4} if clause else titles


def _continue(part: str) -> str:
    """A question as it goes on within a sentence: a name keeps its capital."""
    opening = part.split()[0].casefold()
    return part[:1].lower() + part[1:] if opening in OPENINGS else part
