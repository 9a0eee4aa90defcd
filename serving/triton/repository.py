"""The live model repository of a home folder: the packaged models laid out with version folders.

`config.pbtxt` says what is loaded: its version policy names the version (and a canary beside it), its parameters the
index, the generator, an endpoint that plans and the admission limit. Every file is replaced as a whole, so a server
that starts at any moment finds one state or the next.
"""

from __future__ import annotations

import json
import py_compile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import serving
from revelator import files
from revelator.artifact import DEFAULT_BASE, find_base, require_task
from revelator.endpoints import check_url
from revelator.errors import ArtifactError, ConfigError, InvalidRequest
from revelator.limits import Limits
from serving.models.endpoint_revelator import PlannerConfig
from serving.models.releases import VersionContents, read_release
from serving.models.vllm import FACTS_FILE
from serving.models.vllm import MODEL as VLLM
from serving.protocols import MergePolicy, Writing
from serving.retrieval.logical_search import LogicalSettings

EXECUTORS = ("executor", "executor_stream")
PLAIN_MODELS = ("retriever", "generator", *EXECUTORS)  # one version, 1: their code is this package's
MODELS = (*PLAIN_MODELS, "revelator")
EMBEDDED = "embedded"
DEPLOYED: Literal["deployed"] = "deployed"
PLANNER = "planner"  # parameter of the executors: the endpoint that plans, as JSON; without it the release does
WRITING = "writing"  # there too: `serving.protocols.Writing` as JSON
REVELATOR = "revelator"
ADAPTER = "adapter"  # inside a version folder of the revelator
LOGIC = "logic"  # there: how logical queries are run, as JSON
REMEMBERED = "remembered"  # parameter of the retriever: the index of runs that name none
CONTENTS_FILE = "version.json"  # there too: what the folder consists of
PLACED = (REVELATOR, "retriever")  # models that use a card; the others wait, or run on a CPU alone
PLACEMENT = "placement.json"  # of a home folder: the cards


@dataclass(frozen=True)
class Placement:
    """Where the models of `PLACED` run: `instances` processes on each card of `gpus`, or on the CPU without any."""

    gpus: tuple[int, ...] = ()
    instances: int = 1


def read_placement(home: Path) -> Placement:
    path = home / PLACEMENT
    if not path.is_file():
        return Placement()
    value = json.loads(path.read_text(encoding="utf-8"))
    return Placement(tuple(value["gpus"]), value["instances"])


def write_placement(home: Path, placement: Placement) -> None:
    """Records it, and rewrites what is laid out; a server takes it when it starts."""
    files.write_json(home / PLACEMENT, asdict(placement))
    for name in PLACED:
        if served := read_served_versions(home, name):
            write_config(home, name, served)


@dataclass(frozen=True)
class Settings:
    """What a deployment chooses; None keeps what is recorded, or the default."""

    index: Path | None = None
    generator: str | None = None  # `embedded` or the base URL of an OpenAI-compatible endpoint
    generator_model: str | None = None
    planner: PlannerConfig | Literal["deployed"] | None = None  # an endpoint, or the release
    max_in_flight: int | None = None
    decoding: str | None = None  # how the revelator writes plans: beams, grammar or free
    logic: LogicalSettings | None = None  # how logical queries are run
    sources: Path | None = None  # file that names the knowledge sources; None: the index alone
    limits: Mapping[str, float] | None = None  # of revelator.limits.Limits: lower ones than its defaults
    merge: MergePolicy | None = None  # who makes the answer of the answers of parts
    own_knowledge: bool | None = None  # whether a language model answers what no document does
    remember: bool = False  # `index` is that of later runs, too


def find_templates() -> Path:
    """The folder of the packaged models: inside an installed package, or beside it in a checkout."""
    package = Path(serving.__file__).parent
    for folder in (package / "_model_repo", package.parent / "model_repo"):
        if (folder / "executor" / "config.pbtxt").is_file():
            return folder
    raise ArtifactError("the model repository is not part of this installation", where=str(package))


def repository_folder(home: Path) -> Path:
    return home / "model_repo"


def version_folder(home: Path, version: int) -> Path:
    """The folder of a version of the revelator."""
    return repository_folder(home) / REVELATOR / str(version)


