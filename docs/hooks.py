"""Writes the tables of the page `configuration.md` from the pydantic models, when the site is built.

What a table says of a model is its docstring, and of a field the comment behind it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

MARK = "<!-- configuration models -->"
MODELS = {
    "Instruction sets (`revelator data build`)": "data_gen.config:SetConfig",
    "Annotation by a teacher (`revelator data teach`, with `sources`)": "data_gen.teacher.config:TeachConfig",
    "Compound questions by a teacher (`revelator data teach`, with `corpus`)": "data_gen.teacher.config:CompoundConfig",
    "Composed questions (`revelator data compose`)": "data_gen.compose:ComposeConfig",
    "Personal data (`revelator data collect --redact`)": "data_gen.redact:RedactRules",
    "Fine-tuning (`revelator train`, `stage: sft`)": "training.config:FineTuneConfig",
    "GRPO (`revelator train`, `stage: grpo`)": "training.config:GrpoConfig",
    "Pre-training (`revelator train`, `stage: pretrain`)": "training.config:PretrainConfig",
    "Reader (`revelator train`, `stage: reader`)": "training.config:ReaderConfig",
    "The promotion gate (`revelator model promote --rules`)": "evaluation.gate.rules:Rules",
    "vLLM's engine (`revelator model deploy --engine vllm --engine-config`)": (
        "serving.triton.vllm_repository:EngineArguments"
    ),
    "Evaluation (`revelator eval run`)": "evaluation.harness.config:RunConfig",
    "Knowledge sources (`--sources`)": "serving.knowledge.config:SourcesFile",
}
NAMES = {str: "text", Path: "path", int: "integer", float: "number", bool: "true or false"}


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
    comments = _read_comments(model)
    lines = [f"### {model.__name__}", "", inspect.cleandoc(model.__doc__ or ""), ""]
    lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
    lines += [_row(name, field, comments.get(name, "")) for name, field in model.model_fields.items()]
    tables[model.__name__] = "\n".join(lines)
    for field in model.model_fields.values():
        for part in _models_in(field.annotation):
            _add_tables(part, tables)


def _read_comments(model: type[BaseModel]) -> dict[str, str]:
    """The comment behind each field, in the source of the model and of the models that it extends."""
    owners = [owner for owner in reversed(model.__mro__) if issubclass(owner, BaseModel) and owner is not BaseModel]
    source = "\n".join(map(inspect.getsource, owners))
    return dict(re.findall(r"^    (\w+): [^#\n]*  # (.+)$", source, re.MULTILINE))


def _row(name: str, field: FieldInfo, comment: str) -> str:
    default = "required" if field.is_required() else _spell_default(field.get_default(call_default_factory=True))
    cells = (f"`{name}`", _spell_type(field.annotation, field.metadata), default, comment)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _spell_default(value: object) -> str:
    if value is None or value == "" or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _spell_type(kind: Any, metadata: Sequence[Any] = ()) -> str:
    """The type and its bounds, as a person who writes YAML needs them."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _spell_type(inner[0], inner[1:])
    if origin is Literal:
        spelt = ", ".join(f"`{str(value).lower() if value is False else value}`" for value in inner)
    elif origin in (Union, UnionType):
        spelt = " or ".join(_spell_type(one) for one in inner if one is not NoneType)
    elif origin in (tuple, list):
        spelt = f"list of {_spell_type(inner[0])}"
    elif origin is dict:
        spelt = f"map from {_spell_type(inner[0])} to {_spell_type(inner[1])}"
    else:
        spelt = {str: "text", Path: "path", int: "integer", float: "number", bool: "true or false"}.get(
            kind, kind.__name__
        )
    bounds = [text for bound in metadata for text in _spell_bounds(bound)]
    return ", ".join([spelt, *bounds])


def _spell_bounds(bound: Any) -> Iterator[str]:
    for inner in getattr(bound, "metadata", ()):
        yield from _spell_bounds(inner)
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        limit = getattr(bound, name, None)
        if limit is not None and limit != sys.maxsize:
            yield f"{sign} {limit}"
    if getattr(bound, "min_length", None):
        yield "not empty"


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
