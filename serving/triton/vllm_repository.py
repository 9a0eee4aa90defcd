"""Lays `model_repo/revelator_vllm/` out for Triton's vLLM backend: one base, and the registry versions over it as LoRA.

    config.pbtxt          the backend's inputs and outputs, written out: `revelator serve` completes no configuration
    1/model.json          vLLM's engine arguments
    1/multi_lora.json     the name of each version's adapter, and its folder; read once, when the model is loaded
    1/revelator.json      what our client needs (`serving.models.vllm.VllmFacts`); written last
    adapters/N/           the adapter of version N, verified

A request names the adapter, so two versions are compared, and one rolled back, without a second copy of the base.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from revelator import files
from revelator.artifact import base_folder, read_manifest, verify_adapter
from revelator.errors import ArtifactError
from revelator.registry import Version, download
from revelator.tasks import TASKS
from serving.models.vllm import FACTS_FILE, MODEL, VllmFacts
from serving.triton import repository

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM takes as the largest rank


def lay_out(home: Path, versions: Sequence[Version], **engine: Any) -> Path:
    """The model's folder below `home`, for these versions over one base; the first answers unless a request asks.

    `engine` are further engine arguments of vLLM. Raises ArtifactError when an adapter is damaged, has another base
    than the first, or is one that vLLM does not serve.
    """
    home = home.resolve()
    folder = repository.repository_folder(home) / MODEL
    adapters = {str(version.version): _fetch_adapter(folder / "adapters", version) for version in versions}
    bases = {base_folder(read_manifest(adapter).base_name).resolve() for adapter in adapters.values()}
    if len(bases) > 1:
        named = " and ".join(sorted(map(str, bases)))
        raise ArtifactError("vLLM serves the versions of one base", where=named, hint="choose versions of one of them")
    [base] = bases
    ranks = [_read_rank(adapter) for adapter in adapters.values()]
    names = {version: f"{MODEL}-{version}" for version in adapters}
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    labels = {label for task in TASKS.values() for label in task.labels or ()}
    tokens = {label: tokenizer(" " + label, add_special_tokens=False)["input_ids"][0] for label in sorted(labels)}
    chosen = {
        "model": str(base),
        "dtype": "bfloat16",
        "max_model_len": int(AutoConfig.from_pretrained(base, trust_remote_code=False).max_position_embeddings),
        "enable_lora": True,
        "max_loras": len(adapters),
        "max_lora_rank": next(rank for rank in RANKS if rank >= max(ranks)),
        "logprobs_mode": "processed_logprobs",  # after the choice among labels, not before it
        "generation_config": "vllm",  # nothing of the base's own sampling defaults
        **engine,
    }
    first = names[str(versions[0].version)]
    (folder / "1" / FACTS_FILE).unlink(missing_ok=True)
    repository.write_config(home, MODEL, 1)
    files.write_json(folder / "1" / "model.json", chosen)
    files.write_json(folder / "1" / "multi_lora.json", {names[v]: str(adapter) for v, adapter in adapters.items()})
    files.write_json(folder / "1" / FACTS_FILE, vars(VllmFacts(first, names, tokens)))
    return folder


def _fetch_adapter(adapters: Path, version: Version) -> Path:
    """The folder of the version's adapter, fetched unless it is there; verified either way."""
    folder = download(version, adapters / str(version.version))
    verify_adapter(folder, base_folder(read_manifest(folder).base_name))
    return folder


def _read_rank(adapter: Path) -> int:
    """The adapter's largest rank. Raises ArtifactError for what vLLM refuses."""
    config = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    rank = max([config["r"], *(config.get("rank_pattern") or {}).values()])
    found = {
        "modules_to_save": config.get("modules_to_save"),
        "DoRA": config.get("use_dora"),
        "a bias": config.get("bias", "none") != "none",
        f"rank {rank}, more than {RANKS[-1]}": rank > RANKS[-1],
    }
    if refused := [what for what, is_there in found.items() if is_there]:
        hint = "merge it into its base with `revelator model merge`, and serve that"
        raise ArtifactError(f"vLLM serves no adapter with {' and '.join(refused)}", where=str(adapter), hint=hint)
    return int(rank)