def choose_parameters(home: Path, settings: Settings) -> dict[str, dict[str, str]]:
    """The parameters of each plain model: what was given, else what is recorded, else the default. Writes nothing.

    Raises ConfigError for settings that cannot work.
    """
    reader, asker = read_parameters(home, "generator"), read_parameters(home, "executor")
    endpoint = settings.generator or reader.get("endpoint", EMBEDDED)
    model = settings.generator_model or ("" if settings.generator else reader.get("model", ""))
    _check_generator(endpoint, model)
    planner = choose_planner(home, settings)
    if sources := settings.sources or asker.get("sources"):
        _check_selection(home, Path(sources), endpoint, planner)
    facts = repository_folder(home) / VLLM / "1" / FACTS_FILE  # where `deploy --engine vllm` laid it out
    asking: dict[str, object] = {
        "max_in_flight": settings.max_in_flight or asker.get("max_in_flight"),
        "sources": Path(sources).resolve() if sources else None,
        "limits": asker.get("limits") if settings.limits is None else _write_limits(settings.limits),
        "vllm": facts.parent.resolve() if facts.is_file() else None,
        PLANNER: planner.model_dump_json() if planner else None,
        WRITING: json.dumps(asdict(_choose_writing(settings, asker, endpoint))),
    }
    chosen: dict[str, dict[str, object]] = {
        "retriever": _choose_index(home, settings),
        "generator": {"endpoint": endpoint, "model": model},
        "executor": asking,
        "executor_stream": asking,
    }
    return {
        name: {key: str(value) for key, value in parameters.items() if value is not None}
        for name, parameters in chosen.items()
    }


def _check_selection(home: Path, sources: Path, endpoint: str, planner: PlannerConfig | None) -> None:
    """Raises ConfigError or ArtifactError where the model that is to select the sources cannot."""
    from serving.knowledge.config import read_sources

    select, where = read_sources(sources).select, f"{sources}: select"
    if select == "model" and endpoint == EMBEDDED:
        hint = "give a language model with --generator URL, or take select: all or rules"
        raise ConfigError("the embedded reader selects no sources", where=where, hint=hint)
    if select == "revelator" and planner is None:
        release = read_release(home)
        if release:
            _require_selecting(home, release)
        else:
            require_task("select", find_base(DEFAULT_BASE))


def check_version(home: Path, contents: VersionContents) -> None:
    """Raises ArtifactError for a version that has not learned to select sources, where the release is to do so."""
    from serving.knowledge.config import read_sources

    asker = read_parameters(home, "executor")
    if "sources" in asker and PLANNER not in asker and read_sources(Path(asker["sources"])).select == "revelator":
        _require_selecting(home, contents)


def _require_selecting(home: Path, contents: VersionContents) -> None:
    adapter = version_folder(home, contents.version) / ADAPTER if contents.files else None
    require_task("select", Path(contents.base["folder"]), adapter)


def _choose_writing(settings: Settings, recorded: Mapping[str, str], endpoint: str) -> Writing:
    """What the language model writes. The embedded reader writes nothing, and the choice is kept for the next language
    model; raises ConfigError where the embedded reader is asked to write."""
    chosen = read_writing(recorded)
    merge = settings.merge or chosen.merge
    own = chosen.own_knowledge if settings.own_knowledge is None else settings.own_knowledge
    if endpoint == EMBEDDED:
        asked = [("--merge generator", settings.merge == "generator"), ("--own-knowledge", settings.own_knowledge)]
        if wrong := [option for option, is_asked in asked if is_asked]:
            hint = "give a language model with --generator URL"
            raise ConfigError("the embedded reader writes no answers", where=wrong[0], hint=hint)
    return Writing(merge, endpoint != EMBEDDED and merge != "code", own)


def read_writing(parameters: Mapping[str, str]) -> Writing:
    """What the language model writes, by the parameters of an executor."""
    return Writing(**json.loads(parameters.get(WRITING, "{}")))


def choose_planner(home: Path, settings: Settings) -> PlannerConfig | None:
    """The endpoint that plans: the one given, else the recorded one; None where the release does."""
    if settings.planner is None:
        return read_planner(read_parameters(home, "executor"))
    return settings.planner if isinstance(settings.planner, PlannerConfig) else None


def read_planner(parameters: Mapping[str, str]) -> PlannerConfig | None:
    """The endpoint that plans, by the parameters of an executor; None where the release does."""
    return PlannerConfig.model_validate_json(parameters[PLANNER]) if PLANNER in parameters else None


