"""`revelator index calibrate`: labelled passages → the calibration of a logical search."""

from __future__ import annotations

import json
from pathlib import Path

import click

from revelator.terminal import printable
from serving.commands.index_search import AS_JSON, FOLDER, choice
from serving.retrieval import Index
from serving.retrieval.calibration import fit_labels, read_labels, write_calibrations
from serving.retrieval.logical_search import Calibration, Source


@click.command()
@click.argument("folder", metavar="DIR", type=FOLDER)
@click.argument("labels", metavar="LABELS", type=FOLDER)
@click.option("--out", required=True, type=FOLDER, help="File for `index search --logic --calibration`.")
@click.option("--source", type=choice(Source), help="Scores to calibrate.  [default: dense if the index has it]")
@AS_JSON
def calibrate(folder: Path, labels: Path, out: Path, source: Source | None, as_json: bool) -> None:
    """Fit how likely a passage is about a term, from its score and LABELS.

    A row of LABELS says whether a passage of the index is about a term: {"term": "gene therapy", "passage": "its id",
    "relevant": true}. A term with labels of both kinds gets a calibration of its own; one fitted on all labels
    stands for every other term.

    \b
    Example:
      revelator index calibrate runs/indexes/papers labels.jsonl --out fitted.json
      revelator index search runs/indexes/papers --logic '"gene therapy" AND NOT "mice"' --calibration fitted.json
    """
    rows = read_labels(labels)
    fitted = fit_labels(Index.open(folder), rows, source)
    described = write_calibrations(out, fitted)
    relevant = sum(row.relevant for row in rows)
    if as_json:
        counts = {"out": str(out), "labels": len(rows), "relevant": relevant}
        click.echo(json.dumps(counts | described, ensure_ascii=False))
        return
    for term, own in fitted.terms.items():
        click.echo(printable(f"{_said(own)}  {json.dumps(term, ensure_ascii=False)}"))
    click.echo(f"{_said(fitted.general)}  every other term ({len(rows):,} labels, {relevant:,} relevant)")
    click.echo(f"next: revelator index search {folder} --logic '…' --calibration {out}")


def _said(calibration: Calibration) -> str:
    return f"threshold {calibration.threshold:.3f}  slope {calibration.slope:.1f}"
