"""The atomic operators over a graph: typed answers, exact and whole, without a model.

The same code runs over the embedded store and over a SPARQL endpoint: both link names to nodes and run a SELECT.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from pyoxigraph import NamedNode

from revelator.plans.operators import Filter, Relate, Search
from revelator.trace import Passage
from serving.knowledge import sparql
from serving.knowledge.conditions import Fact, judge_entities
from serving.knowledge.labels import Label, fold_label, is_alike
from serving.knowledge.operators import Query, SourceKind, SourceResult
from serving.knowledge.sparql import GraphVocabulary, Row
from serving.latency import offload
from serving.protocols import Dated

ROWS = 10_000  # of one answer: more is counted and not listed
HEADS = 20  # entities whose facts one query reads
FACT_ROWS = 5_000  # of one such query; where they are more, each half of the entities is asked for by itself
ROW_CHARACTERS = 20  # that a row counts for: a hundred take a millisecond
SHOWN = 12  # facts of an entity, or values of a relation, that are written into a passage
HEAD_CHARACTERS = 200  # of the names that a passage is about

Result = TypeVar("Result")


class Graph(Protocol):
    """Names to nodes, and SELECT."""

    vocabulary: GraphVocabulary

    async def find_entities(self, name: str) -> list[Label]: ...

    async def find_relations(self, phrase: str) -> list[Label]: ...

    async def select(self, query: str) -> list[Row]: ...

    async def close(self) -> None: ...


class GraphSource:
    """A graph as a knowledge source. An operator that it cannot link to its nodes gives no answer, and says why."""

    kind: SourceKind = "graph"

    def __init__(self, graph: Graph, name: str = "graph", *, timeout: float = 5.0) -> None:
        self.graph = graph
        self.name = name
        self.timeout = timeout

    async def find(self, query: Query, k: int) -> SourceResult:
        match query.call:
            case Search():
                return await self._search(query.call)
            case Relate():
                return await self._relate_first(query)
            case Filter():
                return await self._filter(query.call, query)
        return SourceResult(note="a graph is asked for what one entity is related to")

    def find_state(self) -> str | None:
        return self.graph.find_state() if isinstance(self.graph, Dated) else None

    async def close(self) -> None:
        await self.graph.close()

    async def _search(self, call: Search) -> SourceResult:
        labels = await self.graph.find_entities(call.name)
        if call.descriptor and len(labels) > 1:
            labels = await self._select_described(labels, call.descriptor)
        labels = _select_certain_labels(labels, call.name)
        return _collect_names([(NamedNode(label.iri), label.text) for label in labels], "label")

    async def _select_described(self, labels: Sequence[Label], descriptor: str) -> list[Label]:
        """Selects the labels whose facts share most words with the descriptor; all of them when none shares any."""
        facts, _ = await self._read_facts([NamedNode(label.iri) for label in labels])
        wanted = fold_label(descriptor).split()
        said = {
            iri: {word for fact in known for word in fold_label(f"{fact.relation} {fact.value}").split()}
            for iri, known in facts.items()
        }
        shared = [
            sum(any(is_alike(word, other) for other in said.get(one.iri, ())) for word in wanted) for one in labels
        ]
        return [label for label, count in zip(labels, shared, strict=True) if count == max(shared)]

    async def _relate_first(self, query: Query) -> SourceResult:
        """Relates by the first call whose relation the graph has, else by the last."""
        assert isinstance(query.call, Relate)
        *named, last = query.call, *query.alternatives
        for call in named:
            if await self.graph.find_relations(call.to):
                return await self._relate(call, query)
        return await self._relate(last, replace(query, heads=(last.head,)) if named else query)

    async def _relate(self, call: Relate, query: Query) -> SourceResult:
        heads, relations = await asyncio.gather(self._link(query.heads, query), self.graph.find_relations(call.to))
        if not heads:
            return SourceResult(note=f"no node is called {', '.join(query.heads)}"[:200])
        if not relations:
            return await self._relate_two(heads, call)
        predicates = [NamedNode(iri) for iri in dict.fromkeys(label.iri for label in relations)]
        for inverse in (False, True) if call.inverse is None else (call.inverse,):
            query_text = sparql.build_related_query(heads, predicates, inverse, self.graph.vocabulary, ROWS + 1)
            rows = await self.graph.select(query_text)
            if rows:
                note = ("inverse of " if inverse else "") + relations[0].text
                found = await _offload_rows(len(rows), partial(_collect_rows, rows[:ROWS], note))
                named = ", ".join(query.heads)[:HEAD_CHARACTERS]
                triples = _write_triples(named, relations[0].text, inverse, found.answers)
                found = replace(found, passages=((triples,),))
                if len(rows) <= ROWS:
                    return found
                [counted] = await self.graph.select(sparql.build_count_query(heads, predicates, inverse))
                count = int(sparql.format_term(counted["count"]))
                return replace(found, note=f"{note}, {ROWS:,} of {count:,}", truncated=True, count=count)
        return SourceResult(note=f"nothing stands in the relation {relations[0].text!r} to it")

    async def _relate_two(self, heads: Sequence[NamedNode], call: Relate) -> SourceResult:
        """The third form: what relates the head to a second entity."""
        tails = await self._find_nodes(call.to)
        rows = await self.graph.select(sparql.build_relations_between_query(heads, tails, ROWS)) if tails else []
        if not rows:
            return SourceResult(note=f"no {call.to!r}"[:200])
        names = await self._name_relations([row["p"] for row in rows])
        return SourceResult(answers=tuple(dict.fromkeys(names.values())), note="relation")

    async def _name_relations(self, predicates: Sequence[NamedNode]) -> dict[str, str]:
        rows = await self.graph.select(sparql.build_labels_query(predicates, self.graph.vocabulary, ROWS))
        named = {row["x"].value: sparql.format_term(row["label"]) for row in rows}
        return {p.value: named.get(p.value) or sparql.find_local_name(p.value).replace("_", " ") for p in predicates}

    async def _filter(self, call: Filter, query: Query) -> SourceResult:
        heads = await self._link_each(query.heads, query)
        nodes = list(dict.fromkeys(node for found in heads.values() for node in found))
        if not nodes:
            return SourceResult(note="no node is called so")
        facts, whole = await self._read_facts(nodes)
        known = {name: [f for node in found for f in facts.get(node.value, [])] for name, found in heads.items()}
        met = await _offload_rows(sum(map(len, facts.values())), partial(judge_entities, call.condition, known))
        kept = tuple(name for name, verdict in met.items() if verdict)
        unknown = sum(verdict is None for verdict in met.values())
        passages = _make_passages(query.heads, known)
        if unknown == len(met):
            return SourceResult(
                passages, note="the facts of the graph do not decide the condition", truncated=not whole
            )
        note = "facts" if whole else f"the first {FACT_ROWS:,} facts of an entity"
        return SourceResult(
            passages,
            answers=kept,
            ids={name: tuple(node.value for node in heads[name]) for name in kept},
            note=f"{note}, which do not tell of {unknown} of {len(met)}" if unknown else note,
            decided=whole and not unknown,
            truncated=not whole,
        )

    async def _read_facts(self, nodes: Sequence[NamedNode]) -> tuple[dict[str, list[Fact]], bool]:
        """The facts of each node, and whether they are all of them."""
        rows, whole = await self._read_fact_rows(nodes)
        names = await self._name_relations(list(dict.fromkeys(row["p"] for row in rows))) if rows else {}
        facts = await _offload_rows(len(rows), partial(_group_facts, rows, names))
        return facts, whole

    async def _read_fact_rows(self, nodes: Sequence[NamedNode]) -> tuple[list[Row], bool]:
        """Reads facts, so that a node with very many does not push out those of the others."""
        if len(nodes) <= HEADS:
            rows = await self.graph.select(sparql.build_facts_query(nodes, self.graph.vocabulary, FACT_ROWS + 1))
            if len(rows) <= FACT_ROWS or len(nodes) == 1:
                return rows[:FACT_ROWS], len(rows) <= FACT_ROWS
        half = len(nodes) // 2
        first, is_first_whole = await self._read_fact_rows(nodes[:half])
        second, is_second_whole = await self._read_fact_rows(nodes[half:])
        return first + second, is_first_whole and is_second_whole

    async def _link(self, names: Sequence[str], query: Query) -> list[NamedNode]:
        linked = await self._link_each(names, query)
        return list(dict.fromkeys(node for found in linked.values() for node in found))

    async def _link_each(self, names: Sequence[str], query: Query) -> dict[str, list[NamedNode]]:
        """The nodes of each name: those that an earlier answer was found as, or those that are called so."""
        known, distinct = query.ids.get(self.name, {}), list(dict.fromkeys(names))

        async def link(name: str) -> list[NamedNode]:
            return list(map(NamedNode, known[name])) if name in known else await self._find_nodes(name)

        return dict(zip(distinct, await asyncio.gather(*map(link, distinct)), strict=True))

    async def _find_nodes(self, name: str) -> list[NamedNode]:
        labels = _select_certain_labels(await self.graph.find_entities(name), name)
        return [NamedNode(label.iri) for label in labels]


def _select_certain_labels(labels: list[Label], name: str) -> list[Label]:
    """Labels that equal the name; else the label that holds its words, if it is the only one."""
    same = [label for label in labels if fold_label(label.text) == fold_label(name)]
    return same or (labels if len({label.iri for label in labels}) == 1 else [])


async def _offload_rows(rows: int, work: Callable[[], Result]) -> Result:
    """Offloads work on the rows of a graph, which may be thousands."""
    return await offload(ROW_CHARACTERS * rows, work)


def _group_facts(rows: Sequence[Row], names: Mapping[str, str]) -> dict[str, list[Fact]]:
    facts: dict[str, list[Fact]] = {}
    for row in rows:
        fact = Fact(names[row["p"].value], sparql.format_row(row), row["inverse"].value == "true")
        facts.setdefault(row["e"].value, []).append(fact)
    return facts


def _collect_rows(rows: Sequence[Row], note: str) -> SourceResult:
    return _collect_names([(row["x"], sparql.format_row(row)) for row in rows], note)


def _collect_names(pairs: Sequence[tuple[sparql.Term, str]], note: str) -> SourceResult:
    """Distinct texts in their order, each with its nodes."""
    ids: dict[str, list[str]] = {}
    for term, text in pairs:
        same = ids.setdefault(text, [])
        if isinstance(term, NamedNode) and term.value not in same:
            same.append(term.value)
    if not ids:
        return SourceResult(note="no node is called so")
    named = {text: tuple(iris) for text, iris in ids.items() if iris}
    return SourceResult(answers=tuple(ids), ids=named, note=note, count=len({term for term, _ in pairs}))


def _write_triples(name: str, relation: str, inverse: bool, values: Sequence[str]) -> Passage:
    """The triples of an entity and a relation as a passage; of many values the first."""
    listed = ", ".join(values[:SHOWN])
    text = f"{listed}: {relation} {name}." if inverse else f"{name}: {relation} {listed}."
    return Passage(f"{name}#{'^' if inverse else ''}{relation}", name, text, 1.0)


def _make_passages(names: Sequence[str], known: Mapping[str, list[Fact]]) -> tuple[tuple[Passage, ...], ...]:
    """One passage an entity, in the order of the query's texts: its first facts as a line."""
    return tuple(
        (Passage(f"{name}#facts", name, "; ".join(f"{f.relation}: {f.value}" for f in known[name][:SHOWN])),)
        if known.get(name)
        else ()
        for name in names
    )
