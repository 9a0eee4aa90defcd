"""What the system of a configuration needs and takes, and what would keep it from running."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from evaluation.baselines.methods import BASELINES
from evaluation.harness.ablations import AFFECTS, check_ablation
from evaluation.harness.config import RunConfig
from revelator.errors import ConfigError, InvalidRequest
from revelator.limits import FREE, Limits, Strategy
from serving.executor.judges import JudgeConfig, JudgeSetting

JUDGED = (*AFFECTS["relevance"], "atomic", "gold-plan")  # systems that judge documents


def needs_translation(config: RunConfig) -> bool:
    """Whether the revelator writes the logical queries."""
    ranking = config.system.ranking
    written = ranking is not None and (ranking.queries == "model" or config.benchmark.format == "beir")
    return written and ranking is not None and ranking.way == "logical"


def needs_revelator(config: RunConfig) -> bool:
    if config.system.ranking:
        return needs_translation(config) or config.system.ranking.labels == "model"
    if config.generator == "revelator":
        return True
    return BASELINES[config.system.name].revelator if config.system.baseline else needs_index(config)


def needs_index(config: RunConfig) -> bool:
    if config.system.baseline:
        return BASELINES[config.system.name].searches
    return config.system.name not in ("direct", "gold-passages")


def takes_option(config: RunConfig, name: str) -> bool:
    """Whether a run of this configuration uses its `generator`, `judge` or `planner`."""
    system = config.system
    if config.url or system.predictions:
        return False
    if system.ranking:
        ranks = {"generator": system.ranking.way == "bright", "planner": needs_revelator(config)}
        return ranks.get(name, False)
    if name == "generator":
        return True
    if name == "judge":
        return system.name in JUDGED and config.ablation.relevance is None
    return needs_revelator(config) and system.name != "gold-plan"


def check_system(config: RunConfig) -> None:
    """Raises ConfigError for a configuration that cannot run, before anything is opened."""
    system, name = config.system, config.system.name
    if system.baseline and name not in BASELINES:
        raise ConfigError(
            f"there is no baseline {name!r}", where="system.baseline", hint=f"one of {', '.join(BASELINES)}"
        )
    check_ablation(config.ablation, name, served=bool(config.url))
    read_limits(config)
    if config.url:
        if not system.strategy:
            message = f"a running service answers by its executor alone, and {name} asks models itself"
            raise ConfigError(message, where="url", hint="leave `url` out")
        own = ("index", "generator", "planner", "timeout", "sources", "base", "own_knowledge")
        judge = ["judge"] if config.judge != "embedded" else []
        if given := [key for key in own if getattr(config, key)] + judge:
            message = f"{', '.join(given)}: a running service has its own"
            raise ConfigError(message, where="url", hint="leave it out of the configuration, or leave `url` out")
        return
    asked = ("sources", "select", "own_words", "conditions")
    if not config.sources and (switches := [name for name in asked if getattr(config.ablation, name) is not None]):
        raise ConfigError(
            "no sources are named", where=f"ablation.{switches[0]}", hint="name their file: sources: sources.yaml"
        )
    if config.writer is None and config.own_knowledge:
        raise ConfigError("the embedded reader writes no answers", where="own_knowledge", hint="name a `generator`")
    if config.ablation.relevance is False and isinstance(config.judge, JudgeConfig):
        hint = "leave out one of the two"
        raise ConfigError(f"{config.judge} judges, and nobody is to", where="ablation.relevance", hint=hint)
    if needs_index(config) and not config.index:
        raise ConfigError("which index is searched?", where="index", hint="revelator index build FILES --out DIR")
    writes = BASELINES[name].writes if system.baseline else system.ranking and system.ranking.way == "bright"
    if writes and config.writer is None:
        hint = "generator: {url: http://127.0.0.1:8000/v1, model: NAME}"
        raise ConfigError(
            f"{name} prompts a language model, and the embedded reader is none", where="generator", hint=hint
        )


def read_limits(config: RunConfig) -> Limits:
    """Reads the limits of the configuration; the others are the executor's. Raises ConfigError."""
    kept = BASELINES[config.system.name].kept if config.system.baseline else None
    usual = replace(Limits(), deadline_ms=max(Limits().deadline_ms, 1000 * (config.timeout or 0)))
    chosen = ({"kept": kept} if kept else {}) | dict[str, Any](config.limits)
    try:
        usual.lower(chosen)
    except InvalidRequest as error:
        raise ConfigError(error.message, where="limits", hint=error.hint) from error
    for name, value in chosen.items():
        if config.url and name not in FREE and value > getattr(usual, name):
            message = f"{name} = {value}: a running server takes {getattr(usual, name)} at most"
            raise ConfigError(message, where="limits")
    return replace(usual, **chosen)


def choose_judge(config: RunConfig) -> JudgeSetting:
    return "none" if config.ablation.relevance is False else config.judge


def choose_adapter(config: RunConfig) -> str:
    """The adapter that the configuration names. Where an endpoint plans, nobody need have promoted a champion."""
    return "base" if config.planner and "adapter" not in config.model_fields_set else config.adapter


def choose_strategy(config: RunConfig) -> Strategy:
    """Chooses the strategy: with `route` switched off, every question is compiled."""
    return "compile" if config.ablation.route is False else config.system.strategy or "auto"
