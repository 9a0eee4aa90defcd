"""No regular expression takes time that grows faster than its text: none can be made to hold a process."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.security.patterns import attacks, uses

SIZE = 4_000  # a pattern that tries all pairs of places takes 50 ms here
QUICK = 0.02  # seconds: what takes less is not looked at further
GROWTH = 3.2  # times, for twice the text; of a quadratic pattern it is 4
GIVE_UP = 1.0  # seconds


class TooLong(Exception):
    pass


@contextmanager
def alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, GIVE_UP)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def seconds(look: Callable[[str], object], text: str) -> float:
    """Processor time of a look, the least of three; more than `GIVE_UP` where it has no end."""
    least = float("inf")
    for _ in range(3):
        began = time.thread_time()
        try:
            with alarm():
                look(text)
        except TooLong:
            return 10 * GIVE_UP
        least = min(least, time.thread_time() - began)
        if least < QUICK:
            break
    return least


def faults(pattern: re.Pattern[str], method: str, size: int = SIZE) -> Iterator[str]:
    """The texts that a pattern takes too long for."""
    look = getattr(pattern, method)
    looked = (lambda text: sum(1 for _ in look(text))) if method == "finditer" else look
    doubled = iter(attacks(pattern, 2 * size))
    for text in attacks(pattern, size):
        twice = next(doubled)
        took = seconds(looked, text)
        if took < QUICK:
            continue
        if took > GIVE_UP or seconds(looked, twice) > GROWTH * took:
            yield f"{method} of {text[:30]!r}…{text[-10:]!r} ({len(text)} characters): {took:.2f} s"


@pytest.mark.timeout(600)
def test_every_pattern_of_the_packages_takes_time_in_proportion_to_its_text() -> None:
    found, seen = [], set()
    every = list(uses())
    for use in every:
        for method in sorted(use.methods):
            key = use.pattern, method
            if key not in seen:
                seen.add(key)
                found += [f"{use.place}: {fault}" for fault in list(faults(*key))[:1]]
    assert len(every) > 250
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a+)+b", "match"),
        (r"\s+$", "search"),
        (r"^\s*(?:not)\s+(.+?)\s*$", "match"),
        (r" +([,;])", "finditer"),
        (r"\((?:[^()]*?[;,] ?)?(?P<born>[^()–]*?\d[^()–]*?) ?[–-](?P<died>[^()]*?\d[^()]*)\)", "search"),
    ],
)
def test_a_pattern_that_holds_a_process_is_found(pattern: str, method: str) -> None:
    assert next(faults(re.compile(pattern), method, size=2 * SIZE), None)  # long enough on a fast machine too


@pytest.mark.parametrize(
    ("pattern", "method"), [(r"\s++$", "match"), (r"(?<! ) +([,;])", "finditer"), ("a+b", "match")]
)
def test_a_pattern_that_does_not_is_none(pattern: str, method: str) -> None:
    assert not list(faults(re.compile(pattern), method))
