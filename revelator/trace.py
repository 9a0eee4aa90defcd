"""The trace: everything that happened to one question, as plain values that survive JSON.

The executor writes it, clients show it, evaluation scores it, MLflow stores it, and a person can edit the plan in it
and run it again. Times are milliseconds since the trace began; `started_at` is seconds since the Unix epoch.

While it is written, it is a sequence of events in causal order. Each event holds what has changed since the one before
it about the same node (or, `node` None, about the question as a whole), as the plain values of the trace's JSON. A
client that keeps a `Replay` sees the trace grow, and after `finished` holds the trace that the executor holds.

Anybody may send a trace to be reused. Reading ends at the first fault of a list (`FailFast`), and at a mapping of far
more keys than there are fields (`FewKeys`): what is refused costs no more than what is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Annotated, Any, Literal
from urllib.parse import quote as percent_encode

from pydantic import ConfigDict, FailFast, TypeAdapter, ValidationError

from revelator.config import FewKeys, find_first_fault
from revelator.errors import DataError
from revelator.node_detail import AS_MAPPING, STATUS_OF, Cause, Detail, Status
from revelator.plans.language import LanguageName

# 2 adds plan_language, 3 `unanswered`, 4 `text`, 5 `cause`, 6 `where`; earlier traces are read with the defaults of
# what they lack
SCHEMA_VERSION = 6
STRICT = ConfigDict(extra="forbid")

Kind = Literal[
    "route", "translate", "decompose", "refine", "end", "direct", "atomic", "dependent", "sequence", "merge", "write"
]
Outcome = Literal["answered", "partial", "unanswered", "failed"]  # unanswered: no evidence; failed: a fault
PlanSource = Literal["model", "given", "fallback", "none"]
EventKind = Literal[
    "begun",  # the question, its strategy
    "planned",  # the plan that will be run
    "opened",  # a node stands in the trace and waits
    "started",
    "retrieved",  # documents with the retriever's scores
    "judged",  # the same documents with the revelator's relevance
    "answered",  # the node ended well
    "unanswered",  # nothing supports an answer, or what came before is nothing to ask about
    "skipped",  # it was never asked: what it waits for gave nothing, or time ran out
    "failed",
    "written",  # the answer that a text is written from, then the text as far as it is written
    "finished",  # answer, outcome and sums of the whole question
]


_PLACE = re.compile(r"(?P<file>.+)#(?=page=\d|\d+-\d)(?:page=(?P<page>\d+))?")  # what documents are cut by
_ADDRESS = re.compile(r"(?:^|:)(https?://[^\s<>()]+)$")  # behind the name of a source, where there are several
_MARKDOWN, _ESCAPED = re.compile(r"([\[\]\\])"), r"\\\1"


def join_answers(answers: Sequence[str]) -> str:
    """Joins answers for a prompt or a terminal, "a; b". Never split the result: a title may hold a semicolon."""
    return "; ".join(answers)


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved passage; `score` is the retriever's own scale, `relevance` the revelator's P(relevant) if judged."""

    __pydantic_config__ = STRICT

    id: str
    title: str
    text: str
    score: float = 0.0
    relevance: float | None = None

    @property
    def file(self) -> str:
        """The file that it is from (`handbook/leave.md` of the id `handbook/leave.md#120-980`), or nothing."""
        return found["file"] if (found := _PLACE.match(self.id)) else ""

    @property
    def page(self) -> str:
        """The page of its file (`12` of the id `report.pdf#page=12&120-980`), or nothing."""
        return found["page"] or "" if (found := _PLACE.match(self.id)) else ""

    @property
    def name(self) -> str:
        """Its title, which is the headings above it, with the file that it is from, and the page."""
        where = self.file + (f", page {self.page}" if self.page else "")
        return " in ".join(filter(None, [self.title.strip(), where])) or self.id

    @property
    def link(self) -> str:
        """Its address, if it is from the web, or nothing: files lie with the server."""
        return found[1] if (found := _ADDRESS.search(self.id)) else ""


