"""The data card: what a set holds, where it came from, what was left out and why, how to build it again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def card(manifest: Mapping[str, Any]) -> str:
    """Markdown; the same manifest gives the same card, whenever it was built."""
    config = manifest["config"]
    parts = [
        f"# Instruction set `{config['name']}`",
        "Prompts and completions for the tasks of the revelator, made from annotated questions: their plans, steps and "
        "passages became records. The teacher `annotation` is no model: it words gold decompositions.",
        f"Digest `{manifest['digest']}`, prompts `{manifest['prompt_hash'][:12]}`, "
        f"grammar `{manifest['grammar_hash'][:12]}`.",
        "## Records",
        _table("task", manifest["counts"]["task"]),
        _table("source", manifest["counts"]["source"]),
        _table("licence", manifest["counts"]["licence"]),
        _table("teacher", manifest["counts"]["teacher"]),
        _table("shape of the gold plan", manifest["counts"]["shape"]),
        *_teaching(manifest["teaching"]),
        "## Labels",
        "\n".join(f"* {task}: {_listed(labels)}" for task, labels in manifest["labels"].items()),
        "## Questions",
        _table("source", manifest["questions"]),
        "No question (by id and by normalised text) stands in two splits. " + _held_out(config),
        "## Left out",
        _dropped(manifest),
        "## Inputs",
        "\n".join(f"* `{name}` sha256 `{digest}`" for name, digest in manifest["inputs"].items()),
        "## Building it again",
        "Save this as `set.yaml` and run `revelator data build set.yaml --out DIR`: "
        "the same inputs give the same digest.",
        f"```yaml\n{yaml.safe_dump(config, sort_keys=False, allow_unicode=True).strip()}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _table(title: str, by_split: Mapping[str, Mapping[str, int]]) -> str:
    splits = [split for split, counts in by_split.items() if counts]
    names = sorted({name for counts in by_split.values() for name in counts})
    lines = [f"| {title} | {' | '.join(splits)} |", "|---" * (len(splits) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(str(by_split[s].get(name, 0)) for s in splits)} |" for name in names]
    return "\n".join(lines)


def _teaching(notes: Mapping[str, Any]) -> list[str]:
    return ["## Teaching", "\n".join(f"* {name}: {value}" for name, value in notes.items())] if notes else []


def _held_out(config: Mapping[str, Any]) -> str:
    if config["held_out"]:
        return f"A question whose normalised text is held out for measuring (`{config['held_out']}`) is in none."
    return "The configuration names no questions that are held out for measuring."


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _dropped(manifest: Mapping[str, Any]) -> str:
    lines = [f"* {reason}: {count}" for reason, count in manifest["dropped"].items()]
    lines += [f"* {row['file']}, line {row['line']}: {row['reason']}" for row in manifest["refused_rows"]]
    return "\n".join(lines) or "Nothing."
