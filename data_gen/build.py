"""The way from sources to a set: read → validate → records (`data_gen.prepare`) → drop repeats → files.

Every question that does not arrive is counted under its reason. Whichever engine prepares the rows, they come to the
build in the order of their sources, so the set is the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from data_gen.config import SetConfig, SourceConfig
from data_gen.kept_chunks import prepare_and_keep
from data_gen.leakage import SeenQuestions
from data_gen.prepare import COPY, Candidate, PreparedChunk, Preparer, read_chunks
from data_gen.questions import QUESTIONS
from data_gen.sources.rows import RefusedRow
from revelator.cluster import Engine, work_here
from revelator.errors import DataError
from revelator.files import sha256_file
from revelator.fingerprints import Fingerprints
from revelator.plans.language import grammar_hash
from revelator.rows import (
    SET,
    SPLITS,
    Row,
    SetWriter,
    find_plan_fault,
    make_table,
    write_set,
)

MORE_PLANS = (
    "add questions of several hops: a configuration with `rows: taught` (a language model writes their plans) or "
    "`rows: composed`, or rows that you annotated; --allow-single builds the set as it is"
)
REFUSED_LISTED = 100  # rows named in the manifest; all are counted
Progress = Callable[[str, int], None]


@dataclass
class Build:
    """One build under way: what it has let through, and what it has counted."""

    writer: SetWriter
    seen: SeenQuestions = field(default_factory=SeenQuestions)
    questions: dict[str, Counter[str]] = field(default_factory=lambda: {split: Counter() for split in SPLITS})
    dropped: Counter[str] = field(default_factory=Counter)
    refused: list[RefusedRow] = field(default_factory=list)
    shapes: Counter[str] = field(default_factory=Counter)  # of gold plans that train, in rows
    taught: set[int] = field(default_factory=set)  # fingerprints of the questions that train

    def take(self, prepared: PreparedChunk) -> None:
        """Lets through what is new among the prepared questions."""
        self.dropped.update(prepared.skipped)
        if prepared.refused:
            self.dropped["malformed row"] += len(prepared.refused)
            self.refused += prepared.refused[: REFUSED_LISTED - len(self.refused)]
        rows = [row for candidate in prepared.candidates for row in self._admit(candidate)]
        self.shapes.update(row.shape for row in rows if row.split == "train" and row.shape)
        self.writer.add(make_table(rows))

    def _admit(self, candidate: Candidate) -> Iterator[Row]:
        if reason := candidate.fault or self.seen.find_repeat(candidate.id_key, candidate.question_key):
            self.dropped[candidate.reason_prefix + reason] += 1
            return
        if candidate.reason_prefix != COPY:
            self.questions[candidate.split][candidate.source] += 1
        self.taught.update(candidate.taught)
        yield from candidate.rows
        for other in candidate.others:
            yield from self._admit(other)


def build(
    config: SetConfig,
    target: Path,
    progress: Progress = lambda source, questions: None,
    teaching: dict[str, Any] | None = None,
    engine: Engine = work_here,
    *,
    allow_single: bool = True,
) -> dict[str, Any]:
    """Builds the set at `target` and returns its manifest. `teaching` says for its card how a teacher made its rows,
    `engine` is what prepares them. Without `allow_single`, its plans must be of several shapes.

    Raises DataError for a source that cannot be read or used at all, and for plans of one shape; ConfigError for a
    target that holds something other than a set, or that another process builds; `target` then stays as it was. After
    a failure or a kill, a build of files resumes from the chunks that it kept, and a build that reads from addresses
    starts again.
    """
    SET.check_place(target)
    prepare = Preparer(config)
    about: dict[str, Any] = {
        "config": config.model_dump(mode="json"),
        "grammar_hash": grammar_hash(),
        "inputs": _digest_inputs(config),
        "teaching": teaching or {},
    }
    with ExitStack() as stack:
        if all(str(_find_file(source)) in about["inputs"] for source in config.sources):
            kept_for = {name: about[name] for name in ("config", "inputs")}
            chunks = stack.enter_context(prepare_and_keep(engine, prepare, target, kept_for))
        else:
            chunks = engine(prepare, read_chunks(config))
        writer = stack.enter_context(write_set(target, about, describe_set))
        run = Build(writer)
        rows: Counter[int] = Counter()
        for prepared in chunks:
            run.take(prepared)
            rows[prepared.source_number] += prepared.read
            progress(config.sources[prepared.source_number].path, rows[prepared.source_number])
        if not allow_single and (fault := find_plan_fault(run.shapes)):
            raise DataError(fault, where=str(target), hint=MORE_PLANS)
        writer.fingerprints = Fingerprints.of_numbers(run.taught)
        about["questions"] = {split: dict(sorted(counts.items())) for split, counts in run.questions.items()}
        about["dropped"] = dict(sorted(run.dropped.items()))
        about["refused_rows"] = [vars(row) for row in run.refused]
    return SET.read_manifest(target)


def _digest_inputs(config: SetConfig) -> dict[str, str]:
    """Digest of each input file; a missing one is reported when it is read."""
    paths = [_find_file(source) for source in config.sources]
    paths += [Path(name) for name in (config.held_out, config.augment and config.augment.names) if name]
    return {str(path): sha256_file(path) for path in paths if path.is_file()}


def _find_file(source: SourceConfig) -> Path:
    """The file that is read of a source: of a world's folder its questions, or the documents to ask about."""
    path = Path(source.path)
    return path / ("passages.jsonl" if source.format == "logic" else QUESTIONS) if path.is_dir() else path


