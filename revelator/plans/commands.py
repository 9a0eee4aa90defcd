"""The command `revelator plan check`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any, BinaryIO

import click

from revelator.errors import ExpressionError
from revelator.plans import art, drawing, logic, render, spell_by_numbers
from revelator.plans.faults import excerpt
from revelator.plans.language import BNF, LANGUAGES, PlanLanguage
from revelator.terminal import mask_controls

TREES: dict[str, Callable[[Any], str]] = {"bnf": drawing.draw_tree, "logic": logic.draw_tree, "art": art.draw_tree}
VALUES: dict[str, Callable[[Any], Any]] = {"bnf": drawing.to_json, "art": art.to_json}


@click.command()
@click.argument("expression", default="-")
@click.option(
    "--language", type=click.Choice(list(LANGUAGES)), default="bnf", show_default=True, help="The language of the plan."
)
@click.option("--file", type=click.File("rb"), help="Read one plan from this file, `-` for standard input, instead.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object a plan; always so with `-`.")
def check(expression: str, language: str, file: BinaryIO | None, as_json: bool) -> None:
    """Show the plan that EXPRESSION spells, and whether it can be executed.

    `-`, the default, reads one plan a line from standard input.

    Of a valid one show also what it leaves open, as advice: a name that may stand for one of several results
    (which-result), with the numbers that say which, and a difference within one question (one-question). The JSON
    object has the letters, the diagnostics and, as `plan`, the steps.

    \b
    Exit status: 0 all valid, 1 some invalid, 2 wrong usage.

    \b
    Examples:
      revelator plan check "Who directed UHF? * When was {director} born?"
      revelator plan check "(When was Eva born? + When was Kim born?) => argmin"
      revelator plan check --language logic '"films" AND NOT ("silent" OR "short")'
      revelator plan check --language art --file tree.json
      revelator plan check --json "Who is {x}?"
      revelator plan check - < expressions.txt > verdicts.jsonl
    """
    chosen = LANGUAGES[language]
    if file and expression != "-":
        raise click.UsageError("give a plan or --file, not both")
    many = expression == "-" and file is None
    valid = True
    for text in _lines() if many else [_read(expression, file)]:
        verdict, plan = chosen.diagnose(text), _parse(chosen, text)
        valid = valid and verdict["valid"]
        if as_json or many:
            values = VALUES[language](plan) if plan is not None and language in VALUES else None
            click.echo(json.dumps({**verdict, "plan": values}))
            continue
        click.echo(_write_verdict(verdict))
        if plan is not None:
            click.echo(_draw(plan, language, verdict["valid"]))
        click.echo(_write_diagnostics(verdict), nl=False)
    sys.exit(0 if valid else 1)


def _parse(language: PlanLanguage, text: str) -> Any:
    """The plan; None for a text that is none, of which the diagnostics tell."""
    try:
        return language.parse(text)
    except ExpressionError:
        return None


def _draw(plan: Any, language: str, valid: bool) -> str:
    drawn = TREES[language](plan)
    if language == BNF.name and valid and (numbered := render(spell_by_numbers(plan))) != render(plan):
        drawn += f"\nby name:   {render(plan)}\nby number: {numbered}"
    return mask_controls(drawn)


def _write_verdict(verdict: dict[str, Any]) -> str:
    return ("valid" if verdict["valid"] else "invalid") + (f": {verdict['letters']}" if verdict["letters"] else "")


def _write_diagnostics(verdict: dict[str, Any]) -> str:
    text, lines = verdict["expression"], list[str]()
    for d in (*verdict["diagnostics"], *verdict["advice"]):
        kind = "advice, " if verdict["valid"] else ""
        place = f"line {text.count(chr(10), 0, d['start']) + 1}: " if "\n" in text else ""
        lines += [f"{kind}{d['code']}: {place}{d['message']}", excerpt(text, d["start"], d["end"])]
        lines.append(f"  hint: {d['hint']}")
    return mask_controls("".join(f"{line}\n" for line in lines))


def _read(expression: str, file: BinaryIO | None) -> str:
    if file is None:
        file = BytesIO(os.fsencode(expression))
    return file.read().decode(errors="replace").rstrip("\n")


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode(errors="replace").rstrip("\r\n")
