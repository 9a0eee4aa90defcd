"""The operators as SPARQL 1.1 queries, and any endpoint over HTTP that answers them with results as JSON.

Queries are put together from RDF terms alone: a `NamedNode` refuses what is no IRI, a `Literal` writes itself with
its quotes escaped, and no text of a question, a document or a model enters a query in any other way. Every query has
a LIMIT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyoxigraph as ox
from pyoxigraph import BlankNode, Literal, NamedNode, QueryResultsFormat, Triple

from revelator.errors import Unavailable
from serving.knowledge.http import HttpEndpoint
from serving.knowledge.labels import CANDIDATES, Label

Term = NamedNode | BlankNode | Literal | Triple

RDFS_LABEL = NamedNode("http://www.w3.org/2000/01/rdf-schema#label")
ALT_LABEL = NamedNode("http://www.w3.org/2004/02/skos/core#altLabel")
DIRECT_CLAIM = NamedNode("http://wikiba.se/ontology#directClaim")
XSD = "http://www.w3.org/2001/XMLSchema#"
Row = dict[str, Any]  # variable → NamedNode, BlankNode or Literal; unbound ones are left out
WIKIDATA_URL = "https://query.wikidata.org/sparql"
REMEMBERED = 4_096  # names whose nodes are kept


@dataclass(frozen=True)
class GraphVocabulary:
    """How a graph names things: the predicates of labels and of aliases, the language of both ("" for none), and
    whether relations are labelled themselves or through Wikidata's properties."""

    label: NamedNode = RDFS_LABEL
    aliases: tuple[NamedNode, ...] = (ALT_LABEL,)
    language: str = ""
    wikidata_properties: bool = False

    def literal(self, text: str) -> Literal:
        text = text.encode(errors="replace").decode()  # half a surrogate pair has no UTF-8
        return Literal(text, language=self.language) if self.language else Literal(text)


WIKIDATA = GraphVocabulary(language="en", wikidata_properties=True)


def build_related_query(
    heads: Sequence[NamedNode], relations: Sequence[NamedNode], inverse: bool, v: GraphVocabulary, limit: int
) -> str:
    """Asks what the relations lead to from any of the heads (`?x`, with `?label`), or, inverse, what leads to them."""
    body = f"{_match_steps(heads, relations, inverse)} {_match_label('?x', v)}"
    return f"SELECT DISTINCT ?x ?label WHERE {{ {body} }} LIMIT {int(limit)}"


def build_count_query(heads: Sequence[NamedNode], relations: Sequence[NamedNode], inverse: bool) -> str:
    """Counts the nodes that `build_related_query` would find without its limit, as `?count`."""
    return f"SELECT (COUNT(DISTINCT ?x) AS ?count) WHERE {{ {_match_steps(heads, relations, inverse)} }} LIMIT 1"


def _match_steps(heads: Sequence[NamedNode], relations: Sequence[NamedNode], inverse: bool) -> str:
    """As a path: a second VALUES for the relations makes Oxigraph read whole relations, 20 times slower."""
    start, end = ("?x", "?e") if inverse else ("?e", "?x")
    return f"VALUES ?e {{ {_join_nodes(heads)} }} {start} {_join_path(relations)} {end} ."


def build_relations_between_query(heads: Sequence[NamedNode], tails: Sequence[NamedNode], limit: int) -> str:
    """Asks for the predicates `?p` that stand between a head and a tail, either way round."""
    ends = f"VALUES ?e {{ {_join_nodes(heads)} }} VALUES ?x {{ {_join_nodes(tails)} }}"
    return f"SELECT DISTINCT ?p WHERE {{ {ends} {{ ?e ?p ?x }} UNION {{ ?x ?p ?e }} }} LIMIT {int(limit)}"


def build_facts_query(heads: Sequence[NamedNode], v: GraphVocabulary, limit: int) -> str:
    """Asks for all one step from each head `?e`: `?p`, `?x` with `?label`, and `?inverse` for what points at it."""
    ways = "{ ?e ?p ?x . BIND(false AS ?inverse) } UNION { ?x ?p ?e . BIND(true AS ?inverse) }"
    body = f"VALUES ?e {{ {_join_nodes(heads)} }} {ways} FILTER(?p != {v.label}) {_match_label('?x', v)}"
    return f"SELECT ?e ?p ?x ?label ?inverse WHERE {{ {body} }} LIMIT {int(limit)}"


def build_entities_query(name: str, v: GraphVocabulary, limit: int) -> str:
    """Asks for the nodes `?x` that have the name as label or alias, with their `?label`."""
    named = _join_path([v.label, *v.aliases])
    body = f"?x {named} {v.literal(name)} . {_match_label('?x', v)} FILTER(isIRI(?x))"
    return f"SELECT DISTINCT ?x ?label WHERE {{ {body} }} LIMIT {int(limit)}"


