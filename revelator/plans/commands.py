"""The commands `revelator plan parse` and `revelator plan check`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from revelator.errors import ConfigError, ExpressionError
from revelator.plans.checking import Diagnostic, Rules, doubts
from revelator.plans.checking import check as check_expression
from revelator.plans.drawing import to_json, to_letters, to_mermaid, to_tree
from revelator.plans.expression import leaves
from revelator.plans.faults import excerpt
from revelator.plans.parser import MAX_CHARACTERS
from revelator.plans.parser import parse as parse_expression
from revelator.plans.rendering import render
from revelator.terminal import printable

MOST_BYTES = 4 * (MAX_CHARACTERS + 1) + 2  # of a text that is just too long, in UTF-8, and the end of its line


def _pretty(expression: Any) -> str:
    return json.dumps(to_json(expression), indent=2)


def _tree(expression: Any) -> str:
    return printable(to_tree(expression))


FORMATS = {"tree": _tree, "json": _pretty, "mermaid": to_mermaid, "letters": to_letters}


@click.command()
@click.argument("expression")
@click.option("--format", "form", type=click.Choice(list(FORMATS)), default="tree", show_default=True)
def parse(expression: str, form: str) -> None:
    """Show the plan that EXPRESSION spells; `-` reads it from standard input.

    \b
    Examples:
      revelator plan parse "Who directed UHF? * When was {director} born?"
      revelator plan parse "(A? + B?) * Which of {a} and {b} is older?" --format letters
      cat plan.txt | revelator plan parse - --format mermaid
    """
    text = _standard_input().rstrip("\n") if expression == "-" else _argument(expression)
    _write(FORMATS[form](parse_expression(text)) + "\n")


@click.command()
@click.argument("expression", default="-")
@click.option("--rules", type=click.Choice(["scoped", "paper"]), default="scoped", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object an expression; always so with `-`.")
def check(expression: str, rules: Rules, as_json: bool) -> None:
    """Say whether EXPRESSION can be executed; `-`, the default, reads one expression a line from standard input.

    Of a valid one also what it does in vain: asks twice, uses a result twice in a question, or not at all.

    \b
    Exit status: 0 all valid, 1 some invalid, 2 wrong usage.

    \b
    Examples:
      revelator plan check "Who directed UHF? * When was {director} born?"
      revelator plan check --rules paper --json "Who is {x}?"
      revelator plan check - < expressions.txt > verdicts.jsonl
    """
    texts = _lines() if expression == "-" else iter([_argument(expression)])
    shown = _as_json if as_json or expression == "-" else _as_text
    valid = True
    for text in texts:
        verdict = verdict_of(text, rules)
        valid = valid and verdict["valid"]
        _write(shown(verdict))
    sys.exit(0 if valid else 1)


def verdict_of(text: str, rules: Rules = "scoped") -> dict[str, Any]:
    """Everything `check` says about one text, as plain values."""
    canonical = letters = None
    count = 0
    doubted: tuple[Diagnostic, ...] = ()
    try:
        expression = parse_expression(text)
    except ExpressionError as error:
        found: tuple[Diagnostic, ...] = (
            Diagnostic(error.code, error.message, error.start, error.end, error.hint or ""),
        )
    else:
        canonical, letters, count = render(expression), to_letters(expression), len(leaves(expression))
        found = check_expression(expression, rules)
        doubted = () if found else doubts(expression)
    return {
        "expression": text,
        "valid": not found,
        "canonical": canonical,
        "letters": letters,
        "leaves": count,
        "diagnostics": [vars(d) for d in found],
        "doubts": [vars(d) for d in doubted],
    }


def _as_json(verdict: dict[str, Any]) -> str:
    return json.dumps(verdict) + "\n"


def _as_text(verdict: dict[str, Any]) -> str:
    lines = [f"valid: {verdict['letters']}" if verdict["valid"] else "invalid"]
    for d in (*verdict["diagnostics"], *verdict["doubts"]):
        lines += [f"{d['code']}: {d['message']}", excerpt(verdict["expression"], d["start"], d["end"])]
        lines.append(f"  hint: {d['hint']}")
    return "\n".join(lines) + "\n"


def _argument(text: str) -> str:
    """Bytes of an argument that are not UTF-8 are read as on standard input."""
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _standard_input() -> str:
    return _text(sys.stdin.buffer.read(MOST_BYTES))


def _lines() -> Iterator[str]:
    """What stands behind the longest text that can be one is not kept: `too-long` is said of its beginning."""
    while line := sys.stdin.buffer.readline(MOST_BYTES):
        yield _text(line).rstrip("\r\n")
        while len(line) == MOST_BYTES and not line.endswith(b"\n"):
            line = sys.stdin.buffer.readline(MOST_BYTES)


def _text(read: bytes) -> str:
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
