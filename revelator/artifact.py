"""Bases and adapters as folders that can be told apart: digests, the adapter's manifest, what must agree before use.

An adapter is only right on the base, the prompts and the plan languages that it was trained with. Its manifest records
all three beside the sha256 of every file; `verify_adapter` compares them and names what differs.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from revelator.errors import ArtifactError
from revelator.files import sha256_file, sha256_text
from revelator.fingerprints import Fingerprints
from revelator.folders import FolderKind
from revelator.plans.language import grammar_hash
from revelator.tasks import prompt_hash

ADAPTER = FolderKind("an adapter", "revelator-adapter-1", "revelator train CONFIG.yaml")
BASE = FolderKind("a base", "revelator-base-1", "revelator train pretrain")  # a base of ours; others have no manifest
MERGED = FolderKind("a merged model", "revelator-merged-1", "revelator model export NAME --out DIR")
GGUF = FolderKind("a GGUF export", "revelator-gguf-1", "revelator model export NAME --format gguf --out DIR")
_TRAINING = Path(__file__).resolve().parents[1] / "training"
DEFAULT_BASE = "mini"
EMBEDDED_BASE = _TRAINING / "bases" / DEFAULT_BASE
EMBEDDED_READER = _TRAINING / "readers" / "minilm"
WEIGHTS = "*.safetensors"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_CONFIG = "adapter_config.json"
BASE_FILES = (  # what decides a base's output; a model card may change freely
    WEIGHTS,
    "*.safetensors.index.json",
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
DISK_FULL_SIGNS = (
    *map(os.strerror, DISK_FULL),  # safetensors
    "disk is full",  # SQLite
    " requested and ",  # numpy: "3001 requested and 1520 written"
    "inline_container",  # torch's writer, whose stream took fewer bytes than it was given
)


@dataclass(frozen=True)
class AdapterManifest:
    """What an adapter was made from and what it consists of; `files` maps each file to its sha256, `tasks` are those
    whose prompts `prompt_hash` covers: what base and adapter have learned."""

    base_name: str
    base_digest: str
    prompt_hash: str
    grammar_hash: str
    data_digest: str
    created: str
    run_id: str
    tasks: list[str]
    format: str
    files: dict[str, str]
    sizes: dict[str, int]


def find_base(name: str) -> Path:
    """Returns the folder of a base: `mini` is embedded, a path is itself, anything else is an id on the
    model hub, at a revision of it where the name says `ORG/NAME@REVISION`. A name that looks like a path is never
    fetched.

    From the hub only safetensors, tokenizer and configuration are fetched. Raises ArtifactError when there is no base.
    """
    folder = EMBEDDED_BASE if name == DEFAULT_BASE else Path(name).expanduser()
    if folder.is_file():
        hint = "unpack a GGUF first (docs/training.md, A base from a GGUF file); only safetensors are read"
        raise ArtifactError("a base is a folder, and this is a file", where=name, hint=hint)
    if not folder.is_dir():
        folder = _fetch_from_hub(name)
    if not (folder / "config.json").is_file() or not list(folder.glob(WEIGHTS)):
        raise ArtifactError(
            "no config.json with *.safetensors beside it: this is no base model",
            where=str(folder),
            hint="give a folder written by save_pretrained, a Hub id, or `mini`; only safetensors are read",
        )
    return folder


def make_lasting_name(name: str) -> str:
    """How a manifest names a base: `mini`, an absolute path, or a Hub id with its revision, so that it is found from
    any folder."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return name
    return DEFAULT_BASE if folder.resolve() == EMBEDDED_BASE else str(folder.resolve())


def split_revision(name: str) -> tuple[str, str | None]:
    """Splits a Hub id from the revision that stands behind it, `ORG/NAME@REVISION`; any other name is whole."""
    is_pinned = re.fullmatch(r"[^/@]+/[^/@]+@[^/@]+", name) and not Path(name).is_dir()
    id, _, revision = name.partition("@")
    return (id, revision) if is_pinned else (name, None)


