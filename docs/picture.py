"""Draws how a plan was answered, as `docs/plan-light.svg` and `docs/plan-dark.svg`, from a trace of the demo:

revelator ask --home runs/demo --json "How many …?" >trace.json && python docs/picture.py trace.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import shorten

import matplotlib
from matplotlib.figure import Figure

from revelator.trace import Node, Trace

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "revelator"  # the same picture has the same bytes
THEMES = {"light": ("#1b1f24", "#0b6bcb"), "dark": ("#e6edf3", "#6cb6ff")}
SHOWN = ("route", "translate", "atomic", "merge")
ROW, WIDTH = 0.3, 11.0  # inches


def draw(trace: Trace, ink: str, accent: str, path: Path) -> None:
    """One line a step: a bar for when it ran, what it asked, what it answered."""
    nodes = [node for node in trace.nodes if node.kind in SHOWN]
    height = ROW * (len(nodes) + 3)
    figure = Figure(figsize=(WIDTH, height))
    whole = max(trace.wall_ms, 1.0)
    _write(figure, 0.0, 1 - ROW / height, shorten(trace.question, 165), ink, weight="bold")
    _write(figure, 0.0, 1 - 2 * ROW / height, shorten(f"plan: {trace.plan}", 165), accent)
    for row, node in enumerate(nodes, start=3):
        y = 1 - row * ROW / height
        begin, length = node.started_ms / whole, max((node.ended_ms - node.started_ms) / whole, 0.004)
        bar = figure.add_axes((0.0, y, 0.15, 0.6 * ROW / height))
        bar.barh([0], [length], left=[begin], color=accent)
        bar.set_xlim(0, 1)
        bar.axis("off")
        _write(figure, 0.17, y, _line(node), ink)
    figure.savefig(path, transparent=True, metadata={"Date": None})


def _line(node: Node) -> str:
    asked = node.asked or node.question if node.kind == "atomic" else node.kind
    answer = "the plan above" if node.kind == "translate" else ", ".join(node.answers)
    indent = "    " * ("." in node.id)  # a member of a fan-out
    return indent + shorten(f"{asked} → {answer}", 130)


def _write(figure: Figure, x: float, y: float, text: str, colour: str, weight: str = "normal") -> None:
    figure.text(x, y, text.replace("$", r"\$"), color=colour, fontsize=9, weight=weight, va="bottom")


if __name__ == "__main__":
    answered = Trace.from_json(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    for theme, colours in THEMES.items():
        draw(answered, *colours, Path(__file__).with_name(f"plan-{theme}.svg"))
