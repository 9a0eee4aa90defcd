"""Any SPARQL 1.1 endpoint over HTTP (SPARQL 1.1 Protocol, queries by POST; results as JSON)."""

from __future__ import annotations

from typing import Any

import pyoxigraph as ox
from pyoxigraph import NamedNode, QueryResultsFormat

from revelator.errors import Unavailable
from serving.knowledge import sparql
from serving.knowledge.http import HttpEndpoint
from serving.knowledge.labels import CANDIDATES, Label
from serving.knowledge.sparql import WIKIDATA, Row, Vocabulary

WIKIDATA_URL = "https://query.wikidata.org/sparql"
REMEMBERED = 4_096  # names whose nodes are kept


class SparqlEndpoint:
    """Names to nodes, and SELECT, at one address. `vocabulary` defaults to Wikidata's labels and properties.

    Names are linked by exact label or alias in the vocabulary's language; what a name stands for is asked once.
    """

    def __init__(self, url: str = WIKIDATA_URL, vocabulary: Vocabulary = WIKIDATA, *, timeout: float = 10.0) -> None:
        self.vocabulary = vocabulary
        self._http = HttpEndpoint(url, timeout=timeout, headers={"Accept": "application/sparql-results+json"})
        self._known: dict[str, list[Row]] = {}

    async def entities(self, name: str) -> list[Label]:
        rows = await self._named(sparql.entities_named(name, self.vocabulary, CANDIDATES))
        found = {r["x"].value: Label(r["x"].value, sparql.shown(r)) for r in _nodes(rows)}
        exact = [label for label in found.values() if label.text == name]
        return exact or list(found.values())

    async def relations(self, phrase: str) -> list[Label]:
        rows = await self._named(sparql.relations_named(phrase, self.vocabulary, CANDIDATES))
        return [Label(row["x"].value, phrase, "relation") for row in _nodes(rows)]

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

    async def _named(self, query: str) -> list[Row]:
        if query not in self._known:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[query] = await self.select(query)
        return self._known[query]


def _nodes(rows: list[Row]) -> list[Row]:
    return [row for row in rows if isinstance(row.get("x"), NamedNode)]
