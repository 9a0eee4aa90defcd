"""Typed YAML: a configuration file becomes a pydantic model, or a ConfigError that names field, value and reason."""

from __future__ import annotations

import os
import re
import reprlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from revelator.errors import ConfigError

REFERENCE = "docs/configuration.md"  # every field with its bounds, generated from the models
DATA_VARIABLE = "REVELATOR_DATA"
DATA_DEFAULT = "../shared/data"
VARIABLE = re.compile(r"\$\{(\w+)\}|\$(\w+)")
CHOICES = re.compile(r"\^\(([\w|-]+)\)\$")  # a pattern that lists words
SHORT = reprlib.Repr()  # by aliases a short file may hold a value of any size
SHORT.maxlevel, SHORT.maxstring, SHORT.maxother = 2, 80, 80
KEYS = 100  # of a mapping from a stranger that should hold a few known fields
FAULTS = 10_000  # that are listed: pydantic takes 30 ms and 10 MB for so many, 20 s and 4 GB for four million
PLACE = 200  # characters of the place of a fault: a stranger's key may have a million


class Strict(BaseModel):
    """A part of a configuration. It is immutable and refuses unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _expand(text: str) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        found = os.environ.get(name) or (DATA_DEFAULT if name == DATA_VARIABLE else None)
        if found is None:
            raise ValueError(f"environment variable {name} is not set")
        return found

    return VARIABLE.sub(value, text)


FilePath = Annotated[str, AfterValidator(_expand)]
"""A path that may use environment variables; `${REVELATOR_DATA}` falls back to `../shared/data`. A relative path starts
at the current folder."""

Share = Annotated[float, Field(ge=0, le=1)]


def _check_keys(value: Any) -> Any:
    if isinstance(value, dict) and len(value) > KEYS:
        raise ValueError(f"{len(value):,} keys; at most {KEYS} are read")
    return value


FewKeys = BeforeValidator(_check_keys)
"""Refuses a mapping of more than `KEYS` keys at once: pydantic makes a fault of 1 kB for each unknown one."""

Config = TypeVar("Config", bound=BaseModel)


def read_config(
    path: Path, model: type[Config], changes: Mapping[str, Any] | None = None, *, show_values: bool = True
) -> Config:
    """Reads the file at `path` as a `model`; `changes` replace its fields.

    Raises ConfigError with every field that is wrong, its value and the reason. `show_values=False` leaves values out,
    for a file in which people may write a key by mistake.
    """
    value = read_yaml(path, show_values=show_values)
    if changes and isinstance(value, dict):
        value = {**value, **changes}
    return check_config(value, model, str(path), show_values=show_values)


def check_config(value: Any, model: type[Config], where: str, *, show_values: bool = True) -> Config:
    """Checks `value`, which was read from `where`, as a `model`. Raises ConfigError as `read_config` does."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = "\n  ".join(_describe_faults(error, value, show_values))
        raise ConfigError(faults, where=where, hint=f"fields and bounds: {REFERENCE}") from error


class _UniqueKeySafeLoader(yaml.SafeLoader):
    """Refuses a mapping that says a key twice, of which YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<")
        if twice := next((key for key, times in keys.items() if times > 1), None):
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: Path, *, show_values: bool = True) -> Any:
    """Reads a YAML file. Raises ConfigError for a file that cannot be read or is not YAML."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeySafeLoader)
    except OSError as error:
        hint = "give the path of a YAML file; a relative one starts at the current folder"
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        message = f"not YAML: {error}" if show_values else f"not YAML{place}"
        raise ConfigError(message, where=str(path), hint=f"see {REFERENCE} for examples") from error


@cache
def read_table(package: str, name: str) -> Any:
    """Reads a YAML file that comes with a package of ours: `read_table("data_gen.world", "words.yaml")`."""
    return yaml.load(files(package).joinpath(name).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


def find_first_fault(error: ValidationError) -> tuple[str, str]:
    """The field of the first fault, "" for the whole value, and the reason as the rest of a sentence, without the
    value. More than `FAULTS` faults are only counted: pydantic lists all or none."""
    if (count := error.error_count()) > FAULTS:
        return "", f"{count:,} faults, too many to list"
    first = error.errors(include_url=False)[0]
    place, reason = ".".join(map(str, first["loc"])), _word_reason(first)
    return place if len(place) <= PLACE else f"{place[:PLACE]}…", reason[:1].lower() + reason[1:]


def _describe_faults(error: ValidationError, value: Any, show_values: bool) -> Iterator[str]:
    """Describes field, value and reason of each fault. A value that may be of several kinds is named once, with the
    reason of each. A list is not called short because its elements have faults, nor a value of another kind."""
    if (count := error.error_count()) > FAULTS:
        yield f"file: {count:,} faults, too many to list"
        return
    found: dict[tuple[int | str, ...], list[Any]] = {}
    for fault in error.errors(include_url=False):
        found.setdefault(_find_place(fault, value), []).append(fault)
    broken_inside = {place[:depth] for place in found for depth in range(len(place))}
    for place, faults in found.items():
        if place in broken_inside and all(f["type"] == "too_short" or f["loc"] != place for f in faults):
            continue
        name = ".".join(map(str, place)) or "file"
        if show_values and faults[0]["type"] != "missing":
            name += f" = {SHORT.repr(faults[0]['input']):.80}"
        yield f"{name}: {', or '.join(dict.fromkeys(map(_word_reason, faults)))}"


def _find_place(fault: Any, value: Any) -> tuple[int | str, ...]:
    """Where the fault is in the value: pydantic's place, without the kinds of a union, which it names in between."""
    place: list[int | str] = []
    for part in fault["loc"]:
        known = value if isinstance(value, Mapping) else range(len(value)) if isinstance(value, list | tuple) else ()
        if part in known:
            value = value[part]
            place.append(part)
    return (*place, fault["loc"][-1]) if fault["type"] == "missing" else tuple(place)


def _word_reason(fault: Any) -> str:
    """Words pydantic's reason without the value and without class names."""
    match fault["type"]:
        case "model_type" | "model_attributes_type" | "dataclass_type" | "dict_type":
            return "a mapping is needed"
        case "path_type":
            return "a path is needed"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "there is no such field"
        case "missing":
            return "this field is needed"
        case "tuple_type" | "list_type":
            return "a list is needed"
        case "int_from_float":
            return "a whole number is needed"
        case "int_type" | "int_parsing" | "float_type" | "float_parsing":
            return "a number is needed"
        case "string_pattern_mismatch" if listed := CHOICES.fullmatch(fault["ctx"]["pattern"]):
            return f"must be one of {', '.join(filter(None, listed[1].split('|')))}"
        case "string_pattern_mismatch" if fault["ctx"]["pattern"] != r"\S":
            return f"must match the pattern {fault['ctx']['pattern']}"
        case "string_type" | "string_pattern_mismatch":
            return "a text is needed"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"{fault['ctx']['discriminator']} must be one of {fault['ctx'].get('expected_tags', 'its kinds')}"
    return fault["msg"].removeprefix("Value error, ")
