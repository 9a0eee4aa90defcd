"""Exports what training made: an adapter's folder and version, or base and adapter merged into one model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from revelator import registry
from revelator.artifact import (
    MERGED,
    AdapterManifest,
    explain_full_disk,
    find_base,
    make_lasting_name,
    read_adapter_fingerprints,
    verify_adapter,
    verify_files,
    write_manifest,
)
from revelator.files import sha256_file, stage_folder, write_bytes
from revelator.fingerprints import Fingerprints
from revelator.options import AS_JSON, HOME, PATH
from revelator.registry import CHAMPION, NAME
from training.checkpoints import flatten
from training.config import AdapterConfig

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def use_lasting_names(adapter_config: Any, base: str) -> None:
    """Makes PEFT's configuration equal in every process and on every machine."""
    adapter_config.base_model_name_or_path = make_lasting_name(base)
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
    description = f"{config.stage} on the base {manifest.base_name}{begun}: {learnt} ({manifest.data_digest[:12]})"
    params = {name: str(value) for name, value in flatten(config.model_dump(mode="json")).items()}
    # Names of their own: a metric of a model is one of its run, too, where it would be one more point of the curve.
    metrics = {f"model/{name}": value for name, value in figures.items() if name.startswith(("dev/", "best/"))}
    return registry.register_adapter(
        config.out, NAME, manifest.run_id, tags, description=description, params=params, metrics=metrics
    )


def fetch_adapter(adapter: str, home: Path) -> Path:
    """The folder that ADAPTER names, or that of a registered version, which is downloaded into the home folder."""
    if Path(adapter).is_dir():
        return Path(adapter)
    registry.connect(home, must_exist=True)
    return registry.fetch(registry.resolve(NAME, adapter), home)


@click.command()
@click.argument("adapter", default=CHAMPION)
@click.option("--base", help="`mini`, a folder, or a Hub id.  [default: the base that the adapter's manifest names]")
@click.option("--out", type=PATH, required=True, help="Folder of the merged model.")
@HOME
@AS_JSON
def merge(adapter: str, base: str | None, out: Path, home: Path, as_json: bool) -> None:
    """Write base and adapter as one model in bf16, for engines that load no adapters.

    ADAPTER is a folder, a version number, `latest`, or an alias (default: champion). An adapter that was trained on a
    4-bit base (`quantization: nf4`) goes into the bf16 weights that the 4-bit ones were made from, as any other does.

    \b
    Examples:
      revelator model merge --out runs/merged
      revelator model merge runs/adapters/qwen --out runs/merged/qwen
      revelator model merge 3 --base /models/Qwen2.5-0.5B --out runs/merged/3
    """
    MERGED.check_place(out)
    manifest = merge_adapter(fetch_adapter(adapter, home), base, out)
    if as_json:
        click.echo(json.dumps({"out": str(out), **manifest}))
    else:
        made = f"base {manifest['base']['name']} with adapter {manifest['adapter'][:12]}…"
        click.echo(f"merged model {out}: {made}, bf16")


def merge_adapter(adapter: Path, base: str | None, out: Path) -> dict[str, Any]:
    """Writes the model to `out`, by one rename; returns its manifest: base, adapter's sha256, prompts, grammar, and the
    sha256 of each file.

    Weights are summed in the base's bf16. Raises ArtifactError when the adapter does not fit the base, or when the
    base's own weights are quantised.
    """
    folder = find_base(base or verify_files(adapter).base_name)
    manifest = verify_adapter(adapter, folder)

    import torch
    from peft import PeftModel
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from training.base_model import refuse_quantized

    refuse_quantized(AutoConfig.from_pretrained(folder, trust_remote_code=False), folder)
    with explain_full_disk(out), stage_folder(out) as stage:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.bfloat16, use_safetensors=True, trust_remote_code=False
        )
        with warnings.catch_warnings():  # peft 0.21 reads names that transformers 5 is about to rename
            warnings.simplefilter("ignore", FutureWarning)
            PeftModel.from_pretrained(model, adapter).merge_and_unload(safe_merge=True).save_pretrained(stage)
        AutoTokenizer.from_pretrained(folder, trust_remote_code=False).save_pretrained(stage)
        about = {
            "base": {"name": manifest.base_name, "digest": manifest.base_digest},
            "adapter": sha256_file(adapter / "adapter_model.safetensors"),
            "prompt_hash": manifest.prompt_hash,
            "grammar_hash": manifest.grammar_hash,
        }
        read_adapter_fingerprints(adapter, folder).write(stage)
        return MERGED.write_manifest(stage, about)
