"""An instruction set on disk: one parquet file a split, a data card, and `manifest.json`, written last.

Records stream through in row groups, so that memory does not grow with the set. The digest is over the records' files
alone: the same configuration and inputs give the same digest on any day.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from data_gen.annotated import SPLITS
from data_gen.builder import Record
from data_gen.card import card
from revelator.errors import ConfigError, DataError
from revelator.files import sha256_file, sha256_text, staged_folder, write_json
from revelator.tasks import prompt_hash

FORMAT = 2
ROW_GROUP = 2_000
COLUMNS = tuple(field.name for field in fields(Record))
SCHEMA = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS])
COUNTED = ("split", "task", "source", "licence", "shape", "label", "teacher")


def table_of(records: Sequence[Record]) -> pyarrow.Table:
    """Records as a table with the columns of a set."""
    return pyarrow.table({name: [getattr(record, name) for record in records] for name in COLUMNS}, schema=SCHEMA)


class SetWriter:
    """Takes tables of records, counts them, and writes row groups of the same size whatever the size of the tables."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._files = {
            split: stack.enter_context(parquet.ParquetWriter(folder / f"{split}.parquet", SCHEMA, compression="zstd"))
            for split in SPLITS
        }
        self._waiting: dict[str, list[pyarrow.Table]] = {split: [] for split in SPLITS}
        self.counts: Counter[tuple[str, ...]] = Counter()  # values of the columns COUNTED → records

    def add(self, records: pyarrow.Table) -> None:
        for split, waiting in self._waiting.items():
            chosen = records.filter(compute.equal(records["split"], split))
            if chosen.num_rows:
                waiting.append(chosen)
            if sum(table.num_rows for table in waiting) >= ROW_GROUP:
                self._write(split, whole_groups=True)

    def close(self) -> None:
        for split in SPLITS:
            self._write(split, whole_groups=False)

    def _write(self, split: str, *, whole_groups: bool) -> None:
        """Writes what waits; with `whole_groups`, what is beyond the last whole row group goes on waiting."""
        table = pyarrow.concat_tables([SCHEMA.empty_table(), *self._waiting[split]])
        end = table.num_rows // ROW_GROUP * ROW_GROUP if whole_groups else table.num_rows
        for start in range(0, end, ROW_GROUP):
            group = table.slice(start, min(ROW_GROUP, end - start)).combine_chunks()
            self._files[split].write_table(group)
            self._count(group)
        self._waiting[split] = [table.slice(end)]

    def _count(self, group: pyarrow.Table) -> None:
        for row in group.group_by(list(COUNTED)).aggregate([([], "count_all")]).to_pylist():
            self.counts[tuple(row[name] for name in COUNTED)] += row["count_all"]


@contextmanager
def writing(target: Path, about: dict[str, Any]) -> Iterator[SetWriter]:
    """A writer whose set appears at `target` whole when the block ends, or not at all.

    `about` is filled by the block: config, inputs, questions, dropped, refused_rows, grammar_hash and teaching go into
    the manifest.
    """
    with staged_folder(target) as stage:
        with ExitStack() as stack:
            writer = SetWriter(stage, stack)
            yield writer
            writer.close()
        if not writer.counts:
            raise DataError(_nothing(about), where=str(target), hint="mend the rows or change the configuration")
        manifest = _manifest(stage, writer, about)
        (stage / "README.md").write_text(card(manifest), encoding="utf-8")
        manifest["files"]["README.md"] = sha256_file(stage / "README.md")
        write_json(stage / "manifest.json", manifest)


def _nothing(about: dict[str, Any]) -> str:
    """Why a set is empty: the reasons with their counts, and the first malformed rows."""
    reasons = [f"{reason}: {count}" for reason, count in about["dropped"].items()]
    rows = [f"{row['file']}, line {row['line']}: {row['reason']}" for row in about["refused_rows"][:3]]
    return "\n  ".join(["not one record came out of the build", *reasons, *rows])


def check_place(target: Path) -> None:
    """Refuses, with ConfigError, a place that holds something other than an instruction set: it would be replaced."""
    if target.exists() and not target.is_dir():
        raise ConfigError(f"{target} is a file", where="--out", hint="name a folder")
    if target.is_dir() and any(target.iterdir()) and _read(target / "manifest.json") is None:
        raise ConfigError(
            f"{target} is not empty and not an instruction set", where="--out", hint="name another folder, or empty it"
        )


def _read(path: Path) -> dict[str, Any] | None:
    """A set's manifest, or None if the file is absent or something else."""
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and {"prompt_hash", "files", "digest"} <= manifest.keys() else None


def _manifest(folder: Path, writer: SetWriter, about: dict[str, Any]) -> dict[str, Any]:
    files = {f"{split}.parquet": sha256_file(folder / f"{split}.parquet") for split in SPLITS}
    return {
        **about,
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "counts": {
            name: _counted(writer.counts, COUNTED.index(name))
            for name in ("task", "source", "licence", "shape", "teacher")
        },
        "labels": _labels(writer.counts),
        "records": _totals(writer.counts),
        "prompt_hash": prompt_hash(),
        "files": files,
        "digest": sha256_text(json.dumps(files, sort_keys=True)),
    }


def _counted(counts: Counter[tuple[str, ...]], position: int) -> dict[str, dict[str, int]]:
    """Split → value at `position` → records."""
    table: dict[str, dict[str, int]] = {split: {} for split in SPLITS}
    for key, count in sorted(counts.items()):
        row = table[key[0]]
        if key[position]:
            row[key[position]] = row.get(key[position], 0) + count
    return table


def _labels(counts: Counter[tuple[str, ...]]) -> dict[str, dict[str, int]]:
    table: dict[str, dict[str, int]] = {}
    for key, count in sorted(counts.items()):
        if key[5]:
            row = table.setdefault(key[1], {})
            row[key[5]] = row.get(key[5], 0) + count
    return table


def _totals(counts: Counter[tuple[str, ...]]) -> dict[str, int]:
    return {split: sum(count for key, count in counts.items() if key[0] == split) for split in SPLITS}


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a finished set whose files are as they were written. Raises DataError otherwise."""
    manifest = _read(folder / "manifest.json")
    if manifest is None:
        raise DataError(
            "no manifest.json of a set: this is no instruction set, or one whose build did not finish",
            where=str(folder),
            hint="build one: revelator data build CONFIG.yaml --out DIR",
        )
    for name, digest in manifest["files"].items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            raise DataError(
                "missing, or changed since the set was built", where=str(folder / name), hint="build it again"
            )
    return manifest


def read_records(folder: Path, split: str, task: str | None = None) -> Iterator[Record]:
    """Records of one split, in the order in which they were written. Raises DataError for a set of other columns."""
    if set(parquet.read_schema(folder / f"{split}.parquet").names) != set(COLUMNS):
        raise DataError("a set of another release", where=str(folder), hint="build it again: revelator data build")
    for batch in parquet.ParquetFile(folder / f"{split}.parquet").iter_batches(batch_size=ROW_GROUP):
        for row in batch.to_pylist():
            if task is None or row["task"] == task:
                yield Record(**row)
