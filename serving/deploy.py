"""A registry version becomes a version folder of the live repository, by one rename, and is put into service.

    registry ─► stage (adapter/, model.py, promotion.json) ─► rename ─► config.pbtxt names it ─► load ─► smoke test

A kill at any moment leaves whole versions only, and config.pbtxt names one that is there. A version that does not load
or fails the smoke test is taken back: the one before it stays in service.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from revelator import durable
from revelator.artifact import MANIFEST, base_folder, read_manifest, verify_adapter
from revelator.errors import ArtifactError, ConfigError, RevelatorError
from revelator.registry import DIGEST_TAG, Version, download
from revelator.tasks import TASKS, RouteInput
from serving.triton import control, repository
from serving.triton.live import REVELATOR, find_running, lock
from serving.triton.remote import RemoteRevelator, TritonModels
from serving.triton.repository import ADAPTER, PROMOTION

SMOKE_QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"


@dataclass(frozen=True)
class Promotion:
    """What `promotion.json` in a version folder says. `previous` is the version that was served before."""

    model: str
    version: int
    run_id: str
    base: dict[str, str]  # name, folder, digest
    files: dict[str, str]  # sha256 of each file of the adapter
    previous: int | None
    time: str


@dataclass(frozen=True)
class Deployment:
    """The outcome of a deploy; `url` is the server that took the version into service, None when none runs."""

    promotion: Promotion
    folder: Path
    url: str | None
    removed: tuple[int, ...] = ()


def deploy(
    home: Path, version: Version, *, keep: int = 3, report: Callable[[str], None] = lambda _: None
) -> Deployment:
    """Puts `version` into the live repository below `home`, and into service if a server of this home runs.

    ArtifactError when the adapter is damaged or does not fit its base, or when the server does not take it: the version
    that was served before then still is.
    """
    home = home.resolve()
    with lock(home / ".deploy.lock") as mine:
        if not mine:
            raise ConfigError("another deploy is at work on this home folder", where=str(home))
        models = repository.repository(home) / REVELATOR
        _clear_leftovers(models)
        previous = repository.served_version(home, REVELATOR)
        previous = None if previous == version.version else previous
        report("fetch and verify")
        promotion = stage(models / str(version.version), version, previous)
        repository.write_config(home, REVELATOR, version.version)
        running = find_running(home)
        if running:
            report("load, wait until it is ready, ask a smoke question")
            _put_into_service(home, running.grpc, version.version, previous)
        removed = _prune(home, keep, {version.version, previous})
    return Deployment(promotion, models / str(version.version), running.grpc if running else None, removed)


def stage(folder: Path, version: Version, previous: int | None) -> Promotion:
    """Makes `folder` whole: adapter, model.py, promotion.json. One that is this version already is left as it is."""
    kept = _kept(folder, version)
    if kept:
        return kept
    with durable.staged_folder(folder) as stage:
        download(version, stage / ADAPTER)
        promotion = _promotion(stage / ADAPTER, version, previous)
        shutil.copyfile(_template(), stage / "model.py")
        durable.write_json(stage / PROMOTION, asdict(promotion))
    return promotion


def _kept(folder: Path, version: Version) -> Promotion | None:
    if not (folder / PROMOTION).is_file():
        return None
    promotion = Promotion(**json.loads((folder / PROMOTION).read_text(encoding="utf-8")))
    whole = durable.sha256_folder(folder / ADAPTER) == promotion.files
    same = promotion.files.get(MANIFEST) == version.tags.get(DIGEST_TAG)
    code = (folder / "model.py").read_bytes() == _template().read_bytes()
    base = Path(promotion.base["folder"]).is_dir()
    return promotion if whole and same and code and base else None


def _template() -> Path:
    return repository.templates() / REVELATOR / "model.py"


def _promotion(adapter: Path, version: Version, previous: int | None) -> Promotion:
    manifest = read_manifest(adapter)
    base = base_folder(manifest.base_name).resolve()
    try:
        verify_adapter(adapter, base)
    except ArtifactError as error:  # it names the staging folder, which is gone when this is read
        where = f"version {version.version} of {version.name}"
        raise ArtifactError(error.message, where=where, hint=error.hint) from error
    return Promotion(
        model=version.name,
        version=version.version,
        run_id=version.run_id,
        base={"name": manifest.base_name, "digest": manifest.base_digest, "folder": str(base)},
        files=durable.sha256_folder(adapter),
        previous=previous,
        time=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _put_into_service(home: Path, url: str, version: int, previous: int | None) -> None:
    try:
        control.load(url, REVELATOR, version)
        asyncio.run(smoke_test(url, version))
    except RevelatorError:
        if previous is not None:
            repository.write_config(home, REVELATOR, previous)
            if not control.is_ready(url, REVELATOR, previous):  # it is when the new version did not load
                control.load(url, REVELATOR, previous)
        raise


async def smoke_test(url: str, version: int) -> None:
    """One question through the route task. ArtifactError when another version answers, or not with probabilities."""
    prompt = TASKS["route"].render(RouteInput(SMOKE_QUESTION))
    async with TritonModels(url) as models:
        [completion] = await RemoteRevelator(models).complete("route", [prompt])
        answered = models.versions[REVELATOR]
    total = sum(completion.probabilities.values())
    if answered != str(version) or abs(total - 1) > 1e-3:
        raise ArtifactError(
            f"the smoke test failed: version {answered} answered with probabilities that sum to {total}"
        )


def _clear_leftovers(models: Path) -> None:
    """Removes what a killed deploy left; this deploy holds the lock, so nobody is at work there."""
    for path in models.glob(".*-*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def _prune(home: Path, keep: int, needed: set[int | None]) -> tuple[int, ...]:
    """Removes the oldest version folders beyond `keep`, never one that is needed."""
    there = repository.versions(home, REVELATOR)
    old = tuple(v for v in there[: max(0, len(there) - keep)] if v not in needed)
    for version in old:
        shutil.rmtree(repository.repository(home) / REVELATOR / str(version))
    return old
