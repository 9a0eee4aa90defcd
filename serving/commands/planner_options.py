"""The options of commands in which a language model at an endpoint can plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from revelator.config import check_config
from revelator.errors import ConfigError
from serving.protocols import PLANNER_PROMPTS

if TYPE_CHECKING:
    from serving.models.endpoint_revelator import PlannerConfig


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
