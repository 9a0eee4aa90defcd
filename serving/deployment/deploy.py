"""A registry version takes the traffic of a home folder, without a request that fails.

    registry ─► stage ─► rename ─► load beside the live version ─► ready ─► smoke questions ─► promotion.json
             ─► questions under way with the old version end ─► old version unloaded ─► tag in the registry

Each step leaves a state in which a whole version answers, and running the command again goes on from there: until
`promotion.json` is replaced the live version answers alone, from then on the new one does. docs/deployment.md says what
the server does meanwhile, and which tests establish that.
"""

from __future__ import annotations

import asyncio
import fcntl
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from revelator.artifact import MANIFEST, disk_errors
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.registry import DIGEST_TAG, Version, tag_version
from revelator.tasks import TASKS, RelevanceInput, RouteInput, TranslateInput
from serving.deployment import promotion, staging
from serving.deployment.promotion import Promotion
from serving.triton import control, repository, traffic
from serving.triton.live import find_running, lock
from serving.triton.remote import RemoteRevelator, TritonModels
from serving.triton.repository import REVELATOR
from serving.triton.secrets import INNER, secret
from serving.triton.traffic import Choice

SMOKE_QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"
DEPLOYED_TAG = "deployed"
DRAIN_SECONDS = 35.0  # a question may take 30 (revelator.limits.Limits); one that is later goes on with the new version
Report = Callable[[str], None]


@dataclass(frozen=True)
class Deployment:
    """The outcome of a deploy; `url` is the server that took the version into service, None when none runs.

    `untold` is why the registry could not be told; nothing else depends on that.
    """

    promotion: Promotion
    folder: Path
    url: str | None
    removed: tuple[int, ...] = ()
    untold: str | None = None


def silent(_: str) -> None: ...


def deploy(
    home: Path, version: Version, *, keep: int = 3, report: Report = silent, untold: str | None = None
) -> Deployment:
    """Puts `version` into the live repository below `home`, and into service if a server of this home runs.

    A canary that was under way ends. ArtifactError when the adapter is damaged or does not fit its base, when the disk
    is full, or when the server does not take the version: the one that answered before then still does. `untold`: why
    the registry is not to be told.
    """
    home = home.resolve()
    with alone(home):
        report("fetch and verify")
        release = staging.stage(folder_of(home, version.version), version)
        before, running = promotion.read(home), find_running(home)
        if before is None or before.version != version.version:
            if before and running:
                report("load, wait until it is ready, ask smoke questions")
                try_out(home, running.grpc, version.version, before.version)
            promoted = Promotion.of(release, before.version if before else None)
        else:
            promoted = Promotion(**asdict(release), previous=before.previous, time=before.time)
        promotion.write(home, promoted)
        report("wait for questions under way, unload what is not needed")
        settle(home, promoted, running.grpc if running else None)
        untold = untold or _tell(version, promoted, home)
        removed = staging.prune(home, keep, {promoted.version, promoted.previous})
    return Deployment(promoted, folder_of(home, promoted.version), running.grpc if running else None, removed, untold)


def roll_back(home: Path, *, keep: int = 3, report: Report = silent, untold: str | None = None) -> Deployment:
    """Deploys the version that `promotion.json` names as the previous one, from its folder: no registry is needed.

    ArtifactError when none is recorded or its folder is gone.
    """
    now = promotion.read(home.resolve())
    if now is None or now.previous is None:
        what = "no version is recorded that this one took the place of" if now else "nothing was deployed"
        raise ArtifactError(
            what, where=str(home / promotion.PROMOTION), hint="deploy a number: revelator model deploy --alias N"
        )
    folder = folder_of(home.resolve(), now.previous)
    release = staging.read_release(folder)
    if release is None:
        hint = f"fetch it again: revelator model deploy --alias {now.previous}"
        raise ArtifactError("the folder of the previous version is gone", where=str(folder), hint=hint)
    version = Version(release.model, release.version, release.run_id, "", {DIGEST_TAG: release.files[MANIFEST]})
    return deploy(home, version, keep=keep, report=report, untold=untold)


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Holds the deploy lock of a home folder, cleared of what a killed deploy left. A full disk is an ArtifactError."""
    with lock(home / ".deploy.lock") as mine:
        if not mine:
            raise ConfigError("another deploy is at work on this home folder", where=str(home))
        with disk_errors(home):
            staging.clear_leftovers(home)
            yield


def folder_of(home: Path, version: int) -> Path:
    return repository.repository(home) / REVELATOR / str(version)


def try_out(home: Path, url: str, version: int, live: int) -> None:
    """Loads `version` beside the live one and asks it smoke questions. One that fails is unloaded again."""
    try:
        control.load(home, url, REVELATOR, version, repository.config_with(home, REVELATOR, live, version))
        asyncio.run(smoke_test(home, url, version))
    except BaseException:
        with suppress(RevelatorError):  # the first error says more; the file is as it was, so it must be said again
            control.load(home, url, REVELATOR, live, repository.config_with(home, REVELATOR, live))
        raise


def settle(home: Path, promoted: Promotion, url: str | None) -> None:
    """What is loaded, and what config.pbtxt names, becomes what `promoted` says. It is safe to do again at any time."""
    canary = promoted.canary.version if promoted.canary else None
    parameters = repository.recorded_parameters(home, REVELATOR)
    if url:
        for old in set(repository.served_versions(home, REVELATOR)) - {promoted.version, canary}:
            drain(home, old)
    repository.write_config(home, REVELATOR, promoted.version, parameters, canary=canary)
    if url:
        control.load(home, url, REVELATOR, promoted.version)


def drain(home: Path, version: int) -> None:
    """Returns when no question is under way with `version`, after `DRAIN_SECONDS` at the latest."""
    end = time.monotonic() + DRAIN_SECONDS
    with traffic.lock_file(home, str(version)).open("a") as file:
        while time.monotonic() < end:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)


async def smoke_test(home: Path, url: str, version: int) -> None:
    """A question through three tasks. ArtifactError when another version answers, or not as the task promises."""
    route, translate = RouteInput(SMOKE_QUESTION), TranslateInput(SMOKE_QUESTION)
    relevance = RelevanceInput(question=SMOKE_QUESTION, title="Little Quay", text="A ferry crosses it every hour.")
    asked = {"route": route, "relevance": relevance, "translate_bnf": translate}
    with traffic.chosen(Choice(str(version))) as choice:
        async with TritonModels(url, secret(home, INNER)) as models:
            revelator = RemoteRevelator(models)
            for task, given in asked.items():
                [completion] = await revelator.complete(task, [TASKS[task].render(given)])
                total = sum(completion.probabilities.values())
                if (TASKS[task].labels and not abs(total - 1) < 1e-3) or not completion.text:
                    said = f"{completion.text!r} with probabilities that sum to {total}"
                    raise ArtifactError(f"the smoke test failed: {task} answered {said}", where=f"version {version}")
    if choice.answered[REVELATOR] != {str(version)}:
        answered = choice.versions()[REVELATOR]
        raise ArtifactError(f"the smoke test failed: version {answered} answered", where=f"version {version}")


def _tell(version: Version, promoted: Promotion, home: Path) -> str | None:
    try:
        tag_version(version, DEPLOYED_TAG, f"{promoted.time} {platform.node()}:{home}")
    except (Unavailable, ArtifactError) as error:
        return str(error)
    return None
