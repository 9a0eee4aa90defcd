"""The head of a page of results: what was run, where, from which data, weights and code."""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import revelator
import serving
from revelator import durable
from revelator.durable import sha256_file


def code_digest() -> str:
    """sha256 over the files of the packages that answer a question: answers of other code are other answers."""
    return durable.code_digest(revelator, serving)


def facts(command: str, home: Path, made: Path, version: int, executed: Mapping[str, int]) -> dict[str, str]:
    """Names and values; digests are the first 16 digits of a sha256. `executed` counts questions by set."""
    from evaluation.published import TITLES  # brings in what reads instruction sets

    adapter, built, index = map(read, (made, home / "sets" / "real", home / "indexes" / "real"))
    questions = ", ".join(f"{split} {sum(counts.values()):,}" for split, counts in built["questions"].items() if counts)
    trained = (
        "this set" if adapter["data_digest"] == built["digest"] else f"another set, {short(adapter['data_digest'])}"
    )
    corpora = ", ".join(f"{corpus['name']} {short(corpus['sha256'])}" for corpus in index["corpora"])
    settings = ", ".join(f"{name} {value}" for name, value in index["settings"].items())
    return {
        "Command": f"`{command}`",
        "Date": datetime.now(UTC).date().isoformat(),
        "Machine": f"{processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, {platform.system()}",
        "Software": f"revelator {metadata.version('revelator')}, code {short(code_digest())}, "
        f"Python {platform.python_version()}",
        "Data": f"instruction set {short(built['digest'])} ({questions} questions and single steps)",
        "Adapter": f"version {version}, manifest {short(sha256_file(made))}, trained on {trained}; "
        f"base {Path(adapter['base']['name']).name} {short(adapter['base']['digest'])}",
        "Index": f"{index['count']:,} passages ({corpora}), BM25 ({settings})",
        "Executed": ", ".join(f"{n} questions of {TITLES[name]}" for name, n in executed.items()),
    }


def machine() -> dict[str, str]:
    """When and where something is run, and by which code: the part of a run's record that no configuration decides."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores, {memory_gib():.0f} GiB, {platform.system()}",
        "software": f"revelator {metadata.version('revelator')}, Python {platform.python_version()}",
        "code": code_digest(),
    }


def read(path: Path) -> dict[str, Any]:
    """A manifest, given as a file or by its folder."""
    return json.loads((path / "manifest.json" if path.is_dir() else path).read_text(encoding="utf-8"))


def made_by(program: str, digests: Mapping[str, str]) -> str:
    """One line of a page of results: by which command, of what (empty digests are left out), when and where."""
    command, ran = shlex.join([*program.split(), *sys.argv[1:]]), machine()
    of = ", ".join(f"{name} {short(digest)}" for name, digest in digests.items() if digest)
    return f"`{command}`: {of}; {ran['started'][:10]}, {ran['machine']}"


def short(digest: str) -> str:
    return f"`{digest[:16]}`"


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
