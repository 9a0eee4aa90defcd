"""The release of a home folder, `release.json`: which version of the revelator answers, and how a question chooses it.

A version folder holds whole files and says in `version.json` what they are. `release.json` alone says which version
answers, so the one rename that puts a new one in place is the moment of a switch.

A question chooses its version once, when it comes in, and keeps it to its end. The file is looked at again for each
question (some 5 µs), so a switch takes effect with the next question. While questions are under way with a version, a
shared lock on `.traffic/<version>` is held: a deploy waits for it before it unloads that version, and the kernel
releases it if this process dies.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from revelator import files
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_text, try_lock
from revelator.spans import MODEL_ID

REVELATOR = "revelator"  # the model that has versions
RELEASE_FILE = "release.json"
TRAFFIC = ".traffic"
EMBEDDED_VERSION = 2**31 - 1  # its folder holds no adapter: the embedded base. Triton passes over a folder `0`


@dataclass(frozen=True)
class Canary:
    """A version that answers a `share` of the questions, 0 to 1, and is compared with the released one meanwhile."""

    version: int
    share: float
    since: str
    model_id: str = ""

    def takes(self, request: str) -> bool:
        """Whether a request goes to the canary: decided by its id and the canary's version alone."""
        return int(sha256_text(f"{self.version} {request}")[:8], 16) < self.share * 2**32


@dataclass(frozen=True)
class VersionContents:
    """What a version folder consists of, its `version.json`: registry version, base (name, folder, digest), sha256 of
    each file of the adapter, and the id of MLflow's model of it."""

    model: str
    version: int
    run_id: str
    base: dict[str, str]
    files: dict[str, str]
    model_id: str = field(default="", kw_only=True)


@dataclass(frozen=True)
class Release(VersionContents):
    """The version that takes traffic since `time`, and the one that did before, to which a rollback returns. `vllm` is
    the address of the vLLM server that runs it; "" is our own engine."""

    previous: int | None
    time: str
    canary: Canary | None = None
    vllm: str = ""

    @classmethod
    def of(cls, contents: VersionContents, previous: int | None, vllm: str = "") -> Release:
        return cls(**asdict(contents), previous=previous, time=format_now(), vllm=vllm)

    @property
    def versions(self) -> set[int]:
        """Those that answer: the version, and a canary beside it."""
        return {self.version, *([self.canary.version] if self.canary else [])}


def name_version(version: str) -> str:
    """What a version is called in traces and events: 0 is the embedded base."""
    return "0" if version == str(EMBEDDED_VERSION) else version


def name_model(model: str, version: str) -> str:
    """What a version of a model is called in spans, as MLflow's addresses have it."""
    return f"{model}/{name_version(version)}"


def format_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_release(home: Path) -> Release | None:
    """None when nothing was deployed. Raises ArtifactError for a file that is not ours."""
    path = home / RELEASE_FILE
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        canary = value.pop("canary")
        return Release(**value, canary=Canary(**canary) if canary else None)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "remove it and run `revelator model deploy` again"
        raise ArtifactError(f"this is no record of a release: {error!r}", where=str(path), hint=hint) from error


def write_release(home: Path, release: Release) -> None:
    files.write_json(home / RELEASE_FILE, asdict(release))


@dataclass
class VersionChoice:
    """The version for one question; "" where the release neither plans nor judges.

    `released` is set when `version` is a canary: the released version, which completes the same prompts for comparison.
    `answered` collects, by model, the versions that did answer. `model_id` is MLflow's of `version`.
    """

    version: str = ""
    released: str | None = None
    request: str = ""
    answered: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    model_id: str = ""

    def versions(self) -> dict[str, str]:
        """The version that answered, by model: `1, 2` when version 1 was unloaded while the question was under way. If
        the chosen version alone answered, MLflow's id of its model stands under `MODEL_ID`."""
        found = {model: ", ".join(sorted(map(name_version, found))) for model, found in self.answered.items()}
        if self.model_id and self.answered.get("revelator") == {self.version}:
            found[MODEL_ID] = self.model_id
        return found


_CHOICE: ContextVar[VersionChoice | None] = ContextVar("choice", default=None)


def find_choice() -> VersionChoice:
    """The choice for the question that this task works for."""
    return _CHOICE.get() or VersionChoice()


@contextmanager
def use_choice(choice: VersionChoice) -> Iterator[VersionChoice]:
    """Calls made in this block, and by tasks started in it, go to the version that `choice` names."""
    token = _CHOICE.set(choice)
    try:
        yield choice
    finally:
        _CHOICE.reset(token)


class Traffic:
    """Chooses the version for each question by the `release.json` below `home`. Used by one event loop."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._seen: tuple[int, int] | None = None
        self._release: Release | None = None
        self._counts: dict[str, int] = defaultdict(int)
        self._locks: dict[str, ExitStack] = defaultdict(ExitStack)

    @contextmanager
    def choose_version(self, request: str, version: str = "") -> Iterator[VersionChoice]:
        """Chooses the version for one question, and holds it until the block ends: the `version` that the request
        names, else by the release. The same `request` id gets the same version."""
        choice = VersionChoice(version, request=request) if version else self._choose(request)
        versions = [v for v in (choice.version, choice.released) if v]
        for version in versions:
            self._enter(version)
        try:
            with use_choice(choice):
                yield choice
        finally:
            for version in versions:
                self._leave(version)

    def _choose(self, request: str) -> VersionChoice:
        release = self.read_release()
        if release is None:
            return VersionChoice(request=request)
        version, canary = str(release.version), release.canary
        if canary and canary.takes(request):
            return VersionChoice(str(canary.version), version, request, model_id=canary.model_id)
        return VersionChoice(version, request=request, model_id=release.model_id)

    def is_used(self, version: str) -> bool:
        """Whether a question is under way with a version."""
        return self._counts[version] > 0

    def read_release(self) -> Release | None:
        """What the file says now; it is read only when it has changed."""
        try:
            found = (self._home / RELEASE_FILE).stat()
        except FileNotFoundError:
            return None
        if self._seen != (found.st_ino, found.st_mtime_ns):
            self._release = read_release(self._home)
            self._seen = (found.st_ino, found.st_mtime_ns)
        return self._release

    def _enter(self, version: str) -> None:
        self._counts[version] += 1
        if self._counts[version] == 1:
            with suppress(ConfigError):  # a full disk: then a switch does not wait for these questions
                self._locks[version].enter_context(try_lock(find_traffic_lock(self._home, version), shared=True))

    def _leave(self, version: str) -> None:
        self._counts[version] -= 1
        if self._counts[version] == 0:
            self._locks.pop(version).close()


def find_traffic_lock(home: Path, version: str) -> Path:
    """The file that is locked while questions are under way with `version`."""
    return home / TRAFFIC / version
