"""Values of facts: years, dates, counts, measures and money, as text and as a number that orders them."""

from __future__ import annotations

import calendar
import datetime
import random

from data_gen.world.graph import Value
from data_gen.world.names import vocabulary

LAST_YEAR = 2023


def number(n: int) -> Value:
    return Value(f"{n:,}", n)


def measure(n: int, unit: str) -> Value:
    return Value(f"{n:,} {unit}", n)


def year(n: int) -> Value:
    return Value(str(min(n, LAST_YEAR)), min(n, LAST_YEAR))


def money(rng: random.Random, low: int, high: int) -> Value:
    """Dollars between `low` and `high` thousand, in figures or in millions."""
    thousands = rng.randrange(low, high)
    if thousands < 1000:
        return Value(f"${thousands},000", thousands * 1000)
    tenths = thousands // 100
    return Value(f"${tenths / 10:,.1f} million", tenths * 100_000)


def date(rng: random.Random, in_year: int) -> Value:
    day = datetime.date(in_year, month := rng.randrange(1, 13), rng.randint(1, calendar.monthrange(in_year, month)[1]))
    name = vocabulary()["months"][day.month - 1]
    text = f"{day.day} {name} {day.year}" if rng.random() < 0.6 else f"{name} {day.day}, {day.year}"
    return Value(text, day.toordinal())
