"""The revelator's engine: one causal language model, a base with an adapter merged into it, that judges and writes.

Label tasks write no token: forward passes over all prompts give a probability for each label. The other tasks generate,
held to a grammar if one is given (`decoding`). Prompts are padded on the left, so that the last position of every row
is where its output begins. On a CPU the model runs on ONNX Runtime (`onnx_model`), in fp32; on a GPU, and where the
architecture is none of `onnx_graph`, on transformers (docs/results.md).

A prefix language model (`revelator.prefix_lm`) writes word pieces, which are no bytes that a grammar could be held to:
its texts are written free, spelled as the prompt spells what they have of it, and then checked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from revelator.artifact import AdapterManifest, digest_base, find_base, verify_adapter
from revelator.errors import ArtifactError, InvalidRequest
from revelator.plans.grammar import Grammar
from revelator.prefix_lm.model import PrefixLMForCausalLM
from revelator.prefix_lm.spelling import read_sources, restore_spelling
from serving.models.decoding import Beam, Constraint, Vocabulary, raise_if_cancelled
from serving.models.onnx_graph import is_supported
from serving.models.onnx_model import OnnxModel
from serving.models.transformers_model import TransformersModel

BATCH_TOKENS = 16_384  # prompt tokens, padding included, in one forward pass: bounds memory, not throughput
PADDED = 1.15  # the longest of a batch over its shortest
WRITTEN_TOKENS = 32_768  # positions of all rows or beams that write together: 400 MB of the embedded base's keys
MAX_NEW_TOKENS = 256
ASKING = 12  # last tokens of a prompt for a label, which say what is asked: "Helps:"

Runtime = Literal["auto", "transformers"]


class GeneratedText(NamedTuple):
    """A generated text, its number of tokens (the end token counts), whether it was to be held to a grammar and its
    budget cut it off, and of one that beams found the geometric mean of its tokens' probabilities."""

    text: str
    tokens: int
    degraded: bool = False
    probability: float | None = None


def never_cancelled() -> bool:
    return False


