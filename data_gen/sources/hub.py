"""Rows of a data set on the Hugging Face Hub, or of a folder in its layout, streamed through `datasets`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from data_gen.sources.files import unreadable
from revelator.errors import DataError

HUB = re.compile(r"hf://datasets/[^/?]+/[^/?]+(?:\?.*)?")


def is_dataset(place: str) -> bool:
    """Whether `place` is `hf://datasets/OWNER/NAME`, or a folder; `?split=…&subset=…` may follow either."""
    return HUB.fullmatch(place) is not None or Path(place.partition("?")[0]).is_dir()


def hub_rows(place: str) -> Iterator[tuple[int, Any]]:
    """Number and value of each row of one split (`train` unless named). Raises DataError if it cannot be read."""
    name, _, query = place.partition("?")  # of the Hub with `hf://`: no folder of that name is read in its stead
    wanted = parse_qs(query)
    if unknown := sorted(set(wanted) - {"split", "subset"}):
        raise DataError(f"unknown {', '.join(unknown)}", where=place, hint="write NAME?split=train&subset=default")
    if twice := [name for name, values in wanted.items() if len(values) > 1]:
        raise DataError(f"{twice[0]} is given twice", where=place, hint="make each a source of its own")
    from datasets import load_dataset

    logging.getLogger("datasets").setLevel(logging.CRITICAL)  # it logs what it then raises
    [subset], [split] = wanted.get("subset", [None]), wanted.get("split", ["train"])
    try:
        yield from enumerate(load_dataset(name, subset, split=split, streaming=True), start=1)
    except Exception as error:  # datasets, huggingface_hub, httpx and pyarrow each raise their own
        raise unreadable(place, error) from error
