"""On which machine and with which code something was measured."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import revelator
import serving
from revelator import files


def code_digest() -> str:
    """sha256 over the files of the packages that answer a question: answers of other code are other answers."""
    return files.code_digest(revelator, serving)


def machine() -> dict[str, str]:
    """When and where something is run, and by which code: the part of a run's record that no configuration decides."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, {platform.system()}",
        "software": f"revelator {metadata.version('revelator')}, Python {platform.python_version()}",
        "code": code_digest(),
    }


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
