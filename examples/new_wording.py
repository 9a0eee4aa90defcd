"""Questions in a wording that no model here has read, "UHF > director > spouse", over a generated world, and a person
who corrects their plans on the inspector's page. `examples/loop.sh` shows what comes of it.

    python examples/new_wording.py write WORLD --out FOLDER                 questions to ask, and others to try later
    python examples/new_wording.py ask FOLDER/asked.jsonl --correct         ask the inspector; correct each plan
    python examples/new_wording.py ask FOLDER/later.jsonl                   ask, and count the plans that are right
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import click
import httpx

# Steps from one thing to another, and how a plan asks for them. A path of two such words is a question of this wording.
STEPS = {
    "director": "Who is the director of {}?",
    "author": "Who is the author of {}?",
    "spouse": "Who is the spouse of {}?",
    "mother": "Who is the mother of {}?",
    "employer": "What is the employer of {}?",
    "label": "What is the label of {}?",
    "sequel": "What is the sequel of {}?",
    "birthplace": "What is the birthplace of {}?",
    "headquarters": "What is the headquarters of {}?",
    "country": "What is the country of {}?",
    "elevation": "What is the elevation of {}?",
    "height": "What is the height of {}?",
    "revenue": "What is the revenue of {}?",
}


@click.group()
def main() -> None:
    pass


@main.command()
@click.argument("world", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--asked", default=40, show_default=True, help="Questions to ask and correct.")
@click.option("--later", default=40, show_default=True, help="Others of the same wording, about other things.")
def write(world: Path, out: Path, asked: int, later: int) -> None:
    """Write questions of the new wording, each with the plan as it should be. No two begin with the same thing."""
    triples = [line.split("\t") for line in (world / "triples.tsv").read_text(encoding="utf-8").splitlines()]
    values: dict[tuple[str, str], list[str]] = {}
    for subject, step, value in triples:
        values.setdefault((subject, step), []).append(value)
    paths: dict[str, tuple[str, str]] = {}
    for (subject, first), found in values.items():
        seconds = [second for second in STEPS if first in STEPS and len(values.get((found[0], second), [])) == 1]
        if len(found) == 1 and seconds and subject not in paths and subject[-1].isalnum():
            paths[subject] = first, seconds[len(paths) % len(seconds)]
    rows = [
        {
            "question": f"{subject} > {first} > {second}",
            "plan": f"{STEPS[first].format(subject)} * {STEPS[second].format('{1}')}",
        }
        for subject, (first, second) in paths.items()
    ]
    Random(1).shuffle(rows)
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("asked", rows[:asked]), ("later", rows[asked : asked + later])):
        lines = [json.dumps(row, ensure_ascii=False) for row in part]
        (out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


@main.command()
@click.argument("file", type=click.Path(path_type=Path, exists=True))
@click.option("--url", default="http://127.0.0.1:8088", show_default=True, help="The inspector.")
@click.option("--correct", is_flag=True, help="Tell it the plan as it should be, and whether its own was right.")
def ask(file: Path, url: str, correct: bool) -> None:
    """Ask each question, and count the plans that are right word for word."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    right = 0
    with httpx.Client(base_url=url, timeout=120) as page:
        for row in rows:
            events = page.post("/api/runs", json={"question": row["question"]}).text.splitlines()
            run = json.loads(events[-1])["run"]
            planned = page.get(f"/api/runs/{run}").json()["trace"]["plan"]
            right += planned == row["plan"]
            if correct:
                page.post(f"/api/runs/{run}/judgement", json={"plan": row["plan"]}).raise_for_status()
    click.echo(f"{right} of {len(rows)} plans right")


if __name__ == "__main__":
    main()
