"""The models of a run, and what each was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from evaluation.harness.config import RunConfig
from evaluation.harness.system_needs import JUDGED, choose_adapter, choose_judge, needs_index, needs_revelator
from evaluation.seen import TrainedModel, merge_models
from serving.executor.judges import JudgeConfig
from serving.knowledge.config import Text, read_sources
from serving.models.adapters import find_adapter
from serving.retrieval.places import IndexAddress, read_address, read_index_manifest, resolve_address


def list_models(config: RunConfig) -> list[TrainedModel]:
    """The models of a run's system. Raises ArtifactError for an adapter or a base that is not there."""
    return [*_list_models(config)]


def _list_models(config: RunConfig) -> Iterator[TrainedModel]:
    ranking = config.system.ranking
    if config.system.predictions or config.url:
        name = f"server {config.url}" if config.url else f"predictions {config.system.name}"
        yield TrainedModel.make_unknown(name)
        return
    if needs_revelator(config):
        yield from _list_planner_and_judge(config)
    if config.writer and not (ranking and ranking.way != "bright"):
        yield TrainedModel.make_unknown(f"generator {config.writer.model}")
    elif not ranking and config.generator is None:
        yield TrainedModel.read_reader()
    for encoder in _list_encoders(config):
        yield TrainedModel.make_unknown(f"encoder {encoder}")


def _list_planner_and_judge(config: RunConfig) -> Iterator[TrainedModel]:
    judge = choose_judge(config)
    if config.planner:
        yield TrainedModel.make_unknown(f"planner {config.planner.model}")
    if not config.planner or (judge == "embedded" and config.system.name in JUDGED):
        found = find_adapter(choose_adapter(config), Path(config.home))
        yield TrainedModel.read_revelator(found.folder, config.base or found.base_name)
    if isinstance(judge, JudgeConfig):
        yield TrainedModel.make_unknown(f"judge {judge.model}")


def _list_encoders(config: RunConfig) -> list[str]:
    """The models that embed passages and questions, each once."""
    if ranking := config.system.ranking:
        return [ranking.model] if ranking.way != "random" else []
    there = [index for index in _list_indexes(config) if not isinstance(index, Path) or index.is_dir()]
    return sorted({str(read_index_manifest(index)["settings"]["model"]) for index in there} - {""})


def _list_indexes(config: RunConfig) -> list[IndexAddress]:
    """The indexes that a run searches: `index`, or those of the text sources that the executor asks."""
    index, sources = read_address(config.index), Path(config.sources)
    if not needs_index(config):
        return []
    if not config.sources or config.system.baseline:
        return [index]
    kept, named = config.ablation.sources, read_sources(sources).sources
    texts = [source for source in named if isinstance(source, Text) and (kept is None or source.name in kept)]
    return [resolve_address(source.index, sources.parent) if source.index else index for source in texts]


def list_compared_models(runs: Iterable[RunConfig]) -> list[TrainedModel]:
    """The models of several runs, each once."""
    return merge_models(model for run in runs for model in list_models(run))
