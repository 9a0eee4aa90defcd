"""`revelator eval reading`: how well a reader reads, on rows of question, passage and answers."""

from __future__ import annotations

import json
from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--reader", "folder", type=FILE, help="Folder of a trained reader.  [default: the one that ships]")
@click.option("--dev", "only_dev", is_flag=True, help="Only the articles that the reader's training held back.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def reading(file: Path, folder: Path | None, only_dev: bool, as_json: bool) -> None:
    """Score a reader on FILE, JSON lines of question, passage and answers (gzipped or not).

    n counts rows; em and f1 are over those that have an answer, by SQuAD's rule; no_answer_auc is the area under the
    curve of those against the others; span_f1 is over the exact items of list answers. seen counts the rows whose
    question or article the reader was trained on.

    \b
    Example:
      revelator eval reading runs/reading/squad2_dev.jsonl.gz --json
      revelator eval reading runs/reading/squad2_dev.jsonl.gz --reader runs/readers/mine --dev --json
    """
    from evaluation.seen import SeenCount, TrainedModel, find_seen
    from revelator.artifact import EMBEDDED_READER
    from revelator.reading import load_rows
    from revelator.scores import score_outcomes
    from serving.models.reader import load_reader
    from training.reading_examples import is_dev

    rows = load_rows(file)
    reader = load_reader(folder or EMBEDDED_READER)
    if only_dev:
        rows = [row for row in rows if is_dev(row)]
    outcomes = reader.read_all([(row.question, [(row.title, row.passage)]) for row in rows])
    figures = score_outcomes(rows, outcomes).to_json()
    model = TrainedModel.read_reader(folder)
    seen = SeenCount.of((find_seen([model], [r.question], [r.title]) for r in rows), model.fingerprints.unknown)
    if as_json:
        click.echo(json.dumps(figures | seen.to_json()))
        return
    for name, value in figures.items():
        click.echo(f"{name:>13}  {'none of this kind' if value is None else round(value, 3)}")
    click.echo(str(seen))