@dataclass(frozen=True, slots=True)
class Usage:
    """The cost of work: model tokens in and out, and calls, one for each prompt or search."""

    __pydantic_config__ = STRICT

    tokens_in: int = 0
    tokens_out: int = 0
    model_calls: int = 0  # prompts put to the revelator
    generator_calls: int = 0
    retrievals: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage.total([self, other])

    @classmethod
    def total(cls, usages: Iterable[Usage]) -> Usage:
        """Sums many usages."""
        return cls(*map(sum, zip(*map(_list_costs, usages), strict=True)))  # `astuple` takes ten times as long


_list_costs = attrgetter("tokens_in", "tokens_out", "model_calls", "generator_calls", "retrievals")


@dataclass(slots=True)
class Node:
    """One step of the way of a question.

    `id` is stable within the trace ("3", and "3.1", "3.2" for the members of a fan-out); `parent` is the id of the node
    that encloses it. `question` is the text as planned, `asked` the text after substitution. `inputs` maps each
    placeholder to the id of the node that gave its value. A node without an answer has a `cause`, and `error` says it
    in words. `detail` holds what only some nodes have.
    """

    __pydantic_config__ = STRICT

    id: str
    kind: Kind
    question: str
    parent: str | None = None
    asked: str | None = None
    inputs: Annotated[dict[str, str], FewKeys] = field(default_factory=dict)
    documents: Annotated[list[Annotated[Passage, FewKeys]], FailFast()] = field(default_factory=list)
    sentence: str = ""
    answers: Annotated[list[str], FailFast()] = field(default_factory=list)
    status: Status = "ok"
    cause: Cause | None = None
    error: str | None = None
    started_ms: float = 0.0
    ended_ms: float = 0.0
    usage: Annotated[Usage, FewKeys] = Usage()
    detail: Annotated[Detail, AS_MAPPING] = field(default_factory=Detail)

    def to_json(self) -> dict[str, Any]:
        """Returns plain values, in a tenth of the time of `asdict`: every event of a running question calls it."""
        return _NODE.dump_python(self, warnings=False)

    def end_without_answer(self, cause: Cause, said: str) -> None:
        """Ends the node by its cause; `said` tells a person."""
        self.status, self.cause, self.error = STATUS_OF.get(cause, "unanswered"), cause, said

    def fail(self, error: Exception) -> None:
        self.end_without_answer("fault", f"{type(error).__name__}: {error}")

    def end_well(self) -> None:
        self.status, self.cause, self.error = "ok", None, None

    def find_evidence(self) -> Passage | None:
        """The passage that holds the answers, if one does."""
        return next((p for p in self.documents if p.id == self.detail.get("document")), None)

    def list_calls(self) -> Iterator[dict[str, Any]]:
        """Yields the calls that the node itself made, each with `task`, `count` and `ms`. A node that asked several
        sources also yields one call a source, `search:NAME`, unless its answers are those of another node."""
        yield from self.detail.get("calls", ())
        if not {"reused_from", "shared_from", "cached_from"} & self.detail.keys():
            for report in self.detail.get("sources", ()):
                if "searches" in report and "ms" in report:
                    yield {"task": f"search:{report['source']}", "count": report["searches"], "ms": report["ms"]}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the answers of one step stand: the sentence around them, or one a line, and its passage. `probability`:
    that the passage answers the question, where the reader says."""

    question: str
    answers: tuple[str, ...]
    sentence: str
    passage: Passage
    probability: float | None = None

    def cite(self, *, markdown: bool = False, place: str = "") -> str:
        """Where the answers stand, and what is said there, as `quote` writes it. A passage from the web has its address
        behind it, or in `markdown` is a link to the sentence; any other there is a link to its `place`, if it has
        one."""
        where, link = self.passage.name, self.link or place
        if link and markdown:
            where = f"[{_MARKDOWN.sub(_ESCAPED, where)}]({link})"
        elif self.passage.link:
            where = f"{where} <{self.passage.link}>"
        return ": ".join(filter(None, [where, quote(self.sentence, self.passage.text)]))

    @property
    def link(self) -> str:
        """The address of a passage from the web, at its sentence (a text fragment), or nothing."""
        address, said = self.passage.link, self.sentence.partition("\n")[0]
        if not address or not said:
            return address
        mark = "" if "#" in address else "#"
        return f"{address}{mark}:~:text={percent_encode(said, safe='').replace('-', '%2D')}"  # a hyphen has a meaning


@dataclass(slots=True)
class Trace:
    """One question from arrival to answer.

    `answers` are bare values, `answer` joins them. `text` says them in sentences, as a language model wrote them, with
    `[n]` for the n-th of `list_sources()`; "" where none did. `usage` is the sum over nodes, `critical_path_ms` the
    time along the longest dependent chain, `where` the filter of the documents that were asked.
    """

    __pydantic_config__ = STRICT

    question: str
    strategy: str
    route: str | None = None
    plan: str | None = None  # canonical expression that was executed
    plan_source: PlanSource = "none"
    plan_language: LanguageName = "bnf"
    diagnostics: Annotated[list[dict[str, Any]], FailFast()] = field(default_factory=list)
    degraded: bool = False  # the way that was chosen could not be gone to its end: another was, for this reason
    reason: str | None = None
    deadline_exceeded: bool = False  # time ran out: the answer is made of what had been found by then
    outcome: Outcome = "answered"
    answer: str = ""
    answers: Annotated[list[str], FailFast()] = field(default_factory=list)
    text: str = ""
    nodes: Annotated[list[Annotated[Node, FewKeys]], FailFast()] = field(default_factory=list)
    usage: Annotated[Usage, FewKeys] = Usage()
    wall_ms: float = 0.0
    critical_path_ms: float = 0.0
    started_at: float = 0.0
    versions: Annotated[dict[str, str], FewKeys] = field(
        default_factory=dict
    )  # by model; and MLflow's id of the release
    where: str = ""
    schema: int = SCHEMA_VERSION

    def list_evidence(self) -> list[Evidence]:
        """The evidence of every step that was answered from a passage, in their order."""
        return list_evidence(self.nodes)

    def list_sources(self) -> list[Evidence]:
        """The evidence by passage, each once, by the numbers in `text`."""
        return merge_evidence(self.list_evidence())

    def list_language_models(self) -> list[str]:
        """The language models that read documents or wrote answers, as their endpoints named them."""
        return sorted({node.detail["reader"] for node in self.nodes if "reader" in node.detail})

    def list_citations(
        self, *, markdown: bool = False, find_link: Callable[[Passage], str] = lambda passage: ""
    ) -> list[str]:
        """The passages that hold the answers, by the numbers in `text`, each with its file and sentence:
        [1] Ana Berg in people.md: “…”. `find_link` gives the place that `Evidence.cite` links to."""
        sources = self.list_sources() if self.answers else []
        cited = [one.cite(markdown=markdown, place=find_link(one.passage)) for one in sources]
        return [f"[{number}] {one}" for number, one in enumerate(cited, 1)]

    def list_notes(self) -> list[str]:
        """How the question was read, where it could have been read otherwise."""
        notes = []
        for node in self.nodes:
            if "rewritten" in node.detail:
                notes.append(f"read as: {node.detail['rewritten']}")
            for word, near in node.detail.get("respelled", {}).items():
                notes.append(f"no document says {word}: read as {' or '.join(near)}")
            for found in node.detail.get("scored", {}).values():
                notes.append(f"scored {found['scored']:,} of {found['of']:,} passages: those that a term brings")
        return list(dict.fromkeys(notes))

    def to_json(self) -> dict[str, Any]:
        """Converts the trace to plain values for `json.dumps`; `Trace.from_json` is the inverse."""
        return _TRACE.dump_python(self, warnings=False)

    def dump_json(self) -> str:
        """Writes the JSON node by node: writing a large trace at once would block the other threads."""
        whole = _TRACE.dump_python(self, exclude={"nodes"}, warnings=False)
        nodes = ", ".join(json.dumps(node.to_json(), ensure_ascii=False) for node in self.nodes)
        return f'{json.dumps(whole, ensure_ascii=False)[:-1]}, "nodes": [{nodes}]}}'

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Trace:
        """Reads every schema up to this one. DataError for a newer schema and for what is no trace."""
        schema = value.get("schema") if isinstance(value, dict) else None
        if isinstance(schema, int) and schema > SCHEMA_VERSION:
            hint = "use the version of revelator that wrote it, or a newer one"
            raise DataError(f"a trace of schema {schema}; this program reads up to {SCHEMA_VERSION}", hint=hint)
        try:
            trace = _TRACE.validate_python(value)
        except ValidationError as error:
            reason = ": ".join(filter(None, find_first_fault(error)))
            raise DataError(f"this is no trace: {reason}", hint="`revelator ask --json` writes one") from error
        return replace(trace, schema=SCHEMA_VERSION)


def quote(sentences: str, text: str) -> str:
    """Sentences, one a line, in quotation marks where the text says them, white space aside; a paraphrase has none."""
    said = " ".join(text.split())
    lines = (" ".join(line.split()) for line in sentences.splitlines())
    return " ".join(f"“{line}”" if line in said else line for line in lines if line)


def list_evidence(nodes: Iterable[Node]) -> list[Evidence]:
    """The evidence of every node that was answered from a passage, in their order, but for steps of a plan that was
    given up."""
    found = []
    for node in nodes:
        passage = node.find_evidence() if node.status == "ok" and "abandoned" not in node.detail else None
        if passage:
            asked, said = node.asked or node.question, node.detail.get("probability")
            found.append(Evidence(asked, tuple(node.answers), node.sentence, passage, said))
    return found


def merge_evidence(evidence: Iterable[Evidence]) -> list[Evidence]:
    """What stands in one passage as one: all that was answered from it, its sentences, the least probability."""
    merged: dict[tuple[str, str, str], Evidence] = {}
    for one in evidence:
        key = one.passage.id, one.passage.title, one.passage.text  # score and relevance are of one question
        if first := merged.get(key):
            answers = tuple(dict.fromkeys([*first.answers, *one.answers]))
            sentences = dict.fromkeys([*first.sentence.splitlines(), *one.sentence.splitlines()])
            known = [said for said in (first.probability, one.probability) if said is not None]
            least = min(known, default=None)
            one = replace(first, answers=answers, sentence="\n".join(sentences), probability=least)
        merged[key] = one
    return list(merged.values())


_NODE = TypeAdapter(Node)
_TRACE: TypeAdapter[Trace] = TypeAdapter(Annotated[Trace, FewKeys])


def sort_ids(ids: Iterable[str]) -> list[str]:
    """Sorts node ids by number, the members of a fan-out right after their node: 3, 3.1, 3.2, 4."""
    return sorted(ids, key=lambda id: [int(part) for part in id.split(".")])


@dataclass(frozen=True, slots=True)
class Event:
    """`at_ms` counts from the start of the trace; `changes` are fields of the node, or, without one, of the trace."""

    kind: EventKind
    node: str | None
    at_ms: float
    changes: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "node": self.node, "at_ms": self.at_ms, "changes": self.changes}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Event:
        return cls(**value)


class EventSender:
    """Makes events of what has changed in a trace and its nodes, and hands them to `listener` at once."""

    def __init__(self, listener: Callable[[Event], None]) -> None:
        self._listener = listener
        self._sent: dict[str | None, dict[str, Any]] = {}

    def send(self, kind: EventKind, what: Node | Trace, at_ms: float) -> None:
        if isinstance(what, Trace):
            key, now = None, _TRACE.dump_python(what, exclude={"nodes"}, warnings=False)
        else:
            key, now = what.id, what.to_json()
        sent = self._sent.setdefault(key, {})
        changes = {name: value for name, value in now.items() if name not in sent or sent[name] != value}
        self._listener(Event(kind, key, at_ms, changes))
        sent.update(changes)


class Replay:
    """Builds a trace from the events that have come so far."""

    def __init__(self) -> None:
        self._whole: dict[str, Any] = {}
        self._nodes: dict[str, dict[str, Any]] = {}

    def add(self, event: Event) -> None:
        value = self._whole if event.node is None else self._nodes.setdefault(event.node, {})
        value.update(event.changes)

    def build(self) -> Trace:
        """The trace so far; nodes that wait or run have that status. Raises KeyError before the first event."""
        nodes = [self._nodes[id] for id in sort_ids(self._nodes)]
        return Trace.from_json({**self._whole, "nodes": nodes})


def replay(events: Iterable[Event]) -> Trace:
    """Builds the trace of these events."""
    replay = Replay()
    for event in events:
        replay.add(event)
    return replay.build()
