"""Which sources there are: a YAML file, checked whole before any of them is opened.

    sources:
      - {kind: text, name: papers, index: runs/indexes/papers}
      - {kind: graph, name: films, folder: runs/graphs/films}
      - {kind: sparql, name: wikidata, url: "https://query.wikidata.org/sparql", timeout: 10}
      - {kind: web, name: web, api: searxng, url: "http://127.0.0.1:8080/search", timeout: 3}
    evidence: all
    per_leaf: 3

Folders are relative to the file. There is no field for a key: keys are read from the environment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pyoxigraph import Literal as RdfLiteral
from pyoxigraph import NamedNode

from revelator.config import Strict, read_config
from revelator.errors import ConfigError
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore
from serving.knowledge.operators import NOTHING, Source
from serving.knowledge.selection import SourceSettings
from serving.knowledge.sources import Sources
from serving.knowledge.sparql import RDFS_LABEL, WIKIDATA, WIKIDATA_URL, GraphVocabulary, SparqlEndpoint
from serving.knowledge.text_source import TextSource
from serving.knowledge.web import WebSource
from serving.protocols import Generator, Retriever, Revelator
from serving.retrieval import LocalRetriever
from serving.retrieval.logical_search import LogicalSettings
from serving.retrieval.places import IndexAddress, open_index, resolve_address

Seconds = Annotated[float, Field(gt=0, le=120)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]


def _check_iri(text: str) -> str:
    NamedNode(text)  # ValueError for what is none
    return text


def _check_language(text: str) -> str:
    if text:  # "": labels without a language
        RdfLiteral("", language=text)  # ValueError for what is no language tag
    return text


Iri = Annotated[str, AfterValidator(_check_iri)]
Language = Annotated[str, AfterValidator(_check_language)]


class SourceDescription(Strict):
    about: Annotated[str, Field(max_length=500)] = ""  # what it holds: a model that selects sources reads it


class Text(SourceDescription):
    kind: Literal["text"]
    name: Name = "text"
    index: IndexAddress | None = None  # None: the retriever that is served
    logical: LogicalSettings | None = None  # of `index`: how its logical queries are run
    timeout: Seconds = 10.0


class GraphConfig(SourceDescription):
    kind: Literal["graph"]
    name: Name = "graph"
    folder: Path
    timeout: Seconds = 5.0


class Sparql(SourceDescription):
    kind: Literal["sparql"]
    name: Name = "sparql"
    url: str = WIKIDATA_URL
    vocabulary: Literal["wikidata", "rdfs"] = "wikidata"
    label: Iri = RDFS_LABEL.value  # of vocabulary rdfs
    language: Language = "en"
    timeout: Seconds = 10.0


class Web(SourceDescription):
    kind: Literal["web"]
    name: Name = "web"
    api: Literal["searxng", "brave"]
    url: str | None = None
    timeout: Seconds = 5.0


class SourcesFile(SourceSettings):
    sources: Annotated[
        list[Annotated[Text | GraphConfig | Sparql | Web, Field(discriminator="kind")]], Field(min_length=1)
    ]


def read_sources(path: Path) -> SourcesFile:
    """The settings in a file. Raises ConfigError that names the field, and never its value."""
    settings = read_config(path, SourcesFile, show_values=False)
    names = [source.name for source in settings.sources]
    if len(set(names)) < len(names):
        raise ConfigError("two sources of one name", where=str(path), hint="give each a `name` of its own")
    return settings


def open_sources(
    path: Path,
    retriever: Retriever | None = None,
    writer: Generator | None = None,
    revelator: Revelator | None = None,
    changes: Mapping[str, Any] = NOTHING,
) -> Sources:
    """Opens every source of a file; `retriever` serves a text source that names no index, `writer` is the language
    model of `select: model` and `revelator` the model of `select: revelator`. `changes` take the place of settings of
    the file."""
    settings = read_sources(path).model_copy(update=changes)
    opened = []
    for source in settings.sources:
        try:
            opened.append(_open(source, path.parent, retriever))
        except ConfigError as error:
            raise ConfigError(error.message, where=f"{path}, {source.name}", hint=error.hint) from error
    about = {source.name: source.about for source in settings.sources}
    return Sources(opened, settings, writer=writer, about=about, revelator=revelator)


def _open(settings: Text | GraphConfig | Sparql | Web, base: Path, retriever: Retriever | None) -> Source:
    match settings:
        case Text():
            if settings.index is not None:
                index = open_index(resolve_address(settings.index, base))
                retriever = LocalRetriever(index, (settings.logical or LogicalSettings()).resolve(base))
            elif settings.logical:
                hint = "say it when it is served: `logic:` in serving.yaml"
                raise ConfigError("`logical` without `index`", where=settings.name, hint=hint)
            if retriever is None:
                raise ConfigError("a text source without `index`, and no retriever is served", where=settings.name)
            return TextSource(retriever, settings.name, timeout=settings.timeout)
        case GraphConfig():
            store = GraphStore(base / settings.folder, timeout=settings.timeout)
            return GraphSource(store, settings.name, timeout=settings.timeout)
        case Sparql():
            rdfs = GraphVocabulary(label=NamedNode(settings.label))
            kind = WIKIDATA if settings.vocabulary == "wikidata" else rdfs
            vocabulary = replace(kind, language=settings.language)
            endpoint = SparqlEndpoint(settings.url, vocabulary, timeout=settings.timeout)
            return GraphSource(endpoint, settings.name, timeout=settings.timeout)
        case Web():
            return WebSource(settings.api, settings.name, url=settings.url, timeout=settings.timeout)
