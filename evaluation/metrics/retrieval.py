"""How a ranking is held against the gold titles or documents of a question: recall and nDCG."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache


@lru_cache(maxsize=65_536)
def title_key(title: str) -> str:
    """Titles that differ in case, width, underscores or spaces are one title; white space around punctuation is no
    part of it, so a tokenised `Titanic ( 1997 film )` is `Titanic (1997 film)`."""
    text = unicodedata.normalize("NFKC", title).casefold().replace("_", " ")
    return " ".join(re.sub(r"([^\w\s])", r" \1 ", text).split())


def title_recall(rankings: Sequence[Sequence[str]], gold: Sequence[str], k: int) -> float:
    """Share of the distinct gold titles among the first `k` titles of any ranking (one ranking: recall@k).
    Raises ValueError without gold titles: their recall is not defined."""
    wanted = {title_key(title) for title in gold}
    if not wanted:
        raise ValueError("recall of no gold titles is not defined")
    found = {title_key(title) for ranking in rankings for title in ranking[:k]}
    return len(wanted & found) / len(wanted)


def title_scores(ranking: Sequence[str], gold: Sequence[str], cutoffs: Sequence[int]) -> dict[str, float]:
    """`recall@k` of each cutoff, `recall` of the whole ranking and `ndcg@10`, with each title read once."""
    keys, wanted = list(dict.fromkeys(map(title_key, ranking))), set(map(title_key, gold))
    places = [place for place, key in enumerate(keys) if key in wanted]
    found = {f"recall@{k}": bisect_left(places, k) / len(wanted) for k in cutoffs}
    return found | {"recall": len(places) / len(wanted), "ndcg@10": ndcg(keys, wanted)}


def ndcg(ranked: Sequence[Hashable], relevant: Collection[Hashable], depth: int = 10) -> float:
    """nDCG of binary gains at `depth` (Järvelin and Kekäläinen 2002); `relevant` is not empty."""
    discounts = _discounts(depth)
    gained = sum([gain for item, gain in zip(ranked, discounts, strict=False) if item in relevant])
    return gained / sum(discounts[: len(relevant)])


@lru_cache
def _discounts(depth: int) -> tuple[float, ...]:
    """What a relevant item is worth at each place."""
    return tuple(1 / math.log2(place + 2) for place in range(depth))
