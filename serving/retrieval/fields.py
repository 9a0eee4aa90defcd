"""What is known of documents and rows beside their text: the fields that filters compare, and who may read them.

A document's fields are, the later in place of the earlier: its path, type and page; the dates of a PDF or an e-mail;
the front matter of Markdown and text; the file beside it, `report.pdf.yaml` or `.yml` of `report.pdf`. A row's are its
own columns, and those of the file beside the whole. `allowed` lists the groups that may read it; without it everybody
may, and `*` stands for everybody. What cannot be read as a list of groups keeps the document out: it is never open by
mistake.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from os.path import lexists
from pathlib import Path
from typing import Any

import yaml

from revelator.errors import DataError
from revelator.files import sha256_file, sha256_text
from revelator.trace import Passage
from serving.protocols import GROUP
from serving.retrieval.cutting import FRONT_MATTER, SITE
from serving.retrieval.cutting import READERS as ALLOWED
from serving.retrieval.documents import MARKDOWN, TEXT, limit_reading, read_bytes
from serving.retrieval.filters import Scalar, Value, fold_name

EVERYBODY = "*"
SIDECARS = (".yaml", ".yml")
SIDECAR_BYTES = 100_000
LONGEST, MOST = 200, 100  # characters of a value, and values of a list; what is longer is no field
NAMES = 200  # fields of one document
HEAD = 5_000  # characters in which a front matter that nothing closes is looked for
SAY_WHO = f'`{ALLOWED}` lists the groups that may read it, such as [hr, board]; ["{EVERYBODY}"] is everybody'
Fields = Mapping[str, Value]


def find_sidecars(path: Path) -> list[Path]:
    """The file beside a document that says what is known of it; two are a fault."""
    sidecars = (path.with_name(path.name + ending) for ending in SIDECARS)
    return [sidecar for sidecar in sidecars if lexists(sidecar)]


def digest_source(path: Path) -> str:
    """A digest of a file, and of the one beside it: another one once either has changed. Raises OSError."""
    own, *beside = map(sha256_file, (path, *find_sidecars(path)))
    return sha256_text("".join((own, *beside))) if beside else own


def derive_fields(name: str, passage: Passage) -> Fields:
    """What the name of a file and the place of a passage say."""
    stem, _, kind = name.removesuffix(".gz").rpartition(".")
    fields: dict[str, Value] = {"path": name}
    if stem:
        fields["type"] = kind.lower()
    if passage.page:
        fields["page"] = int(passage.page)
    return fields


def read_fields(path: Path) -> Fields:
    """What a document, or the file beside it, says of it. Raises DataError for one whose `allowed` cannot be read."""
    with limit_reading(path):
        return {**_read_own_fields(path), **_read_sidecar(path)}


def read_row_fields(row: Mapping[str, Any], where: str, leave_out: Iterable[str] = ()) -> Fields:
    """The fields of a row or of a document: its plain values and lists of them. Raises DataError for groups that are
    none, and for two names of one field."""
    fields: dict[str, Value] = {}
    for given, value in row.items():
        if given in leave_out or not (name := fold_name(str(given))):
            continue
        if name in fields:
            raise DataError(f"two fields are called {name!r}", where=where, hint="rename or remove one")
        if name == ALLOWED:
            fields[name] = list(_read_groups(value, where))
        elif (read := _read_plain(value)) is not None and len(fields) < NAMES:
            fields[name] = read
    return fields


def _read_groups(value: Any, where: str) -> list[str]:
    """The groups of `allowed`, a list of names or a text that joins them; none where it is empty: then nobody may."""
    names = re.split("[,;]", value) if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DataError(f"`{ALLOWED}` is no list of groups", where=where, hint=SAY_WHO)
    groups = sorted({name.strip() for name in names if name.strip()})
    if wrong := [name for name in groups if name != EVERYBODY and not re.fullmatch(GROUP, name)]:
        raise DataError(f"`{ALLOWED}` names no group: {wrong[0]!r:.60}", where=where, hint=SAY_WHO)
    return groups


def _read_plain(value: Any) -> Value | None:
    """A plain value, or a list of them; None for what is nested, empty or long."""
    if isinstance(value, date):  # of parquet
        return value.isoformat()
    if not isinstance(value, list):
        return value if _is_plain(value) else None
    kept: list[Scalar] = [one for one in value if _is_plain(one)]
    return kept if kept and len(kept) == len(value) <= MOST else None


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value.strip()) <= LONGEST
    return isinstance(value, bool | int | float) and len(str(value)) <= LONGEST and value == value  # not NaN


def _read_own_fields(path: Path) -> Fields:
    kind = path.suffix.lower()
    if kind in (*MARKDOWN, *TEXT):
        return _read_front_matter(read_bytes(path).decode("utf-8-sig", "replace"), str(path))
    if kind == ".pdf":
        from serving.retrieval.pdf import read_dates  # half a second to import

        return read_dates(read_bytes(path))
    if kind == ".eml":
        return _read_sent(read_bytes(path))
    return {}


def _read_sent(data: bytes) -> Fields:
    """When an e-mail was sent; nothing where its head cannot be read."""
    try:
        found = message_from_bytes(data, _class=EmailMessage, policy=default)["Date"].datetime
    except Exception:  # the library raises whatever it likes about a damaged head
        return {}
    return {"date": found.isoformat(timespec="seconds")} if found else {}


def _read_front_matter(text: str, where: str) -> Fields:
    """Its values but those that set up a site. Raises DataError for one that is no YAML and yet says who may read."""
    matter = FRONT_MATTER.match(text)
    values = _load(matter[1]) if matter else None
    if values is None:
        head = matter[1] if matter else text.lstrip()[:HEAD] if text.lstrip().startswith(("---", "+++")) else ""
        if re.search(rf"^\W*{ALLOWED}\W*[:=]", head, re.MULTILINE | re.IGNORECASE):
            message = f"its head names `{ALLOWED}`, and is no YAML between two lines of `---` at its very beginning"
            raise DataError(message, where=where, hint=SAY_WHO)
        return {}
    return read_row_fields(values, where, [name for name in values if SITE.fullmatch(name)])


def _read_sidecar(path: Path) -> Fields:
    sidecars = find_sidecars(path)
    if not sidecars:
        return {}
    if len(sidecars) > 1:
        names = " and ".join(sidecar.name for sidecar in sidecars)
        raise DataError(f"{names} are both beside it", where=str(path), hint="keep one of them")
    [sidecar] = sidecars
    if sidecar.is_symlink():
        raise DataError(f"{sidecar.name} beside it is a link", where=str(path), hint="put the file itself there")
    try:
        with sidecar.open("rb") as file:
            data = file.read(SIDECAR_BYTES + 1)
    except OSError as error:
        raise DataError(f"{sidecar.name} beside it cannot be read: {error.strerror}", where=str(path)) from error
    values = _load(data.decode("utf-8-sig", "replace")) if len(data) <= SIDECAR_BYTES else None
    if values is None:
        message = f"{sidecar.name} beside it holds no names and values of at most {SIDECAR_BYTES:,} bytes"
        raise DataError(message, where=str(path), hint="write it as YAML: `year: 2024`, a line each")
    return read_row_fields(values, str(sidecar))


def _load(text: str) -> dict[str, Any] | None:
    """YAML of names and values, whose plain values are texts; None where it is none."""
    try:
        values = yaml.load(text, Loader=_BaseLoader)
    except (yaml.YAMLError, RecursionError):
        return None
    is_named = isinstance(values, dict) and all(isinstance(name, str) for name in values)
    return values if is_named else None


class _BaseLoader(yaml.BaseLoader):
    """Makes texts, lists and dictionaries alone; a name that stands twice is a fault, and not the last one's value."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise yaml.constructor.ConstructorError(problem="a name stands twice", problem_mark=node.start_mark)
        return made
