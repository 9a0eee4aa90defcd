"""Which token comes next: the best or a draw, the beams of a search, and what a grammar allows.

A constrained row has a matcher of llguidance, which gives the mask of its next token: whatever the model prefers, only
tokens that the grammar allows are left, and the end: a model that would end too early would only ramble on. Whether a
text is whole is seen from the text (`serving.models.local`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from heapq import nlargest
from typing import Any, NamedTuple

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from transformers import LogitsProcessor

from revelator.errors import Cancelled, ConfigError
from revelator.plans.grammar import Grammar

NO_SCORE = -float("inf")  # the score of a place in which no beam lies
MOST_GRAMMARS = 16  # grammars whose matchers are kept


def pick_best_tokens(scores: torch.Tensor) -> torch.Tensor:
    """The best token of each row, (rows,). On a CPU by NumPy, which takes a sixth of torch's time at 32 rows."""
    if scores.device.type != "cpu":
        return scores.argmax(-1)
    return torch.from_numpy(scores.float().numpy().argmax(-1))


def add_noise(scores: torch.Tensor, temperature: float) -> torch.Tensor:
    """Scores (rows, vocabulary) whose best token is a draw from the softmax at `temperature`: Gumbel noise is added.

    The best of the tokens that a mask leaves is then a draw from the softmax over these. At temperature 0 the scores
    themselves. By torch's generator.
    """
    if temperature == 0:
        return scores
    return scores / temperature - torch.empty_like(scores).exponential_().log_()


def raise_if_cancelled(cancelled: Callable[[], bool]) -> None:
    if cancelled():
        raise Cancelled("nobody waits for this any more")


class Beam(NamedTuple):
    """A text that a search found: its tokens without the end, and the log probability of these and the end together."""

    text: list[int]
    score: float


