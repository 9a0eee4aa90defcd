"""`revelator data build CONFIG --out OUT` as a process of its own, to be killed."""

from __future__ import annotations

import sys

from revelator.cli import revelator

if __name__ == "__main__":
    revelator(["data", "build", sys.argv[1], "--out", sys.argv[2]])
