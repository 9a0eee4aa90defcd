"""Checks, before anything runs, that ids, files and index of a run fit together. Errors name what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from revelator.errors import ArtifactError, DataError
from revelator.files import sha256_file

SHOWN = 3  # ids that an error names


def check_ids(found: Sequence[str], wanted: Collection[str], where: str, *, whole: bool = True) -> None:
    """Raises DataError that names ids that are doubled, foreign or missing."""
    doubled = [id for id, times in Counter(found).items() if times > 1]
    known, given = set(wanted), set(found)
    faults = [
        ("twice", doubled),
        ("of no question of the benchmark", [id for id in dict.fromkeys(found) if id not in known]),
    ]
    if whole:
        faults.append(("missing", [id for id in wanted if id not in given]))
    if said := [f"{_list_some(ids)} {fault}" for fault, ids in faults if ids]:
        raise DataError(f"the ids do not fit the benchmark: {'; '.join(said)}", where=where)


def _list_some(ids: Sequence[str]) -> str:
    """`4 ids (a, b, c, …)`."""
    more = ", …" if len(ids) > SHOWN else ""
    return f"{len(ids)} id{'s' if len(ids) > 1 else ''} ({', '.join(ids[:SHOWN])}{more})"


def check_index(manifest: Mapping[str, Any], corpora: Sequence[Path], where: str) -> None:
    """Raises ArtifactError if an index was not built from these corpora; the error names those that differ."""
    held = {corpus["sha256"]: corpus["name"] for corpus in manifest["corpora"]}
    given = {sha256_file(path): path.name for path in corpora}
    lacks = [f"{name} (sha256 {digest[:16]}…) is not in it" for digest, name in given.items() if digest not in held]
    beyond = [f"{name} (sha256 {digest[:16]}…) is in it alone" for digest, name in held.items() if digest not in given]
    if lacks or beyond:
        hint = f"revelator index build {' '.join(map(str, corpora))} --out {where}"
        raise ArtifactError(f"the index does not fit the corpus: {'; '.join(lacks + beyond)}", where=where, hint=hint)
