"""Options that several commands share: the place of an index, and which language models at endpoints plan and judge."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from revelator.config import check_config
from revelator.errors import ConfigError
from revelator.options import PATH
from serving.protocols import PLANNER_PROMPTS

if TYPE_CHECKING:
    from serving.executor.judges import JudgeSetting
    from serving.models.endpoint_revelator import PlannerConfig


class _IndexAddress(click.ParamType):
    """A folder, or the address of a collection of Milvus."""

    name = "DIR|milvus:…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from serving.retrieval.places import read_address

        PATH.convert(value, param, ctx)  # refuses an empty one
        return value if isinstance(value, Path) else read_address(value)


INDEX_ADDRESS = _IndexAddress()


def planner_options(help: str, metavar: str = "URL") -> Callable[[Any], Any]:
    """Adds `--planner` with this help, and the options that say how it is asked."""
    options = [
        click.option("--planner", metavar=metavar, help=help),
        click.option("--planner-model", metavar="NAME", help="The endpoint's model, or an adapter that it serves."),
        click.option(
            "--planner-prompt",
            type=click.Choice(PLANNER_PROMPTS),
            help="A chat with examples, or the prompt that an adapter was trained with (default: chat).",
        ),
    ]

    def add(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def read_planner_options(url: str | None, model: str | None, prompt: str | None) -> PlannerConfig | None:
    """The endpoint that the options name; None where they name none. Raises ConfigError."""
    given = {name: value for name, value in (("model", model), ("prompt", prompt)) if value}
    if url is None:
        if given:
            hint = "give the base URL of an OpenAI-compatible endpoint with --planner"
            raise ConfigError("of which planner?", where=f"--planner-{next(iter(given))}", hint=hint)
        return None
    if model is None:
        raise ConfigError("an endpoint needs the name of a model", where="--planner-model")
    from serving.models.endpoint_revelator import PlannerConfig

    return check_config({"url": url, **given}, PlannerConfig, "--planner")


def judge_options(help: str) -> Callable[[Any], Any]:
    """Adds `--judge` with this help, and `--judge-model`."""

    def add(command: Any) -> Any:
        command = click.option("--judge-model", metavar="NAME", help="The endpoint's model that judges.")(command)
        return click.option("--judge", metavar="embedded|none|URL", help=help)(command)

    return add


def read_judge_options(judge: str | None, model: str | None) -> JudgeSetting | None:
    """Who the options say judges documents; None where they name nobody. Raises ConfigError."""
    known: dict[str | None, JudgeSetting | None] = {None: None, "embedded": "embedded", "none": "none"}
    if judge in known:
        if model:
            hint = "give the base URL of an OpenAI-compatible endpoint with --judge"
            raise ConfigError("of which judge?", where="--judge-model", hint=hint)
        return known[judge]
    if model is None:
        hint = "--judge URL --judge-model NAME; or --judge embedded, or --judge none"
        raise ConfigError("an endpoint needs the name of a model", where="--judge-model", hint=hint)
    from serving.executor.judges import JudgeConfig

    return check_config({"url": judge, "model": model}, JudgeConfig, "--judge")
