"""Which token comes next: the best or a draw, the beams of a search, and what a grammar allows.

A constrained row has a matcher of llguidance, which gives the mask of its next token: whatever the model prefers, only
tokens that the grammar allows are left. Near the end of a row's budget, or where the model would end and the grammar
does not let it, the shortest way to a complete output is searched once and its tokens are forced; a row that cannot be
closed within its budget is `degraded`: its text is not to be used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from heapq import nlargest
from typing import Any

import numpy as np
import torch
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from transformers import LogitsProcessor

from revelator.errors import Cancelled, ConfigError
from revelator.plans.grammar import Grammar

NO_SCORE = -float("inf")  # the score of a place in which no beam lies
FINISH = 12  # tokens that end a character, a word, a quotation and a placeholder, at one byte a token
INSIDE = 4  # tokens that lead out of a character, an escape or a reference, before a closing piece fits
MOST_STATES = 400  # states that a search for an end looks at
BRANCHES = 4  # tokens tried where none of a grammar's closing pieces fits, spread over those allowed
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

    def list_texts(self) -> list[list[list[int]]]:
        """For each row its complete texts without the end token, likeliest first, at most `width`."""
        return [[text for _, text in sorted(own, key=lambda pair: -pair[0])] for own in self._found]

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
        self._pieces = [self.tokens.decode_bytes([token]).decode(errors="replace") for token in range(len(tokenizer))]
        self._open_matcher = lru_cache(MOST_GRAMMARS)(partial(LLMatcher, self.tokens))
        self.count_characters = cache(self._count_characters)
        self.tokenize = cache(self._tokenize)

    def make_matcher(self, grammar: Grammar) -> LLMatcher:
        """A matcher at the start of an output. Raises ConfigError when llguidance cannot use the grammar."""
        found = self._open_matcher(grammar.text)
        if found.is_error():
            raise ConfigError(f"this is no grammar to decode by: {found.get_error().splitlines()[0]}")
        return found.deep_copy()

    def _count_characters(self, characters: str) -> list[int]:
        """Counts how many of `characters` stand in each token; 0 for what is beyond the tokenizer."""
        found = [sum(map(piece.count, characters)) for piece in self._pieces]
        return found + [0] * (self.size - len(found))

    def _tokenize(self, pieces: Sequence[str]) -> list[list[int]]:
        """The tokens of each piece of a grammar, its own tuple or string."""
        return [self.tokens.tokenize_str(piece) for piece in pieces]


class Constraint(LogitsProcessor):
    """Holds each row of one `generate` call to its grammar; `room` is the number of tokens that a row may have.

    Above temperature 0 noise is added first, so that the best token of what is returned is a draw (`add_noise`). A
    row whose best token the grammar allows is left as it is: asking for one token takes 2 µs, a mask 36. Afterwards
    `degraded` says of each row whether it could not be closed.
    """

    def __init__(
        self, vocabulary: Vocabulary, grammars: Sequence[Grammar], room: int, temperature: float = 0.0
    ) -> None:
        self.rows = [_Row(vocabulary, grammar) for grammar in grammars]
        self._vocabulary = vocabulary
        self._room = room
        self._temperature = temperature
        self._written = 0
        self._bits = torch.arange(32, dtype=torch.int32)

    @property
    def degraded(self) -> list[bool]:
        return [row.degraded for row in self.rows]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._written:
            for row, token in zip(self.rows, input_ids[:, -1].tolist(), strict=True):
                row.take(token)
        room, wishes = self._room - self._written, pick_best_tokens(scores).tolist()
        self._written += 1
        tokens = wishes
        if self._temperature:
            scores = add_noise(scores, self._temperature)
            tokens = pick_best_tokens(scores).tolist()
        fits = [row.check_token(token, wish, room) for row, token, wish in zip(self.rows, tokens, wishes, strict=True)]
        held = [index for index, fit in enumerate(fits) if not fit]
        if not held:
            return scores
        masks = allocate_token_bitmask(len(held), self._vocabulary.size)
        for place, index in enumerate(held):
            self.rows[index].write_mask(masks, place)
        words = torch.from_numpy(masks).to(scores.device).unsqueeze(-1)
        allowed = ((words >> self._bits.to(scores.device)) & 1).view(len(held), -1)[:, : scores.shape[1]]
        return scores.index_put(
            (torch.tensor(held, device=scores.device),), scores[held].masked_fill(allowed == 0, -torch.inf)
        )


class _Row:
    """One output: where its grammar stands, the characters that decide when to close, and the forced tokens."""

    def __init__(self, vocabulary: Vocabulary, grammar: Grammar) -> None:
        self.vocabulary, self.grammar = vocabulary, grammar
        self.matcher = vocabulary.make_matcher(grammar)
        self.openings = vocabulary.count_characters(grammar.opening)
        self.deepenings = vocabulary.count_characters(grammar.deepening)
        self.closing = vocabulary.tokenize(grammar.closing)
        self.brackets = vocabulary.tokenize(grammar.brackets)
        self.reserve = max(FINISH, INSIDE + max(map(len, self.closing), default=0)) + max(self.openings)
        self.opened = self.deep = self.length = 0
        self.forced: list[int] | None = None
        self.degraded = self.ended = False

    def take(self, token: int) -> None:
        self.ended = self.ended or token == self.vocabulary.end
        if not self.ended:
            self.matcher.consume_token(token)
            self.opened += self.openings[token]
            self.deep += self.deepenings[token]
            self.length += 1

    def check_token(self, token: int, wish: int, room: int) -> bool:
        """Whether `token` may be the next one; `room` counts it. Where the row has to be closed from here on, or the
        model likes best (`wish`) to end it, this finds how."""
        if self.ended:
            return True
        late = room <= self.opened + self.reserve or self.deep >= self.grammar.deepest
        done = wish == self.vocabulary.end
        if self.forced is None and (late or (done and not self.matcher.is_accepting())):
            ending = self._find_ending(room) if self.length else None
            self.degraded = ending is None
            self.forced = ending or []
        return self.forced is None and self.matcher.validate_tokens([token]) == 1

    def write_mask(self, masks: np.ndarray, place: int) -> None:
        """Writes the mask of the next token, after `fits`."""
        if self.ended:
            return
        if self.forced is None:
            fill_next_token_bitmask(self.matcher, masks, place)
        else:
            token = self.forced.pop(0) if self.forced else self.vocabulary.end
            masks[place] = 0
            masks[place, token // 32] = np.left_shift(np.uint32(1), np.uint32(token % 32)).astype(np.int32)

    def _find_ending(self, room: int) -> list[int] | None:
        """Tokens, at most `room`, that complete the output: breadth first over the grammar's closing pieces, depth
        first where none of them fits, inside a character or a closed set of words, which every path leads out of."""
        waiting: deque[tuple[list[int], LLMatcher]] = deque([([], self.matcher.deep_copy())])
        for _ in range(MOST_STATES):
            if not waiting:
                break
            tokens, matcher = waiting.popleft()
            if matcher.is_accepting():
                return tokens
            pieces = [*self._list_fitting_pieces(matcher)]
            ways = [(tokens + way, _advance(matcher, way)) for way in pieces or self._list_ways_out(matcher)]
            (waiting.extend if pieces else waiting.extendleft)(way for way in ways if len(way[0]) <= room)
        return None

    def _list_fitting_pieces(self, matcher: LLMatcher) -> Iterator[list[int]]:
        for tokens in [list(self._close_brackets(matcher.deep_copy())), *self.closing]:
            if tokens and matcher.validate_tokens(tokens) == len(tokens):
                yield tokens

    def _list_ways_out(self, matcher: LLMatcher) -> list[list[int]]:
        if forced := matcher.compute_ff_tokens():
            return [forced]
        bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        return [[int(token)] for token in allowed[:: len(allowed) // BRANCHES + 1]]

    def _close_brackets(self, matcher: LLMatcher) -> Iterator[int]:
        """Closing brackets as long as one fits, at most as many as were opened and quoted; uses the matcher up."""
        for _ in range(2 * self.opened + 1):
            fitting = next((tokens for tokens in self.brackets if matcher.validate_tokens(tokens) == len(tokens)), None)
            if fitting is None or matcher.is_accepting():
                return
            matcher.consume_tokens(fitting)
            yield from fitting


def is_complete(text: str, grammar: Grammar) -> bool:
    """Whether the grammar allows the text as a whole, read byte by byte."""
    matcher = LLMatcher(_open_byte_tokenizer(), grammar.text)
    tokens = _open_byte_tokenizer().tokenize_str(text)
    return matcher.validate_tokens(tokens) == len(tokens) and matcher.consume_tokens(tokens) and matcher.is_accepting()


@cache
def _open_byte_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


def _advance(matcher: LLMatcher, tokens: list[int]) -> LLMatcher:
    reached = matcher.deep_copy()
    reached.consume_tokens(tokens)
    return reached
