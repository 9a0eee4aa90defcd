"""Which version of the revelator answers a question: chosen once, when the question comes in, and kept to its end.

The choice follows `promotion.json`, looked at again for each question (a look costs some 5 µs), so a switch takes
effect with the next question and no question begins with one version and ends with another. While questions are under
way with a version, a shared lock on `.traffic/<version>` is held: a deploy waits for it before it unloads that version,
and the kernel lets go of it if this process dies.
"""

from __future__ import annotations

import fcntl
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from revelator.files import sha256_text
from serving.deployment import promotion
from serving.deployment.promotion import PROMOTION, Canary, Promotion

TRAFFIC = ".traffic"


@dataclass
class Choice:
    """The version for one question; "" leaves it to Triton, which takes the highest that is loaded.

    `champion` is set when `version` is a canary: the version that the same prompts are put to for comparison.
    `answered` collects, by model, the versions that did answer.
    """

    version: str = ""
    champion: str | None = None
    request: str = ""
    answered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def versions(self) -> dict[str, str]:
        """By model; two versions, `1, 2`, when the first was unloaded before the question was done."""
        return {model: ", ".join(sorted(found)) for model, found in self.answered.items()}


_CHOICE: ContextVar[Choice | None] = ContextVar("choice", default=None)


def current() -> Choice:
    """The choice for the question that this task works for."""
    return _CHOICE.get() or Choice()


@contextmanager
def chosen(choice: Choice) -> Iterator[Choice]:
    """Calls made in this block, and by tasks started in it, go where `choice` says."""
    token = _CHOICE.set(choice)
    try:
        yield choice
    finally:
        _CHOICE.reset(token)


class Traffic:
    """Chooses by the `promotion.json` below `home`. Used by one event loop."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: tuple[int, int] | None = None
        self._promotion: Promotion | None = None
        self._counts: dict[str, int] = defaultdict(int)
        self._locks: dict[str, IO[str]] = {}

    @contextmanager
    def question(self, request: str) -> Iterator[Choice]:
        """The choice for one question; `request` is its id, and the same id is treated the same."""
        choice = self._choose(request)
        held = [v for v in (choice.version, choice.champion) if v]
        for version in held:
            self._enter(version)
        try:
            with chosen(choice):
                yield choice
        finally:
            for version in held:
                self._leave(version)

    def _choose(self, request: str) -> Choice:
        promoted = self._look()
        if promoted is None:
            return Choice(request=request)
        version, canary = str(promoted.version), promoted.canary
        if canary and takes_part(canary, request):
            return Choice(str(canary.version), version, request)
        return Choice(version, request=request)

    def _look(self) -> Promotion | None:
        try:
            found = (self._home / PROMOTION).stat()
        except FileNotFoundError:
            return None
        if self._seen != (found.st_ino, found.st_mtime_ns):
            self._promotion = promotion.read(self._home)
            self._seen = (found.st_ino, found.st_mtime_ns)
        return self._promotion

    def _enter(self, version: str) -> None:
        self._counts[version] += 1
        if self._counts[version] == 1:
            with suppress(OSError):  # a full disk: then a switch does not wait for these questions
                self._locks[version] = lock_file(self._home, version).open("w")
                fcntl.flock(self._locks[version], fcntl.LOCK_SH)

    def _leave(self, version: str) -> None:
        self._counts[version] -= 1
        if self._counts[version] == 0 and version in self._locks:
            self._locks.pop(version).close()


def lock_file(home: Path, version: str) -> Path:
    """The file that is locked while questions are under way with `version`."""
    folder = home / TRAFFIC
    folder.mkdir(exist_ok=True)
    return folder / version


def takes_part(canary: Canary, request: str) -> bool:
    """Whether a request goes to the canary: decided by its id and the canary's version alone."""
    return int(sha256_text(f"{canary.version} {request}")[:8], 16) < canary.share * 2**32
