"""What a knowledge source is asked and what it gives back, and how an operator becomes such a query.

Retrieval queries are the paper's (AtomR, section 3.1). `Search`: "name descriptor". `Relate`: its arguments joined,
once a head. `Filter`: "entity condition", once an entity. Direct RAG: the sub-question itself. A leaf of any other plan
is asked for as it stands, and a graph for the one entity that it names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from revelator.files import sha256_text
from revelator.plans import Atomic
from revelator.plans.names import WORD, find_name_words
from revelator.plans.operators import Call, Relate, Search, fill
from revelator.trace import Passage
from serving.knowledge.labels import fold_label
from serving.protocols import PUBLIC, Scope
from serving.retrieval import ASKING_WORDS, STOP_WORDS, extract_terms

SourceKind = Literal["text", "graph", "web"]
PASSAGES = 3  # k: passages a query and source (section 4.1.4)
FAN_OUT = 64  # queries of one node that sources are searched with by words
Ids = Mapping[str, Mapping[str, tuple[str, ...]]]
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Query:
    """One sub-question, earlier answers already put in.

    `template` is the sub-question as the plan has it, `{1*}` unfilled. Sources are chosen by it: an answer may repeat
    what a document said, and documents have no voice in who is asked.
    `texts` are the retrieval queries for sources that search by words: one, or one an entity for `Filter` and for a
    `Relate` from several heads. `call` is the operator (None: direct RAG), `heads` the entities that it starts from.
    `ids` maps an entity's name to the identifiers that an earlier node found for it, by source. `logical` is a logical
    query that takes the place of the texts in a text source. `key` is a digest of what an operator is called with:
    sub-question, arguments, and who its entities are. `alternatives` take the place of the call where a graph has no
    relation of its name. `scope`: which documents may answer it, for sources that hold some.
    """

    question: str
    template: str
    texts: tuple[str, ...]
    call: Call | None = None
    heads: tuple[str, ...] = ()
    ids: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    logical: str = ""
    key: str = ""
    alternatives: tuple[Relate, ...] = ()
    scope: Scope = PUBLIC

    @property
    def characters(self) -> int:
        """By which work over the query is judged small or large (`serving.latency.offload`)."""
        return len(self.question) + sum(map(len, self.heads))


@dataclass(frozen=True, slots=True)
class SourceResult:
    """What one source knows: passages for each of the query's texts, in their order, and, of a graph, the whole
    typed answer list. `ids` are the identifiers of the answers in that source; `note` says how the answer was found.
    A graph's passages are its triples: an entity and a relation with what it leads to, or an entity's facts.

    `decided`: the answers are all that there is, also when there are none. `truncated`: a limit cut something off.
    `count` is how many things answer, where the source knows: names may be shared, and a list cut off. `respelled`:
    words that a text source read as others. `scored`: of a logical query, how many passages of how many were scored.
    `version` is the generation of the index that was searched, 0 for what is no index.
    """

    passages: tuple[tuple[Passage, ...], ...] = ()
    answers: tuple[str, ...] = ()
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    decided: bool = False
    truncated: bool = False
    count: int | None = None
    respelled: Mapping[str, list[str]] = field(default_factory=dict)
    scored: tuple[int, int] | None = None
    version: int = 0


class Source(Protocol):
    """`name` is what the trace calls it; `timeout` is in seconds for one query, None for as long as the question may
    take."""

    name: str
    kind: SourceKind

    @property
    def timeout(self) -> float | None: ...

    async def find(self, query: Query, k: int) -> SourceResult:
        """At most `k` passages a text. Raises RevelatorError when the source cannot be asked."""
        ...

    async def close(self) -> None: ...


def build_query(
    call: Call,
    question: str = "",
    template: str = "",
    values: Mapping[str, Sequence[str]] = NOTHING,
    ids: Ids = NOTHING,
) -> Query:
    """The query of an operator; `values` are put in place of its references. One without a question of its own asks its
    arguments."""
    filled, heads = fill(call, values)
    last = filled.texts[-1]
    question = question or _join(*filled.texts)
    who = [(source, name, tuple(named[name])) for source, named in ids.items() for name in heads if name in named]
    return Query(
        question,
        template or question,
        tuple(_join(head, last) for head in heads[:FAN_OUT]),
        filled,
        heads,
        ids,
        key=sha256_text(repr((question, filled, heads, sorted(who)))),
    )


def build_direct_query(question: str, template: str | None = None) -> Query:
    """Direct RAG: the sub-question as it stands; `template` is given where earlier answers were put into it."""
    return Query(question, template or question, (question,))


def build_leaf_query(template: str, asked: str, written: Call | None = None, own_words: bool = True) -> Query:
    """The query of a leaf: the question for sources that search by words; for a graph the relation that the model has
    `written`, and in its place, where a graph has none of that name, the one that the question's `own_words` name.

    The entity must stand in the question. A leaf that names nothing, or that only asks who or what it is, is no
    question for a graph.
    """
    head = (_find_value(template, asked) or _find_name(asked)) if own_words else ""
    calls = [call for call in (written, derive_call(asked, head) if head else None) if isinstance(call, Relate)]
    calls = [call for call in calls if f" {fold_label(call.head)} " in f" {fold_label(asked)} "]
    if not calls:
        return build_direct_query(asked, template)
    return Query(asked, template, (asked,), calls[0], (calls[0].head,), alternatives=tuple(calls[1:]))


def _find_value(template: str, asked: str) -> str:
    """What stands in place of a leaf's only placeholder; "" for a leaf with none or several."""
    names = Atomic(template).placeholders
    if len(names) != 1:
        return ""
    before, _, after = template.partition(f"{{{names[0]}}}")
    return asked.removeprefix(before).removesuffix(after)


def _find_name(asked: str) -> str:
    """The question from its first name word to its last: "Carry Me Toward the Morning"."""
    words = find_name_words(asked)
    return asked[asked.find(words[0]) : asked.rfind(words[-1]) + len(words[-1])] if words else ""


def derive_call(text: str, head: str) -> Call:
    """The operator of a question about one entity: `Relate` with the rest of its words, `Search` where none is left."""
    before, _, after = text.partition(head)
    empty = STOP_WORDS | ASKING_WORDS | {"s"}
    relation = " ".join(word for word in WORD.findall(f"{before} {after}") if word.lower() not in empty)
    return Relate(head, relation) if relation else Search(head)


def compute_overlap(query: str, passages: Sequence[Passage]) -> float:
    """`|q ∩ p| / min(|q|, |p|)` over the stems of query and passages, stop words left out; 0 when either has none. It
    is AtomR's overlapping coefficient O, by which a filter drops entities (the operator Filter; its t is `overlap`)."""
    asked = set(extract_terms(query))
    said = {term for passage in passages for term in extract_terms(f"{passage.title} {passage.text}")}
    return len(asked & said) / min(len(asked), len(said)) if asked and said else 0.0


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)
