"""The commands `revelator plan parse`, `plan check` and `plan grammar`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import click

from revelator.errors import ConfigError, DataError
from revelator.plans import art, drawing, logic
from revelator.plans.bnf import MAX_CHARACTERS
from revelator.plans.faults import excerpt
from revelator.plans.grammar import read_grammar_file
from revelator.plans.language import LANGUAGES
from revelator.terminal import mask_controls

MOST_BYTES = 4 * (MAX_CHARACTERS + 1) + 2  # of a text that is just too long, in UTF-8, and the end of its line

Draw = Callable[[Any], str]


def _indented(to_json: Callable[[Any], Any]) -> Draw:
    return lambda plan: json.dumps(to_json(plan), indent=2)


DRAWINGS: dict[str, dict[str, Draw]] = {
    "bnf": {
        "tree": drawing.draw_tree,
        "json": _indented(drawing.to_json),
        "letters": drawing.to_letters,
    },
    "logic": {"tree": logic.draw_tree},
    "art": {"tree": art.draw_tree, "json": _indented(art.to_json)},
}

language_option = click.option(
    "--language", type=click.Choice(list(LANGUAGES)), default="bnf", show_default=True, help="The language of the plan."
)
file_option = click.option(
    "--file", "path", type=click.Path(path_type=Path, dir_okay=False), help="Read one plan from this file instead."
)


@click.command()
@click.argument("expression", default="-")
@language_option
@file_option
@click.option("--format", "form", type=click.Choice(list(DRAWINGS["bnf"])), default="tree", show_default=True)
def parse(expression: str, language: str, path: Path | None, form: str) -> None:
    """Show the plan that EXPRESSION spells; `-`, the default, reads it from standard input.

    \b
    Examples:
      revelator plan parse "Who directed UHF? * When was {director} born?"
      revelator plan parse "(A? + B?) * Which of {a} and {b} is older?" --format letters
      revelator plan parse --language logic '"films" AND NOT ("silent" OR "short")'
      revelator plan parse --language art --file tree.json
    """
    drawings = DRAWINGS[language]
    if form not in drawings:
        raise click.UsageError(f"{language} is drawn as {' or '.join(drawings)}, not as {form}")
    text = _one_text(expression, path)
    drawn = drawings[form](LANGUAGES[language].parse(text))
    _write((mask_controls(drawn) if form == "tree" else drawn) + "\n")


@click.command()
@click.argument("expression", default="-")
@language_option
@file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a plan; always so with `-`.")
def check(expression: str, language: str, path: Path | None, as_json: bool) -> None:
    """Say whether EXPRESSION can be executed; `-`, the default, reads one plan a line from standard input.

    Of a valid one also what it does in vain: asks twice, uses a result twice in a question, or not at all.

    \b
    Exit status: 0 all valid, 1 some invalid, 2 wrong usage.

    \b
    Examples:
      revelator plan check "Who directed UHF? * When was {director} born?"
      revelator plan check --json "Who is {x}?"
      revelator plan check --language art --file tree.json
      revelator plan check - < expressions.txt > verdicts.jsonl
    """
    chosen = LANGUAGES[language]
    many = expression == "-" and path is None
    texts = _lines() if many else iter([_one_text(expression, path)])
    valid = True
    for text in texts:
        verdict = chosen.verdict(text)
        valid = valid and verdict["valid"]
        _write(_as_json(verdict) if as_json or many else _as_text(verdict))
    sys.exit(0 if valid else 1)


@click.command()
@language_option
def grammar(language: str) -> None:
    """Print the file that defines a language: a grammar of Lark, or the JSON schema of art.

    \b
    Examples:
      revelator plan grammar --language art > art.schema.json
      revelator plan grammar
    """
    _write(read_grammar_file(LANGUAGES[language].file))


def _as_json(verdict: dict[str, Any]) -> str:
    return json.dumps(verdict) + "\n"


def _as_text(verdict: dict[str, Any]) -> str:
    first = f"valid: {verdict['letters']}" if verdict["letters"] else "valid"
    lines = [first if verdict["valid"] else "invalid"]
    for d in (*verdict["diagnostics"], *verdict["doubts"]):
        lines += [f"{d['code']}: {d['message']}", excerpt(verdict["expression"], d["start"], d["end"])]
        lines.append(f"  hint: {d['hint']}")
    return "\n".join(lines) + "\n"


def _one_text(expression: str, path: Path | None) -> str:
    try:
        if path is not None:
            with path.open("rb") as file:
                return _read(file)
    except OSError as error:
        raise DataError(f"the plan cannot be read: {error.strerror}", where=str(path)) from error
    return _read(sys.stdin.buffer if expression == "-" else BytesIO(os.fsencode(expression)))


def _read(file: BinaryIO) -> str:
    return _decode(file.read(MOST_BYTES)).rstrip("\n")


def _lines() -> Iterator[str]:
    """What stands behind the longest text that can be one is not kept: `too-long` is said of its beginning."""
    while line := sys.stdin.buffer.readline(MOST_BYTES):
        yield _decode(line).rstrip("\r\n")
        while len(line) == MOST_BYTES and not line.endswith(b"\n"):
            line = sys.stdin.buffer.readline(MOST_BYTES)


def _decode(read: bytes) -> str:
    return read.decode(errors="replace")[: MAX_CHARACTERS + 2]  # one too many, and the end of the line


def _write(text: str) -> None:
    """To standard output as UTF-8; a reader that has gone away ends the command quietly. Raises ConfigError for a
    file that cannot be written to."""
    try:
        sys.stdout.buffer.write(text.encode(errors="replace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is still to be flushed goes there
        if isinstance(error, BrokenPipeError):
            sys.exit(141)
        raise ConfigError(f"standard output cannot be written: {error.strerror}", hint="name another file") from error
