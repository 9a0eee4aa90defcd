"""How likely a language model holds each of a few labels, by the log probabilities of the tokens that it wrote."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

LIKELIEST = 5  # tokens in each place whose log probabilities are asked for: what every server gives


def read_probabilities(
    said: str, labels: Sequence[str], tokens: Sequence[tuple[str, Mapping[str, float]]]
) -> dict[str, float]:
    """The probability of each label by the log probabilities in the places of the tokens that spell `said`, or 1 for
    `said` where the tokens tell nothing.

    Labels may share their first tokens. In each place, a token after which one label alone is possible gives that label
    its probability, times those of the tokens before; a token that leaves several open decides in the next place.
    """
    text = "".join(token for token, _ in tokens)
    found = [*re.finditer(rf"\b{said}\b", text, re.IGNORECASE)]
    shares, before, end = dict.fromkeys(labels, 0.0), 1.0, 0
    start = found[-1].start() if found else len(text)
    for token, likely in tokens:
        begin, end = end, end + len(token)
        if end <= start:
            continue
        lead, spelt = token[: max(0, start - begin)], text[start : max(start, begin)]
        for other, logprob in likely.items():
            rest = other.removeprefix(lead)
            possible = _find_possible(spelt + (rest if spelt else rest.lstrip()), labels)
            if other.startswith(lead) and len(possible) == 1:
                shares[possible[0]] += before * math.exp(logprob)
        if len(_find_possible(text[start:end], labels)) == 1:
            break
        before *= math.exp(likely[token])
    total = sum(shares.values())
    return {label: share / total for label, share in shares.items()} if total > 0 else shares | {said: 1.0}


def _find_possible(begun: str, labels: Sequence[str]) -> list[str]:
    """The labels that a text begins, or that begin it as a whole word."""
    begun = begun.lower()
    word = re.match(r"\w+", begun)
    return [label for label in labels if begun and (label.startswith(begun) or (word and word[0] == label))]


def find_mean_probability(tokens: Sequence[tuple[str, Mapping[str, float]]]) -> float:
    """The geometric mean of the probabilities of the tokens of a text."""
    return math.exp(sum(likely[token] for token, likely in tokens) / len(tokens))


def read_first_probability(word: str, tokens: Sequence[tuple[str, Mapping[str, float]]]) -> float:
    """The probability that a text begins with `word`, by its first token."""
    return sum(math.exp(p) for token, p in tokens[0][1].items() if token.strip() and word.startswith(token.strip()))
