"""Files → an index, built or changed, in a folder or in a collection of Milvus.

1. The files are read once for faults, ids that are used twice, digests and the number of passages (`parts`). A document
   that cannot be read is left out, and the manifest says why.
2. What is new or has changed is written (`folder_build`, `milvus_build`), the manifest last. Where an index stands
   already, the passages and vectors of files that have not changed since come from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from revelator.cluster import Engine, work_here
from revelator.errors import ArtifactError, DataError
from serving.retrieval.build import Build
from serving.retrieval.corpora import ROWS, find_files
from serving.retrieval.documents import DOCUMENTS
from serving.retrieval.fields import digest_source
from serving.retrieval.folder_build import FolderBuild
from serving.retrieval.index_folder import IndexSettings, read_settings
from serving.retrieval.milvus_collection import MilvusAddress
from serving.retrieval.parts import is_gone
from serving.retrieval.places import IndexAddress, read_index_manifest

_DEFAULTS = IndexSettings()


def build_index(
    paths: Sequence[Path],
    out: IndexAddress,
    settings: IndexSettings = _DEFAULTS,
    *,
    progress: Progress | None = None,
    shard_size: int | None = None,
    engine: Engine = work_here,
) -> dict[str, Any]:
    """Indexes files and folders into the folder `out`, whole or not at all, or into a collection, and returns its
    manifest. The `engine` changes how long that takes, never the index.

    The same files and settings give the same index; a build that was killed goes on from its last whole shard. What has
    not changed since the index that stands at `out` was built with these settings is taken from there. Raises DataError
    for a broken row, an id that is used twice, or no passage at all; ArtifactError when `out` exists and is not an
    index, and when the model cannot be read; ConfigError while another process builds there.
    """
    build = _start_build(out, settings, progress, shard_size)
    build.engine = engine
    build.old = build.old if build.knows_fields else {}
    files, left = find_files(paths, build.folder)
    digests = _take_digests(files, paths, left)
    if not digests:
        hint = f"read are {', '.join((*DOCUMENTS, *ROWS))}"
        raise DataError("nothing there can be read", where=", ".join(map(str, paths)), hint=hint)
    return build.write(build.open_parts(files, digests, paths), left)


def update_index(
    paths: Sequence[Path],
    out: IndexAddress,
    *,
    remove: Sequence[str] = (),
    sync: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Adds files and folders to an index, or reads those anew that have changed, as `build_index` would. What the index
    holds already under another name is left out. Files that `remove` names, or all below a folder's name, are removed;
    with `sync`, also those that are gone from the folders. Returns the manifest, which has the version that it had if
    nothing has changed. Raises DataError for a name that no file has."""
    build = _open_build(out, progress)
    files, left = find_files(paths, build.folder)
    digests = _take_digests(files, paths, left)
    folders = [path.absolute() for path in paths]
    if sync:
        for name, part in list(build.old.items()):
            if is_gone(part.path) and any(map(Path(part.path).is_relative_to, folders)):
                del build.old[name]
    for name in _match_names(remove, {**build.old, **digests}, out):
        build.old.pop(name, None)
        digests.pop(name, None)
    known = {part.sha256: name for name, part in build.old.items()}
    for name, digest in list(digests.items()):
        other = known.get(digest, name)
        if other not in files:
            left[name] = f"it is in the index as {other}"
            del digests[name]
    return build.write(build.old | build.open_parts(files, digests, paths), left, folders)


def _take_digests(files: Mapping[str, Path], given: Sequence[Path], left: dict[str, str]) -> dict[str, str]:
    """The digest of each file; what cannot be read any more goes into `left`. Raises DataError for one of `given`."""
    digests = {}
    for name, path in files.items():
        try:
            digests[name] = digest_source(path)
        except OSError as error:
            reason = f"cannot be read: {error.strerror}"
            if path in given:
                raise DataError(reason, where=str(path)) from error
            left[name] = reason
    return digests


def _match_names(names: Sequence[str], files: Collection[str], out: IndexAddress) -> set[str]:
    """The files that have these names, and those below the folders that have. Raises DataError for a name that matches
    none."""
    matched = set()
    for name in names:
        found = [each for each in files if each == name or each.startswith(f"{name.rstrip('/')}/")]
        if not found:
            hint = f"`revelator index info {out}` lists its files"
            if meant := [each for each in files if name.endswith(f"/{each}")]:
                hint = f"files are named from the folder that was indexed: {max(meant, key=len)}"
            raise DataError(f"{name} is not in the index", where=str(out), hint=hint)
        matched.update(found)
    return matched


def _open_build(out: IndexAddress, progress: Progress | None) -> Build:
    """A build over the index at `out`, as it was built before."""
    verify = isinstance(out, Path)  # a change of a collection that was cut short goes on
    build = _start_build(out, read_settings(read_index_manifest(out, verify=verify)), progress)
    if not build.old:
        hint = "build the index anew"
        raise ArtifactError("it cannot be changed: another model or version built it", where=str(out), hint=hint)
    return build


def _start_build(
    out: IndexAddress, settings: IndexSettings, progress: Progress | None, shard_size: int | None = None
) -> Build:
    if isinstance(out, Path):
        return FolderBuild(out, settings, progress, shard_size)
    from serving.retrieval.milvus_build import MilvusBuild

    return MilvusBuild(MilvusAddress.read(out), settings, progress)