def build_relations_query(name: str, v: GraphVocabulary, limit: int) -> str:
    """Asks for the predicates `?x` that have the name as label or alias."""
    named = _join_path([v.label, *v.aliases])
    if v.wikidata_properties:
        body = f"?property {named} {v.literal(name)} ; {DIRECT_CLAIM} ?x ."
    else:
        body = f"?x {named} {v.literal(name)} . FILTER EXISTS {{ ?head ?x ?tail }}"
    return f"SELECT DISTINCT ?x WHERE {{ {body} }} LIMIT {int(limit)}"


def build_labels_query(nodes: Sequence[NamedNode], v: GraphVocabulary, limit: int) -> str:
    """Asks for the `?label` of each node `?x`; of a predicate of Wikidata's, that of its property."""
    labelled = (
        f"?property {DIRECT_CLAIM} ?x . {_match_label('?property', v)}"
        if v.wikidata_properties
        else _match_label("?x", v)
    )
    body = f"VALUES ?x {{ {_join_nodes(nodes)} }} {labelled} FILTER(BOUND(?label))"
    return f"SELECT DISTINCT ?x ?label WHERE {{ {body} }} LIMIT {int(limit)}"


def format_row(row: Row) -> str:
    """Formats `?x` of a row: its label, or else the text of the term itself."""
    return format_term(row["label"] if "label" in row else row["x"])


def format_term(term: Term) -> str:
    """Formats a term for an answer: a literal's value (a midnight dateTime is a date), an IRI's last part."""
    if isinstance(term, Literal):
        if term.datatype.value == XSD + "dateTime":
            return term.value.removesuffix("T00:00:00Z").lstrip("+")
        return term.value
    if isinstance(term, NamedNode):
        return find_local_name(term.value)
    return str(term)


def find_local_name(iri: str) -> str:
    return iri.rstrip("/#").rpartition("#")[2].rpartition("/")[2].rpartition(":")[2] or iri


def _join_nodes(nodes: Sequence[NamedNode]) -> str:
    return " ".join(map(str, nodes))


def _join_path(predicates: Sequence[NamedNode]) -> str:
    return "(" + "|".join(map(str, predicates)) + ")"


def _match_label(variable: str, v: GraphVocabulary) -> str:
    languages = ", ".join(str(Literal(tag)) for tag in dict.fromkeys(["", v.language]))
    return f"OPTIONAL {{ {variable} {v.label} ?label . FILTER(LANG(?label) IN ({languages})) }}"


class SparqlEndpoint:
    """Names to nodes, and SELECT, at one address. `vocabulary` defaults to Wikidata's labels and properties.

    Names are linked by exact label or alias in the vocabulary's language; what a name stands for is asked once.
    """

    def __init__(
        self, url: str = WIKIDATA_URL, vocabulary: GraphVocabulary = WIKIDATA, *, timeout: float = 10.0
    ) -> None:
        self.vocabulary = vocabulary
        self._http = HttpEndpoint(url, timeout=timeout, headers={"Accept": "application/sparql-results+json"})
        self._known: dict[str, list[Row]] = {}

    async def find_entities(self, name: str) -> list[Label]:
        rows = await self._select_cached(build_entities_query(name, self.vocabulary, CANDIDATES))
        found = {r["x"].value: Label(r["x"].value, format_row(r)) for r in _keep_nodes(rows)}
        exact = [label for label in found.values() if label.text == name]
        return exact or list(found.values())

    async def find_relations(self, phrase: str) -> list[Label]:
        rows = await self._select_cached(build_relations_query(phrase, self.vocabulary, CANDIDATES))
        return [Label(row["x"].value, phrase, "relation") for row in _keep_nodes(rows)]

    async def select(self, query: str) -> list[Row]:
        """The rows of a SELECT. Raises Unavailable (also for a reply that is no result) and DeadlineExceeded."""
        body = await self._http.post_form({"query": query})
        try:
            solutions: Any = ox.parse_query_results(body, QueryResultsFormat.JSON)
            names = [variable.value for variable in solutions.variables]
            return [{n: value for n in names if (value := row[n]) is not None} for row in solutions]
        except (SyntaxError, ValueError, AttributeError) as error:
            raise Unavailable("the reply is no SPARQL result in JSON", where=self._http.url) from error

    async def close(self) -> None:
        await self._http.close()

    async def _select_cached(self, query: str) -> list[Row]:
        if query not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[query] = await self.select(query)
        return self._known[query]


def _keep_nodes(rows: list[Row]) -> list[Row]:
    return [row for row in rows if isinstance(row.get("x"), NamedNode)]