def _choose_index(home: Path, settings: Settings) -> dict[str, object]:
    """The parameters of the retriever: the index that was given is searched, else the remembered one, else the only
    one below the home folder."""
    before = read_parameters(home, "retriever")
    recorded = before.get(REMEMBERED)
    below = sorted(path.parent for path in (home / "indexes").glob("*/manifest.json"))
    folder = settings.index or (Path(recorded) if recorded else None)
    if folder is None and len(below) == 1:
        folder = below[0]
    if folder is None:
        found = f"there {f'are {len(below)}' if below else 'is none'} below {home / 'indexes'}"
        hint = f"give one as --index DIR: {', '.join(map(str, below[:5]))}"
        if not below:
            hint = "build one with `revelator index build FILES --out DIR` and give it as --index DIR"
        raise ConfigError(f"which index is to be searched? {found}", where="--index", hint=hint)
    if not (folder / "manifest.json").is_file():
        hint = "give another with --index DIR" + ("" if settings.index else "; this one was remembered (--remember)")
        raise ConfigError("not an index: it has no manifest.json", where=str(folder), hint=hint)
    return {
        "index": folder.resolve(),
        REMEMBERED: folder.resolve() if settings.remember else recorded,
        LOGIC: settings.logic.model_dump_json() if settings.logic else before.get(LOGIC),
    }


def _check_generator(endpoint: str, model: str) -> None:
    if endpoint == EMBEDDED:
        return
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError("neither `embedded` nor a URL", where="--generator")
    if not model:
        raise ConfigError("an endpoint needs the name of a model", where="--generator-model")
    check_url(endpoint)


def _write_limits(limits: Mapping[str, float]) -> str:
    try:
        Limits.of_deployment(limits)
    except InvalidRequest as error:
        raise ConfigError(error.message, where="--limit", hint=error.hint) from error
    return json.dumps(dict(limits))


def lay_out(home: Path, settings: Settings) -> None:
    """Writes the models that have no versions of their own, and the revelator's parameters. Raises ConfigError."""
    for name, parameters in choose_parameters(home, settings).items():
        write_code(name, repository_folder(home) / name / "1")
        write_config(home, name, [1], parameters)
    if served := read_served_versions(home, REVELATOR):
        chosen = {"decoding": settings.decoding} if settings.decoding else {}
        write_config(home, REVELATOR, served, read_parameters(home, REVELATOR) | chosen)


def read_code(name: str) -> bytes:
    """The packaged model.py of a model."""
    return (find_templates() / name / "model.py").read_bytes()


def write_code(name: str, folder: Path) -> None:
    """Writes this package's model.py into a version folder, which an older release may have made.

    The byte code, too: if the stub wrote it, Triton would see a changed folder and load it again.
    """
    path, code = folder / "model.py", read_code(name)
    if not path.is_file() or path.read_bytes() != code:
        files.write_bytes(path, code)
    py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def write_config(home: Path, name: str, versions: Sequence[int], parameters: Mapping[str, str] | None = None) -> None:
    """Writes the packaged config.pbtxt with the version to serve, a canary behind it, and the parameters; None keeps
    those that are recorded."""
    parameters = read_parameters(home, name) if parameters is None else parameters
    config = text_format.Parse((find_templates() / name / "config.pbtxt").read_text(encoding="utf-8"), ModelConfig())
    config.name = name
    config.version_policy.specific.versions[:] = versions
    for key, value in parameters.items():
        config.parameters[key].string_value = value
    if name in PLACED:
        [group] = config.instance_group
        placement = read_placement(home)
        group.count = placement.instances
        group.kind = group.KIND_GPU if placement.gpus else group.KIND_CPU
        group.gpus[:] = placement.gpus
    files.write_bytes(
        repository_folder(home) / name / "config.pbtxt", text_format.MessageToString(config, as_utf8=True).encode()
    )


def make_load_config(home: Path, name: str, *versions: int) -> str:
    """The live config.pbtxt as JSON for a load call, but with these versions; the file stays as it is."""
    config = _read_config(home, name)
    assert config is not None
    config.version_policy.specific.versions[:] = versions
    return json_format.MessageToJson(config, preserving_proto_field_name=True)


def _read_config(home: Path, name: str) -> ModelConfig | None:
    path = repository_folder(home) / name / "config.pbtxt"
    return text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig()) if path.exists() else None


def read_parameters(home: Path, name: str) -> dict[str, str]:
    """The parameters in the live config.pbtxt of a model; {} when nothing is laid out."""
    config = _read_config(home, name)
    return {key: value.string_value for key, value in config.parameters.items()} if config else {}


def read_served_versions(home: Path, name: str) -> list[int]:
    """The versions that the live config.pbtxt names: the promoted one, then a canary if there is one."""
    config = _read_config(home, name)
    return [int(version) for version in config.version_policy.specific.versions] if config else []


def list_versions(home: Path, name: str) -> list[int]:
    """The versions that have a folder, in rising order."""
    folder = repository_folder(home) / name
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