class Engine:
    """A base, by folder, Hub id or `mini`, and an adapter folder. Not safe for threads: one caller at a time.

    `cancelled` is asked before each pass over prompts and after each token, by what runs the model: once it says yes,
    the work ends with Cancelled.

    `device` is torch's name of one; None takes the first card, or the CPU where there is none. `runtime` is `auto` but
    for comparisons.

    Attributes: `manifest` of the adapter (None without one), `base_digest`, `max_positions` (prompt and output tokens
    together), `device`, `model` (`OnnxModel` or `TransformersModel`). Raises ArtifactError when the adapter is damaged,
    or was trained on another base, with other prompts or another grammar.
    """

    def __init__(
        self,
        base: str | Path,
        adapter: Path | None = None,
        *,
        threads: int | None = None,
        runtime: Runtime = "auto",
        device: str | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        folder = find_base(str(base))
        self.manifest: AdapterManifest | None = verify_adapter(adapter, folder) if adapter else None
        self.base_digest = self.manifest.base_digest if self.manifest else digest_base(folder)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        logging.disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.tokenizer.padding_side = "left"
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        model = _load(folder, adapter, self.device)
        self._writes_pieces = isinstance(model, PrefixLMForCausalLM)
        self.max_positions = int(model.config.max_position_embeddings)
        self._vocabulary_size = int(model.config.vocab_size)
        on_onnx = runtime == "auto" and self.device.type == "cpu" and is_supported(model.config)
        self.model = OnnxModel(model, threads) if on_onnx else TransformersModel(model)

    def judge_labels(
        self,
        prompts: Sequence[str],
        labels: Sequence[str],
        cancelled: Callable[[], bool] = never_cancelled,
        shorten: bool = False,
    ) -> list[dict[str, float]]:
        """For each prompt, the probability of each label given that it is one of them: softmax over their first tokens.

        Raises InvalidRequest for a prompt that is too long; with `shorten`, the end of its document is not read.
        """
        first = torch.tensor([self._find_first_token(label) for label in labels])
        answers: list[dict[str, float]] = [{} for _ in prompts]
        for indices, logits in self._read_last_logits(prompts, cancelled, shorten):
            probabilities = logits.index_select(1, first.to(logits.device)).float().softmax(-1).tolist()
            for index, row in zip(indices, probabilities, strict=True):
                answers[index] = dict(zip(labels, row, strict=True))
        return answers

    def find_probabilities(
        self, prompts: Sequence[str], output: str, cancelled: Callable[[], bool] = never_cancelled
    ) -> list[float]:
        """For each prompt, the probability that what follows begins with the first token of `output`. Raises
        InvalidRequest for a prompt that is too long."""
        first, found = self._find_first_token(output), [0.0] * len(prompts)
        for indices, logits in self._read_last_logits(prompts, cancelled, shorten=False):
            for index, value in zip(indices, logits.float().softmax(-1)[:, first].tolist(), strict=True):
                found[index] = value
        return found

    def _read_last_logits(
        self, prompts: Sequence[str], cancelled: Callable[[], bool], shorten: bool
    ) -> Iterator[tuple[list[int], torch.Tensor]]:
        """Indices of prompts and the logits after their last tokens, (prompts, vocabulary), some at a time."""
        rows = self._tokenize(prompts, reserve=None if shorten else 1)
        rows = [self._shorten(row) for row in rows] if shorten else rows
        for indices, ids, mask in self._make_batches(range(len(rows)), rows):
            yield indices, self.model.read_ends(ids, mask, cancelled)

    def generate(
        self,
        prompts: Sequence[str],
        temperature: float = 0.0,
        max_new_tokens: int = MAX_NEW_TOKENS,
        grammars: Sequence[Grammar] | None = None,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> list[GeneratedText]:
        """For each prompt, the text that follows it up to the end token.

        Greedy at temperature 0, so the same batch gives the same texts; above it, samples from the softmax at that
        temperature. With `grammars`, one a prompt, each text begins one that its grammar allows, and is whole where the
        model ended it in time and in its place; a prompt that leaves no room to write is `degraded`. Without, that
        raises InvalidRequest. Word pieces are held to no grammar.
        """
        answers = [GeneratedText("", 0, degraded=True) for _ in prompts]
        rows = self._tokenize(prompts, reserve=1 if grammars is None else None)
        fitting = [i for i, row in enumerate(rows) if len(row) < self.max_positions]
        for indices, ids, mask in self._make_batches(fitting, rows, max_new_tokens, WRITTEN_TOKENS):
            raise_if_cancelled(cancelled)
            room = min(max_new_tokens, self.max_positions - ids.shape[1])
            held = [grammars[i] for i in indices] if grammars and not self._writes_pieces else None
            constraint = Constraint(self._vocabulary, held, temperature) if held else None
            end = self.tokenizer.eos_token_id
            output = self.model.write(ids, mask, room, end, temperature, constraint, cancelled)
            for index, row in zip(indices, output, strict=True):
                answers[index] = self._decode(row, grammars is not None and end not in row, prompts[index])
        return answers

    def search_beams(
        self,
        prompts: Sequence[str],
        width: int,
        max_new_tokens: int = MAX_NEW_TOKENS,
        cancelled: Callable[[], bool] = never_cancelled,
    ) -> list[list[GeneratedText]]:
        """For each prompt, up to `width` texts that may follow it, likeliest first, by a beam search of that width.

        An empty list for a prompt that leaves no room to write, or whose beams do not end within `max_new_tokens`.
        """
        answers: list[list[GeneratedText]] = [[] for _ in prompts]
        rows = self._tokenize(prompts, reserve=None)
        fitting = [i for i, row in enumerate(rows) if len(row) < self.max_positions]
        for indices, ids, mask in self._make_batches(fitting, rows, max_new_tokens, WRITTEN_TOKENS // width):
            raise_if_cancelled(cancelled)
            room = min(max_new_tokens, self.max_positions - ids.shape[1])
            found = self.model.search_beams(ids, mask, room, self.tokenizer.eos_token_id, width, cancelled)
            for index, beams in zip(indices, found, strict=True):
                answers[index] = [self._decode_beam(beam, prompts[index]) for beam in beams]
        return answers

    def _decode_beam(self, beam: Beam, prompt: str) -> GeneratedText:
        text = self._decode([*beam.text, self.tokenizer.eos_token_id], prompt=prompt)
        return text._replace(probability=math.exp(beam.score / text.tokens))

    def _shorten(self, row: list[int]) -> list[int]:
        """The row without what stands before its last tokens, if it leaves no room for a label."""
        over = len(row) - (self.max_positions - 1)
        return row if over <= 0 else row[: -ASKING - over] + row[-ASKING:]

    def count_tokens(self, prompts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer(list(prompts))["input_ids"]] if prompts else []

    def _decode(self, row: list[int], degraded: bool = False, prompt: str = "") -> GeneratedText:
        """What was written up to the end token. Word pieces get the spelling of the prompt."""
        end = self.tokenizer.eos_token_id
        length = row.index(end) + 1 if end in row else len(row)
        if self._writes_pieces:
            return GeneratedText(restore_spelling(row[:length], read_sources(prompt), self.tokenizer), length, degraded)
        return GeneratedText(
            str(self.tokenizer.decode(row[:length], skip_special_tokens=True)).strip(), length, degraded
        )

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.tokenizer, self._vocabulary_size)

    def _find_first_token(self, label: str) -> int:
        return self.tokenizer(" " + label, add_special_tokens=False)["input_ids"][0]

    def _tokenize(self, prompts: Sequence[str], *, reserve: int | None) -> list[list[int]]:
        """Raises InvalidRequest for a prompt that leaves fewer than `reserve` positions for the output."""
        rows: list[list[int]] = self.tokenizer(list(prompts))["input_ids"] if prompts else []
        longest = max(map(len, rows), default=0)
        if reserve is not None and longest > self.max_positions - reserve:
            raise InvalidRequest(
                f"a prompt of {longest} tokens: this model reads at most {self.max_positions - reserve}",
                hint="shorten the question or the document, or serve a base with more positions",
            )
        return rows

    def _make_batches(
        self, indices: Sequence[int], rows: list[list[int]], room: int = 0, limit: int = BATCH_TOKENS
    ) -> Iterator[tuple[list[int], torch.Tensor, torch.Tensor]]:
        """Indices in the batch, their ids and mask (rows, width), padded on the left; rows of like length together, at
        most `limit` positions with the `room` in which each writes. A row that leaves less room is alone: it would
        take it from the others."""
        waiting: list[int] = []
        for index in sorted(indices, key=lambda i: len(rows[i])):
            needed = len(rows[index]) + room
            crowded = needed * (len(waiting) + 1) > limit or needed > self.max_positions
            # on a CPU padding costs what tokens do: of documents to judge, judged in one batch, half was padding
            is_padding = waiting and not room and self.device.type == "cpu" and needed > PADDED * len(rows[waiting[0]])
            if waiting and (crowded or is_padding):
                yield self._pad(waiting, rows)
                waiting = []
            waiting.append(index)
        if waiting:
            yield self._pad(waiting, rows)

    def _pad(self, indices: list[int], rows: list[list[int]]) -> tuple[list[int], torch.Tensor, torch.Tensor]:
        batch = self.tokenizer.pad({"input_ids": [rows[i] for i in indices]}, return_tensors="pt")
        return indices, batch["input_ids"], batch["attention_mask"]


def _load(folder: Path, adapter: Path | None, device: torch.device) -> Any:
    dtype = torch.bfloat16 if device.type == "cuda" and torch.cuda.is_bf16_supported() else torch.float32
    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
        if adapter is not None:
            from peft import PeftModel  # brings bitsandbytes, and half of the time to start

            with warnings.catch_warnings():  # peft 0.21 reads names that transformers 5 is about to rename
                warnings.simplefilter("ignore", FutureWarning)
                model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        reason = str(error).splitlines()[0]
        raise ArtifactError(
            f"cannot be loaded: {reason}", where=str(adapter or folder), hint="choose another base"
        ) from error
    return model.to(device=device).eval()
