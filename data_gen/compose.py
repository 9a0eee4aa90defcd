"""`revelator data compose`: a folder of questions that are composed of published single ones (`augment.composition`).

OUT/questions.jsonl   annotated questions, a source of format `world`
OUT/manifest.json     the configuration, what was read and drawn, and the digest of the questions; written last
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from data_gen.augment.clauses import Clause, read_clause
from data_gen.augment.composition import Composer
from data_gen.augment.substitution import load_names
from data_gen.config import QuestionSource
from data_gen.leakage import Admission
from data_gen.questions import QUESTIONS, AnnotatedQuestion, check_place, write_questions
from data_gen.sources.formats import READERS
from data_gen.sources.rows import count_outcome
from revelator import plans
from revelator.config import FilePath
from revelator.errors import DataError
from revelator.files import sha256_file, staged_folder, write_json

KIND = "set of composed questions"
PATIENCE = 100  # draws for each question wanted


class SingleSource(QuestionSource):
    """A source of single questions; what only a set asks of its sources is refused."""

    @model_validator(mode="after")
    def _is_no_part_of_a_set(self) -> SingleSource:
        if unused := self.model_fields_set & {"tasks", "sub_questions", "size"}:
            raise ValueError(f"composing takes no {', '.join(sorted(unused))} of a source")
        return self


class ComposeConfig(BaseModel):
    """What to compose. Of the sources the questions of route single are taken; `names` is as in a set's `augment`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    seed: int = 13
    size: Annotated[int, Field(ge=1)] = 20_000  # questions to write
    sources: tuple[SingleSource, ...] = Field(min_length=1)
    names: FilePath
    held_out: FilePath | None = None


def compose(
    config: ComposeConfig, out: Path, force: bool = False, progress: Callable[[int], None] = lambda count: None
) -> dict[str, Any]:
    """Writes `size` questions to the folder `out` and returns its manifest; `progress` is called with 1 after each.

    The same configuration and files give the same bytes. Raises DataError where the sources have too few questions,
    ConfigError for a folder that holds something else, unless `force` is given.
    """
    check_place(out, force, KIND)
    dropped, licences = Counter[str](), dict[str, None]()
    clauses = list(_read_clauses(config, dropped, licences))
    names = load_names(Path(config.names))
    try:
        composer = Composer(clauses, names, Random(config.seed))
    except DataError as error:
        raise DataError(
            error.message, hint=f"{error.hint}; left out of these: {list_counts(dropped) or 'none'}"
        ) from None
    graphs: Counter[str] = Counter()
    admission = Admission(config.held_out)
    with staged_folder(out) as folder:
        with write_questions(folder / QUESTIONS) as write:
            for draw in range(config.size * PATIENCE):
                if graphs.total() == config.size:
                    break
                question = composer.draw(f"{config.name}:{config.seed}-{draw}", config.name, ", ".join(licences))
                if question is None or admission.find_fault(question):
                    continue
                write(question)
                graphs[plans.to_letters(plans.parse(question.expression))] += 1
                progress(1)
        manifest = {
            "kind": KIND,
            "config": config.model_dump(mode="json"),
            "clauses": len(clauses),
            "dropped": dict(sorted(dropped.items())),
            "graphs": dict(graphs.most_common()),
            "questions": graphs.total(),
            "sha256": sha256_file(folder / QUESTIONS),
        }
        write_json(folder / "manifest.json", manifest)
    return manifest


def list_counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _read_clauses(config: ComposeConfig, dropped: Counter[str], licences: dict[str, None]) -> Iterator[Clause]:
    """Of the questions of all sources, each once, those that are not held out and that the rules can read."""
    admission = Admission(config.held_out)
    for source in config.sources:
        read = 0
        for row in READERS[source.format](source.path):
            if read == source.limit:
                break
            if not isinstance(row, AnnotatedQuestion):
                count_outcome(row, dropped)
                continue
            if row.route != "single":
                dropped["no single question"] += 1
                continue
            read += 1
            licences[source.licence or row.licence] = None
            if not admission.admits(row, dropped):
                continue
            if found := read_clause(row.question):
                yield found
            else:
                dropped["no rule reads it"] += 1