class Beams:
    """`rows` searches of `width` beams each; every search begins with one empty beam.

    No model is here: `OnnxModel.search_beams` brings the likeliest tokens of each step, `candidates_per_row` or more
    a beam, and lets each beam see its `parents`. Scores are sums of log probabilities without a bonus for length, so a
    text's score only falls as it grows, and a row is done once no open beam can overtake its worst kept text.

    Attributes: `alive`, the searches that are not done, as numbers of rows; of their beams, `width` a search, `tokens`,
    the last token of each.
    """

    def __init__(self, rows: int, width: int, end: int) -> None:
        self.width, self.candidates_per_row, self.end = width, 2 * width, end
        self.alive = list(range(rows))
        self.tokens: list[int] = []
        self._scores = np.full((rows, width), NO_SCORE, dtype=np.float32)
        self._scores[:, 0] = 0.0
        self._texts: list[list[int]] = [[] for _ in range(rows * width)]
        self._found: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]

    def step(self, log_probabilities: np.ndarray, tokens: np.ndarray) -> list[int]:
        """Takes the likeliest next tokens and their log probabilities, (alive rows * width, so many) in any order;
        returns each new beam's parent among the old.

        Of a row's beams and their tokens the best `candidates_per_row` are looked at: at most `width` of them end, the
        others are the next beams.
        """
        rows = len(self.alive)
        scores = (log_probabilities.reshape(rows, self.width, -1) + self._scores[..., None]).reshape(rows, -1)
        places = np.argsort(-scores, axis=1, kind="stable")[:, : self.candidates_per_row]
        owners = places // log_probabilities.shape[1] + np.arange(rows)[:, None] * self.width
        best = np.take_along_axis(scores, places, 1), np.take_along_axis(tokens.reshape(rows, -1), places, 1), owners
        alive, parents, kept_tokens, kept_scores, texts = [], [], [], [], []
        for row, *candidates in zip(self.alive, *(array.tolist() for array in best), strict=True):
            going = self._keep_open(row, list(zip(*candidates, strict=True)))
            if self._is_done(row, going[0][0]):
                continue
            alive.append(row)
            for score, token, owner in going:
                parents.append(owner)
                kept_tokens.append(token)
                kept_scores.append(score)
                texts.append([*self._texts[owner], token])
        self.alive, self.tokens, self._texts = alive, kept_tokens, texts
        self._scores = np.array(kept_scores, dtype=np.float32).reshape(-1, self.width)
        return parents

    def list_found(self) -> list[list[Beam]]:
        """For each row its complete texts, likeliest first, at most `width`."""
        return [[Beam(text, score) for score, text in sorted(own, key=lambda pair: -pair[0])] for own in self._found]

    def _keep_open(self, row: int, candidates: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
        """Stores the candidates that end here, among the best `width`, as complete texts of the row, and returns the
        others."""
        ended = [(score, self._texts[owner]) for score, token, owner in candidates[: self.width] if token == self.end]
        whole = [pair for pair in ended if pair[0] > NO_SCORE]
        self._found[row] = nlargest(self.width, [*self._found[row], *whole], key=lambda pair: pair[0])
        return [candidate for candidate in candidates if candidate[1] != self.end][: self.width]

    def _is_done(self, row: int, best: float) -> bool:
        return len(self._found[row]) == self.width and best <= self._found[row][-1][0]


class Vocabulary:
    """A tokenizer as matchers see it, and the matchers of the grammars met last: a copy of a used one is warm."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.size = size  # of the model's logits, which may be padded beyond the tokenizer
        self.end = int(tokenizer.eos_token_id)
        self.tokens: LLTokenizer = from_tokenizer(tokenizer, n_vocab=size)
        self._open_matcher = lru_cache(MOST_GRAMMARS)(partial(LLMatcher, self.tokens))

    def make_matcher(self, grammar: Grammar) -> LLMatcher:
        """A matcher at the start of an output. Raises ConfigError when llguidance cannot use the grammar."""
        found = self._open_matcher(grammar.text)
        if found.is_error():
            raise ConfigError(f"this is no grammar to decode by: {found.get_error().splitlines()[0]}")
        return found.deep_copy()


class Constraint(LogitsProcessor):
    """Holds each row of one `generate` call to its grammar, until the model ends it.

    Above temperature 0 noise is added first, so that the best token of what is returned is a draw (`add_noise`). A
    row whose best token the grammar allows is left as it is: asking for one token takes 2 µs, a mask 36.

    Attribute: `matchers`, one a row, None once the row has ended.
    """

    def __init__(self, vocabulary: Vocabulary, grammars: Sequence[Grammar], temperature: float = 0.0) -> None:
        self.matchers: list[LLMatcher | None] = [vocabulary.make_matcher(grammar) for grammar in grammars]
        self._vocabulary = vocabulary
        self._temperature = temperature
        self._has_begun = False
        self._bits = torch.arange(32, dtype=torch.int32)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._has_begun:
            self._take(input_ids[:, -1].tolist())
        self._has_begun = True
        scores = add_noise(scores, self._temperature)
        tokens = pick_best_tokens(scores).tolist()
        masked = [
            (row, matcher)
            for row, (matcher, token) in enumerate(zip(self.matchers, tokens, strict=True))
            if matcher and token != self._vocabulary.end and matcher.validate_tokens([token]) != 1
        ]
        if not masked:
            return scores
        masks = allocate_token_bitmask(len(masked), self._vocabulary.size)
        for place, (_, matcher) in enumerate(masked):
            fill_next_token_bitmask(matcher, masks, place)
        words = torch.from_numpy(masks).to(scores.device).unsqueeze(-1)
        allowed = ((words >> self._bits.to(scores.device)) & 1).view(len(masked), -1)[:, : scores.shape[1]]
        rows = torch.tensor([row for row, _ in masked], device=scores.device)
        return scores.index_put((rows,), scores[rows].masked_fill(allowed == 0, -torch.inf))

    def _take(self, tokens: Sequence[int]) -> None:
        """Moves each matcher on by the token that its row was given."""
        for row, (matcher, token) in enumerate(zip(self.matchers, tokens, strict=True)):
            if token == self._vocabulary.end:
                self.matchers[row] = None
            elif matcher:
                matcher.consume_token(token)
