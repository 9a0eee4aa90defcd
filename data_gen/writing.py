"""What keeps a command from writing its output, as one clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from revelator.errors import DataError


@contextmanager
def writing(out: Path) -> Iterator[None]:
    """Turns whatever keeps files from being written to `out` into one clear error."""
    try:
        yield
    except OSError as error:
        if file := next((place for place in out.parents if place.is_file()), None):
            reason, hint = f"{file} is a file and stands in the way", "name another folder"
        else:
            reason = error.strerror or str(error)
            hint = "free space, or name another folder; what stood there before is unchanged"
        raise DataError(f"cannot be written: {reason}", where=str(out), hint=hint) from error
