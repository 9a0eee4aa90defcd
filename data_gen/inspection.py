"""Looking into finished sets: sample records, what changed from one set to another, and held-out questions.

The difference of two sets: configuration, hashes, records, and questions in another split. A record is known by its id,
a question by its normalised text and by the id that its records share (`group`). Of each record about 150 bytes are
held: digests, and the names of its split, task, source and prompt.

Held-out questions: a build drops them as it reads (`data_gen.leakage`); this looks at what was written, whoever wrote
it. Of a set: the question, prompt and completion of each record; of a world, whose questions GRPO runs plans over, and
of any file of rows: each text. Looked at are the whole, its lines, and each part that ends in a question mark.
"""

from __future__ import annotations

import heapq
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas
import pyarrow.parquet as parquet
from rich.console import Console
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table

from data_gen.instruction_set import COLUMNS, ROW_GROUP, SPLITS, read_manifest, read_records
from data_gen.leakage import digest, question_digest
from data_gen.records import Record
from data_gen.sources.files import Malformed, file_rows
from revelator.durable import sha256_text
from revelator.errors import DataError
from revelator.tasks import TASKS
from revelator.terminal import printable, shown


def samples(folder: Path, split: str, task: str | None, count: int) -> dict[str, list[Record]]:
    """`count` records a task, drawn by the hash of their id: the same ones at every look."""
    chosen = {}
    for name in [task] if task else list(TASKS):
        chosen[name] = heapq.nsmallest(
            count, read_records(folder, split, name), key=lambda record: sha256_text(record.id)
        )
    return chosen


def show(console: Console, folder: Path, chosen: dict[str, list[Record]]) -> None:
    """The data card of a set, then the chosen records."""
    console.print(Markdown(printable((folder / "README.md").read_text(encoding="utf-8"))))
    for task, records in chosen.items():
        for record in records:
            about = " · ".join(x for x in (task, record.source, record.shape, record.id) if x)
            text = f"{shown(record.prompt)}[bold green]{shown(record.completion)}[/]"
            console.print(Panel(text, title=shown(about), title_align="left"))


def counts_table(manifest: dict[str, Any]) -> Table:
    """Records by task and split, as the manifest counts them."""
    by_split = manifest["counts"]["task"]
    table = Table("task", *by_split, title=f"{shown(manifest['config']['name'])}  digest {manifest['digest'][:12]}")
    for task in TASKS:
        table.add_row(task, *(f"{counts.get(task, 0):,}" for counts in by_split.values()))
    table.add_row("all", *(f"{manifest['records'][split]:,}" for split in by_split), style="bold")
    return table


def dropped_table(manifest: dict[str, Any]) -> Table:
    """What was left out: reasons with counts, then the malformed rows that are listed."""
    table = Table("left out because", "questions", title="Left out")
    for reason, count in manifest["dropped"].items():
        table.add_row(shown(reason), f"{count:,}")
    for row in manifest["refused_rows"]:
        table.add_row(shown(f"{row['file']}, line {row['line']}: {row['reason']}"), "")
    return table


NAMES = ("split", "task", "source", "prompt_hash")
KINDS = ("added", "removed", "changed")


def diff(old: Path, new: Path, samples: int = 3) -> dict[str, Any]:
    """The differences as plain values; `same` says whether there are none. Of each kind `samples` records are shown.

    Raises DataError for a folder that is no finished set.
    """
    before, after = read_manifest(old), read_manifest(new)
    columns = [name for name in COLUMNS if all(name in _columns(folder) for folder in (old, new))]
    a, b = _index(old, columns), _index(new, columns)
    both = a.merge(b, on="id", how="outer", suffixes=("_old", "_new"), indicator="side")
    is_changed = both.content_old != both.content_new
    both["kind"] = np.select([both.side == "right_only", both.side == "left_only", is_changed], KINDS, "")
    both = both[both.kind != ""]
    moved = _moved(a, b)
    found: dict[str, Any] = {
        "old": {"folder": str(old), "name": before["config"]["name"], "digest": before["digest"]},
        "new": {"folder": str(new), "name": after["config"]["name"], "digest": after["digest"]},
        "config": _changes(_flat(before["config"]), _flat(after["config"])),
        "hashes": _changes(_hashes(before, a), _hashes(after, b)),
        "records": {"task": _by(both, "task"), "source": _by(both, "source")},
        "shapes": _changes(_totals(before, "shape"), _totals(after, "shape")),
        "licences": _changes(_totals(before, "licence"), _totals(after, "licence")),
        "left_out": _changes(before["dropped"], after["dropped"]),
        "questions": {"added": _beyond(b, a), "removed": _beyond(a, b)},
        "moved": {f"{was} → {now}": len(rows) for (was, now), rows in moved.groupby(["was", "split"])},
    }
    found["same"] = not (found["config"] or found["hashes"] or found["left_out"] or len(both))
    found["samples"] = {kind: _sample_changes(old, new, both[both.kind == kind], samples) for kind in KINDS}
    found["samples"]["moved"] = [
        {"question": _read_row(new, row.split, row.row)["question"], "old": row.was, "new": row.split}
        for row in moved.nsmallest(samples, "question").itertuples()
    ]
    return found


