"""A causal language model on transformers: what serves on a GPU, and architectures that `onnx_graph` does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from serving.models.decoding import Beam, Constraint, add_noise, raise_if_cancelled


class TransformersModel:
    """The same calls as `OnnxModel`, on the model's own device."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.model.generation_config = GenerationConfig()  # a base's own penalties fill in what a call leaves open

    @torch.inference_mode()
    def read_ends(self, ids: torch.Tensor, mask: torch.Tensor, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Logits after the last token of each row: (rows, vocabulary)."""
        raise_if_cancelled(cancelled)
        ids, mask = ids.to(self.model.device), mask.to(self.model.device)
        return self.model(input_ids=ids, attention_mask=mask, logits_to_keep=1, use_cache=False).logits[:, -1]

    @torch.inference_mode()
    def write(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        max_new_tokens: int,
        end_id: int,
        temperature: float,
        constraint: Constraint | None,
        cancelled: Callable[[], bool],
    ) -> list[list[int]]:
        """Returns the new tokens of each row, filled with `end_id`. `ids` and `mask`: (rows, length), padded on the
        left. `temperature` is ignored with a constraint, which has its own."""
        settings = GenerationConfig(
            max_new_tokens=max_new_tokens, do_sample=False, eos_token_id=end_id, pad_token_id=end_id
        )
        process = constraint or (lambda _, scores: add_noise(scores, temperature))
        return self._generate(ids, mask, settings, cancelled, process)[:, ids.shape[1] :].tolist()

    @torch.inference_mode()
    def search_beams(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        max_new_tokens: int,
        end_id: int,
        width: int,
        cancelled: Callable[[], bool],
    ) -> list[list[Beam]]:
        """Returns for each row up to `width` continuations that end within `max_new_tokens`, likeliest
        first. Beams cut by it compete with those that ended, so near the limit there may be fewer than `OnnxModel`
        finds."""
        settings = GenerationConfig(
            max_new_tokens=max_new_tokens,
            num_beams=width,
            num_return_sequences=width,
            length_penalty=0.0,
            eos_token_id=end_id,
            pad_token_id=end_id,
            output_scores=True,
            return_dict_in_generate=True,
        )
        output = self._generate(ids, mask, settings, cancelled)
        texts = output.sequences[:, ids.shape[1] :].tolist()
        scores = self._sum_scores(output, texts, end_id) if width == 1 else output.sequences_scores.tolist()
        found = [*zip(texts, scores, strict=True)]
        groups = [found[i : i + width] for i in range(0, len(found), width)]
        return [[Beam(text[: text.index(end_id)], score) for text, score in own if end_id in text] for own in groups]

    def _sum_scores(self, output: Any, texts: list[list[int]], end_id: int) -> list[float]:
        """The log probability of each text up to its end; a search of one beam tells it by token alone."""
        tokens = self.model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        ends = [text.index(end_id) + 1 if end_id in text else len(text) for text in texts]
        return [float(row[:end].sum()) for row, end in zip(tokens, ends, strict=True)]

    def _generate(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        settings: GenerationConfig,
        cancelled: Callable[[], bool],
        process: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    ) -> Any:
        """What `generate` makes of the rows of `ids`; `process` may change the scores of the next token of each."""

        def is_done(written: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            raise_if_cancelled(cancelled)
            return torch.zeros(len(written), dtype=torch.bool, device=written.device)

        return self.model.generate(
            input_ids=ids.to(self.model.device),
            attention_mask=mask.to(self.model.device),
            generation_config=settings,
            logits_processor=LogitsProcessorList([process] if process else []),
            stopping_criteria=StoppingCriteriaList([is_done]),
        )
