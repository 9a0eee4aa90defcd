"""Lays `model_repo/revelator_vllm/` out for Triton's vLLM backend: one base, and the registry versions over it as LoRA.

    config.pbtxt          the backend's inputs and outputs, written out: `revelator serve` completes no configuration
    1/model.json          vLLM's engine arguments
    1/multi_lora.json     the name of each version's adapter, and its folder; read once, when the model is loaded
    1/revelator.json      what our client needs (`serving.models.vllm.VllmFacts`); written last
    adapters/N/           the adapter of version N, verified

A request names the adapter, so two versions are compared, and one rolled back, without a second copy of the base.
`EngineArguments` are what a person may choose of vLLM's own; the rest follows from the versions and the tasks.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from transformers import AutoConfig, AutoTokenizer

from revelator import files
from revelator.artifact import find_base, read_manifest, verify_adapter
from revelator.config import Share, Strict
from revelator.errors import ArtifactError, ConfigError
from revelator.limits import Limits
from revelator.registry import Version, download
from revelator.tasks import TASKS
from revelator.tasks.task import DOCUMENT_CHARACTERS
from serving.models.endpoint_revelator import TEXT_TOKENS
from serving.models.vllm import FACTS_FILE, MODEL, VllmFacts
from serving.triton import repository

ENVIRONMENT = "EXECUTION_ENV_PATH"  # parameter of Triton's Python backends: the environment of a model's process
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # what vLLM takes as the largest rank


class EngineArguments(Strict):
    """Engine arguments of vLLM, by its own names (`revelator model deploy --engine-config FILE`).

    `environment` is none of them: it is the virtual environment that holds vLLM, in which Triton runs it; without it,
    that of revelator, whose packages are seldom those that vLLM pins. `max_model_len` follows from the tasks' budgets
    unless it is given: memory for keys and values is kept by it, and today's bases read 32,768 tokens and more.
    `structured_outputs` is the backend that holds plans to their grammars.
    """

    environment: Path | None = None
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "bfloat16"
    max_model_len: Annotated[int, Field(ge=256)] | None = None
    tensor_parallel_size: int = Field(1, ge=1)  # cards that share the base
    gpu_memory_utilization: Annotated[Share, Field(gt=0)] = 0.9
    quantization: Literal["fp8", "bitsandbytes", "awq", "gptq"] | None = None
    kv_cache_dtype: Literal["auto", "fp8"] = "auto"
    enable_prefix_caching: bool = True  # the prompts of one task, and of one question's documents, begin alike
    max_num_seqs: Annotated[int, Field(ge=1)] | None = None
    enforce_eager: bool = False  # no CUDA graphs: a quick start, slow tokens
    structured_outputs: Literal["auto", "xgrammar"] = "auto"  # others take no grammar in xgrammar's dialect

    @field_validator("environment")
    @classmethod
    def _find_environment(cls, folder: Path | None) -> Path | None:
        if folder and not (folder / "bin" / "activate").is_file():
            raise ValueError("no virtual environment: it has no bin/activate")
        return folder and folder.absolute()

    def to_vllm(self) -> dict[str, Any]:
        """The fields of vLLM's engine arguments that were chosen or differ from its own defaults."""
        chosen = self.model_dump(exclude_none=True, exclude={"structured_outputs", "environment"})
        return chosen | {"structured_outputs_config": {"backend": self.structured_outputs}}


def measure_longest(tokenizer: Any, positions: int) -> int:
    """Tokens of the longest prompt and the longest output of any task, at most `positions`, the base's own.

    Two characters of a question or document are counted as a token, as rare names and other scripts need.
    """
    prompt = max(len(tokenizer(task.template)["input_ids"]) for task in TASKS.values())
    read = (Limits().question_characters + DOCUMENT_CHARACTERS) // 2
    written = max(task.language.token_limit if task.language else TEXT_TOKENS for task in TASKS.values())
    return min(positions, -(-(prompt + read + written) // 128) * 128)


def lay_out(home: Path, versions: Sequence[Version], engine: EngineArguments | None = None) -> Path:
    """The model's folder below `home`, for these versions over one base; the first answers unless a request asks.

    Raises ArtifactError when an adapter is damaged, has another base than the first, or is one that vLLM does not
    serve, ConfigError for a length that the base does not read and for cards that are not there.
    """
    home = home.resolve()
    folder = repository.repository_folder(home) / MODEL
    adapters = {str(version.version): _fetch_adapter(folder / "adapters", version) for version in versions}
    bases = {find_base(read_manifest(adapter).base_name).resolve() for adapter in adapters.values()}
    if len(bases) > 1:
        named = " and ".join(sorted(map(str, bases)))
        raise ArtifactError("vLLM serves the versions of one base", where=named, hint="choose versions of one of them")
    [base] = bases
    ranks = [_read_rank(adapter) for adapter in adapters.values()]
    names = {version: f"{MODEL}-{version}" for version in adapters}
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    labels = {label for task in TASKS.values() for label in task.labels or ()}
    tokens = {label: tokenizer(" " + label, add_special_tokens=False)["input_ids"][0] for label in sorted(labels)}
    positions = AutoConfig.from_pretrained(base, trust_remote_code=False).get_text_config().max_position_embeddings
    engine = engine or EngineArguments.model_validate({})
    if (engine.max_model_len or 0) > positions:
        message = f"max_model_len = {engine.max_model_len}: the base reads {positions} tokens"
        raise ConfigError(message, where=str(base), hint="leave it out: it follows from the tasks")
    own = engine.environment is None  # another environment's torch may see cards that this one does not
    if own and engine.tensor_parallel_size > 1 and (cards := torch.cuda.device_count()) < engine.tensor_parallel_size:
        message = f"tensor_parallel_size = {engine.tensor_parallel_size}: torch sees {cards} GPUs"
        raise ConfigError(message, hint="see what there is: revelator doctor")
    chosen = {
        "model": str(base),
        "max_model_len": measure_longest(tokenizer, int(positions)),
        "enable_lora": True,
        "max_loras": len(adapters),
        "max_lora_rank": next(rank for rank in RANKS if rank >= max(ranks)),
        "logprobs_mode": "processed_logprobs",  # after the choice among labels, not before it
        "generation_config": "vllm",  # nothing of the base's own sampling defaults
        **engine.to_vllm(),
    }
    first = names[str(versions[0].version)]
    (folder / "1" / FACTS_FILE).unlink(missing_ok=True)
    repository.write_config(home, MODEL, [1], {ENVIRONMENT: str(engine.environment)} if engine.environment else {})
    files.write_json(folder / "1" / "model.json", chosen)
    files.write_json(folder / "1" / "multi_lora.json", {names[v]: str(adapter) for v, adapter in adapters.items()})
    model_ids = {str(version.version): version.model_id for version in versions}
    files.write_json(folder / "1" / FACTS_FILE, vars(VllmFacts(first, names, tokens, model_ids)))
    return folder


def _fetch_adapter(adapters: Path, version: Version) -> Path:
    """The folder of the version's adapter, fetched unless it is there; verified either way."""
    folder = download(version, adapters / str(version.version))
    verify_adapter(folder, find_base(read_manifest(folder).base_name))
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