def _columns(folder: Path) -> Sequence[str]:
    return parquet.read_schema(folder / "train.parquet").names


def _index(folder: Path, columns: Sequence[str]) -> pandas.DataFrame:
    """One row a record: digests of its id, its content, its question and group; its names; its place in its split."""
    return pandas.concat(_index_of_batches(folder, columns), ignore_index=True)


def _index_of_batches(folder: Path, columns: Sequence[str]) -> Iterator[pandas.DataFrame]:
    text_digest = lru_cache(maxsize=1024)(question_digest)
    for split in SPLITS:
        first = 0
        for batch in parquet.ParquetFile(folder / f"{split}.parquet").iter_batches(ROW_GROUP, columns=columns):
            values = {name: batch[name].to_pylist() for name in columns}
            digests = {
                "id": [digest(id) for id in values["id"]],
                "content": [digest("\0".join(row)) for row in zip(*values.values(), strict=True)],
                "question": [text_digest(text) for text in values["question"]],
                "group": [digest(group) for group in values["group"]],
            }
            names = batch.select(NAMES).to_pandas()
            rows = range(first, first + batch.num_rows)
            yield pandas.DataFrame(digests, dtype="uint64").join(names).assign(row=np.array(rows, dtype=np.int32))
            first += batch.num_rows


def _moved(a: pandas.DataFrame, b: pandas.DataFrame) -> pandas.DataFrame:
    """Questions of the new set whose text or group stood in another split (`was`) of the old one; one row each."""
    asked = b.drop_duplicates(["question", "group"])
    found = []
    for key in ("question", "group"):
        known = a.drop_duplicates(key)[[key, "split"]].rename(columns={"split": "was"})
        found.append(asked.merge(known, on=key))
    moved = pandas.concat(found)
    return moved[moved.split != moved.was].drop_duplicates("question")


def _beyond(these: pandas.DataFrame, those: pandas.DataFrame) -> int:
    """How many questions of `these` are not among `those`."""
    return int((~these.question.drop_duplicates().isin(those.question)).sum())


def _by(both: pandas.DataFrame, name: str) -> dict[str, dict[str, int]]:
    """Value of a column → kind of difference → records."""
    values = both[f"{name}_new"].where(both.kind != "removed", both[f"{name}_old"])
    counts = both.groupby([values, "kind"]).size().unstack(fill_value=0).reindex(columns=KINDS, fill_value=0)
    return {str(value): {kind: int(row[kind]) for kind in KINDS} for value, row in counts.iterrows()}


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Name → [old value, new value] where they differ; None where there is none."""
    names = sorted({*old, *new})
    return {name: [old.get(name), new.get(name)] for name in names if old.get(name) != new.get(name)}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """`{"split": {"dev": 0.1}}` → `{"split.dev": 0.1}`; elements of lists by their number."""
    if isinstance(value, list):
        value = {str(number): element for number, element in enumerate(value)}
    if not isinstance(value, dict):
        return {name: value}
    parts = [_flat(under, f"{name}.{part}" if name else part) for part, under in value.items()]
    return {field: found for part in parts for field, found in part.items()}


def _hashes(manifest: Mapping[str, Any], index: pandas.DataFrame) -> dict[str, str]:
    prompts = index.drop_duplicates(["task", "prompt_hash"])
    return {
        "grammar": manifest["grammar_hash"],
        "prompts": manifest["prompt_hash"],
        **{f"prompt of {task}": ", ".join(sorted(rows)) for task, rows in prompts.groupby("task").prompt_hash},
        **{f"input {path}": digest for path, digest in manifest["inputs"].items()},
    }


def _totals(manifest: Mapping[str, Any], name: str) -> dict[str, int]:
    """Records by the values of a column, over all splits."""
    counts: dict[str, int] = {}
    for split in manifest["counts"][name].values():
        for value, count in split.items():
            counts[value] = counts.get(value, 0) + count
    return counts


def _sample_changes(old: Path, new: Path, rows: pandas.DataFrame, count: int) -> list[dict[str, Any]]:
    """The first few by digest: an id, and the fields that differ with their old and new values."""
    shown = []
    for row in rows.nsmallest(count, "id").itertuples():
        sides = [
            {} if pandas.isna(place) else _read_row(folder, split, int(place))
            for folder, split, place in ((old, row.split_old, row.row_old), (new, row.split_new, row.row_new))
        ]
        shown.append({"id": (sides[0] or sides[1])["id"], "fields": _changes(*sides)})
    return shown


def _read_row(folder: Path, split: str, place: int) -> dict[str, str]:
    file = parquet.ParquetFile(folder / f"{split}.parquet")
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        if place < size:
            return file.read_row_group(group).slice(place, 1).to_pylist()[0]
        place -= size
    raise IndexError(place)


MANIFEST = "manifest.json"
QUESTIONS = "questions.jsonl"  # of a world, or of what a teacher annotated

ASKING = ["question", "prompt", "completion"]
LABEL = re.compile(r"^[A-Z][a-z]+: ", re.MULTILINE)  # how a line of a prompt says what it holds
ASKED = re.compile(r"[^?\n*+()]+\?")
BEFORE = re.compile(r"^.*[.:!\"“]")  # what may stand before a question in its line: a sentence, a quote, a number


def asked(written: str) -> Iterator[str]:
    """A text as a whole; its lines, without their labels as well; and each part that ends in a question mark, without
    what stands before it as well."""
    yield written
    yield from written.splitlines()
    yield from LABEL.sub("", written).splitlines()
    for part in ASKED.findall(written):
        yield part.strip()
        yield BEFORE.sub("", part).strip()


def texts(row: Any) -> Iterator[str]:
    """Every text below a row that could be a question, each once."""
    found: dict[str, None] = {}
    values = [row]
    while values:
        value = values.pop()
        if isinstance(value, str):
            found |= dict.fromkeys(asked(value))
        elif isinstance(value, dict):
            values += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            values += value
    yield from found


def rows(path: Path) -> Iterator[tuple[str, Iterator[str]]]:
    """Id (or line) and texts of each row. Raises DataError with the line of a row that cannot be read."""
    for line, row in file_rows(str(path)):
        if isinstance(row, Malformed):
            raise DataError(row.reason, where=f"{path}, line {line}", hint="mend the row, then look again")
        name = row.get("id") if isinstance(row, dict) else None
        yield str(name or f"line {line}"), texts(row)


def read(folder: Path, files: Iterable[str]) -> Iterator[dict[str, str]]:
    """The records of a set's files, of this release or an earlier one."""
    import pyarrow.parquet as parquet

    for file in (parquet.ParquetFile(folder / name) for name in files if name.endswith(".parquet")):
        if missing := {"id", *ASKING} - set(file.schema_arrow.names):
            raise DataError(f"no column {min(missing)}", where=str(folder), hint="this is no instruction set")
        for batch in file.iter_batches(batch_size=2_000, columns=["id", *ASKING]):
            yield from batch.to_pylist()


