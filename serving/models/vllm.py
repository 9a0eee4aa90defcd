"""The revelator behind Triton's vLLM backend: the executor's client for it.

The backend is decoupled, so every prompt is a stream of its own that carries one answer; vLLM puts prompts of all
streams together. Prompts are rendered here, as in training: the backend applies no chat template. A label task is one
token, chosen among the labels' first tokens, with their log probabilities; the numbers of these tokens were written
down by `vllm_repository`, so that no tokenizer is needed here. Whatever is written is held to its form
(`make_vllm_structure`). What does not check in the end, because its budget cut it off, is replaced by the fallback of
the language, degraded, as with the engine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from revelator.errors import ConfigError
from revelator.spans import MODEL_ID
from revelator.tasks import TASKS
from serving.batching import gather_all
from serving.models.endpoint_revelator import make_vllm_structure
from serving.models.releases import find_choice
from serving.models.triton import TritonModels, make_strings
from serving.protocols import Completion

MODEL, FACTS_FILE = "revelator_vllm", "revelator.json"
TEXT_TOKENS = 256  # of a sub-question or a list of parts


@dataclass(frozen=True)
class VllmFacts:
    """What `revelator.json` beside model.json says.

    `adapter` is the name in multi_lora.json of the version that answers unless another is asked for; `versions` maps
    each version to such a name, `model_ids` to MLflow's model of it; `label_tokens` each label to its first token.
    """

    adapter: str
    versions: dict[str, str]
    label_tokens: dict[str, int]
    model_ids: dict[str, str] = field(default_factory=dict)


def read_facts(folder: Path) -> VllmFacts:
    """Raises ConfigError when `folder` is no version folder of `revelator model deploy --engine vllm`."""
    try:
        return VllmFacts(**json.loads((folder / FACTS_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        hint = "write it with `revelator model deploy --engine vllm`"
        raise ConfigError(f"not readable: {error}", where=str(folder / FACTS_FILE), hint=hint) from error


class VllmRevelator:
    """`serving.protocols.Revelator` over the Triton model `revelator_vllm`.

    `version` chooses among the registry versions that are served over one base; None is the deployed one.
    """

    def __init__(self, models: TritonModels, facts: VllmFacts, version: int | None = None) -> None:
        if version is not None and str(version) not in facts.versions:
            known = ", ".join(facts.versions)
            raise ConfigError(f"version {version} is not served by vLLM", where=MODEL, hint=f"versions are {known}")
        self._models, self._facts = models, facts
        self._structures = {name: json.dumps(make_vllm_structure(task, lead=" ")) for name, task in TASKS.items()}
        self._adapter = facts.adapter if version is None else facts.versions[str(version)]
        self._version = next((number for number, name in facts.versions.items() if name == self._adapter), "")

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        """One stream a prompt, all at once; the first error ends the others."""
        return await gather_all([self._complete_one(task, prompt, temperature) for prompt in prompts])

    async def _complete_one(self, task: str, prompt: str, temperature: float) -> Completion:
        labels = TASKS[task].labels
        sampling = self._make_choice_settings(labels) if labels else self._make_text_settings(task, temperature)
        result = await self._models.ask_stream(
            MODEL,
            text_input=make_strings([prompt]),
            stream=np.array([False]),
            exclude_input_in_output=np.array([True]),
            sampling_parameters=make_strings([json.dumps(sampling | {"lora_name": self._adapter})]),
            return_logprobs=np.array([bool(labels)]),
            return_num_input_tokens=np.array([True]),
            return_num_output_tokens=np.array([True]),
        )
        answered = find_choice().answered
        answered["revelator"].add(self._version)
        if self._version in self._facts.model_ids:
            answered[MODEL_ID].add(self._facts.model_ids[self._version])
        read, wrote = (int(result.as_numpy(f"num_{side}_tokens").ravel()[0]) for side in ("input", "output"))
        if labels:
            found = self._read_probabilities(labels, json.loads(result.as_numpy("logprobs")[0]))
            return Completion(max(found, key=found.__getitem__), found, read)
        text = result.as_numpy("text_output")[0].decode().strip()
        if TASKS[task].language and TASKS[task].parse_sound(text) is None:
            return Completion(TASKS[task].write_fallback(prompt), {}, read, wrote, degraded=True)
        return Completion(text, {}, read, wrote)

    def _make_choice_settings(self, labels: Sequence[str]) -> dict[str, Any]:
        allowed = [self._facts.label_tokens[label] for label in labels]
        return {"temperature": 0, "max_tokens": 1, "logprobs": len(labels), "allowed_token_ids": allowed}

    def _make_text_settings(self, task: str, temperature: float) -> dict[str, Any]:
        language = TASKS[task].language
        return {
            "temperature": temperature,
            "max_tokens": language.token_limit if language else TEXT_TOKENS,
            "structured_outputs": self._structures[task],
        }

    def _read_probabilities(self, labels: Sequence[str], logprobs: list[dict[str, Any]]) -> dict[str, float]:
        """Over the labels alone; one that vLLM does not name has none."""
        named = {int(token): math.exp(entry["logprob"]) for token, entry in logprobs[0].items()}
        own = {label: named.get(self._facts.label_tokens[label], 0.0) for label in labels}
        return {label: value / sum(own.values()) for label, value in own.items()}
