"""Writes the tables of the page `configuration.md` from the pydantic models, when the site is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

MARK = "<!-- configuration models -->"
MODELS = {
    "Instruction sets (`revelator data build`)": "data_gen.config:SetConfig",
    "Endpoint teachers (`revelator data teach`)": "data_gen.teacher.config:TeachConfig",
    "Training (`revelator train`)": "training.config:TrainConfig",
    "GRPO (`revelator train`, `stage: grpo`)": "training.config:GrpoConfig",
    "Pre-training (`revelator train`, `stage: pretrain`)": "training.config:PretrainConfig",
    "Reader (`revelator train`, `stage: reader`)": "training.config:ReaderConfig",
    "Evaluation (`revelator eval run`)": "evaluation.harness.config:RunConfig",
    "Knowledge sources (`--sources`)": "serving.knowledge.config:SourcesFile",
}


def on_page_markdown(markdown: str, **_: object) -> str:
    """mkdocs calls this for each page."""
    return markdown.replace(MARK, "\n\n".join(map(_section, MODELS)))


def _section(title: str) -> str:
    module, _, name = MODELS[title].partition(":")
    tables: dict[str, str] = {}
    _add_tables(getattr(importlib.import_module(module), name), tables)
    return f"## {title}\n\n" + "\n\n".join(tables.values())


def _add_tables(model: type[BaseModel], tables: dict[str, str]) -> None:
    if model.__name__ in tables:
        return
    lines = [f"### {model.__name__}", "", "| field | type | default | bounds |", "|---|---|---|---|"]
    lines += [_row(name, field) for name, field in model.model_fields.items()]
    tables[model.__name__] = "\n".join(lines)
    for field in model.model_fields.values():
        for part in _models_in(field.annotation):
            _add_tables(part, tables)


def _row(name: str, field: FieldInfo) -> str:
    kind = getattr(field.annotation, "__name__", None) if not get_args(field.annotation) else None
    default = "required" if field.is_required() else f"`{field.get_default(call_default_factory=True)!r}`"
    bounds = ", ".join(f"`{bound!r}`" for bound in field.metadata)
    cells = (f"`{name}`", f"`{kind or field.annotation}`".replace("typing.", ""), default[:120], bounds)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
