"""The models of a home folder as Triton reads them: below `model_repo/`, packaged code and a config.pbtxt each.

Every file is replaced as a whole. Which versions are loaded is said with each load call, by `make_config`.
"""

from __future__ import annotations

import py_compile
from collections.abc import Collection
from importlib.util import cache_from_source
from pathlib import Path

from google.protobuf import json_format, text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

import serving
from revelator import files
from revelator.errors import ArtifactError
from serving.home.config import ServingConfig
from serving.home.versions import repository_folder
from serving.models.releases import REVELATOR
from serving.models.triton import GENERATOR

DECODING = "decoding"  # parameter of the revelator


def find_templates() -> Path:
    """The folder of the packaged models: inside an installed package, or beside it in a checkout."""
    package = Path(serving.__file__).parent
    for folder in (package / "_model_repo", package.parent / "model_repo"):
        if (folder / REVELATOR / "config.pbtxt").is_file():
            return folder
    raise ArtifactError("the model repository is not part of this installation", where=str(package))


def read_config(model: str) -> ModelConfig:
    """The packaged config.pbtxt of a model."""
    path = find_templates() / model / "config.pbtxt"
    config: ModelConfig = text_format.Parse(path.read_text(encoding="utf-8"), ModelConfig())
    config.name = model
    return config


def lay_out(home: Path) -> None:
    """Writes what Triton wants to find before it is told more: each config.pbtxt, and the generator's code."""
    for model in (REVELATOR, GENERATOR):
        text = text_format.MessageToString(read_config(model), as_utf8=True)
        files.write_bytes(repository_folder(home) / model / "config.pbtxt", text.encode())
    write_code(home, GENERATOR, "1")


def write_code(home: Path, model: str, version: str) -> None:
    """Writes this package's model.py into a version folder, which an older release may have made.

    The byte code, too: if the stub wrote it, Triton would see a changed folder and load it again.
    """
    path = repository_folder(home) / model / version / "model.py"
    code = (find_templates() / model / "model.py").read_bytes()
    if path.is_file() and path.read_bytes() == code and Path(cache_from_source(str(path))).is_file():
        return  # what is written again is loaded again
    files.write_bytes(path, code)
    py_compile.compile(str(path), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)


def make_config(model: str, versions: Collection[str], settings: ServingConfig) -> str:
    """The configuration (JSON) of a load call: the packaged one with these versions, and cards as they are set."""
    config = read_config(model)
    config.version_policy.specific.versions[:] = sorted(map(int, versions))
    if model == REVELATOR:
        config.parameters[DECODING].string_value = settings.decoding
        [group] = config.instance_group
        group.count = settings.instances
        group.kind = group.KIND_GPU if settings.gpus else group.KIND_CPU
        group.gpus[:] = settings.gpus
    return str(json_format.MessageToJson(config, preserving_proto_field_name=True))
