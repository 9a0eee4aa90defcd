"""Fetch published data sets into the folder that configurations call `${REVELATOR_DATA}`.

`published.yaml` says where each set is published and what is made of its files. A set is a folder, complete when its
manifest exists. Its published files are downloaded beside it, into `.NAME.building`, so that a download that was cut
off or killed continues.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import httpx
from pydantic import Field, TypeAdapter

from data_gen.fetch_rows import LARGEST, MAKERS, open_members
from data_gen.sources.rows import FAULTS
from revelator.config import Strict, read_table
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import lock_work_folder, sha256_file, stage_folder, write_bytes, write_json
from revelator.folders import FolderKind

PUBLISHED = FolderKind("a fetched data set", "revelator-published-1", "revelator data fetch NAME")
HELD_OUT = "held_out.sha256"
PARTS = "*-*"  # of a set's working folder: FILE is `part-FILE`, and `state-FILE.json` says what is known of it
REDIRECTS = 8
TIMEOUT = 60.0  # seconds for a connection, and for each next piece
Progress = Callable[[str, int, int | None], object]  # a file, bytes that are here, bytes that it has if that is known
Count = Annotated[int, Field(ge=1)]


class Download(Strict):
    """A published file: `size` in bytes and `sha256` where they are known."""

    url: str
    size: Count | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None

    def describe(self) -> str:
        """`30,439,728 bytes, sha256 15fa63794d18…`"""
        size = f"{self.size:,} bytes" if self.size else "size not known"
        return f"{size}, {f'sha256 {self.sha256[:12]}…' if self.sha256 else 'sha256 not known'}"


class MadeFile(Strict):
    """A file made of the downloads `of`; see the head of `published.yaml` for each field."""

    of: tuple[str, ...] = Field(min_length=1)
    member: str = ""
    make: Literal[
        "rows", "answer_lists", "articles", "decompositions", "introductions", "pairs", "paragraphs", "triples"
    ] = "rows"
    skip: Annotated[int, Field(ge=0)] = 0
    rows: Count | None = None
    fields: tuple[str, ...] = ()


class PublishedSet(Strict):
    """A published data set: its downloads, and what is made of them, by the names of the files."""

    title: str
    licence: str
    downloads: dict[str, Download]
    files: dict[str, MadeFile]

    @property
    def size(self) -> int | None:
        """Bytes of all downloads; None where one is not known."""
        sizes = [download.size for download in self.downloads.values()]
        return None if None in sizes else sum(filter(None, sizes))


@cache
def load_published() -> dict[str, PublishedSet]:
    """Reads the published sets by name."""
    return TypeAdapter(dict[str, PublishedSet]).validate_python(read_table("data_gen", "published.yaml"))


def find_set(name: str) -> PublishedSet:
    """Finds a set. Raises ConfigError for an unknown name."""
    if found := load_published().get(name):
        return found
    raise ConfigError(f"there is no published set {name!r}", hint=f"one of {', '.join(load_published())}")


def is_fetched(published: PublishedSet, folder: Path) -> bool:
    """Whether the set is in the folder, made as `published` says."""
    return PUBLISHED.find_manifest(folder).get("recipe") == published.model_dump(mode="json")


def fetch(name: str, published: PublishedSet, out: Path, mirror: str | None, show: Progress) -> dict[str, Any]:
    """Makes the folder `out`/`name` of a set, unless it is there whole, and an empty `held_out.sha256` beside it if
    there is none.

    Returns the manifest. `mirror` is the address or the folder that has the published files by their names. Raises
    DataError for what cannot be fetched or read, ArtifactError for a file that is not the one that was published.
    """
    folder = out / name
    manifest = PUBLISHED.check_place(folder)
    if is_fetched(published, folder):
        with suppress(ArtifactError):  # a file is missing or has changed: the set is made again
            return PUBLISHED.read_manifest(folder, verify=True)
    recorded = {file: about["sha256"] for file, about in manifest.get("downloads", {}).items()}
    addresses = {
        file: f"{mirror.rstrip('/')}/{file}" if mirror else download.url
        for file, download in published.downloads.items()
    }
    with lock_work_folder(folder, addresses, PARTS, f"fetching {name}") as work:
        places, digests = {}, {}
        for file, download in published.downloads.items():
            known = download.model_copy(update={"sha256": download.sha256 or recorded.get(file)})
            if mirror and "://" not in mirror:
                places[file] = Path(mirror) / file
                digests[file] = _check_file(places[file], known, published)
            else:
                places[file] = work / f"part-{file}"
                with _explain_failures(addresses[file], published):
                    digests[file] = _download(addresses[file], places[file], work / f"state-{file}.json", known, show)
        with stage_folder(folder) as stage:
            rows = {target: _write_file(stage / target, made, places, work) for target, made in published.files.items()}
            about = {"set": name, "title": published.title, "licence": published.licence, "rows": rows}
            about["downloads"] = {file: {"url": addresses[file], "sha256": digests[file]} for file in places}
            manifest = PUBLISHED.write_manifest(stage, about | {"recipe": published.model_dump(mode="json")})
    if not (out / HELD_OUT).exists():
        write_bytes(out / HELD_OUT, b"")
    return manifest


def _list_by_hand(published: PublishedSet) -> str:
    """Says which files to fetch by hand, where to put them, and how the command then finds them."""
    files = [f"\n    {download.url}\n      as downloads/{file}" for file, download in published.downloads.items()]
    return f"save the published files by other means, and add --from downloads to the command:{''.join(files)}"


@contextmanager
def _explain_failures(address: str, published: PublishedSet) -> Iterator[None]:
    """Turns what keeps an address from being read into one error that says what to fetch by hand."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise DataError(f"cannot be reached: {reason}", where=address, hint=_list_by_hand(published)) from error


