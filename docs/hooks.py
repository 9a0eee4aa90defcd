"""Writes the tables of the page `configuration.md` from the pydantic models, when the site is built.

What a table says of a model is its docstring, and of a field the comment behind it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

MARK = "<!-- configuration models -->"
MODELS = {
    "Instruction sets (`revelator data build`)": "data_gen.config:SetConfig",
    "Rows for a reader (`revelator data build`, with `rows: reading`)": "data_gen.reading:ReadingConfig",
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
    "What a home folder serves (`serving.json`)": "serving.triton.config:ServingConfig",
}
NAMES = {"string": "text", "path": "path", "integer": "integer", "number": "number", "boolean": "true or false"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


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
    described = model.model_json_schema(by_alias=False)["properties"]
    lines = [f"### {model.__name__}", "", inspect.cleandoc(model.__doc__ or ""), ""]
    lines += ["| field | value | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        default = "required" if field.is_required() else _spell_default(field.get_default(call_default_factory=True))
        cells = f"`{name}`", _spell_type(described[name]), default, comments.get(name, "")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    tables[model.__name__] = "\n".join(lines)
    for field in model.model_fields.values():
        for part in _models_in(field.annotation):
            _add_tables(part, tables)


def _read_comments(model: type[BaseModel]) -> dict[str, str]:
    """The comment behind each field, in the source of the model and of the models that it extends."""
    owners = [owner for owner in reversed(model.__mro__) if issubclass(owner, BaseModel) and owner is not BaseModel]
    source = "\n".join(map(inspect.getsource, owners))
    return dict(re.findall(r"^    (\w+): [^#\n]*  # (.+)$", source, re.MULTILINE))


def _spell_default(value: object) -> str:
    if value is None or value == "" or isinstance(value, BaseModel):
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _spell_type(schema: dict[str, Any]) -> str:
    """The type and its bounds by a JSON schema, as a person who writes YAML needs them."""
    if values := schema.get("enum", [schema["const"]] if "const" in schema else []):
        spelt = ", ".join(f"`{'false' if value is False else value}`" for value in values)
    elif kinds := schema.get("anyOf") or schema.get("oneOf"):
        spelt = " or ".join(_spell_type(kind) for kind in kinds if kind.get("type") != "null")
    elif "$ref" in schema:
        spelt = schema["$ref"].rpartition("/")[2]
    elif "items" in schema:
        spelt = f"list of {_spell_type(schema['items'])}"
    elif "additionalProperties" in schema:
        spelt = f"map from text to {_spell_type(schema['additionalProperties'])}"
    else:
        spelt = NAMES[schema.get("format", schema["type"])]
    bounds = [
        f"{sign} {schema[name]:g}" for name, sign in BOUNDS.items() if schema.get(name, sys.maxsize) < sys.maxsize
    ]
    is_needed = schema.get("minLength") or schema.get("minItems") or schema.get("minProperties")
    return ", ".join([spelt, *bounds, *(["not empty"] if is_needed else [])])


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
