"""Writes docs/configuration.md and docs/api.md from the code: `make reference`. A test holds that they are current.

What a page says of a class or function is its docstring, and of a field the comment behind it.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

from pydantic import BaseModel

DOCS = Path(__file__).parent
MODELS = {
    "Instruction sets (`revelator data build`)": "data_gen.config:SetConfig",
    "Rows for a reader (`revelator data build`, with `rows: reading`)": "data_gen.reading:ReadingConfig",
    "Annotation by a teacher (`revelator data build`, with `rows: taught`)": "data_gen.teacher.config:TeachConfig",
    "Compound questions by a teacher (`revelator data build`, with `rows: compound`)": (
        "data_gen.teacher.config:CompoundConfig"
    ),
    "Worlds (`revelator data build`, with `rows: world`)": "data_gen.world.generate:WorldConfig",
    "Composed questions (`revelator data build`, with `rows: composed`)": "data_gen.compose:ComposeConfig",
    "Judged questions (`revelator data build`, with `rows: collected`)": "data_gen.collect:CollectConfig",
    "Fine-tuning (`revelator train`, `stage: sft`)": "training.config:FineTuneConfig",
    "GRPO (`revelator train`, `stage: grpo`)": "training.config:GrpoConfig",
    "Pre-training (`revelator train`, `stage: pretrain`)": "training.config:PretrainConfig",
    "Reader (`revelator train`, `stage: reader`)": "training.config:ReaderConfig",
    "The promotion gate (`revelator model promote --rules`)": "evaluation.gate.rules:Rules",
    "Evaluation (`revelator eval run`)": "evaluation.harness.config:RunConfig",
    "Unit costs (`revelator eval cost`)": "evaluation.cost:CostConfig",
    "Knowledge sources (`sources` in `serving.yaml`)": "serving.knowledge.config:SourcesFile",
    "What is served, and how (`serving.yaml`)": "serving.home.config:ServiceFile",
    "Clients and their groups (`clients` in `serving.yaml`)": "serving.http.callers:Clients",
}
NAMES = {
    "string": "text",
    "path": "path",
    "date-time": "time",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


CONFIGURATION = """\
# Configuration

Every configuration is a YAML file. Its fields are checked before anything runs, and an error names the file, the field,
the value and the reason. This page lists the fields of each kind of file. `make reference` writes it from the code.
"""
MODULES = {"Client": "revelator.client", "Plans": "revelator.plans", "Errors": "revelator.errors"}
API = """\
# Python API

`make reference` writes this page from the code.
"""


def write_configuration() -> str:
    """The page of the fields of every configuration."""
    return "\n\n".join([CONFIGURATION.rstrip(), *map(_section, MODELS)]) + "\n"


def write_api() -> str:
    """The page of what programs import."""
    return "\n\n".join([API.rstrip(), *(_describe_module(title, MODULES[title]) for title in MODULES)]) + "\n"


PAGES: dict[str, Callable[[], str]] = {"configuration.md": write_configuration, "api.md": write_api}


def _describe_module(title: str, name: str) -> str:
    """The module's docstring, its functions and errors in tables, and each of its classes."""
    module = importlib.import_module(name)
    public = {n: getattr(module, n) for n in getattr(module, "__all__", None) or _list_own_classes(module)}
    functions = {n: value for n, value in public.items() if inspect.isfunction(value)}
    errors = {n: value for n, value in public.items() if inspect.isclass(value) and issubclass(value, Exception)}
    classes = {n: value for n, value in public.items() if inspect.isclass(value) and n not in errors}
    parts = [f"## {title}", f"`from {name} import …`", inspect.cleandoc(module.__doc__ or "")]
    parts += [_write_table(kind, of) for kind, of in (("function", functions), ("error", errors)) if of]
    return "\n\n".join([*parts, *(_describe_class(n, value) for n, value in classes.items())])


def _list_own_classes(module: ModuleType) -> list[str]:
    return [
        name for name, value in vars(module).items() if inspect.isclass(value) and value.__module__ == module.__name__
    ]


def _describe_class(name: str, described: type) -> str:
    parts = [f"### {name}", inspect.cleandoc(described.__doc__ or "")]
    if comments := _read_field_comments(inspect.getsource(described)) if issubclass(described, dict) else {}:
        rows = [f"| `{field}` | {comment} |" for field, comment in comments.items()]
        parts.append("\n".join(["| key | meaning |", "|---|---|", *rows]))
    else:
        parts.insert(1, f"```python\n{name}{_spell_parameters(described)}\n```")
    members = {n: value for n, value in vars(described).items() if not n.startswith("_") and _is_documented(value)}
    return "\n\n".join([*parts, *([_write_table("member", members)] if members else [])])


def _is_documented(member: Any) -> bool:
    return bool((inspect.isfunction(member) or isinstance(member, property | classmethod)) and member.__doc__)


def _write_table(kind: str, members: dict[str, Any]) -> str:
    lines = [f"| {kind} | what it does |", "|---|---|"]
    for name, member in members.items():
        callable_ = getattr(member, "__func__", member)
        spelled = name if isinstance(member, property | type) else f"{name}{_spell_parameters(callable_)}"
        says, *_ = re.split(r"\n+ {4}", inspect.cleandoc(member.__doc__ or ""))  # examples have no room in a table
        cells = f"`{spelled}`", " ".join(says.split())
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def _spell_parameters(called: Any) -> str:
    """The parameters as they stand in the source, without `self`, and what is returned."""
    signature = inspect.signature(called)
    parameters = [
        p.replace(annotation=_Source(p.annotation)) for n, p in signature.parameters.items() if n not in ("self", "cls")
    ]
    returns = signature.return_annotation
    spelled = str(inspect.Signature(parameters))
    return (
        spelled
        if inspect.isclass(called) or returns in ("None", None, inspect.Signature.empty)
        else f"{spelled} -> {returns}"
    )


class _Source:
    """An annotation that is shown as it was written."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


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
    return _read_field_comments("\n".join(map(inspect.getsource, owners)))


def _read_field_comments(source: str) -> dict[str, str]:
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


if __name__ == "__main__":
    for name, write in PAGES.items():
        (DOCS / name).write_text(write(), encoding="utf-8")
