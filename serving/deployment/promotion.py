"""What takes traffic below a home folder: `promotion.json`, one record, replaced as a whole.

A version folder holds whole files and says by `version.json` what they are. Which version answers is said here and
nowhere else: the executor reads this file, and the live config.pbtxt is written after it. So the one rename that puts
a new `promotion.json` in place is the moment of a switch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError
from revelator.files import write_json

PROMOTION = "promotion.json"


@dataclass(frozen=True)
class Canary:
    """A version that answers a `share` of the questions, 0 to 1, and is compared with the promoted one meanwhile."""

    version: int
    share: float
    since: str


@dataclass(frozen=True)
class Release:
    """What a version folder consists of, its `version.json`: registry version, base (name, folder, digest), sha256 of
    each file of the adapter."""

    model: str
    version: int
    run_id: str
    base: dict[str, str]
    files: dict[str, str]


@dataclass(frozen=True)
class Promotion(Release):
    """The release that takes traffic since `time`, and the version that did before, which a rollback returns to."""

    previous: int | None
    time: str
    canary: Canary | None = None

    @classmethod
    def of(cls, release: Release, previous: int | None) -> Promotion:
        return cls(**asdict(release), previous=previous, time=now())


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def read(home: Path) -> Promotion | None:
    """None when nothing was promoted. Raises ArtifactError for a file that is none of ours."""
    path = home / PROMOTION
    try:
        value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        canary = value.pop("canary")
        return Promotion(**value, canary=Canary(**canary) if canary else None)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        hint = "remove it and run `revelator model deploy` again"
        raise ArtifactError(f"this is no record of a promotion: {error!r}", where=str(path), hint=hint) from error


def write(home: Path, promotion: Promotion) -> None:
    write_json(home / PROMOTION, asdict(promotion))
