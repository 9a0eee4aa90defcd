"""A causal language model on ONNX Runtime, which serves on a CPU: the passes over its graph (`onnx_graph`).

For the embedded base a step through transformers spends most of its time between the products, in Python and in reading
weights whose layout suits no single row; here a step is one call. Figures: docs/results.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import torch

from serving.models.decoding import Beam, Beams, Constraint, add_noise, pick_best_tokens, raise_if_cancelled
from serving.models.graph import open_session
from serving.models.onnx_graph import PREFIX, build_graph

CHUNK = 256  # tokens of each prompt in one pass: bounds the attention's scores, (rows, heads, CHUNK, seen)
REMOVE_EACH = 16  # steps of a beam search; then keys and values that no beam sees are removed
HIDDEN = np.finfo(np.float32).min  # added to the score of a token that may not be seen

Past = list[Any]  # keys and values of each layer, as ONNX Runtime holds them


class OnnxModel:
    """The graph and the weights of a transformers model (`is_supported`), which is not needed afterwards.

    Ids and masks are of shape (rows, tokens), padded on the left; logits (rows, vocabulary) in float32.
    """

    def __init__(self, model: Any, threads: int | None = None) -> None:
        graph, self._weights = build_graph(model)
        self._both_ways = model.config.model_type == PREFIX
        self._session = open_session(graph, self._weights, threads or torch.get_num_threads())
        self._inputs = {value.name: value.shape for value in self._session.get_inputs()}
        self._past = list(self._inputs)[5:]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def read_ends(self, ids: torch.Tensor, mask: torch.Tensor, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Logits after the last token of each row: (rows, vocabulary)."""
        return torch.from_numpy(self._read_prompts(ids.numpy(), mask.numpy().astype(bool), cancelled)[0])

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
        rows, width = ids.shape
        kept = mask.numpy().astype(bool)
        hidden = np.zeros((rows, 1, 1, width + max_new_tokens), dtype=np.float32)
        hidden[:, 0, 0, :width][~kept] = HIDDEN
        lengths, each = kept.sum(1, keepdims=True), np.arange(rows)
        found, _, past = self._read_prompts(ids.numpy(), kept, cancelled)
        written: list[torch.Tensor] = [ids[:, -1]]
        ended = torch.zeros(rows, dtype=torch.bool)
        while True:
            logits = torch.from_numpy(found)
            scores = constraint(written[-1][:, None], logits) if constraint else add_noise(logits, temperature)
            token = pick_best_tokens(scores).masked_fill(ended, end_id)
            written.append(token)
            ended |= token == end_id
            if ended.all() or len(written) > max_new_tokens:
                return torch.stack(written[1:], 1).tolist()
            raise_if_cancelled(cancelled)
            number = len(written) - 2  # of the token that is read now
            seen = hidden[..., : width + number + 1]
            found, _, past = self.run(token[:, None].numpy(), lengths + number, seen, each, past)

    def search_beams(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        max_new_tokens: int,
        end_id: int,
        width: int,
        cancelled: Callable[[], bool],
    ) -> list[list[Beam]]:
        """Returns for each row up to `width` continuations that end within `max_new_tokens`, likeliest first (`Beams`).

        A row's beams are one sequence: each pass adds a token of every beam to the row's keys and values, and the mask
        lets a beam see the prompt and its own ancestors. So no beam has a copy of its own, and none is put into another
        order; now and then what no beam sees any more is removed.
        """
        kept = mask.numpy().astype(bool)
        lengths = kept.sum(1)
        beams = Beams(len(ids), width, end_id)
        log_probabilities, best, past = self._read_prompts(ids.numpy(), kept, cancelled, beams.candidates_per_row)
        parents = np.array(beams.step(log_probabilities.repeat(width, 0), best.repeat(width, 0)))
        seen = np.repeat(kept[:, None], width, 1)  # (rows, beams, tokens)
        for number in range(max_new_tokens - 1):
            if not beams.alive:
                break
            raise_if_cancelled(cancelled)
            rows = parents[::width] // width  # of the last pass, those that go on
            itself = np.broadcast_to(np.eye(width, dtype=bool), (len(rows), width, width))
            seen = np.concatenate([seen.reshape(-1, seen.shape[-1])[parents].reshape(len(rows), width, -1), itself], 2)
            tokens, positions = np.array(beams.tokens).reshape(-1, width), lengths[beams.alive, None] + number
            past = _select(past, rows)
            if number % REMOVE_EACH == REMOVE_EACH - 1:
                past, seen = _remove_unseen(past, seen)
            hidden = np.where(seen[:, None], np.float32(0), HIDDEN)
            positions, ends = positions.repeat(width, 1), np.arange(tokens.size)
            log_probabilities, best, past = self.run(tokens, positions, hidden, ends, past, beams.candidates_per_row)
            parents = np.array(beams.step(log_probabilities, best))
        return beams.list_found()

    def run(
        self,
        ids: np.ndarray,
        positions: np.ndarray,
        mask: np.ndarray,
        ends: np.ndarray,
        past: Past,
        likeliest: int = 0,
    ) -> tuple[np.ndarray, np.ndarray, Past]:
        """One pass: scores, tokens and what is past. Inputs and outputs are those of the graph (`onnx_graph`)."""
        arrays = {"ids": ids, "positions": positions, "mask": mask, "ends": ends, "likeliest": np.array([likeliest])}
        feed = {name: _to_ort_value(array) for name, array in arrays.items()} | dict(zip(self._past, past, strict=True))
        scores, tokens, *seen = self._session.run_with_ort_values(self._outputs, feed)
        return scores.numpy(), tokens.numpy(), seen

    def _read_prompts(
        self, ids: np.ndarray, kept: np.ndarray, cancelled: Callable[[], bool], likeliest: int = 0
    ) -> tuple[np.ndarray, np.ndarray, Past]:
        """As `run`, for the last token of each prompt: in chunks, or at once where tokens see later ones."""
        rows, width = ids.shape
        chunk = width if self._both_ways else CHUNK
        positions = np.maximum(kept.cumsum(1) - 1, 0)
        past = self._make_empty_past(rows)
        for start in range(0, width, chunk):
            raise_if_cancelled(cancelled)
            stop = min(start + chunk, width)
            earlier = np.tri(stop - start, stop, start, dtype=bool) | self._both_ways
            sees = earlier & kept[:, None, None, :stop]
            mask = np.where(sees, np.float32(0), HIDDEN)
            ends = np.arange(1, rows + 1) * (stop - start) - 1
            scores, tokens, past = self.run(ids[:, start:stop], positions[:, start:stop], mask, ends, past, likeliest)
        return scores, tokens, past

    def _make_empty_past(self, rows: int) -> Past:
        _, heads, _, size = self._inputs[self._past[0]]
        return [_to_ort_value(np.zeros((rows, heads, 0, size), dtype=np.float32))] * len(self._past)


def _select(past: Past, rows: np.ndarray) -> Past:
    """Keys and values of some of the rows, in order."""
    if len(past) and len(rows) == past[0].shape()[0]:
        return past
    return [_to_ort_value(value.numpy()[rows]) for value in past]


def _remove_unseen(past: Past, seen: np.ndarray) -> tuple[Past, np.ndarray]:
    """Keys and values without the tokens that no beam of their row sees, and `seen` (rows, beams, tokens) likewise; the
    last tokens, one a beam, are not among the keys yet."""
    width = seen.shape[1]
    used = seen[..., :-width].any(1)
    places = np.argsort(~used, axis=1, kind="stable")[:, : used.sum(1).max()]
    shorter = [_to_ort_value(np.take_along_axis(value.numpy(), places[:, None, :, None], 2)) for value in past]
    return shorter, np.concatenate([np.take_along_axis(seen, places[:, None], 2), seen[..., -width:]], 2)


def _to_ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
