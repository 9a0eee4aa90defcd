"""The metrics page of a service, as values by name and labels."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Callable

LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")
Page = dict[tuple[str, frozenset[tuple[str, str]]], float]


def read(url: str) -> Page:
    text = urllib.request.urlopen(url, timeout=30).read().decode()
    found = [m for m in map(LINE.match, text.splitlines()) if m]
    return {(m[1], frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[2] or ""))): float(m[3]) for m in found}


def total(page: Page, name: str, **labels: str) -> float:
    """The sum over all series of this name that have these labels."""
    return sum(value for (n, has), value in page.items() if n == name and labels.items() <= dict(has).items())


def names(page: Page) -> set[str]:
    return {name for name, _ in page}


def when(url: str, is_so: Callable[[Page], bool], seconds: float = 60.0) -> Page:
    """The page as soon as it is so: a question is counted just after its answer went out."""
    end = time.monotonic() + seconds
    while not is_so(page := read(url)):
        assert time.monotonic() < end, sorted(
            f"{name} {dict(labels)} {value}" for (name, labels), value in page.items()
        )
        time.sleep(0.05)
    return page


def settled(url: str, is_so: Callable[[Page], bool] = lambda page: True) -> Page:
    """The page once it is so and the next look shows the same of ours: a page may show a question in part."""

    def ours(page: Page) -> Page:
        return {key: value for key, value in page.items() if key[0].startswith("revelator_")}

    page = when(url, is_so)
    while ours(later := read(url)) != ours(page):
        page = later
    return page
