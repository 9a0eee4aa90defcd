"""`revelator plan make` and `plan run`: plans of questions, and what a plan answers, in this process."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import track

from revelator.answers import ROUTES
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.limits import LONGEST_MS, Limits
from revelator.options import AS_JSON, BASE, HOME
from revelator.plans.art import Art, parse, render
from revelator.plans.language import LANGUAGES, PlanLanguage
from revelator.registry import CHAMPION, NAME
from revelator.terminal import mask_controls
from revelator.trace import Trace
from serving.commands.model_options import planner_options, read_planner_options
from serving.protocols import NoModel, PlannerPrompt

if TYPE_CHECKING:
    from serving.models.adapters import Adapter
    from serving.models.endpoint_revelator import PlannerConfig
    from serving.models.planning import PlannedQuestion

FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("question", default="-")
@click.option("--file", "path", type=FILE, help="Plan the questions of this file instead, one a line.")
@click.option("--model", metavar="MODEL", help="`base`, a folder, a version number, `latest` or an alias.")
@BASE
@click.option("--language", type=click.Choice(list(LANGUAGES)), default="bnf", show_default=True, help="Of the plans.")
@planner_options("A language model that plans, in place of MODEL: the base URL of an OpenAI-compatible endpoint.")
@HOME
@AS_JSON
def make(
    question: str,
    path: Path | None,
    model: str | None,
    base: str | None,
    language: str,
    planner: str | None,
    planner_model: str | None,
    planner_prompt: PlannerPrompt | None,
    home: Path,
    as_json: bool,
) -> None:
    """Plan QUESTION, without a server; `-`, the default, reads one question a line from standard input.

    MODEL is the champion of the registry unless given, or, where there is none, the embedded base. Each question gets
    its route, with the probability of each, and a plan, also where its route needs none, with the probability of its
    tokens. With --planner, any language model plans, or an adapter on a vLLM server; its key is read from
    OPENAI_API_KEY. The plan of a language model is its route.

    \b
    Exit status: 0 all plans valid, 1 some not, or a question refused, 2 wrong usage.

    \b
    Examples:
      revelator plan make "When was the director of UHF born?"
      revelator plan make --file questions.txt --model base --json > plans.jsonl
      revelator plan make --file questions.txt --model runs/adapters/mine --language art
      revelator plan make "Who directed UHF?" --planner http://127.0.0.1:11434/v1 --planner-model llama3.2
    """
    if planner and (model or base):
        hint = "leave out --model and --base, or --planner"
        raise ConfigError("an endpoint plans in place of a model", where="--planner", hint=hint)
    chosen = read_planner_options(planner, planner_model, planner_prompt)
    lines = question == "-" or path is not None
    questions = _read(path or Path("-")).splitlines() if lines else [question]
    if not questions:
        hint = 'give one question a line, or revelator plan make "…"'
        raise DataError("there is no question", where=str(path or "standard input"), hint=hint)
    if chosen:
        sound = _make_at_endpoint(chosen, questions, LANGUAGES[language], as_json)
    else:
        from serving.models.adapters import find_adapter, open_engine
        from serving.models.local import complete
        from serving.models.planning import plan_questions

        adapter = find_adapter(model, home) if model else _find_champion(home)
        at_once = partial(complete, open_engine(adapter, base))
        sound = _show(plan_questions(at_once, questions, LANGUAGES[language]), len(questions), as_json)
    sys.exit(0 if sound else 1)


def _make_at_endpoint(config: PlannerConfig, questions: Sequence[str], language: PlanLanguage, as_json: bool) -> bool:
    from serving.models.endpoint_revelator import EndpointRevelator
    from serving.models.planning import plan_questions

    revelator = EndpointRevelator(config)
    with asyncio.Runner() as runner:
        try:
            planned = plan_questions(
                lambda task, prompts: runner.run(revelator.complete(task, prompts)),
                questions,
                language,
                routes_by_plan=True,
            )
            return _show(planned, len(questions), as_json)
        finally:
            runner.run(revelator.close())


def _show(planned: Iterable[PlannedQuestion], count: int, as_json: bool) -> bool:
    """Shows each plan as it comes; whether all are valid."""
    shown = Console(stderr=True)
    sound = True
    for one in track(planned, "planning", count, console=shown, transient=True, disable=not shown.is_terminal):
        sound = sound and one.valid
        click.echo(json.dumps(asdict(one), ensure_ascii=False) if as_json else _describe(one))
    return sound


def _find_champion(home: Path) -> Adapter:
    from revelator import registry
    from serving.models.adapters import Adapter, fetch_version

    try:
        registry.connect(home, must_exist=True)
        version = registry.resolve(NAME, CHAMPION)
    except (ArtifactError, ConfigError):
        click.echo("no version is champion: the embedded base plans", err=True)
        return Adapter(None)
    return fetch_version(version, home)


def _describe(planned: PlannedQuestion) -> str:
    if planned.error:
        return mask_controls(f"{planned.question}\n  error: {planned.error}\n")
    routes = sorted(((ROUTES.get(r, r), share) for r, share in planned.probabilities.items()), key=lambda one: -one[1])
    likely = "" if planned.probability is None else f"  (P = {planned.probability:.2f} a token)"
    verdict = "valid" if planned.valid else f"invalid: {planned.diagnostics[0]['message']}"
    taken = ", ".join(f"{label} {share:.2f}" for label, share in routes) or planned.route
    lines = [
        planned.question,
        f"  route  {taken}",
        f"  plan   {planned.plan}{likely}",
        f"  {verdict}{f' · {planned.letters}' if planned.letters else ''}",
    ]
    if planned.degraded:
        lines.append("  the model finished no valid plan: the question stands for it")
    return mask_controls("\n".join([*lines, ""]))


@click.command()
@click.argument("path", metavar="FILE", type=FILE)
@click.option("--sources", required=True, type=FILE, help="YAML file that names the sources.")
@click.option("--generator", metavar="URL", help="OpenAI-compatible endpoint (default: the embedded reader).")
@click.option("--generator-model", "model", metavar="NAME", default="", help="Its model.")
@AS_JSON
def run(path: Path, sources: Path, generator: str | None, model: str, as_json: bool) -> None:
    """Run a tree in this process, and see each node, its sources and the answer.

    A tree is a file of JSON (`revelator/plans/art.schema.json`); `-` is standard input. docs/your-data.md has the
    sources file.

    \b
    Exit status: 0 answered, 1 not.

    \b
    Examples:
      revelator plan run tree.json --sources sources.yaml
      OPENAI_API_KEY=… revelator plan run tree.json --sources sources.yaml --generator http://127.0.0.1:8000/v1
    """
    from revelator.trace_view import print_trace

    with _quiet("serving"):  # what failed is shown once, as an error or in the trace
        trace = asyncio.run(_answer(parse(_read(path)), sources, generator, model))
    if as_json:
        click.echo(json.dumps(trace.to_json(), ensure_ascii=False))
    else:
        print_trace(trace, Console())
    sys.exit(0 if trace.answers else 1)


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    log = logging.getLogger(name)
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        log.setLevel(before)


def _read(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        hint = "a text itself goes to standard input: echo '…' | revelator plan …"
        raise DataError(f"the file cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    return data.decode(errors="replace")


async def _answer(tree: Art, path: Path, url: str | None, model: str) -> Trace:
    from serving.executor.executor import Executor
    from serving.executor.judges import Unjudged
    from serving.knowledge.config import open_sources
    from serving.models.embedded import EmbeddedGenerator
    from serving.models.generators import EndpointGenerator

    generator = EndpointGenerator(url, model) if url else EmbeddedGenerator()
    sources = open_sources(path, writer=generator if url else None)
    try:
        limits = replace(Limits(), deadline_ms=LONGEST_MS)
        executor = Executor(NoModel(), sources, generator, limits, judge=Unjudged())
        return await executor.run(tree.question, plan=render(tree), strategy="atomic")
    finally:
        await sources.close()
        if isinstance(generator, EndpointGenerator):
            await generator.close()
