"""The configuration of a run: a YAML file, checked field by field. The run's folder holds it as it was resolved.

Paths may use environment variables (`${REVELATOR_DATA}` falls back to `../shared/data`) and are relative to the current
folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, RootModel, field_validator, model_validator

from revelator.config import FilePath, Strict, check_config, read_yaml
from revelator.endpoints import Address
from revelator.errors import ConfigError
from revelator.limits import Strategy
from serving.executor.judges import JudgeSetting
from serving.knowledge.selection import Select, SourceSettings
from serving.models.endpoint_revelator import PlannerConfig
from serving.protocols import Decoding
from serving.retrieval.logical_search import Operators

Count = Annotated[int, Field(ge=1)]
Terms = Annotated[int, Field(ge=1, le=4)]
GOLD = "gold"  # a run's `index`: each question's own gold passages
RANKED = ("itlr", "beir")  # formats whose documents are ranked
RunName = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]  # a folder's name


class OwnColumns(Strict):
    """How a file of one's own calls its columns; only the first two are needed."""

    question: str = "question"
    answer: str = "answer"
    also: str = "also"
    titles: str = "titles"
    plan: str = "plan"
    route: str = "route"
    kind: str = "kind"


class BenchmarkConfig(Strict):
    """Which questions are asked. `SystemConfig.ranking` generates the questions of format `itlr` over a corpus (`path`:
    JSON lines of title and text, or a world's folder), and reads `beir` (`path`: a folder in BEIR's form). `sha256`
    pins the files, in their order. `sample` takes the first N by the sha256 of their id; another `seed` takes others,
    of any format but those two. `kinds` are the benchmark's own ("comparison", "static"). `dev_of` is an instruction
    set: only questions of its dev split are asked, which no adapter trained on the set has seen. `unseen` leaves out
    what a model of any run of the file has seen in training, before `sample` is taken. `columns` are those of format
    `own`."""

    format: str
    path: Annotated[tuple[FilePath, ...], Field(min_length=1)]
    sha256: tuple[str, ...] = ()
    split: str = ""
    kinds: tuple[str, ...] = ()
    dev_of: FilePath = ""
    unseen: bool = False
    sample: Count | None = None
    seed: int = 0
    columns: OwnColumns | None = None
    name: str = ""

    @field_validator("path", "sha256", mode="before")
    @classmethod
    def _make_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _pins_each_file(self) -> BenchmarkConfig:
        if len(self.path) > 1 and self.format in RANKED:
            raise ValueError(f"{self.format} has one path")
        if self.columns and self.format != "own":
            raise ValueError("columns are those of format own")
        if self.sha256 and len(self.sha256) != len(self.path):
            raise ValueError(f"{len(self.sha256)} sha256 for {len(self.path)} files")
        return self


def read_columns(given: Iterable[str]) -> dict[str, str]:
    """Reads FIELD=NAME as a mapping. Raises ConfigError for another form, and for a field that no column can be."""
    if wrong := [text for text in given if "=" not in text]:
        raise ConfigError(f"not FIELD=NAME: {wrong[0]!r}", where="--column", hint="--column question=Frage")
    names = dict(text.split("=", 1) for text in given)
    if unknown := [name for name in names if name not in OwnColumns.model_fields]:
        raise ConfigError(f"no such field: {unknown[0]!r}", where="--column", hint=", ".join(OwnColumns.model_fields))
    return names


def describe_own(path: Path, columns: Mapping[str, str], **chosen: Any) -> dict[str, Any]:
    """The values of a benchmark of one's own questions, with those of `sample`, `seed` and `unseen` that are
    `chosen`."""
    given = {name: value for name, value in chosen.items() if value is not None}
    return {"format": "own", "path": str(path), "name": path.stem, "columns": columns or None, **given}