def _download(address: str, part: Path, state_file: Path, known: Download, show: Progress) -> str:
    """Downloads a file, or the rest of it, and returns its sha256. Raises httpx.HTTPError, DataError for a file that is
    too large or that a cut connection left short, ArtifactError for another file than the published one."""
    state = _read_state(state_file) if part.is_file() else {}
    if part.is_file() and (digest := sha256_file(part)) == (known.sha256 or state.get("sha256")):
        return digest
    file = part.name.removeprefix("part-")
    with _open_client(address) as client, _ask(client, address, part, state) as (response, start):
        validator = _find_validator(response)
        length = response.headers.get("content-length", "")
        total = start + int(length) if length.isdecimal() else known.size
        limit = known.size or LARGEST
        _check_size(total or 0, limit, address)
        with part.open("ab" if start else "wb") as target:
            write_json(state_file, {"validator": validator})  # once the bytes of another version are gone
            received = start
            try:
                for chunk in response.iter_raw():  # as it comes: what was received before a cut is kept
                    received += len(chunk)
                    _check_size(received, limit, address)
                    target.write(chunk)
                    show(file, received, total)
            except httpx.TransportError as error:
                raise _make_cut_error(address, received, total, validator) from error
        if known.size and received < known.size and not length:  # a connection that just ends
            raise _make_cut_error(address, received, known.size, validator)
    digest = _check_file(part, known, address=address)
    write_json(state_file, {"validator": validator, "sha256": digest})
    return digest


