"""`revelator eval run --rows`: how well a reader or a language model reads, on rows of question, passage and answers.

FOLDER/reading.json    written first: who reads which rows, and by which code
FOLDER/readings.jsonl  one object for each row (`ReadRow`), appended when it has been read

A measurement that was interrupted goes on in its folder; one that differs from what stands there is refused.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from revelator.errors import ConfigError, DataError, DeadlineExceeded, Unavailable

if TYPE_CHECKING:
    from evaluation.harness.config import GeneratorConfig
    from evaluation.metrics.bootstrap import Interval
    from revelator.reading import Reader, ReadingRow
    from serving.models.adapters import Adapter
    from serving.protocols import Generator

ABOUT, READINGS = "reading.json", "readings.jsonl"
AT_ONCE = 256  # rows that the embedded reader reads together
LABELS = {
    "em": "exact match",
    "f1": "F1",
    "answered": "answered, of rows with an answer",
    "refused": "refused, of rows without one",
    "no_answer_auc": "AUC of rows with an answer against the others",
    "span_f1": "F1 of list items",
    "seconds": "seconds a row",
    "tokens_in": "tokens in a row",
    "tokens_out": "tokens out a row",
}
TIMEOUT = 300.0  # seconds of one reading at an endpoint


@dataclass(frozen=True)
class ReadRow:
    """What was read of one row. `golds` are the texts of which each is the whole answer, () where the passage does not
    say it: then `em` and `f1` are None. `probability` that the passage answers; None where the model gives none, whose
    answers count as certain. `items` are those of a list answer (`revelator.scores.count_items`)."""

    id: str
    question: str
    golds: tuple[str, ...]
    answers: tuple[str, ...]
    probability: float | None
    em: float | None
    f1: float | None
    items: tuple[int, int] | None
    seconds: float
    tokens_in: int = 0
    tokens_out: int = 0
    method: str = ""
    reason: str = ""

    @classmethod
    def score(cls, row: ReadingRow, answers: Sequence[str], probability: float | None, **more: Any) -> ReadRow:
        from revelator.scores import count_items, list_golds, score_reading

        scores = score_reading(row, answers) if row.is_answerable else None
        return cls(
            row.id,
            row.question,
            tuple(list_golds(row)),
            tuple(answers),
            probability,
            scores.em if scores else None,
            scores.f1 if scores else None,
            count_items(row, answers) if row.is_list and row.answers else None,
            **more,
        )


Write = Callable[[Sequence[ReadRow]], None]


def measure_reader(
    file: Path,
    *,
    folder: Path | None = None,
    adapter: Adapter | None = None,
    endpoint: GeneratorConfig | None = None,
    timeout: float | None = None,
    only_dev: bool = False,
    sample: int | None = None,
    seed: int | None = None,
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Lets the reader in `folder` (the one that ships without it), a revelator's adapter or a language model read the
    rows of `file`, and prints its figures. `only_dev` leaves the rows of the articles that the reader's training held
    back."""
    from evaluation.rows import take_sample
    from evaluation.seen import SeenCount, TrainedModel, find_seen
    from revelator.artifact import EMBEDDED_READER, find_base, require_task
    from revelator.files import sha256_file, sha256_folder, sha256_text
    from revelator.folders import MANIFEST
    from revelator.reading import load_rows
    from serving.models.adapters import open_engine
    from serving.models.generators import EndpointGenerator
    from serving.models.reader import load_reader
    from training.reading_examples import is_dev

    if folder and (endpoint or adapter):
        raise ConfigError("one of them reads: leave --reader or --generator out", where="--reader")
    rows = [row for row in load_rows(file) if not only_dev or is_dev(row)]
    if not rows:
        raise DataError("no row is left", where=str(file), hint="leave --dev out, or give rows of more articles")
    rows = take_sample(rows, sample, seed or 0, lambda row: row.id + row.question)
    timeout = timeout or TIMEOUT
    if endpoint:
        trained = TrainedModel.make_unknown(endpoint.model)
        out = out or Path("runs") / "evaluations" / file.name.partition(".")[0]
        about: dict[str, Any] = {"reader": f"{endpoint.model} at {endpoint.url}", "timeout": timeout}
    elif adapter:
        require_task("read", find_base(adapter.base_name), adapter.folder)
        trained = TrainedModel.read_revelator(adapter.folder, adapter.base_name)
        made = sha256_file(adapter.folder / MANIFEST) if adapter.folder else ""
        about = {
            "reader": f"revelator {adapter.folder or 'base'}",
            "base": adapter.base_name,
            "manifest (sha256)": made,
        }
    else:
        trained, folder = TrainedModel.read_reader(folder), folder or EMBEDDED_READER
        about = {"reader": trained.name, "reader (sha256)": sha256_text(json.dumps(sha256_folder(folder)))}
    with ExitStack() as stack:
        readings, write = open_measurement(rows, about, out, stack)
        left = rows[len(readings) :]
        if endpoint:
            language_model = EndpointGenerator(endpoint.url, endpoint.model, timeout=timeout)
            asyncio.run(read_one_by_one(left, language_model, write, language_model.close))
        elif adapter and left:
            from serving.models.local import LocalRevelator
            from serving.models.revelator_reader import RevelatorReader

            local = LocalRevelator(open_engine(adapter))
            stack.callback(local.close)
            asyncio.run(read_one_by_one(left, RevelatorReader(local), write))
        elif left:
            assert folder is not None
            read_here(left, load_reader(folder), write)
    figures = measure_readings(readings, is_language_model=bool(endpoint or adapter))
    seen = SeenCount.of((find_seen([trained], [r.question], [r.title]) for r in rows), trained.fingerprints.unknown)
    if as_json:
        click.echo(json.dumps({"reader": about["reader"], "n": len(rows), "figures": figures} | seen.to_json()))
        return
    print_figures(f"{about['reader']} on {len(rows):,} rows of {file.name}", figures)
    click.echo(str(seen) + (f"\nevery row: {out / READINGS}" if out else ""))


