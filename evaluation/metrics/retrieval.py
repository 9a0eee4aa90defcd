"""Compares a ranking with the gold titles or documents of a question: recall and nDCG."""

from __future__ import annotations

import math
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Collection, Hashable, Sequence
from functools import lru_cache


@lru_cache(maxsize=65_536)
def normalise_title(title: str) -> str:
    """Returns one key for titles that differ only in case, width, underscores, spaces or white space around
    punctuation: a tokenised `Titanic ( 1997 film )` is `Titanic (1997 film)`."""
    text = unicodedata.normalize("NFKC", title).casefold().replace("_", " ")
    return " ".join(re.sub(r"([^\w\s])", r" \1 ", text).split())


def score_titles(ranking: Sequence[str], gold: Sequence[str], cutoffs: Sequence[int]) -> dict[str, float]:
    """Computes `recall@k` at each cutoff, `recall` of the whole ranking and `ndcg@10`, in one pass over the titles."""
    keys, wanted = list(dict.fromkeys(map(normalise_title, ranking))), set(map(normalise_title, gold))
    places = [place for place, key in enumerate(keys) if key in wanted]
    found = {f"recall@{k}": bisect_left(places, k) / len(wanted) for k in cutoffs}
    return found | {"recall": len(places) / len(wanted), "ndcg@10": compute_ndcg(keys, wanted)}


def compute_ndcg(ranked: Sequence[Hashable], relevant: Collection[Hashable], depth: int = 10) -> float:
    """Computes nDCG of binary gains at `depth` (Järvelin and Kekäläinen 2002); `relevant` must not be empty."""
    discounts = _list_discounts(depth)
    gained = sum([gain for item, gain in zip(ranked, discounts, strict=False) if item in relevant])
    return gained / sum(discounts[: len(relevant)])


@lru_cache
def _list_discounts(depth: int) -> tuple[float, ...]:
    """Lists the gain of a relevant item at each rank."""
    return tuple(1 / math.log2(place + 2) for place in range(depth))