def _read_state(file: Path) -> dict[str, str]:
    try:
        state = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _find_validator(response: httpx.Response) -> str:
    """What says that a file has not changed: a strong ETag, or the time of its last change; "" where there is none."""
    tag = response.headers.get("etag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("last-modified", "")


def _open_client(address: str) -> httpx.Client:
    """A client that takes bytes as they are, and follows no redirect by itself; a proxy of the environment is for other
    machines."""
    headers = {"Accept-Encoding": "identity", "User-Agent": "revelator"}
    return httpx.Client(timeout=TIMEOUT, headers=headers, trust_env=not _is_loopback(httpx.URL(address).host))


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def _ask(client: httpx.Client, address: str, part: Path, state: dict[str, str]) -> Iterator[tuple[httpx.Response, int]]:
    """Opens the address; yields the response, and the number of bytes in `part` that it continues."""
    start = part.stat().st_size if state.get("validator") else 0
    headers = {"Range": f"bytes={start}-", "If-Range": state["validator"]} if start else {}
    response = _follow(client, address, headers)
    if start:
        is_rest = response.headers.get("content-range", "").startswith(f"bytes {start}-")
        is_same = _find_validator(response) in ("", state["validator"])
        if response.status_code == 416 or (response.status_code == 206 and not (is_rest and is_same)):
            response.close()
            response = _follow(client, address, {})
    try:
        response.raise_for_status()
        yield response, start if response.status_code == 206 else 0
    finally:
        response.close()


def _follow(client: httpx.Client, address: str, headers: dict[str, str]) -> httpx.Response:
    """Opens the address, and those to which it redirects: https alone, or http between addresses of this machine.
    Raises DataError for another one."""
    url = httpx.URL(address)
    is_local = url.scheme == "http" and _is_loopback(url.host)
    for _ in range(REDIRECTS):
        response = client.send(client.build_request("GET", url, headers=headers), stream=True)
        if not response.has_redirect_location:
            return response
        response.close()
        url = url.join(response.headers["location"])
        if url.scheme != "https" and not (is_local and url.scheme == "http" and _is_loopback(url.host)):
            raise DataError(f"redirects to {url}, which is not https", where=address, hint="name a mirror with --from")
    raise DataError(f"redirects more than {REDIRECTS} times", where=address, hint="name a mirror with --from")


def _check_size(size: int, limit: int, address: str) -> None:
    if size > limit:
        hint = "name a mirror with --from, or fetch the published file by hand"
        raise DataError(f"sends more than the {limit:,} bytes that were expected", where=address, hint=hint)


def _make_cut_error(address: str, received: int, total: int | None, validator: str) -> DataError:
    of = f" of {total:,}" if total else ""
    goes_on = (
        "continues there" if validator else "begins anew, because the server does not say whether the file changed"
    )
    hint = f"run the same command again: it {goes_on}"
    return DataError(f"the connection was cut after {received:,}{of} bytes", where=address, hint=hint)


def _check_file(file: Path, known: Download, published: PublishedSet | None = None, address: str = "") -> str:
    """Returns the sha256 of a published file. Raises DataError where there is none, ArtifactError for another file,
    which is removed if it came from an address."""
    if not file.is_file():
        raise DataError("there is no such file", where=str(file), hint=_list_by_hand(published) if published else None)
    digest, size = sha256_file(file), file.stat().st_size
    if known.sha256 in (None, digest) and known.size in (None, size):
        return digest
    if address:
        file.unlink()
    wanted = f"expected {known.sha256 or 'any'}" + (f" ({known.size:,} bytes)" if known.size else "")
    reason = f"is not the file that was published: sha256 {digest} ({size:,} bytes), {wanted}"
    raise ArtifactError(reason, where=address or str(file), hint="fetch it again, or from another place with --from")


def _write_file(target: Path, made: MadeFile, places: dict[str, Path], work: Path) -> int:
    """Writes what is made of the downloads, gzipped; the number of rows. Raises DataError where they have another
    form."""
    count, end = 0, made.rows and made.skip + made.rows
    # no name and no time: the same bytes each time
    with target.open("wb") as file, gzip.GzipFile("", "wb", 6, file, 0) as packed:
        for line in islice(_make_lines(made, places, work), made.skip, end):
            packed.write(f"{line}\n".encode())
            count += 1
    if not count:
        raise DataError("no row comes of the published files", where=", ".join(made.of), hint=_say_again(work))
    return count


def _make_lines(made: MadeFile, places: dict[str, Path], work: Path) -> Iterator[str]:
    for file in made.of:
        try:
            for member in open_members(places[file], made.member, work):
                for row in MAKERS[made.make](member):
                    chosen = {name: row[name] for name in made.fields} if made.fields else row
                    yield chosen if isinstance(chosen, str) else json.dumps(chosen, ensure_ascii=False)
        except (*FAULTS, SyntaxError, csv.Error) as error:
            reason = error.message if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
            message = f"not in the form in which it was published: {reason:.200}"
            raise DataError(message, where=file, hint=_say_again(work)) from error


def _say_again(work: Path) -> str:
    return f"remove {work} to download it again, or name another place with --from"
