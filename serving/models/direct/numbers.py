"""Numbers in figures and in English words, exact."""

from __future__ import annotations

import re
from fractions import Fraction

_SMALL = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"  # noqa: SIM905
        " seventeen eighteen nineteen".split()
    )
}
_TENS = {
    word: 10 * value
    for value, word in enumerate("twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)  # noqa: SIM905
}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
_FIXED: dict[str, int | Fraction] = {"a dozen": 12, "a half": Fraction(1, 2), "half": Fraction(1, 2)}

MOST_CHARACTERS = 300  # of a number: no float holds more digits

_WORD = "|".join([*sorted((*_SMALL, *_TENS), key=len, reverse=True), *_SCALES])
#: A number inside a sentence, in figures or in words; no group.
NUMBER = rf"(?<![\w.])(?:\d+(?:,\d{{3}})*(?:\.\d+)?(?![\w])|(?:(?:{_WORD})\b(?:[- ](?:and )?(?=(?:{_WORD})\b))?)+)"


def number(text: str) -> Fraction | None:
    """A number in figures (`1,204.5`) or English words (`three hundred and twelve`), or None."""
    text = text.strip().lower().replace("−", "-")
    if len(text) > MOST_CHARACTERS:
        return None
    if re.fullmatch(r"-?\d+(,\d{3})*(\.\d+)?|-?\d*\.\d+", text):
        return Fraction(text.replace(",", ""))
    if text in _FIXED:
        return Fraction(_FIXED[text])
    negative = text.startswith(("minus ", "negative "))
    words = re.sub(r"^(minus|negative) ", "", text).replace("-", " ").split()
    value = _spelt(words)
    return None if value is None else Fraction(-value if negative else value)


def _spelt(words: list[str]) -> int | None:
    total = current = 0
    seen = False
    for word in words:
        if word in _SMALL or word in _TENS:
            current += _SMALL.get(word, _TENS.get(word, 0))
        elif word == "hundred":
            current = max(current, 1) * 100
        elif word in _SCALES:
            total += max(current, 1) * _SCALES[word]
            current = 0
        elif word in ("a", "and"):
            continue
        else:
            return None
        seen = True
    return total + current if seen else None


def shown(value: Fraction) -> str:
    """Figures: whole, or at most six decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.6f}".rstrip("0").rstrip(".")
