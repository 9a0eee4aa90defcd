"""What training made, complete: an adapter's folder and version, or base and adapter merged into one model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from revelator import registry
from revelator.artifact import (
    ADAPTER_WEIGHTS,
    DEFAULT_BASE,
    AdapterManifest,
    find_base,
    make_lasting_name,
    read_adapter_fingerprints,
    split_revision,
    verify_adapter,
    verify_files,
    write_manifest,
)
from revelator.files import sha256_file, write_bytes
from revelator.fingerprints import Fingerprints
from revelator.registry import NAME
from revelator.rows import SET
from training.checkpoints import flatten
from training.config import AdapterConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def use_lasting_names(adapter_config: Any, base: str) -> None:
    """Makes PEFT's configuration equal in every process and on every machine."""
    adapter_config.base_model_name_or_path, adapter_config.revision = split_revision(make_lasting_name(base))
    adapter_config.target_modules = sorted(adapter_config.target_modules)  # a set has another order in each process


def complete_adapter(
    folder: Path,
    config: AdapterConfig,
    tokenizer: PreTrainedTokenizerBase,
    tasks: Collection[str],
    fingerprints: Fingerprints,
    *,
    base_digest: str,
    data_digest: str,
    run_id: str,
) -> AdapterManifest:
    """Writes what lies beside the weights of an adapter that has learned `tasks` from the questions of `fingerprints`,
    its manifest last."""
    tokenizer.save_pretrained(folder)
    fingerprints.write(folder)
    write_bytes(folder / "config.yaml", config.to_yaml().encode())
    base = make_lasting_name(config.base)
    return write_manifest(
        folder, base_name=base, base_digest=base_digest, data_digest=data_digest, run_id=run_id, tasks=tasks
    )


def register_version(config: AdapterConfig, manifest: AdapterManifest, figures: Mapping[str, float]) -> int:
    """Registers the adapter at `config.out`, with the last `figures` of its training, and returns its version; it may
    have been registered already."""
    assert config.out is not None
    first, *others = dict.fromkeys(folder.resolve() for folder in config.sets)
    tags = {
        "set_folder": str(first),
        "data_digest": manifest.data_digest,
        "base": manifest.base_name,
        "stage": config.stage,
    }
    if others:
        tags["other_sets"] = json.dumps([str(folder) for folder in others])
    begun = f", on from the adapter {config.adapter.name}" if config.adapter else ""
    sets = " and ".join(folder.name for folder in (first, *others))
    learnt = f"{config.length} of the set{'s' * bool(others)} {sets}"
    about = f"{config.stage} on the base {manifest.base_name}{begun}: {learnt} ({manifest.data_digest[:12]})"
    description = f"{about}\n\n{write_data_card(manifest.base_name, [first, *others])}"
    params = {name: str(value) for name, value in flatten(config.model_dump(mode="json")).items()}
    # Names of their own: a metric of a model is one of its run, too, where it would be one more point of the curve.
    metrics = {f"model/{name}": value for name, value in figures.items() if name.startswith(("dev/", "best/"))}
    return registry.register_adapter(
        config.out, NAME, manifest.run_id, tags, description=description, params=params, metrics=metrics
    )


def write_data_card(base: str, sets: Sequence[Path]) -> str:
    """What a version is made of, with the licence of each part, as a Markdown table: `base`, and the training rows of
    each instruction set. MLflow shows it on the version's page."""
    lines = ["| made of | rows | licences |", "|---|---|---|", f"| base `{base}` | | {find_licence(base)} |"]
    for folder in sets:
        counts = SET.read_manifest(folder)["counts"]["licence"]["train"]
        licences = ", ".join(f"{name or 'not stated'} ({n:,})" for name, n in sorted(counts.items()))
        lines.append(f"| set {folder.name} | {sum(counts.values()):,} | {licences} |")
    return "\n".join(lines)


def find_licence(base: str) -> str:
    """The licence that a base's README names in its front matter; that of this package for the embedded base."""
    if base == DEFAULT_BASE:
        return metadata("revelator")["License-Expression"]
    from huggingface_hub import metadata_load

    readme = Path(base) / "README.md"
    stated = metadata_load(readme) if readme.is_file() else None
    return str((stated or {}).get("license", "not stated"))


def fetch_adapter(adapter: str, home: Path) -> Path:
    """The folder that ADAPTER names, or that of a registered version, which is downloaded into the home folder."""
    if Path(adapter).is_dir():
        return Path(adapter)
    registry.connect(home, must_exist=True)
    return registry.fetch(registry.resolve(NAME, adapter), home)


def write_merged(
    adapter: Path, base: str | None, folder: Path, precision: Literal["bf16", "fp32"] = "bf16"
) -> dict[str, Any]:
    """Writes base and adapter as one model into `folder`, with tokenizer, generation configuration and fingerprints.
    Returns what its manifest says: base, adapter's sha256, prompts and grammar.

    Weights are loaded, summed and saved in `precision`: a server sums them in fp32, and bf16 halves memory and file.
    Raises ArtifactError when the adapter does not fit the base, or when the base's own weights are quantised.
    """
    base_folder = find_base(base or verify_files(adapter).base_name)
    manifest = verify_adapter(adapter, base_folder)

    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig
    from transformers.utils import logging

    from training.base_model import refuse_quantized

    logging.disable_progress_bar()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    refuse_quantized(AutoConfig.from_pretrained(base_folder, trust_remote_code=False), base_folder)
    model: Any = AutoModelForCausalLM.from_pretrained(
        base_folder, dtype=dtype, use_safetensors=True, trust_remote_code=False
    )
    with warnings.catch_warnings():  # peft 0.21 reads names that transformers 5 is about to rename
        warnings.simplefilter("ignore", FutureWarning)
        merged = PeftModel.from_pretrained(model, adapter).merge_and_unload(safe_merge=True)
    tokenizer = AutoTokenizer.from_pretrained(base_folder, trust_remote_code=False)
    end = tokenizer.eos_token_id
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    merged.generation_config = GenerationConfig(do_sample=False, eos_token_id=end, pad_token_id=pad)  # as it is asked
    merged.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    read_adapter_fingerprints(adapter, base_folder).write(folder)
    return describe_export(manifest, adapter)


def describe_export(manifest: AdapterManifest, adapter: Path) -> dict[str, Any]:
    """What the manifest of an export says of the adapter that it is made of."""
    return {
        "base": {"name": manifest.base_name, "digest": manifest.base_digest},
        "adapter": sha256_file(adapter / ADAPTER_WEIGHTS),
        "prompt_hash": manifest.prompt_hash,
        "grammar_hash": manifest.grammar_hash,
    }
