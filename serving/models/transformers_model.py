"""A causal language model on transformers: what serves on a GPU, and architectures that `onnx_graph` does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from revelator.prefix_lm.model import PrefixLMForCausalLM
from serving.models.decoding import Constraint, Marks, add_noise, raise_if_cancelled
from serving.models.packing import Pack

Cache = Literal["dynamic", "static"]


class TransformersModel:
    """The same calls as `OnnxModel`, on the model's own device.

    With a `static` cache the memory of keys and values is laid out once for a batch, and on a GPU transformers compiles
    the step into a CUDA graph (`benchmarks/gpu.py` measures where that pays).
    """

    def __init__(self, model: Any, cache: Cache = "dynamic") -> None:
        self.model = model
        # In one pass: attention looks at every pair. A prompt that is read in both directions shares no beginning.
        self.pack_tokens = 0 if isinstance(model, PrefixLMForCausalLM) else 512
        self.model.generation_config = GenerationConfig()  # a base's own penalties fill in what a call leaves open
        self._cache = cache

    @torch.inference_mode()
    def read_pack(self, group: Pack, cancelled: Callable[[], bool]) -> torch.Tensor:
        raise_if_cancelled(cancelled)
        device = self.model.device
        return self.model(
            input_ids=group.ids[None].to(device),
            attention_mask=group.make_mask(self.model.dtype, device),
            position_ids=group.positions[None].to(device),
            logits_to_keep=group.ends.to(device),
            use_cache=False,
        ).logits[0]

    @torch.inference_mode()
    def read_ends(self, ids: torch.Tensor, mask: torch.Tensor, cancelled: Callable[[], bool]) -> torch.Tensor:
        raise_if_cancelled(cancelled)
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        return self.model(input_ids=ids, attention_mask=mask, logits_to_keep=1, use_cache=False).logits[:, -1]

    @torch.inference_mode()
    def write(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        room: int,
        end: int,
        temperature: float,
        constraint: Constraint | None,
        cancelled: Callable[[], bool],
    ) -> list[list[int]]:
        static = "static" if self._cache == "static" else None
        processors = LogitsProcessorList([constraint or _Draw(temperature)])
        settings = GenerationConfig(
            max_new_tokens=room, do_sample=False, eos_token_id=end, pad_token_id=end, cache_implementation=static
        )
        return self._generate(ids, mask, settings, cancelled, processors)

    @torch.inference_mode()
    def search_beams(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        room: int,
        end: int,
        width: int,
        cancelled: Callable[[], bool],
        marks: Marks | None = None,
    ) -> list[list[list[int]]]:
        """For each row up to `width` continuations that end within `room` tokens, likeliest first. Beams that it cuts
        compete with those that ended, so near it there may be fewer than `OnnxModel` finds."""
        settings = GenerationConfig(
            max_new_tokens=room,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=0.0,
            eos_token_id=end,
            pad_token_id=end,
        )
        processors = LogitsProcessorList([_Held(marks, ids.shape[1], end)]) if marks else None
        texts = self._generate(ids, mask, settings, cancelled, processors)
        groups = [texts[i : i + width] for i in range(0, len(texts), width)]
        return [[text[: text.index(end)] for text in group if end in text] for group in groups]

    def _generate(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        settings: GenerationConfig,
        cancelled: Callable[[], bool],
        processors: LogitsProcessorList | None = None,
    ) -> list[list[int]]:
        """What follows each row of `ids`."""
        output = self.model.generate(
            input_ids=ids.to(self.model.device),
            attention_mask=mask.to(self.model.device),
            generation_config=settings,
            logits_processor=processors,
            stopping_criteria=StoppingCriteriaList([_Cancellation(cancelled)]),
        )
        return output[:, ids.shape[1] :].tolist()


class _Draw(LogitsProcessor):
    """Makes the best token a draw at a temperature."""

    def __init__(self, temperature: float) -> None:
        self._temperature = temperature

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return add_noise(scores, self._temperature)


class _Held(LogitsProcessor):
    """Holds what follows the first `start` tokens of each row to `marks`."""

    def __init__(self, marks: Marks, start: int, end: int) -> None:
        self._marks, self._start, self._end = marks, start, end

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self._marks.mask_scores(scores, input_ids[:, self._start :].tolist(), self._end)


class _Cancellation(StoppingCriteria):
    """Ends a generation after the token at which `cancelled` says yes."""

    def __init__(self, cancelled: Callable[[], bool]) -> None:
        self._cancelled = cancelled

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        raise_if_cancelled(self._cancelled)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
