"""Where indexes stand: in a folder, or at the address of a collection of Milvus; and how each is opened there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from revelator.errors import ConfigError
from revelator.files import sha256_file
from revelator.folders import MANIFEST, digest_manifest
from serving.retrieval.engine import SearchIndex
from serving.retrieval.index import Index
from serving.retrieval.index_folder import INDEX
from serving.retrieval.milvus_collection import MilvusAddress, MilvusCollection


def read_address(text: str) -> Path | str:
    """An address, or the path of a folder. Raises ConfigError for what begins as an address and is none."""
    return str(MilvusAddress.read(text)) if text.startswith(("milvus:", "milvus+")) else Path(text)


def _read_field(value: Any) -> Path | str:
    if not isinstance(value, str | Path):
        raise PydanticCustomError("path_type", "Input is not a valid path")
    try:
        return read_address(value) if isinstance(value, str) else value
    except ConfigError as error:
        raise ValueError(error.message) from error


IndexAddress = Annotated[Path | str, BeforeValidator(_read_field)]
"""A folder, or the address of a collection."""


def resolve_address(address: IndexAddress, base: Path = Path()) -> IndexAddress:
    """The same, whatever the current folder is; a relative folder starts at `base`. Links are followed when they are
    read: they may lead elsewhere by then."""
    return (base / address).absolute() if isinstance(address, Path) else str(MilvusAddress.read(address, base))


def open_index(address: IndexAddress, cards: Sequence[int] = ()) -> SearchIndex:
    """Opens what `build_index` made; `cards` hold the vectors of a folder. Raises what `Index.open` and
    `MilvusIndex.open` do."""
    if isinstance(address, Path):
        return Index.open(address, cards)
    from serving.retrieval.milvus_index import MilvusIndex

    return MilvusIndex.open(MilvusAddress.read(address))


def read_index_manifest(address: IndexAddress, *, verify: bool = False) -> dict[str, Any]:
    """What an index holds and how it was built; with `verify` it is compared with that. Raises ArtifactError."""
    if isinstance(address, Path):
        return INDEX.read_manifest(address, verify=verify)
    collection = MilvusCollection(MilvusAddress.read(address))
    head = collection.read_head()
    manifest = collection.require_manifest(head)
    if verify:
        collection.require_whole(head, manifest)
    return manifest


def identify_index(address: IndexAddress) -> dict[str, Any]:
    """Where an index stands, a digest of what it holds, and how many passages these are."""
    manifest = read_index_manifest(address)
    digest = sha256_file(address / MANIFEST) if isinstance(address, Path) else digest_manifest(manifest)
    return {"folder": str(address), "digest": digest, "count": manifest["count"]}
