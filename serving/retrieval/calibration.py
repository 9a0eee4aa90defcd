"""Labelled passages → calibrations of a logical search, and the file that carries them from one command to another."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from revelator.errors import ArtifactError, DataError
from revelator.files import write_json
from serving.retrieval.index import Index
from serving.retrieval.logical_search import (
    Calibrations,
    Source,
    choose_source,
    compute_raw_scores,
    embed_terms,
    fit_calibration,
)

FORMAT = "revelator-calibration-1"
ROW = 'each line is one JSON object: {"term": "gene therapy", "passage": "its id", "relevant": true}'


@dataclass(frozen=True)
class Label:
    """Whether a passage is about a term; `where` is the place in the file that says so."""

    term: str
    passage: str
    relevant: bool
    where: str


def read_labels(path: Path) -> list[Label]:
    """The labels of a file of JSON lines. Raises DataError with the line."""
    labels: dict[tuple[str, str], Label] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    label = _read_label(line, f"{path}:{number}")
                    before = labels.setdefault((label.term, label.passage), label)
                    if before is not label:
                        message = f"passage {label.passage!r} has a label for this term already at {before.where}"
                        raise DataError(message, where=label.where)
    except OSError as error:
        raise DataError(f"the labels cannot be read: {error.strerror}", where=str(path)) from error
    if len({label.relevant for label in labels.values()}) < 2:
        raise DataError("a calibration needs labels of both kinds", where=str(path), hint=ROW)
    return list(labels.values())


def _read_label(line: bytes, where: str) -> Label:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"not a line of JSON: {error}", where=where, hint=ROW) from error
    if not isinstance(row, dict):
        raise DataError(f"not an object but {type(row).__name__}", where=where, hint=ROW)
    term, passage, relevant = (row.get(name) for name in ("term", "passage", "relevant"))
    if not isinstance(term, str) or not any(c.isalnum() for c in term):
        raise DataError("`term` is missing or holds no word", where=where, hint=ROW)
    if not isinstance(passage, str | int) or isinstance(passage, bool):
        raise DataError("`passage` is missing or neither a string nor a whole number", where=where, hint=ROW)
    if not isinstance(relevant, bool):
        raise DataError("`relevant` is missing or neither true nor false", where=where, hint=ROW)
    return Label(term, str(passage), relevant, where)


def fit_calibrations(index: Index, labels: Sequence[Label], source: Source | None = None) -> Calibrations:
    """A calibration for all terms, and one for each term that has labels of both kinds.

    Raises DataError for a passage that the index does not hold, ConfigError for scores that it does not hold.
    """
    source = choose_source(index, source)
    places, labelled = _find_places(index, labels), defaultdict(list)
    for label in labels:
        labelled[label.term].append(label)
    vectors, matrix = embed_terms(index, list(labelled)) if source != "bm25" else (None, np.empty(0))
    scores, fitted = [], {}
    for number, (term, own) in enumerate(labelled.items()):
        at, truth = np.array([places[label.passage] for label in own]), [label.relevant for label in own]
        cosines = None if vectors is None else matrix[at] @ vectors[number]
        scores.append(compute_raw_scores(index, term, cosines, source, at))
        if len(set(truth)) == 2:
            fitted[term] = fit_calibration(scores[-1], truth)
    truths = [label.relevant for own in labelled.values() for label in own]
    model = index.manifest["model"]["digest"] if source != "bm25" else ""
    return Calibrations(source, model, fit_calibration(np.concatenate(scores), truths), fitted)


def _find_places(index: Index, labels: Sequence[Label]) -> dict[str, int]:
    """The position of each labelled passage: one reading of the store, which finds passages by position alone."""
    wanted = {label.passage for label in labels}
    places: dict[str, int] = {}
    for position in range(len(index)):
        if (name := index.passages[position].id) in wanted:
            places[name] = position
            if len(places) == len(wanted):
                return places
    missing = next(label for label in labels if label.passage not in places)
    raise DataError(f"the index holds no passage {missing.passage!r}", where=missing.where)


def write_calibrations(path: Path, fitted: Calibrations) -> dict[str, Any]:
    """Writes the file of `--calibration`, and returns what it says."""
    described = {"format": FORMAT, **asdict(fitted)}
    write_json(path, described)
    return described


def read_calibrations(path: Path) -> Calibrations:
    """What `write_calibrations` wrote. Raises ArtifactError."""
    hint = "make it with `revelator index calibrate DIR LABELS.jsonl --out FILE`"
    try:
        row = json.loads(path.read_bytes())
        if row.pop("format") != FORMAT:
            raise ValueError
        return TypeAdapter(Calibrations).validate_python(row)
    except OSError as error:
        raise ArtifactError(f"the calibration cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtifactError("not a calibration of this version", where=str(path), hint=hint) from error
