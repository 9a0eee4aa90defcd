"""How fast the language is: parse + check of typical plans, beside a plain recursive-descent reading, and its growth.

    python benchmarks/language.py [--repeats 2000]

The recursive-descent reading splits at ` + `, ` * ` and parentheses and knows no quotes, no text in parentheses, no
spans, no limits and no errors: it is the least work that gives the same plans for these strings.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from collections.abc import Callable

from revelator.plans import Atomic, Dependent, Expression, Sequence, check, parse

PLANS = [
    "(Which continent is Aruba in? + Which country is Prazeres in?) * Which colonial holding in {continent} was"
    " governed by {country}? * How many Germans live in {colonial_holding}?",
    "Who directed UHF? * Where was {director} born? * Who is the mayor of {city}? * When was {mayor} elected?",
    "Who wrote Dune? * When was {author} born? + Who wrote Emma? * When was {author} born?",
    "Which band made Aja? * (When was {band} founded? + Who sang in {band}? + Where is {band} from?)",
]
LENGTHS = (62_500, 125_000, 250_000, 500_000, 999_000)


def parse_plainly(text: str) -> Expression:
    pieces = [piece for piece in re.split(r"( \+ | \* |[()])", text) if piece.strip()]
    position = 0

    def operand() -> Expression:
        nonlocal position
        position += 1
        if pieces[position - 1] != "(":
            return Atomic(pieces[position - 1])
        inner = read_list()
        position += 1
        return inner

    def chain() -> Expression:
        nonlocal position
        left = operand()
        while position < len(pieces) and pieces[position] == " * ":
            position += 1
            left = Dependent(left, operand())
        return left

    def read_list() -> Expression:
        nonlocal position
        items = [chain()]
        while position < len(pieces) and pieces[position] == " + ":
            position += 1
            items.append(chain())
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    return read_list()


def time_readings(work: Callable[[str], object], repeats: int) -> list[float]:
    """One time a reading, the plans in turn."""
    times = []
    for _ in range(repeats):
        for text in PLANS:
            start = time.perf_counter()
            work(text)
            times.append((time.perf_counter() - start) * 1e6)
    return times


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--repeats", type=int, default=2000)
    repeats = options.parse_args().repeats
    assert all(parse_plainly(text) == parse(text) for text in PLANS)
    ours = time_readings(lambda text: check(parse(text)), repeats)
    plain = time_readings(parse_plainly, repeats)
    one, other = statistics.median(ours), statistics.median(plain)
    late = sorted(ours)[len(ours) * 95 // 100]
    print(f"parse + check, 4 leaves        n={len(ours)}  median {one:.1f} µs  95th percentile {late:.1f} µs")
    print(f"plain recursive descent        n={len(plain)}  median {other:.1f} µs  ratio {one / other:.2f}")
    unit = PLANS[1] + " + "
    for length in LENGTHS:
        text = unit * (length // len(unit)) + "Who?"
        start = time.perf_counter()
        check(parse(text))
        seconds = time.perf_counter() - start
        print(f"{len(text):>9,} characters  {seconds * 1e3:8.1f} ms  {seconds / len(text) * 1e9:6.1f} ns a character")


if __name__ == "__main__":
    main()
