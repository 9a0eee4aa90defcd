"""The instruction set: one row class, written, read and verified here alone.

A set is a folder: one parquet file a split, a data card, and `manifest.json`, written last. Rows stream through in row
groups, so that memory does not grow with the set. The digest is over the rows' files alone: the same configuration and
inputs give the same digest on any day.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from revelator.errors import ArtifactError, DataError
from revelator.files import sha256_file, sha256_text, stage_folder
from revelator.fingerprints import Fingerprints
from revelator.folders import FolderKind
from revelator.tasks import TASKS, prompt_hash

if TYPE_CHECKING:
    import pyarrow
    import pyarrow.parquet

SET = FolderKind("an instruction set", "revelator-set-2", "revelator data build CONFIG.yaml --out DIR")
SPLITS = ("train", "dev", "test")
ROW_GROUP = 2_000
COUNTED = ("split", "task", "source", "licence", "shape", "label", "teacher")
SINGLE = "A"  # the shape of a plan that is one question
BUILD = "build it again with this release: `revelator data build CONFIG.yaml --out DIR`"


@dataclass(frozen=True, slots=True)
class Row:
    """A prompt and its completion, with all that is known of them. Every value is text; "" where there is none.

    `group` is the id of the question that the row was made from, `question` its text. `label` is the gold label of a
    label task, `gold` the JSON of the typed gold value. `shape` is the gold plan with letters for leaves. `entities` is
    a JSON list of the names that stand in both question and plan. `teacher` says who annotated the question,
    `agreement` which part of a teacher's samples agree with this one, as a decimal.
    """

    id: str
    split: str
    task: str
    source: str
    licence: str
    teacher: str
    group: str
    question: str
    prompt: str
    completion: str
    prompt_hash: str
    label: str
    shape: str
    gold: str
    entities: str
    agreement: str = ""


COLUMNS = tuple(field.name for field in fields(Row))


def make_table(rows: Sequence[Row]) -> pyarrow.Table:
    """Makes a table of rows, with the columns of a set."""
    import pyarrow

    schema = pyarrow.schema([(name, pyarrow.string()) for name in COLUMNS])
    return pyarrow.table({name: [getattr(row, name) for row in rows] for name in COLUMNS}, schema=schema)


# Writing


class SetWriter:
    """Counts the rows of tables and writes them in row groups of equal size, whatever the size of the tables."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        from pyarrow.parquet import ParquetWriter

        schema = make_table([]).schema
        self._files = {
            split: stack.enter_context(ParquetWriter(folder / f"{split}.parquet", schema, compression="zstd"))
            for split in SPLITS
        }
        self._waiting = {split: [make_table([])] for split in SPLITS}
        self.counts: Counter[tuple[str, ...]] = Counter()  # values of the columns COUNTED → rows
        self.fingerprints: Fingerprints | None = None  # of what trains; the set says nothing of it without them

    def add(self, rows: pyarrow.Table) -> None:
        from pyarrow import compute

        for split, waiting in self._waiting.items():
            chosen = rows.filter(compute.equal(rows["split"], split))
            if chosen.num_rows:
                waiting.append(chosen)
            if sum(table.num_rows for table in waiting) >= ROW_GROUP:
                self._write(split, only_whole_groups=True)

    def close(self) -> None:
        for split in SPLITS:
            self._write(split, only_whole_groups=False)

    def count_by(self, outer: str, inner: str) -> dict[str, dict[str, int]]:
        """Value of the column `outer` → value of `inner` → rows; every split is there, also an empty one."""
        table: dict[str, dict[str, int]] = {split: {} for split in SPLITS} if outer == "split" else {}
        for key, count in sorted(self.counts.items()):
            values = dict(zip(COUNTED, key, strict=True))
            if values[inner]:
                row = table.setdefault(values[outer], {})
                row[values[inner]] = row.get(values[inner], 0) + count
        return table

    def _write(self, split: str, *, only_whole_groups: bool) -> None:
        """Writes buffered rows; with `only_whole_groups`, keeps those beyond the last whole row group."""
        import pyarrow

        table = pyarrow.concat_tables(self._waiting[split])
        end = table.num_rows // ROW_GROUP * ROW_GROUP if only_whole_groups else table.num_rows
        for start in range(0, end, ROW_GROUP):
            group = table.slice(start, min(ROW_GROUP, end - start)).combine_chunks()
            self._files[split].write_table(group)
            for row in group.group_by(list(COUNTED)).aggregate([([], "count_all")]).to_pylist():
                self.counts[tuple(row[name] for name in COUNTED)] += row["count_all"]
        self._waiting[split] = [table.slice(end)]