def _fetch_from_hub(name: str) -> Path:
    hint = "give --base an existing folder, a Hub id that this machine can reach or has cached, or `mini`"
    if name == DEFAULT_BASE or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ArtifactError("the base model does not exist", where=name, hint=hint)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    id, revision = split_revision(name)
    try:
        return Path(snapshot_download(id, revision=revision, allow_patterns=[*BASE_FILES, "generation_config.json"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ArtifactError(
            f"neither a folder nor a base that can be had from the hub: {reason}", where=name, hint=hint
        ) from error


def digest_base(folder: Path) -> str:
    """Returns the sha256 over name and sha256 of weights, configuration and tokenizer files, sorted by name."""
    paths = {path.name: path for pattern in BASE_FILES for path in folder.glob(pattern)}
    return sha256_text("".join(f"{name} {sha256_file(path)}\n" for name, path in sorted(paths.items())))


def write_manifest(
    folder: Path,
    *,
    base_name: str,
    base_digest: str,
    data_digest: str,
    run_id: str,
    tasks: Collection[str] = (),
) -> AdapterManifest:
    """Writes the manifest of the files that lie in `folder` now; call it last."""
    about = {
        "base_name": base_name,
        "base_digest": base_digest,
        "prompt_hash": prompt_hash(tasks),
        "grammar_hash": grammar_hash(),
        "data_digest": data_digest,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "run_id": run_id,
        "tasks": sorted(tasks),
    }
    return AdapterManifest(**ADAPTER.write_manifest(folder, about))


def read_manifest(folder: Path, *, verify: bool = False) -> AdapterManifest:
    """Raises ArtifactError as `FolderKind.read_manifest` does."""
    try:
        return AdapterManifest(**ADAPTER.read_manifest(folder, verify=verify))
    except TypeError as error:
        reason = f"the manifest of an adapter is not whole: {error}"
        raise ArtifactError(reason, where=str(folder), hint="train it again") from error


def list_learned_tasks(base: Path, adapter: Path | None = None) -> frozenset[str]:
    """The tasks in the manifests of base and adapter; a base that is not ours has learned none. Raises ArtifactError
    for an adapter without a manifest."""
    learned = frozenset(BASE.find_manifest(base).get("tasks", ()))
    return learned.union(read_manifest(adapter).tasks) if adapter else learned


def require_task(task: str, base: Path, adapter: Path | None = None) -> None:
    """Raises ArtifactError where neither base nor adapter has learned a task."""
    if task not in list_learned_tasks(base, adapter):
        raise ArtifactError(
            f"this model has not learned the task {task}",
            where=str(adapter or base),
            hint=f"train it on a set with rows of {task} (docs/your-data.md), or choose another model",
        )


def verify_files(folder: Path) -> AdapterManifest:
    """Returns the manifest once every file that it names is there with its sha256. Raises ArtifactError that names the
    file; also raises if the manifest lists no safetensors."""
    manifest = read_manifest(folder, verify=True)
    if ADAPTER_WEIGHTS not in manifest.files:
        raise ArtifactError(
            f"the manifest names no {ADAPTER_WEIGHTS}: weights are read from safetensors only",
            where=str(folder),
            hint="save the adapter again with save_pretrained, then write its manifest",
        )
    return manifest


def verify_adapter(folder: Path, base: Path) -> AdapterManifest:
    """`verify_files`, then base, prompts and grammar against those of the training; ArtifactError says what differs."""
    manifest = verify_files(folder)
    prompts = prompt_hash(manifest.tasks)
    facts = (
        ("base", digest_base(base), manifest.base_digest, f"use the base that it was trained on: {manifest.base_name}"),
        ("prompts", prompts, manifest.prompt_hash, "train again: a prompt or a label set changed since"),
        ("grammar", grammar_hash(), manifest.grammar_hash, "train again: a language of plans changed since"),
    )
    for what, found, wanted, hint in facts:
        if found != wanted:
            raise ArtifactError(
                f"{what}: sha256 {found[:12]}… here, but {wanted[:12]}… when the adapter was trained",
                where=f"{folder} on {base}",
                hint=hint,
            )
    return manifest


def read_base_fingerprints(folder: Path) -> Fingerprints:
    """What a base, or a merged model, was trained on; where its manifest lists no fingerprints, its name is unknown.
    Raises ArtifactError for a file that is not as the manifest says."""
    folder = folder.resolve()
    kind = MERGED if MERGED.find_manifest(folder) else BASE
    is_cached = folder.parent.name == "snapshots"  # of the Hub's cache: models--OWNER--NAME/snapshots/COMMIT
    name = folder.parents[1].name.removeprefix("models--").replace("--", "/") if is_cached else folder.name
    return Fingerprints.read(folder, kind, name)


def read_adapter_fingerprints(adapter: Path | None, base: Path) -> Fingerprints:
    """What a base, and an adapter on it, were trained on. Raises ArtifactError as `read_base_fingerprints` does."""
    known = read_base_fingerprints(base)
    return known | Fingerprints.read(adapter, ADAPTER) if adapter else known


@contextmanager
def explain_full_disk(where: Path) -> Iterator[None]:
    """Turns a full disk below `where` (no space, quota, file size limit) into one clear ArtifactError.

    safetensors, SQLite, torch and numpy report it by exceptions of their own, hence the comparison of texts.
    """
    try:
        yield
    except ArtifactError:
        raise
    except Exception as error:
        says = str(error)
        if getattr(error, "errno", None) in DISK_FULL or any(sign in says for sign in DISK_FULL_SIGNS):
            is_library_s = not isinstance(error, OSError)  # FAISS puts C++ around the system's words
            words = [text for text in map(os.strerror, DISK_FULL) if is_library_s and text in says]
            raise ArtifactError(
                f"the disk is full or a quota is reached: {(words or says.splitlines())[0]}",
                where=str(where),
                hint="free space or choose another --out or --home, then the same command again",
            ) from error
        raise
