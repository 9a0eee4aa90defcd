"""What can be asked of a graph: the facts that its documents state, indexed for walking forwards and backwards."""

from __future__ import annotations

from collections import defaultdict

from data_gen.world.graph import Fact, Graph, Value
from data_gen.world.prose import Document
from data_gen.world.relations import relations


class View:
    """Stated facts.

    `into[e]` are the (head, relation) whose one value is entity `e`; `heads[r]` the entities with one value for `r`,
    `lists[r]` those with several; `holders[r, v]` those with the value `v`; `joint[r]` the facts of a relation with a
    second argument.
    """

    def __init__(self, graph: Graph, documents: list[Document]) -> None:
        self.graph = graph
        self.documents = documents
        self.into: dict[int, list[tuple[int, str]]] = defaultdict(list)
        self.heads: dict[str, list[int]] = defaultdict(list)
        self.lists: dict[str, list[int]] = defaultdict(list)
        self._single: dict[int, list[str]] = defaultdict(list)
        self.joint: dict[str, list[Fact]] = defaultdict(list)
        self.holders: dict[tuple[str, int | Value], list[int]] = defaultdict(list)
        for head, facts in graph.facts.items():
            for relation, found in facts.items():
                if relation in documents[head].stated:
                    self._index(head, relation, found)

    def _index(self, head: int, relation: str, found: list[Fact]) -> None:
        if relations()[relation].second:
            self.joint[relation] += found
        elif len(found) > 1:
            self.lists[relation].append(head)
        else:
            tail = found[0].tail
            self.heads[relation].append(head)
            self._single[head].append(relation)
            self.holders[relation, tail].append(head)
            if isinstance(tail, int):
                self.into[tail].append((head, relation))

    def tails(self, head: int, relation: str, second: int | None = None) -> list[int | Value]:
        """The values that the document of `head` states, none if it does not."""
        if relation not in self.documents[head].stated:
            return []
        return [f.tail for f in self.graph.facts[head].get(relation, ()) if f.second == second]

    def single(self, head: int) -> list[str]:
        """Relations of which the document of `head` states exactly one value."""
        return self._single[head]
