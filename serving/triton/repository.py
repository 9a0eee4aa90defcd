"""The live model repository of a home folder: the packaged models laid out with version folders.

`config.pbtxt` says what is loaded: its version policy names the version (and a canary beside it), its parameter
`serving` what the home folder serves. Every file is replaced as a whole, so a server that starts at any moment finds
one state or the next.
"""

from __future__ import annotations

import py_compile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import serving
from revelator import files
from revelator.artifact import DEFAULT_BASE, find_base, require_task
from revelator.errors import ArtifactError, ConfigError
from serving.models.releases import VersionContents, read_release
from serving.models.vllm import FACTS_FILE
from serving.models.vllm import MODEL as VLLM
from serving.triton.config import EMBEDDED, ServingConfig, read_remembered, read_serving, write_serving

EXECUTORS = ("executor", "executor_stream")
PLAIN_MODELS = ("retriever", "generator", *EXECUTORS)  # one version, 1: their code is this package's
REVELATOR = "revelator"
ADAPTER = "adapter"  # inside a version folder of the revelator
CONTENTS_FILE = "version.json"  # there too: what the folder consists of
PLACED = (REVELATOR, "retriever")  # models that use a card; the others wait, or run on a CPU alone
NO_SOURCES = Path("none")  # `--sources none`: the index alone is searched again
SERVING = "serving"  # parameter of each model: `ServingConfig` as JSON


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


def configure(home: Path, *, remember: bool = False, **given: Any) -> ServingConfig:
    """What is remembered, or the defaults, with the fields that are `given` in its place; None keeps a field. Cards and
    processes are those of the last `model deploy`. Writes nothing.

    `remember`: later starts begin with all of it, once it is laid out. Raises ConfigError for what cannot work,
    ArtifactError for a release that cannot do what is asked of it.
    """
    remembered, placed = read_remembered(home), read_serving(home)
    changes = {name: value for name, value in given.items() if value is not None}
    changes |= {"remembered": remember, "gpus": placed.gpus, "instances": placed.instances}
    changes["index"] = _choose_index(home, changes.get("index"), remembered.index)
    if changes.get("planner") == EMBEDDED:
        changes["planner"] = None
    if changes.get("timeout") == 0:
        changes["timeout"] = None
    changes["measured_deadline_ms"] = None  # the endpoints may be others, or as fast as they were not then
    if "generator" in changes:
        changes.setdefault("generator_model", "")
    if "sources" in changes:
        changes["sources"] = None if changes["sources"] == NO_SOURCES else changes["sources"].resolve()
    config = ServingConfig(**{**dict(remembered), **changes})
    asked = {"--merge generator": changes.get("merge") == "generator", "--own-knowledge": changes.get("own_knowledge")}
    if not config.reads_at_endpoint and (wrong := [option for option, is_asked in asked.items() if is_asked]):
        hint = "give a language model with --generator URL"
        raise ConfigError("the embedded reader writes no answers", where=wrong[0], hint=hint)
    if config.sources:
        try:
            _check_selection(home, config, config.sources)
        except ConfigError as error:
            if "sources" not in changes:
                forget = "this file was remembered: --sources none leaves it out"
                error.hint = "; ".join(filter(None, [error.hint, forget]))
            raise
    return config


def _choose_index(home: Path, given: Path | None, remembered: Path | None) -> Path:
    """The index that is given, else the remembered one, else the only one below the home folder."""
    below = sorted(path.parent for path in (home / "indexes").glob("*/manifest.json"))
    folder = given or remembered or (below[0] if len(below) == 1 else None)
    if folder is None:
        found = f"there {f'are {len(below)}' if below else 'is none'} below {home / 'indexes'}"
        hint = f"give one as --index DIR: {', '.join(map(str, below[:5]))}"
        if not below:
            hint = "build one with `revelator index build FILES --out DIR` and give it as --index DIR"
        raise ConfigError(f"which index is to be searched? {found}", where="--index", hint=hint)
    if not (folder / "manifest.json").is_file():
        hint = "give another with --index DIR" + ("" if given else "; this one was remembered (--remember)")
        raise ConfigError("not an index: it has no manifest.json", where=str(folder), hint=hint)
    return folder.resolve()


def _check_selection(home: Path, config: ServingConfig, sources: Path) -> None:
    """Raises ConfigError or ArtifactError where the model that is to select the sources cannot."""
    from serving.knowledge.config import read_sources

    select = read_sources(sources).select
    if select == "model" and not config.reads_at_endpoint:
        hint = "give a language model with --generator URL, or take select: all"
        raise ConfigError("the embedded reader selects no sources", where=f"{sources}: select", hint=hint)
    if select == "revelator" and not config.planner:
        if release := read_release(home):
            _require_selecting(home, release)
        else:
            require_task("select", find_base(DEFAULT_BASE))


def check_version(home: Path, contents: VersionContents) -> None:
    """Raises ArtifactError for a version that has not learned to select sources, where the release is to do so."""
    from serving.knowledge.config import read_sources

    config = read_serving(home)
    if config.sources and not config.planner and read_sources(config.sources).select == "revelator":
        _require_selecting(home, contents)


def _require_selecting(home: Path, contents: VersionContents) -> None:
    adapter = version_folder(home, contents.version) / ADAPTER if contents.files else None
    require_task("select", Path(contents.base["folder"]), adapter)


def lay_out(home: Path, config: ServingConfig) -> None:
    """Records the configuration, for later starts as well if it is to be remembered, and writes the models that have
    no versions of their own."""
    write_serving(home, config)
    facts = repository_folder(home) / VLLM / "1" / FACTS_FILE  # where `deploy --engine vllm` laid it out
    vllm = {VLLM: str(facts.parent.resolve())} if facts.is_file() else {}
    for name in PLAIN_MODELS:
        write_code(name, repository_folder(home) / name / "1")
        write_config(home, name, [1], vllm if name in EXECUTORS else {})


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
    """Writes the packaged config.pbtxt with the version to serve, a canary behind it, what is recorded in
    `serving.json`, and the parameters."""
    serving_config = read_serving(home)
    config = text_format.Parse((find_templates() / name / "config.pbtxt").read_text(encoding="utf-8"), ModelConfig())
    config.name = name
    config.version_policy.specific.versions[:] = versions
    for key, value in {SERVING: serving_config.model_dump_json(), **(parameters or {})}.items():
        config.parameters[key].string_value = value
    if name in PLACED:
        [group] = config.instance_group
        group.count = serving_config.instances
        group.kind = group.KIND_GPU if serving_config.gpus else group.KIND_CPU
        group.gpus[:] = serving_config.gpus
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


def read_served_versions(home: Path, name: str) -> list[int]:
    """The versions that the live config.pbtxt names: the promoted one, then a canary if there is one."""
    config = _read_config(home, name)
    return [int(version) for version in config.version_policy.specific.versions] if config else []


def list_versions(home: Path, name: str) -> list[int]:
    """The versions that have a folder, in rising order."""
    folder = repository_folder(home) / name
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit()) if folder.is_dir() else []