def looked_through(place: Path) -> tuple[Iterator[tuple[str, Iterator[str]]], int | None]:
    """Id and texts of each record, and how many there are where that is known, of a set, a world or a file of rows."""
    from data_gen.instruction_set import read_manifest

    if not place.is_dir():
        return rows(place), None
    if (place / QUESTIONS).is_file():
        return rows(place / QUESTIONS), None
    if not (place / MANIFEST).is_file():
        hint = "name a set, a world, a teacher's folder, or a file of rows"
        raise DataError(f"neither {MANIFEST} of a set nor {QUESTIONS} of a world", where=str(place), hint=hint)
    manifest = read_manifest(place)
    records = ((record["id"], texts([record[name] for name in ASKING])) for record in read(place, manifest["files"]))
    return records, sum(manifest["records"].values())


@click.command(name="leaks")
@click.argument("places", metavar="SET|WORLD|FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--held-out", required=True, type=click.Path(path_type=Path), help="Hashes of the held-out questions.")
@click.option("--json", "as_json", is_flag=True, help="Print counts and the ids of records as JSON.")
def leaks_command(places: tuple[Path, ...], held_out: Path, as_json: bool) -> None:
    """Look for held-out questions in what training reads: instruction sets, worlds, files of rows.

    Of a set, questions, prompts and completions; of a world or a teacher's folder, its questions.jsonl; of a FILE (JSON
    lines or array, CSV, parquet), every text. The exit status is 1 if there are any.

    \b
    Examples:
      revelator data leaks runs/sets/real --held-out ../shared/data/held_out.sha256
      revelator data leaks runs/sets/world runs/world --held-out held_out.sha256
      revelator data leaks runs/sets/* corpus.jsonl.gz --held-out held_out.sha256 --json
    """
    from rich.console import Console
    from rich.progress import track

    from data_gen.leakage import leaks, load_held_out

    held, looked, console = load_held_out(held_out), Counter(records=0, texts=0), Console(stderr=True)
    if not held:
        raise DataError("no hashes stand there", where=str(held_out), hint="`sha256  name` a line: docs/sources.md")
    found: list[dict[str, str]] = []
    for place in places:
        records, total = looked_through(place)
        for name, written in track(records, str(place), total, console=console, transient=True):
            looked.update(records=1)
            for text in written:
                looked.update(texts=1)
                if held_by := leaks(held, text):
                    found.append({"set": str(place), "id": name, "held_out": held_by, "text": text})
                    if not as_json:  # at once: a later row may end the command
                        click.echo(printable(f"{place}: {name}: {held_by}: {text}"))
    if as_json:
        click.echo(json.dumps({**looked, "hashes": len(held), "found": found}, ensure_ascii=False))
    else:
        click.echo(f"{looked['records']:,} records, {looked['texts']:,} texts: {len(found):,} held out ({held_out})")
    sys.exit(bool(found))