def open_measurement(
    rows: Sequence[ReadingRow], about: Mapping[str, Any], out: Path | None, stack: ExitStack
) -> tuple[list[ReadRow], Write]:
    """The rows that were read before, and what adds more to them: in memory, in the folder if there is one, and on the
    progress bar. The folder is locked until the stack is closed.

    Raises ConfigError where another process measures there or something else stands there, and ArtifactError that names
    what differs from the measurement there."""
    import revelator
    import serving
    from evaluation.rows import (
        append_rows,
        begin_folder,
        continue_rows,
        find_differences,
        lock_folder,
        progress_bar,
        refuse_differences,
    )
    from revelator.files import digest_code, sha256_text

    readings: list[ReadRow] = []
    if out:
        stack.enter_context(lock_folder(out))
        digest = sha256_text("\n".join(row.to_json() for row in rows))
        about = {**about, "rows": len(rows), "rows (sha256)": digest, "code": digest_code(revelator, serving)}
        if not begin_folder(out / ABOUT, about):
            refuse_differences(find_differences(json.loads((out / ABOUT).read_bytes()), about), out)
            readings = continue_rows(out / READINGS, ReadRow)
    progress = stack.enter_context(progress_bar())
    bar = progress.add_task(about["reader"], total=len(rows), completed=len(readings))

    def write(more: Sequence[ReadRow]) -> None:
        if out:
            append_rows(out / READINGS, more)
        readings.extend(more)
        progress.advance(bar, len(more))

    return readings, write


def read_here(rows: Sequence[ReadingRow], reader: Reader, write: Write) -> None:
    """Lets a reader in this process read the rows, `AT_ONCE` at a time."""
    for start in range(0, len(rows), AT_ONCE):
        part = rows[start : start + AT_ONCE]
        began = time.perf_counter()
        outcomes = reader.read_all([(row.question, [(row.title, row.passage)]) for row in part])
        took = (time.perf_counter() - began) / len(part)
        pairs = zip(part, outcomes, strict=True)
        write([ReadRow.score(row, found.answers, found.probability, seconds=took) for row, found in pairs])


async def read_one_by_one(
    rows: Sequence[ReadingRow], generator: Generator, write: Write, close: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Lets a language model read every row, one after the other. A row that it refuses or that takes too long stays
    unanswered. Raises Unavailable when its endpoint is down."""
    from revelator.errors import InvalidRequest
    from revelator.language_model import RefusedError
    from revelator.trace import Passage
    from serving.protocols import GenerateRequest, Reading

    try:
        for row in rows:
            began = time.perf_counter()
            passage = Passage(row.id, row.title, row.passage)
            try:
                found = await generator.answer(GenerateRequest("read", row.question, (passage,)))
            except (DeadlineExceeded, InvalidRequest, RefusedError) as error:
                found = Reading("", (), reason=str(error))
            took = time.perf_counter() - began
            spent = {"seconds": took, "tokens_in": found.tokens_in, "tokens_out": found.tokens_out}
            about = {"method": found.method, "reason": found.reason}
            write([ReadRow.score(row, found.answers, found.probability, **spent, **about)])
    except Unavailable as error:
        hint = f"{error.hint or 'mend it'}; what was read is kept, and the same command goes on"
        raise Unavailable(error.message, where=error.where, hint=hint) from error
    finally:
        if close:
            await close()


def measure_readings(readings: Sequence[ReadRow], *, is_language_model: bool) -> dict[str, dict[str, float]]:
    """The figures of `LABELS` as {n, value, low, high}, without those of which there is no row. Only a language model
    refuses rows, and has tokens."""
    from evaluation.metrics.bootstrap import bootstrap, bootstrap_auc, bootstrap_ratio

    scored = [(one.em, one.f1) for one in readings if one.em is not None and one.f1 is not None]
    listed = [one.items for one in readings if one.items]
    certain = [float(bool(one.answers)) if one.probability is None else one.probability for one in readings]
    found: dict[str, Interval] = {
        "em": bootstrap([em for em, _ in scored]),
        "f1": bootstrap([f1 for _, f1 in scored]),
        "no_answer_auc": bootstrap_auc(certain, [bool(one.golds) for one in readings]),
        "span_f1": bootstrap_ratio([right for right, _ in listed], [both for _, both in listed]),
        "seconds": bootstrap([one.seconds for one in readings]),
    }
    if is_language_model:
        found |= {
            "answered": bootstrap([bool(one.answers) for one in readings if one.golds]),
            "refused": bootstrap([not one.answers for one in readings if not one.golds]),
            "tokens_in": bootstrap([one.tokens_in for one in readings]),
            "tokens_out": bootstrap([one.tokens_out for one in readings]),
        }
    return {name: found[name].to_json() for name in LABELS if name in found and found[name].n}


def print_figures(title: str, figures: Mapping[str, Mapping[str, float]]) -> None:
    table = Table("", "mean", "95 % interval", "n", title=title, title_justify="left")
    for name, figure in figures.items():
        decimals = 1 if name.startswith("tokens") else 3
        value, low, high = (f"{figure[part]:,.{decimals}f}" for part in ("value", "low", "high"))
        table.add_row(LABELS[name], value, f"[{low}, {high}]", f"{figure['n']:,}")
    Console().print(table)
