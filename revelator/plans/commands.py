"""The commands `revelator plan parse` and `plan check`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, BinaryIO

import click

from revelator.plans import art, drawing, logic, render, spell_by_numbers
from revelator.plans.faults import excerpt
from revelator.plans.language import BNF, LANGUAGES
from revelator.terminal import mask_controls

Draw = Callable[[Any], str]


def _indent_json(to_json: Callable[[Any], Any]) -> Draw:
    return lambda plan: json.dumps(to_json(plan), indent=2)


DRAWINGS: dict[str, dict[str, Draw]] = {
    "bnf": {"tree": drawing.draw_tree, "json": _indent_json(drawing.to_json), "letters": drawing.to_letters},
    "logic": {"tree": logic.draw_tree},
    "art": {"tree": art.draw_tree, "json": _indent_json(art.to_json)},
}

language_option = click.option(
    "--language", type=click.Choice(list(LANGUAGES)), default="bnf", show_default=True, help="The language of the plan."
)
file_option = click.option("--file", type=click.File("rb"), help="Read one plan from this file instead.")


@click.command()
@click.argument("expression", default="-")
@language_option
@file_option
@click.option("--format", "form", type=click.Choice(list(DRAWINGS["bnf"])), default="tree", show_default=True)
def parse(expression: str, language: str, file: BinaryIO | None, form: str) -> None:
    """Show the plan that EXPRESSION spells; `-`, the default, reads it from standard input.

    \b
    Examples:
      revelator plan parse "Who directed UHF? * When was {director} born?"
      revelator plan parse "(When was Eva born? + When was Kim born?) => argmin"
      revelator plan parse "(A? + B?) * Which of {a} and {b} is older?" --format letters
      revelator plan parse --language logic '"films" AND NOT ("silent" OR "short")'
      revelator plan parse --language art --file tree.json
    """
    drawings = DRAWINGS[language]
    if form not in drawings:
        raise click.UsageError(f"{language} is drawn as {' or '.join(drawings)}, not as {form}")
    plan = LANGUAGES[language].parse(_read(expression, file))
    drawn = drawings[form](plan)
    click.echo(mask_controls(drawn) if form == "tree" else drawn)
    if language == BNF.name and form == "tree" and (numbered := render(spell_by_numbers(plan))) != render(plan):
        click.echo(f"by name:   {mask_controls(render(plan))}\nby number: {mask_controls(numbered)}")


@click.command()
@click.argument("expression", default="-")
@language_option
@file_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object a plan; always so with `-`.")
def check(expression: str, language: str, file: BinaryIO | None, as_json: bool) -> None:
    """Say whether EXPRESSION can be executed; `-`, the default, reads one plan a line from standard input.

    Of a valid one also what it leaves open, as advice: a name that may stand for one of several results (which-result),
    with the numbers that say which, and a difference within one question (one-question).

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
    many = expression == "-" and file is None
    texts = _lines() if many else [_read(expression, file)]
    valid = True
    for text in texts:
        verdict = chosen.diagnose(text)
        valid = valid and verdict["valid"]
        click.echo(json.dumps(verdict) if as_json or many else _as_text(verdict))
    sys.exit(0 if valid else 1)


def _as_text(verdict: dict[str, Any]) -> str:
    first = f"valid: {verdict['letters']}" if verdict["letters"] else "valid"
    lines = [first if verdict["valid"] else "invalid"]
    for d in (*verdict["diagnostics"], *verdict["advice"]):
        kind = "advice, " if verdict["valid"] else ""
        lines += [f"{kind}{d['code']}: {d['message']}", excerpt(verdict["expression"], d["start"], d["end"])]
        lines.append(f"  hint: {d['hint']}")
    return "\n".join(lines)


def _read(expression: str, file: BinaryIO | None) -> str:
    if file is None:
        file = sys.stdin.buffer if expression == "-" else BytesIO(os.fsencode(expression))
    return file.read().decode(errors="replace").rstrip("\n")


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace").rstrip("\r\n")
