"""What a knowledge source is asked and what it gives back: text, web and graph behind one protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from revelator.plans.art import Call
from revelator.trace import Passage

SourceKind = Literal["text", "graph", "web"]


@dataclass(frozen=True, slots=True)
class Query:
    """One sub-question, earlier answers already put in.

    `template` is the sub-question as the plan has it, `[i]` unfilled. Sources are chosen by it: an answer may repeat
    what a document said, and documents have no voice in who is asked.
    `texts` are the retrieval queries for sources that search by words: one, or one an entity for `Filter` and for a
    `Relate` from several heads. `call` is the operator (None: direct RAG), `heads` the entities that it starts from.
    `ids` maps an entity's name to the identifiers that an earlier node found for it, by source.
    """

    question: str
    template: str
    texts: tuple[str, ...]
    call: Call | None = None
    heads: tuple[str, ...] = ()
    ids: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """What one source knows: passages for each of the query's texts, in their order, and, of a graph, the whole
    typed answer list. `ids` are the identifiers of the answers in that source; `note` says how the answer was found.

    `decided`: the answers are all that there is, also when there are none. `truncated`: a limit cut something off.
    `count` is how many things answer, where the source knows: names may be shared, and a list cut off.
    """

    passages: tuple[tuple[Passage, ...], ...] = ()
    answers: tuple[str, ...] = ()
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str = ""
    decided: bool = False
    truncated: bool = False
    count: int | None = None


class Source(Protocol):
    """`name` is what the trace calls it; `timeout` is in seconds for one query."""

    name: str
    kind: SourceKind
    timeout: float

    async def find(self, query: Query, k: int) -> Found:
        """At most `k` passages a text. Raises RevelatorError when the source cannot be asked."""
        ...

    async def close(self) -> None: ...
