"""A registry version takes the traffic of a home folder, without a request that fails.

    registry ─► version folder ─► load beside the live version ─► ready ─► smoke questions ─► release.json
             ─► questions under way with the old version end ─► old version unloaded ─► tag in the registry

Each step leaves a state in which a whole version answers, and running the command again goes on from there: until
`release.json` is replaced the live version answers alone, from then on the new one does. What the server does
meanwhile is established by tests/serving/deploy/test_version_changes.py.
"""

from __future__ import annotations

import asyncio
import platform
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from revelator import files
from revelator.artifact import (
    DEFAULT_BASE,
    digest_base,
    explain_full_disk,
    find_base,
    list_learned_tasks,
    read_manifest,
    verify_adapter,
)
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.files import try_lock
from revelator.folders import MANIFEST
from revelator.language_model import RefusedError
from revelator.registry import DIGEST_TAG, Version, download, tag_version
from revelator.tasks import TASKS, QuestionInput, RelevanceInput
from serving.deploy.engines import Engine, VllmEngine, find_engine
from serving.home.configure import check_version
from serving.home.versions import (
    ADAPTER,
    CONTENTS_FILE,
    REVELATOR,
    list_versions,
    read_contents,
    repository_folder,
    version_folder,
)
from serving.models.releases import (
    EMBEDDED_VERSION,
    RELEASE_FILE,
    Release,
    VersionChoice,
    VersionContents,
    read_release,
    use_choice,
    write_release,
)

SMOKE_QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"
DEPLOYED_TAG = "deployed"
KEPT_VERSIONS = 3  # folders below a home folder; the embedded base has one, too
Report = Callable[[str], None]


@dataclass(frozen=True)
class Deployment:
    """The outcome of a deploy; `url` is the engine's, which took the version into service; None when none runs.

    `registry_error` is why the deploy could not be recorded in the registry; nothing else depends on that.
    """

    release: Release
    folder: Path
    url: str | None
    removed: tuple[int, ...] = ()
    registry_error: str | None = None


def ignore_report(_: str) -> None: ...


def deploy(
    home: Path,
    version: Version,
    *,
    vllm: str | None = None,
    report: Report = ignore_report,
    registry_error: str | None = None,
) -> Deployment:
    """Puts `version` into the live repository below `home`, and into service if a server of this home runs, or in any
    case at the vLLM server `vllm` (None: where the release before ran; "": our own engine).

    A canary that was under way ends. ArtifactError when the adapter is damaged or does not fit its base, when the disk
    is full, or when the server does not take the version: the one that answered before then still does.
    `registry_error`: why the deploy is not to be recorded in the registry.
    """
    home = home.resolve()
    with hold_deploy_lock(home):
        report("fetch and verify")
        contents = lay_out_version(home, version)
        before, engine = read_release(home), find_engine(home, vllm)
        vllm_url = engine.url if isinstance(engine, VllmEngine) else ""
        if before and (before.version, before.vllm) == (version.version, vllm_url):
            release = replace(before, **asdict(contents), canary=None)
        else:
            if engine:
                report("load, wait until it is ready, ask smoke questions")
                try_version(engine, contents, before.version if before else None)
            previous = before.version if before and before.version != EMBEDDED_VERSION else None
            if before and before.version == version.version:
                previous = before.previous
            release = Release.of(contents, previous, vllm_url)
        report("wait for questions under way, unload what is not needed")
        switch_release(home, release, engine)
        registry_error = registry_error or _tag_as_deployed(version, release, home)
        removed = remove_old_versions(home, {release.version, release.previous})
    url = engine.url if engine else None
    return Deployment(release, version_folder(home, release.version), url, removed, registry_error)


def release_embedded_base(home: Path) -> None:
    """Makes the embedded base, without an adapter, the release of a home folder to which nothing was deployed."""
    home = home.resolve()
    with hold_deploy_lock(home):
        if read_release(home):
            return
        base = find_base(DEFAULT_BASE).resolve()
        described = {"name": DEFAULT_BASE, "digest": digest_base(base), "folder": str(base)}
        contents = VersionContents("embedded base", EMBEDDED_VERSION, "", described, {})
        with files.stage_folder(version_folder(home, EMBEDDED_VERSION)) as staging:
            files.write_json(staging / CONTENTS_FILE, asdict(contents))
        write_release(home, Release.of(contents, None))


def release_adapter(home: Path, adapter: Path, version: Version) -> None:
    """Makes a version, whose files lie in the folder `adapter`, the release of a new home folder. Raises ArtifactError
    where it does not fit its base."""
    with files.stage_folder(version_folder(home, version.version)) as staging:
        shutil.copytree(adapter, staging / ADAPTER)
        contents = _verify_contents(staging / ADAPTER, version)
        files.write_json(staging / CONTENTS_FILE, asdict(contents))
    write_release(home, Release.of(contents, None))


def roll_back(home: Path, *, report: Report = ignore_report, registry_error: str | None = None) -> Deployment:
    """Deploys the version that `release.json` names as the previous one, from its folder: no registry is needed.

    ArtifactError when none is recorded or its folder is gone.
    """
    release = read_release(home.resolve())
    if release is None or release.previous is None:
        what = "no version is recorded that this one took the place of" if release else "nothing was deployed"
        hint = "deploy a number: revelator model deploy --alias N"
        raise ArtifactError(what, where=str(home / RELEASE_FILE), hint=hint)
    folder = version_folder(home.resolve(), release.previous)
    contents = read_contents(folder)
    if contents is None:
        hint = f"fetch it again: revelator model deploy --alias {release.previous}"
        raise ArtifactError("the folder of the previous version is gone", where=str(folder), hint=hint)
    tags, source = {DIGEST_TAG: contents.files[MANIFEST]}, f"models:/{contents.model_id}"
    version = Version(contents.model, contents.version, contents.run_id, source, tags)
    return deploy(home, version, report=report, registry_error=registry_error)