class RankingConfig(Strict):
    """Logical retrieval: `way` is how documents are ranked, `model` a sentence-transformers model. `bright` searches
    with what the language model `generator` writes when it reasons about the question (BRIGHT, Su et al. 2024). Of
    `itlr`'s templates there are `per_template` cases; `terms` are how many terms their queries have, one number or
    several. `labels` say which documents of a corpus match: those that hold the `phrase` of a term, or those that the
    revelator (a `planner`, best) judges to be about it. `queries` are those of the templates, or what the revelator
    writes for their questions."""

    way: Literal["plain", "logical", "bright", "random"] = "logical"
    per_template: Count = 10
    terms: Annotated[tuple[Terms, ...], Field(min_length=1)] = (3,)
    labels: Literal["phrase", "model"] = "phrase"
    queries: Literal["gold", "model"] = "gold"
    seed: int = 2
    model: str = "minilm"
    max_tokens: Annotated[int, Field(ge=0)] = 128  # of a text; 0: the model's own limit


class SystemConfig(Strict):
    """Who answers: a `strategy` of the executor, a `baseline` (`evaluation.baselines`), a `bound`, which gets the
    gold plan or the gold passages, or a file of `predictions`. For the benchmark itlr it is a `ranking`."""

    strategy: Strategy | None = None
    baseline: str | None = None
    bound: Literal["gold-plan", "gold-passages"] | None = None
    predictions: FilePath | None = None
    ranking: RankingConfig | None = None

    @model_validator(mode="after")
    def _names_one_system(self) -> SystemConfig:
        if sum(value is not None for value in vars(self).values()) != 1:
            raise ValueError("name one of strategy, baseline, bound, predictions, ranking")
        return self

    @property
    def kind(self) -> str:
        return next(kind for kind, value in vars(self).items() if value is not None)

    @property
    def name(self) -> str:
        if self.ranking:
            return f"{self.ranking.way} ranking"
        value = str(getattr(self, self.kind))
        return Path(value).stem if self.kind == "predictions" else value


class AblationConfig(Strict):
    """Each field switches one part off or changes it.

    * `relevance`: documents are read in their ranking, unjudged (HANRAG, table 6, as the next two).
    * `end`: the loop runs to its limit. `refine`: the loop searches with the question and what is known.
    * `route`: every question is compiled (`false`), or goes its gold route (`oracle`; HANRAG, tables 3 to 5).
    * `read_as`: the folder of another run; plain retrieval reads as many documents as that run read for the same
      question, at least one.
    * `own_words`, `conditions`: a rule over words of the file of sources is left out.
    * `part_names`: the question's words name no part of a comparison.
    * `sources`: the sources that are kept (AtomR, table 4). `select`: who selects among them. `operators`: those of
      logical queries (ITLR, table 2).
    """

    route: Literal[False, "oracle"] | None = None
    relevance: Literal[False] | None = None
    end: Literal[False] | None = None
    refine: Literal[False] | None = None
    read_as: FilePath | None = None
    sources: tuple[str, ...] | None = None
    select: Select | None = None
    operators: Operators | None = None
    own_words: Literal[False] | None = None
    conditions: Literal[False] | None = None
    part_names: Literal[False] | None = None

    def list_source_settings(self) -> dict[str, Any]:
        """Those that change a setting of the file of sources."""
        names = set(SourceSettings.model_fields) & set(AblationConfig.model_fields)
        return self.model_dump(include=names, exclude_none=True)

    def list_switches(self) -> dict[str, Any]:
        """Returns the switches that are set, as plain values."""
        return self.model_dump(mode="json", exclude_none=True)


class GeneratorConfig(Strict):
    """An OpenAI-compatible endpoint; its key is read from OPENAI_API_KEY."""

    url: Address
    model: str


