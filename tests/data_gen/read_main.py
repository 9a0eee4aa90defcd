"""Reads sources as a process of its own: `FORMAT PLACE…`, a line of JSON (place and row) for each, at once."""

from __future__ import annotations

import json
import sys

from data_gen.questions import AnnotatedQuestion
from data_gen.sources.formats import READERS
from data_gen.sources.rows import ReadResult
from revelator.errors import DataError


def told(outcome: ReadResult) -> dict[str, object]:
    return outcome.to_json() if isinstance(outcome, AnnotatedQuestion) else dict(vars(outcome))


if __name__ == "__main__":
    for place in sys.argv[2:]:
        try:
            for outcome in READERS[sys.argv[1]](place):
                print(json.dumps([place, told(outcome)]), flush=True)
        except DataError as error:
            print(json.dumps([place, {"error": error.message, "where": error.where, "hint": error.hint}]), flush=True)