@contextmanager
def hold_deploy_lock(home: Path) -> Iterator[None]:
    """Holds the deploy lock of a home folder, cleared of what a killed deploy left. A full disk is an ArtifactError."""
    with try_lock(home / ".deploy.lock") as mine:
        if not mine:
            raise ConfigError("another deploy is at work on this home folder", where=str(home), hint="wait for its end")
        with explain_full_disk(home):
            for path in (repository_folder(home) / REVELATOR).glob(".*-*"):
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            yield


def try_version(engine: Engine, contents: VersionContents, live: int | None) -> None:
    """Loads a version beside the live one and asks it smoke questions. One that fails is unloaded again."""
    version = contents.version
    try:
        engine.load_beside(version, live)
        if live is not None or isinstance(engine, VllmEngine):
            adapter = version_folder(engine.home, version) / ADAPTER
            asyncio.run(smoke_test(engine, version, list_learned_tasks(Path(contents.base["folder"]), adapter)))
    except BaseException:
        with suppress(RevelatorError):  # the first error says more
            engine.unload(version, live)
        raise


def switch_release(home: Path, release: Release, engine: Engine | None) -> None:
    """Records `release`, and brings the engine to what it names. Can be repeated safely."""
    write_release(home, release)
    if engine:
        engine.serve_only(release)


async def smoke_test(engine: Engine, version: int, learned: Collection[str]) -> None:
    """One question for the route and the relevance of a document, and one for a plan in each language that the version
    has learned. ArtifactError when another version answers, or not as the task promises."""
    question = QuestionInput(SMOKE_QUESTION)
    relevance = RelevanceInput(question=SMOKE_QUESTION, title="Little Quay", text="A ferry crosses it every hour.")
    plans = {task.name: question for task in TASKS.values() if task.language and task.name in learned}
    inputs = {"route": question, "relevance": relevance, **plans}
    with use_choice(VersionChoice(str(version))) as choice:
        async with engine.open_revelator() as revelator:
            for task, given in inputs.items():
                try:
                    [completion] = await revelator.complete(task, [TASKS[task].render(given)])
                except RefusedError as error:
                    message = f"the smoke test failed: {task} was refused: {error.message}"
                    hint = "does vLLM hold outputs to grammars by its default backend, xgrammar?"
                    raise ArtifactError(message, where=f"version {version}", hint=hint) from error
                total = sum(completion.probabilities.values())
                if (TASKS[task].labels and not abs(total - 1) < 1e-3) or not completion.text:
                    said = f"{completion.text!r} with probabilities that sum to {total}"
                    raise ArtifactError(f"the smoke test failed: {task} answered {said}", where=f"version {version}")
    if choice.answered[REVELATOR] != {str(version)}:
        answered = choice.versions()[REVELATOR]
        raise ArtifactError(f"the smoke test failed: version {answered} answered", where=f"version {version}")


def _tag_as_deployed(version: Version, release: Release, home: Path) -> str | None:
    try:
        tag_version(version, DEPLOYED_TAG, f"{release.time} {platform.node()}:{home}")
    except (Unavailable, ArtifactError) as error:
        return str(error)
    return None


def lay_out_version(home: Path, version: Version) -> VersionContents:
    """Fills the version's folder with adapter and version.json, unless it holds this version already.

    Raises ArtifactError when a file is damaged or missing, and when base, prompts or grammar are not those that the
    adapter was trained with (the folder is then as it was), or when it has not learned a task that the release has.
    """
    folder = version_folder(home, version.version)
    contents = _read_if_whole(folder, version)
    if not contents:
        with files.stage_folder(folder) as staging:
            download(version, staging / ADAPTER)
            contents = _verify_contents(staging / ADAPTER, version)
            files.write_json(staging / CONTENTS_FILE, asdict(contents))
    check_version(home, contents)
    return contents


def _read_if_whole(folder: Path, version: Version) -> VersionContents | None:
    contents = read_contents(folder)
    if contents is None:
        return None
    is_whole = files.sha256_folder(folder / ADAPTER) == contents.files
    is_same = contents.files.get(MANIFEST) == version.tags.get(DIGEST_TAG) and contents.model_id == version.model_id
    if not (is_whole and is_same and Path(contents.base["folder"]).is_dir()):
        return None
    _verify(folder / ADAPTER, Path(contents.base["folder"]), version)  # the base may have changed since
    return contents


def _verify_contents(adapter: Path, version: Version) -> VersionContents:
    manifest = read_manifest(adapter)
    base = find_base(manifest.base_name).resolve()
    _verify(adapter, base, version)
    return VersionContents(
        model=version.name,
        version=version.version,
        run_id=version.run_id,
        base={"name": manifest.base_name, "digest": manifest.base_digest, "folder": str(base)},
        files=files.sha256_folder(adapter),
        model_id=version.model_id,
    )


def _verify(adapter: Path, base: Path, version: Version) -> None:
    try:
        verify_adapter(adapter, base)
    except ArtifactError as error:  # it names the staging folder, which is gone when this is read
        where = f"version {version.version} of {version.name}"
        raise ArtifactError(error.message, where=where, hint=error.hint) from error


def remove_old_versions(home: Path, needed: set[int | None]) -> tuple[int, ...]:
    """Removes the oldest version folders beyond `KEPT_VERSIONS`, never one that is needed."""
    old = tuple(v for v in list_versions(home)[:-KEPT_VERSIONS] if v not in needed)
    for version in old:
        shutil.rmtree(version_folder(home, version))
    return old
