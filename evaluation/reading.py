"""`revelator eval reading`: how well a reader or a language model reads, on rows of question, passage and answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from revelator.errors import ConfigError, DataError, DeadlineExceeded

if TYPE_CHECKING:
    from revelator.reading import ReadingRow
    from serving.protocols import Reading

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("file", type=FILE)
@click.option("--reader", "folder", type=FILE, help="Folder of a trained reader.  [default: the one that ships]")
@click.option("--generator", "url", metavar="URL", help="An OpenAI-compatible endpoint that reads in its place.")
@click.option("--generator-model", "model", metavar="NAME", help="The endpoint's model.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), default=300.0, help="Seconds of a reading there.")
@click.option("--dev", "only_dev", is_flag=True, help="Only the articles that the reader's training held back.")
@click.option("--sample", type=click.IntRange(1), help="Only the first so many rows by the sha256 of id and question.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def reading(
    file: Path,
    folder: Path | None,
    url: str | None,
    model: str | None,
    timeout: float,
    only_dev: bool,
    sample: int | None,
    as_json: bool,
) -> None:
    """Score a reader on FILE, JSON lines of question, passage and answers (gzipped or not).

    n counts rows; em and f1 are over those that have an answer, by SQuAD's rule; no_answer_auc is the area under the
    curve of those against the others; span_f1 is over the exact items of list answers. seen counts the rows whose
    question or article the reader was trained on. With --generator, a row that it leaves unanswered has em and f1 0;
    answered and refused are the shares of rows with and without an answer that it answers and refuses, and tokens and
    seconds are means of a row.

    \b
    Examples:
      revelator eval reading runs/reading/squad2_dev.jsonl.gz --json
      revelator eval reading runs/reading/squad2_dev.jsonl.gz --reader runs/readers/mine --dev --json
      revelator eval reading runs/reading/squad2_dev.jsonl.gz --generator http://127.0.0.1:8090/v1 \\
        --generator-model qwen --sample 200
    """
    from evaluation.seen import SeenCount, TrainedModel, find_seen
    from revelator.artifact import EMBEDDED_READER
    from revelator.files import sha256_text
    from revelator.reading import load_rows
    from revelator.scores import score_outcomes
    from serving.models.reader import load_reader
    from training.reading_examples import is_dev

    if (url is None) != (model is None):
        raise ConfigError("an endpoint needs --generator and --generator-model", where="--generator")
    if url and folder:
        raise ConfigError("one of them reads: leave --reader or --generator out", where="--reader")
    rows = [row for row in load_rows(file) if not only_dev or is_dev(row)]
    if not rows:
        raise DataError("no row is left", where=str(file), hint="leave --dev out, or give rows of more articles")
    rows = sorted(rows, key=lambda row: sha256_text(row.id + row.question))[:sample]
    if url and model:
        figures = asyncio.run(score_endpoint(rows, url, model, timeout))
        trained = TrainedModel.make_unknown(model)
    else:
        reader = load_reader(folder or EMBEDDED_READER)
        outcomes = reader.read_all([(row.question, [(row.title, row.passage)]) for row in rows])
        figures = score_outcomes(rows, outcomes).to_json()
        trained = TrainedModel.read_reader(folder)
    seen = SeenCount.of((find_seen([trained], [r.question], [r.title]) for r in rows), trained.fingerprints.unknown)
    if as_json:
        click.echo(json.dumps(figures | seen.to_json()))
        return
    for name, value in figures.items():
        click.echo(f"{name:>13}  {'none of this kind' if value is None else round(value, 3)}")
    click.echo(str(seen))


async def score_endpoint(rows: Sequence[ReadingRow], url: str, model: str, seconds: float) -> dict[str, Any]:
    """The figures of a language model that reads every row, one after the other; `seconds` is the limit of one."""
    from evaluation.rows import progress_bar
    from revelator.language_model import RefusedError
    from revelator.scores import score_outcomes
    from revelator.trace import Passage
    from serving.models.generators import EndpointGenerator
    from serving.protocols import GenerateRequest, Reading

    generator = EndpointGenerator(url, model, timeout=seconds)
    outcomes: list[Reading] = []
    began = time.perf_counter()
    try:
        with progress_bar() as progress:
            for row in progress.track(rows, description=model):
                passage = Passage(row.id, row.title, row.passage)
                try:
                    outcomes.append(await generator.answer(GenerateRequest("read", row.question, (passage,))))
                except (DeadlineExceeded, RefusedError) as error:  # of this row; an endpoint that is gone ends the rest
                    outcomes.append(Reading("", (), reason=str(error)))
    finally:
        await generator.close()
    took = (time.perf_counter() - began) / len(rows)
    pairs = list(zip(rows, outcomes, strict=True))
    return {
        **score_outcomes(rows, [EndpointOutcome.of(outcome) for outcome in outcomes]).to_json(),
        "answered": _average([bool(outcome.answers) for row, outcome in pairs if row.is_answerable]),
        "refused": _average([not outcome.answers for row, outcome in pairs if not row.is_answerable]),
        "tokens_in": _average([outcome.tokens_in for outcome in outcomes]),
        "tokens_out": _average([outcome.tokens_out for outcome in outcomes]),
        "seconds": took,
    }


class EndpointOutcome(NamedTuple):
    """`revelator.scores.Outcome` of a language model. Without log probabilities an answer counts as certain."""

    answers: tuple[str, ...]
    probability: float

    @classmethod
    def of(cls, reading: Reading) -> EndpointOutcome:
        said = reading.probability
        return cls(reading.answers, float(bool(reading.answers)) if said is None else said)


def _average(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
