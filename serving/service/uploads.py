"""Documents that people add from the page.

    GET  /api/documents              how many are searched, the names of the first, and the kinds of files that are read
    POST /api/documents?name=NAME    the file is the body; gives its name, its passages and the index's new version

A file is kept in `uploads` of the home folder and added to the index that is served, by a process of its own: a broken
or hostile file takes neither time nor memory of the service. The next question searches the new version.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from revelator.errors import DataError, InvalidRequest
from revelator.files import write_bytes
from serving.retrieval.corpora import ROWS
from serving.retrieval.documents import DOCUMENTS
from serving.retrieval.retriever import LocalRetriever

FOLDER = "uploads"
KINDS = tuple(kind for kind in (*DOCUMENTS, *ROWS) if kind != ".parquet")
NAME = re.compile(r"[^\x00-\x1f/\\\x7f]{1,200}")
SECONDS = 600  # of a document's reading and embedding


class Uploads:
    """Adds documents to the index of a retriever, one at a time."""

    def __init__(self, home: Path, retriever: LocalRetriever) -> None:
        self._folder = home / FOLDER
        self._retriever = retriever
        self._adding = asyncio.Lock()

    def make_routes(self) -> list[BaseRoute]:
        return [Route("/api/documents", self.show), Route("/api/documents", self.take, methods=["POST"])]

    async def show(self, request: Request) -> Response:
        held = self._retriever.index.describe()  # what everybody may read
        return JSONResponse({"count": held["documents"], "documents": held["first_documents"], "kinds": KINDS})

    async def take(self, request: Request) -> Response:
        """Raises InvalidRequest for a name that no document may have, and DataError for one that cannot be read; the
        index then stays as it was, and the file is gone."""
        name = check_name(request.query_params.get("name", ""))
        body = await request.body()
        if not body:
            raise InvalidRequest("the file is empty", where="name", hint="add a file that holds text")
        path = self._folder / name
        async with self._adding:
            for corpus in self._retriever.index.manifest["corpora"]:
                if corpus["name"] == name and Path(corpus["path"]) != path:
                    hint = "give the file another name"
                    raise InvalidRequest("another document of this name is searched", where="name", hint=hint)
            return JSONResponse(await self._add(path, body))

    async def _add(self, path: Path, body: bytes) -> dict[str, Any]:
        before = await asyncio.to_thread(_replace, path, body)
        try:
            added = await self._index(path)
        except BaseException:
            await asyncio.to_thread(_replace, path, before)
            raise
        await self._retriever.follow()
        return {"name": path.name, **added}

    async def _index(self, path: Path) -> dict[str, Any]:
        """What `revelator index update` says of the file. Raises DataError with its reason."""
        command = [sys.executable, "-m", "revelator", "index", "update", self._retriever.index.where, str(path)]
        process = await asyncio.create_subprocess_exec(
            *command, "--json", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        try:
            async with asyncio.timeout(SECONDS):
                output, _ = await process.communicate()
        except TimeoutError as error:
            hint = f"add it on the service's machine: revelator index update DIR {path.name}"
            raise DataError(f"reading it took more than {SECONDS} s", where=path.name, hint=hint) from error
        finally:
            if process.returncode is None:
                process.kill()
        return _read_reply(output, path.name)


def check_name(name: str) -> str:
    """A file's own name, without folders."""
    if not NAME.fullmatch(name) or name.startswith("."):
        raise InvalidRequest(f"not a file's name: {name!r:.80}", where="name", hint="name it as handbook.md")
    if not name.lower().endswith(KINDS):
        raise InvalidRequest(f"no kind of document: {name!r:.80}", where="name", hint=f"read are {', '.join(KINDS)}")
    return name


def _replace(path: Path, body: bytes | None) -> bytes | None:
    """Writes a file, or removes it, and returns what it held."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    before = path.read_bytes() if path.exists() else None
    if body is None:
        path.unlink(missing_ok=True)
    else:
        write_bytes(path, body, 0o600)
    return before


def _read_reply(output: bytes, name: str) -> dict[str, Any]:
    try:
        said = json.loads(output)
    except ValueError:
        hint = "the file may be damaged; `revelator index update` on the service's machine says more"
        raise DataError("the document cannot be read", where=name, hint=hint) from None
    if "error" in said:
        raise DataError(said["message"], where=name, hint=said.get("hint"))
    if reason := said["unread"].get(name):
        raise DataError(reason, where=name)
    [passages] = [corpus["passages"] for corpus in said["corpora"] if corpus["name"] == name]
    return {"passages": passages, "version": said["version"]}