# ---- the data card


def describe_set(manifest: Mapping[str, Any]) -> str:
    """Markdown; the same manifest gives the same card, whenever it was built."""
    config, counts = manifest["config"], manifest["counts"]
    labels = {
        task: ", ".join(f"{label} {count}" for label, count in own.items()) for task, own in manifest["labels"].items()
    }
    refused = {f"{row['file']}, line {row['line']}": row["reason"] for row in manifest["refused_rows"]}
    held_out = "The configuration names no questions that are held out for measuring."
    if path := config["held_out"]:
        held_out = f"A question whose normalised text is held out for measuring (`{path}`) is in none."
    parts = [
        f"# Instruction set `{config['name']}`",
        "Prompts and completions for the tasks of the revelator, made from annotated questions: their plans, steps and "
        "passages became records. The teacher `annotation` is no model: it words gold decompositions.",
        f"Digest `{manifest['digest']}`, prompts `{manifest['prompt_hash'][:12]}`, "
        f"grammar `{manifest['grammar_hash'][:12]}`.",
        "## Records",
        *(_card_table(name, counts[name]) for name in ("task", "source", "licence", "teacher")),
        _card_table("shape of the gold plan", counts["shape"]),
        *(["## Teaching", _list_items(manifest["teaching"])] if manifest["teaching"] else []),
        "## Labels",
        _list_items(labels),
        "## Questions",
        _card_table("source", manifest["questions"]),
        "No question (by id and by normalised text; of rows for reading, with its passage) stands in two splits. "
        f"{held_out}",
        "## Left out",
        _list_items({**manifest["dropped"], **refused}) or "Nothing.",
        "## Inputs",
        "\n".join(f"* `{name}` sha256 `{digest}`" for name, digest in manifest["inputs"].items()),
        "## Building it again",
        "Save this as `set.yaml` and run `revelator data build set.yaml --out DIR`: "
        "the same inputs give the same digest.",
        f"```yaml\n{yaml.safe_dump(config, sort_keys=False, allow_unicode=True).strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _card_table(title: str, by_split: Mapping[str, Mapping[str, int]]) -> str:
    splits = [split for split, counts in by_split.items() if counts]
    names = sorted({name for counts in by_split.values() for name in counts})
    lines = [f"| {title} | {' | '.join(splits)} |", "|---" * (len(splits) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(str(by_split[s].get(name, 0)) for s in splits)} |" for name in names]
    return "\n".join(lines)


def _list_items(items: Mapping[str, Any]) -> str:
    return "\n".join(f"* {name}: {value}" for name, value in items.items())
