"""Which sources there are: a YAML file, checked whole before any of them is opened.

    sources:
      - {kind: text, name: papers, index: runs/indexes/papers}
      - {kind: graph, name: films, folder: runs/graphs/films}
      - {kind: sparql, name: wikidata, url: "https://query.wikidata.org/sparql", timeout: 10}
      - {kind: web, name: web, api: searxng, url: "http://127.0.0.1:8080/search", timeout: 3}

Folders are relative to the file. There is no field for a key: keys are read from the environment.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pyoxigraph import Literal as RdfLiteral
from pyoxigraph import NamedNode

from revelator.errors import ConfigError
from serving.knowledge.graph import GraphSource
from serving.knowledge.graph_store import GraphStore
from serving.knowledge.operators import Source
from serving.knowledge.sources import Sources, TextSource
from serving.knowledge.sparql import RDFS_LABEL, WIKIDATA, WIKIDATA_URL, SparqlEndpoint, Vocabulary
from serving.knowledge.web import WebSource
from serving.protocols import Retriever
from serving.retrieval import Index, LocalRetriever

Seconds = Annotated[float, Field(gt=0, le=120)]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]


def _iri(text: str) -> str:
    NamedNode(text)  # ValueError for what is none
    return text


def _language(text: str) -> str:
    if text:  # "": labels without a language
        RdfLiteral("", language=text)  # ValueError for what is no language tag
    return text


Iri = Annotated[str, AfterValidator(_iri)]
Language = Annotated[str, AfterValidator(_language)]

_KINDS = "kind must be text, graph, sparql or web"
WORDS = {  # pydantic's own would show the value or name a class
    "model_type": "a mapping is needed",
    "model_attributes_type": "a mapping is needed",
    "path_type": "a path is needed",
    "too_short": "at least one source is needed",
    "union_tag_invalid": _KINDS,
    "union_tag_not_found": _KINDS,
}


class _Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Text(_Settings):
    kind: Literal["text"]
    name: Name = "text"
    index: Path | None = None  # None: the retriever that is served
    timeout: Seconds = 10.0


class Graph(_Settings):
    kind: Literal["graph"]
    name: Name = "graph"
    folder: Path
    timeout: Seconds = 5.0


class Sparql(_Settings):
    kind: Literal["sparql"]
    name: Name = "sparql"
    url: str = WIKIDATA_URL
    vocabulary: Literal["wikidata", "rdfs"] = "wikidata"
    label: Iri = RDFS_LABEL.value  # of vocabulary rdfs
    language: Language = "en"
    timeout: Seconds = 10.0


class Web(_Settings):
    kind: Literal["web"]
    name: Name = "web"
    api: Literal["searxng", "brave", "serper"]
    url: str | None = None
    timeout: Seconds = 5.0


class SourcesFile(_Settings):
    sources: Annotated[list[Annotated[Text | Graph | Sparql | Web, Field(discriminator="kind")]], Field(min_length=1)]


def read_sources(path: Path) -> SourcesFile:
    """The settings in a file. Raises ConfigError that names the field, and never its value."""
    try:
        settings = SourcesFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the sources cannot be read: {error}", where=str(path)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)  # its own words would show the value
        at = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"the sources are no YAML{at}", where=str(path), hint="see docs/knowledge.md") from error
    except ValidationError as error:
        first = error.errors()[0]
        place, says = ".".join(map(str, first["loc"])) or "the file", WORDS.get(first["type"], first["msg"])
        raise ConfigError(f"{place}: {says}", where=str(path), hint="see docs/knowledge.md") from error
    names = [source.name for source in settings.sources]
    if len(set(names)) < len(names):
        raise ConfigError("two sources of one name", where=str(path), hint="give each a `name` of its own")
    return settings


def open_sources(path: Path | None, retriever: Retriever | None = None) -> Sources:
    """Opens every source of a file; `retriever` serves a text source that names no index, and is the only source where
    no file is given."""
    if path is None:
        return Sources([_open(Text(kind="text"), Path(), retriever)])
    settings = read_sources(path)
    return Sources([_open(source, path.parent, retriever) for source in settings.sources])


def _open(settings: Text | Graph | Sparql | Web, base: Path, retriever: Retriever | None) -> Source:
    match settings:
        case Text():
            if settings.index is not None:
                retriever = LocalRetriever(Index.open(base / settings.index))
            if retriever is None:
                raise ConfigError("a text source without `index`, and no retriever is served", where=settings.name)
            return TextSource(retriever, settings.name, timeout=settings.timeout)
        case Graph():
            store = GraphStore(base / settings.folder, timeout=settings.timeout)
            return GraphSource(store, settings.name, timeout=settings.timeout)
        case Sparql():
            rdfs = Vocabulary(label=NamedNode(settings.label))
            kind = WIKIDATA if settings.vocabulary == "wikidata" else rdfs
            vocabulary = replace(kind, language=settings.language)
            endpoint = SparqlEndpoint(settings.url, vocabulary, timeout=settings.timeout)
            return GraphSource(endpoint, settings.name, timeout=settings.timeout)
        case Web():
            return WebSource(settings.api, settings.name, url=settings.url, timeout=settings.timeout)
