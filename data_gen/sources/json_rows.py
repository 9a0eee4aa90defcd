"""JSON as it streams: lines, one array, or the array that is a member of one object; never more than one row of it."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import IO, Any

from revelator.errors import DataError

CHUNK = 1 << 16
MEMBER_WITHIN = 1 << 20  # characters in which the named member of an object has to begin
KEY = re.compile(r'[\s,]*("(?:[^"\\]|\\.)*")\s*:\s*')
DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Malformed:
    """A line that holds no row, and why; `is_row` where it is one but for bytes that are not UTF-8."""

    reason: str
    is_row: bool = False


def not_utf8(text: str) -> str | None:
    """Why `text`, which was read with `surrogateescape`, is not UTF-8; None if it is."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"not UTF-8 text: byte 0x{ord(text[error.start]) & 0xFF:02x} at character {error.start + 1}"
    return None


def json_rows(file: IO[str], path: str, member: str = "") -> Iterator[tuple[int, Any]]:
    """Line and value of each row. Raises DataError when an array ends before its bracket."""
    line, start = 1, file.read(1)
    while start.isspace():
        line += start == "\n"
        start = file.read(1)
    if start == "[":
        rest = yield from _array("", file, path, line)
        if (rest + file.read(CHUNK)).strip():
            raise DataError("more follows the end of the JSON array", where=path, hint="give one array, or lines")
        return
    text, offset = _member(start, file, member) if start == "{" and member else (start, None)
    if offset is not None:
        yield from _array(text[offset:], file, path, line + text[:offset].count("\n"))
        return
    for number, row in enumerate(_lines(text, file), start=line):
        if row.strip():
            yield number, _decoded(row)


def _lines(read: str, file: IO[str]) -> Iterator[str]:
    """The lines of what has been read, then those that follow."""
    *whole, begun = read.split("\n")
    yield from whole
    yield begun + file.readline()
    yield from file


def _decoded(text: str) -> Any:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is JSON, and no value of Python's
        return Malformed(not_utf8(text) or f"not JSON: {error}")
    reason = not_utf8(text)
    return Malformed(reason, is_row=True) if reason else row


def _member(text: str, file: IO[str], name: str) -> tuple[str, int | None]:
    """What has been read, and where in it the elements of the array `name` begin; None if the object has none."""
    place = 1
    while True:
        key = KEY.match(text, place)
        if key and json.loads(key[1]) == name and text[key.end() : key.end() + 1] == "[":
            return text, key.end() + 1
        try:
            end = DECODER.raw_decode(text, key.end())[1] if key else len(text)
        except json.JSONDecodeError:
            end = len(text)
        if end < len(text):
            place = end
        elif re.compile(r"\s*}").match(text, place) or len(text) > MEMBER_WITHIN:
            return text, None
        elif more := file.read(CHUNK):
            text += more
        else:
            return text, None


def _array(text: str, file: IO[str], path: str, line: int) -> Generator[tuple[int, Any], None, str]:
    """Elements of an array whose bracket has been read, and what was read beyond its end; `line` is where an element
    begins."""
    while True:
        stripped = text.lstrip(" \t\r\n,")
        line += text[: len(text) - len(stripped)].count("\n")
        text = stripped
        if text.startswith("]"):
            return text[1:]
        try:
            value, end = DECODER.raw_decode(text) if text else (None, 0)
        except json.JSONDecodeError:
            end = 0
        except (ValueError, RecursionError) as error:
            raise DataError(f"no value: {error}", where=f"{path}, line {line}", hint="mend or remove it") from error
        if end:
            reason = not_utf8(text[:end])
            yield line, Malformed(reason, is_row=True) if reason else value
            line += text[:end].count("\n")
            text = text[end:]
        elif more := file.read(max(CHUNK, len(text))):
            text += more
        else:
            raise DataError(
                "the JSON array is cut off or malformed", where=f"{path}, line {line}", hint="fetch it again"
            )