class RunConfig(Strict):
    """One run. Without `url`, everything runs in this process: `adapter` (a folder, a version, an alias, or `base`) on
    its base, or the endpoint `planner` in its place; `index`; and the embedded reader, who plans (`generator:
    revelator`), or the language model `generator`. With `url`, the run asks a running service by its executor;
    baselines and bounds are measured in this process alone.
    `judge` says who judges documents: `embedded` (the adapter; beside a planner the base, where no adapter is named),
    `none`, or an endpoint.

    `timeout` (seconds, retries included) bounds one call of an endpoint that plans, judges or reads; without one only
    the deadline of its question does, which is at least as long as a timeout that is given.

    `index: closed` searches the passages that the questions themselves bring, gold and distractors, and no others.
    `closed` searches by words, `closed-dense` by meaning, `closed-hybrid` by both. With `index: gold` every search of a
    question finds its own gold passages, all and no others: no search can miss anything.
    `decoding: free` writes plans without a grammar. `limits` are those of `revelator.limits.Limits`; `kept` is how many
    documents a leaf reads (QCompiler, figure 3). `own_knowledge`: the language model `generator` answers from what it
    knows where no passage does.
    """

    benchmark: BenchmarkConfig
    system: SystemConfig
    ablation: AblationConfig = AblationConfig()
    index: FilePath = ""
    home: FilePath = "runs"
    adapter: str = "champion"
    base: str = ""
    decoding: Decoding = "beams"
    threads: Count | None = None
    generator: GeneratorConfig | Literal["revelator"] | None = None
    own_knowledge: bool = False
    planner: PlannerConfig | None = None
    judge: JudgeSetting = "embedded"
    timeout: Annotated[float, Field(gt=0)] | None = None
    sources: FilePath = ""
    limits: dict[str, int | float] = Field(default_factory=dict)
    url: str = ""
    concurrency: Count = 2
    seed: int = 0

    @model_validator(mode="after")
    def _ranks_what_can_be_ranked(self) -> RunConfig:
        benchmark, ranking = self.benchmark, self.system.ranking
        if (benchmark.format in RANKED) != (ranking is not None):
            raise ValueError(f"{' and '.join(RANKED)} are for a system that is a ranking, and a ranking for them")
        if ranking and ranking.labels == "model" and benchmark.format != "itlr":
            raise ValueError("labels: model is for itlr; other documents have labels")
        if ranking and ranking.way == "bright" and not self.writer:
            raise ValueError("bright prompts a language model: name a generator")
        return self

    @property
    def writer(self) -> GeneratorConfig | None:
        """The language model that reads, and may write, too."""
        return self.generator if isinstance(self.generator, GeneratorConfig) else None


class _Runs(RootModel[dict[RunName, RunConfig]]):
    """Several runs in one file. A run takes from the file what it does not set itself."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_shared_values(cls, file: dict[str, Any]) -> dict[str, Any]:
        runs = file["runs"]
        if not runs or not isinstance(runs, dict) or not all(isinstance(run, dict) for run in runs.values()):
            raise ValueError("runs are named values, as `naive-5: {system: {baseline: naive-5}}`")
        shared = {name: value for name, value in file.items() if name != "runs"}
        return {name: shared | run for name, run in runs.items()}


def load_runs(path: Path, **overrides: Any) -> dict[str, RunConfig]:
    """Loads the runs of a configuration by name ("" for a single run). `overrides` of the command line replace its
    values. Raises ConfigError."""
    value = read_yaml(path)
    if isinstance(value, dict) and value.get("runs") is not None:
        runs = check_config(value, _Runs, str(path)).root
    else:
        runs = {"": check_config(value, RunConfig, str(path))}
    return {name: _override(config, **overrides) for name, config in runs.items()}


def _override(config: RunConfig, **overrides: Any) -> RunConfig:
    given = {name: value for name, value in overrides.items() if value is not None}
    chosen = {name: value for name, value in given.items() if name in ("sample", "seed", "unseen")}
    own = {name: value for name, value in given.items() if name in RunConfig.model_fields}
    return config.model_copy(update={**own, "benchmark": config.benchmark.model_copy(update=chosen)})
