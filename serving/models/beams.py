"""Beam search over rows side by side: which continuations are kept at each step, and which texts are complete.

No model is here: `OnnxModel.likeliest` brings the scores of each step and puts its keys and values in `parents`' order.
Scores are sums of log probabilities without a bonus for length, so a text's score only falls as it grows, and a row is
done once no open beam can overtake its worst kept text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import nlargest

import torch

NOTHING = -float("inf")  # the score of a place in which no beam lies


@dataclass(frozen=True)
class Marks:
    """Of the tokens `marks` every text has just those of `order`, one after another, with others between them."""

    marks: Sequence[int]
    order: Sequence[int]

    def held(self, scores: torch.Tensor, texts: Sequence[Sequence[int]], end: int) -> torch.Tensor:
        """The scores (texts, vocabulary) of what may follow each text; `end` is the token that ends one."""
        scores = scores.clone()
        for row, text in enumerate(texts):
            missing = self.order[sum(map(text.count, self.marks)) :]
            scores[row, [mark for mark in self.marks if mark not in missing[:1]]] = NOTHING
            if missing:
                scores[row, end] = NOTHING
        return scores


class Beams:
    """`rows` searches of `width` beams each; every search begins with one empty beam.

    Attributes: `alive`, the searches that are not done, as numbers of rows; of their beams, `width` a search, `tokens`,
    the last token of each.
    """

    def __init__(self, rows: int, width: int, end: int, marks: Marks | None = None) -> None:
        self.width, self.end, self.marks = width, end, marks
        self.alive = list(range(rows))
        self.tokens: list[int] = []
        self._scores = torch.full((rows, width), NOTHING)
        self._scores[:, 0] = 0.0
        self._texts: list[list[int]] = [[] for _ in range(rows * width)]
        self._found: list[list[tuple[float, list[int]]]] = [[] for _ in range(rows)]

    def step(self, logits: torch.Tensor) -> list[int]:
        """Takes the next tokens' logits (alive rows * width, vocabulary); returns each new beam's parent among the old.

        Of a row's beams and their tokens the best 2 * width are looked at: at most `width` of them end, the others are
        the next beams.
        """
        rows, looked = len(self.alive), 2 * self.width
        odds = logits.float().log_softmax(-1)
        if self.marks:
            odds = self.marks.held(odds, self._texts, self.end)
        best, tokens = odds.topk(min(looked, odds.shape[1]))
        scores, places = (best.view(rows, self.width, -1) + self._scores[..., None]).flatten(1).topk(looked)
        tokens = tokens.view(rows, -1).gather(1, places)
        owners = places // best.shape[1] + torch.arange(rows)[:, None] * self.width
        alive, parents, kept_tokens, kept_scores, texts = [], [], [], [], []
        for row, *candidates in zip(self.alive, scores.tolist(), tokens.tolist(), owners.tolist(), strict=True):
            going = self._sorted_out(row, list(zip(*candidates, strict=True)))
            if self._done(row, going[0][0]):
                continue
            alive.append(row)
            for score, token, owner in going:
                parents.append(owner)
                kept_tokens.append(token)
                kept_scores.append(score)
                texts.append([*self._texts[owner], token])
        self.alive, self.tokens, self._texts = alive, kept_tokens, texts
        self._scores = torch.tensor(kept_scores).view(-1, self.width)
        return parents

    def found(self) -> list[list[list[int]]]:
        """For each row its complete texts without the end token, likeliest first, at most `width`."""
        return [[text for _, text in sorted(own, key=lambda pair: -pair[0])] for own in self._found]

    def _sorted_out(self, row: int, candidates: list[tuple[float, int, int]]) -> list[tuple[float, int, int]]:
        """Those that go on; those that end here, among the best `width`, are complete texts of the row."""
        ended = [(score, self._texts[owner]) for score, token, owner in candidates[: self.width] if token == self.end]
        whole = [pair for pair in ended if pair[0] > NOTHING]
        self._found[row] = nlargest(self.width, [*self._found[row], *whole], key=lambda pair: pair[0])
        return [candidate for candidate in candidates if candidate[1] != self.end][: self.width]

    def _done(self, row: int, best: float) -> bool:
        return len(self._found[row]) == self.width and best <= self._found[row][-1][0]