@contextmanager
def write_set(
    target: Path, about: dict[str, Any], describe: Callable[[dict[str, Any]], str] | None = None
) -> Iterator[SetWriter]:
    """Yields a writer. When the block ends, the whole set appears at `target`; on an error, nothing does.

    The block may fill `about`, which goes into the manifest. `describe` writes the data card from what the manifest
    says of the rows. Raises DataError for a set without rows, with the counts of `about["dropped"]` as reasons.
    """
    with stage_folder(target) as stage:
        with ExitStack() as stack:
            writer = SetWriter(stage, stack)
            yield writer
            writer.close()
        if not writer.counts:
            hint = "mend the rows or change the configuration"
            raise DataError(_explain_missing_rows(about), where=str(target), hint=hint)
        if writer.fingerprints:
            writer.fingerprints.write(stage)
        facts = _summarise(stage, writer, about)
        if describe:
            (stage / "README.md").write_text(describe(facts), encoding="utf-8")
        SET.write_manifest(stage, facts)


def _explain_missing_rows(about: dict[str, Any]) -> str:
    reasons = [f"{reason}: {count}" for reason, count in about.get("dropped", {}).items()]
    rows = [f"{row['file']}, line {row['line']}: {row['reason']}" for row in about.get("refused_rows", [])[:3]]
    return "\n  ".join(["not one record came out of the build", *reasons, *rows])


def _summarise(folder: Path, writer: SetWriter, about: dict[str, Any]) -> dict[str, Any]:
    tasks = writer.count_by("split", "task")
    files = {f"{split}.parquet": sha256_file(folder / f"{split}.parquet") for split in SPLITS}
    return {
        **about,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "counts": {name: writer.count_by("split", name) for name in ("task", "source", "licence", "shape", "teacher")},
        "labels": writer.count_by("task", "label"),
        "records": {split: sum(tasks[split].values()) for split in SPLITS},
        "tasks": sorted(TASKS),
        "prompt_hash": prompt_hash(),
        "digest": sha256_text(json.dumps(files, sort_keys=True)),
    }


# Reading


def find_plan_fault(shapes: Collection[str]) -> str | None:
    """Why plans of these shapes would teach a model to stop planning; None where they are of several shapes, and where
    there is none."""
    if not shapes or len(set(shapes)) > 1:
        return None
    [shape] = set(shapes)
    if shape == SINGLE:
        return "no question of this set has several hops: a model that learns it unlearns to plan"
    return f"every plan of this set has the shape {shape}: a model that learns it writes no other"


def verify_set(folder: Path) -> dict[str, Any]:
    """Reads and verifies a set that was built with the prompts of this release. Raises ArtifactError for others."""
    manifest = SET.read_manifest(folder, verify=True)
    here = prompt_hash(manifest["tasks"])
    if manifest["prompt_hash"] != here:
        raise ArtifactError(
            f"the set was built with other prompts: its prompt hash is {manifest['prompt_hash'][:12]}…, "
            f"this release's {here[:12]}…",
            where=str(folder),
            hint=BUILD,
        )
    return manifest


def read_batches(folder: Path, split: str, tasks: Container[str] = TASKS) -> Iterator[list[Row]]:
    """Reads the rows of `tasks` in one split in the order in which they were written, at most `ROW_GROUP` at a time.

    Raises DataError for a set of other columns.
    """
    file = _open(folder, split)
    if other := set(file.schema_arrow.names) ^ set(COLUMNS):
        raise DataError(
            f"a set of another release: the columns differ by {min(other)}",
            where=str(folder / f"{split}.parquet"),
            hint=BUILD,
        )
    for batch in file.iter_batches(ROW_GROUP):
        columns = [batch[name].to_pylist() for name in COLUMNS]
        yield [row for row in map(Row, *columns) if row.task in tasks]


def stream_rows(folder: Path, split: str, task: str | None = None) -> Iterator[Row]:
    """Streams the rows of one split, or of one task in it; an empty split has none."""
    for batch in read_batches(folder, split, TASKS if task is None else {task}):
        yield from batch


def read_split(folder: Path, split: str, tasks: Container[str] = TASKS) -> list[Row]:
    """Reads all rows of `tasks` in one split. Raises DataError if the split is empty."""
    check_filled(folder, split)
    return [row for batch in read_batches(folder, split, tasks) for row in batch]


def check_filled(folder: Path, split: str) -> None:
    """Raises DataError if the split is empty."""
    if not _open(folder, split).metadata.num_rows:
        hint = "build the set from more questions"
        raise DataError("the split is empty", where=str(folder / f"{split}.parquet"), hint=hint)


def sample_rows(rows: Sequence[Row], each: int) -> list[Row]:
    """Samples at most `each` rows of each task by the hash of their id: always the same rows, in any order."""
    by_task: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda r: hashlib.sha256(r.id.encode()).digest()):
        chosen = by_task.setdefault(row.task, [])
        if len(chosen) < each:
            chosen.append(row)
    return [row for task in sorted(by_task) for row in by_task[task]]


def _open(folder: Path, split: str) -> pyarrow.parquet.ParquetFile:
    from pyarrow.parquet import ParquetFile

    path = folder / f"{split}.parquet"
    if not path.is_file():
        raise DataError("the set has no such split", where=str(path), hint=f"splits are {', '.join(SPLITS)}")
    return ParquetFile(path)
