"""Every regular expression of the packages, what it is used for, and texts that take it longest.

Texts follow from the pattern itself: what leads up to each of its repeats, then what that repeat takes, many times,
then something that nothing takes. That is where a backtracking engine tries every division of the run.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from re import _constants as parts  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("revelator", "data_gen", "training", "serving", "evaluation")
METHODS = ("match", "fullmatch", "search", "finditer")  # of which the others are made
SEARCHES = {"sub": "finditer", "subn": "finditer", "split": "finditer", "findall": "finditer"}
REPEATS = (parts.MAX_REPEAT, parts.MIN_REPEAT, parts.POSSESSIVE_REPEAT)
LONG = 10  # repeats of a part beyond which a run of it is worth a try
COMMON = (" ", "a", "1", "A", "a ", "A ", "1 ", "A. ", "a,", "-", ".", "'", '"', "the ", "of ", "and ", "(", "{", "{a}")
SPOILERS = ("", "\x00", "!")


@dataclass(frozen=True)
class Use:
    """A pattern, the methods that it is used by, and where it stands."""

    pattern: re.Pattern[str]
    methods: frozenset[str]
    place: str


def uses() -> Iterator[Use]:
    """Patterns at the top of modules, by any name and in any collection, and those inside functions."""
    called = _methods_by_name()
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        if path.name == "__main__.py":
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        known = _names_of(name.removesuffix(".__init__"))
        for variable, value in known.items():
            for pattern in _patterns(value):
                yield Use(pattern, frozenset(called.get(variable) or METHODS), f"{name}.{variable}")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (method := _of_re(call)) and (pattern := _evaluated(call, known)):
                methods = METHODS if method == "compile" else [SEARCHES.get(method, method)]
                if method != "compile" or len(known) == 1:
                    yield Use(pattern, frozenset(methods), f"{name}:{call.lineno}")


def _names_of(module: str) -> dict[str, Any]:
    """What stands at the top of a module; of one that only Triton can import, `re` alone."""
    try:
        return vars(importlib.import_module(module))
    except ModuleNotFoundError as error:
        if error.name != "triton_python_backend_utils":
            raise
        return {"re": re}


def attacks(pattern: re.Pattern[str], size: int) -> Iterator[str]:
    """Texts of about `size` characters."""
    runs = {*_runs(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)), *(("", run) for run in COMMON)}
    for before, run in sorted(runs):
        for spoiler in SPOILERS:
            yield before + run * (size // len(run)) + spoiler


def _methods_by_name() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                method = SEARCHES.get(node.attr, node.attr)
                if method in METHODS and node.value.id != "re":
                    found[node.value.id].add(method)
    return found


def _patterns(value: object, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        if isinstance(value.pattern, str):
            yield value
    elif isinstance(value, dict):
        for item in (*value.keys(), *value.values()):
            yield from _patterns(item, depth + 1)
    elif isinstance(value, tuple | list | set | frozenset) and depth < 4:
        for item in value:
            yield from _patterns(item, depth + 1)


def _of_re(node: Any) -> str | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
        return node.func.attr if node.func.value.id == "re" and node.args and node.func.attr != "escape" else None
    return None


def _evaluated(call: ast.Call, known: dict[str, Any]) -> re.Pattern[str] | None:
    """The pattern of a call of `re`; None where it is made of what only the function knows."""
    flags = next((k.value for k in call.keywords if k.arg == "flags"), None)
    flags = flags or next((a for a in call.args[2:] if "re." in ast.unparse(a)), None)
    try:
        text = eval(compile(ast.Expression(call.args[0]), "pattern", "eval"), known)
        number = eval(compile(ast.Expression(flags), "flags", "eval"), known) if flags is not None else 0
        return re.compile(text, number) if isinstance(text, str) else None
    except (NameError, AttributeError):
        return None


def _runs(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """What leads up to each repeat, and what is worth repeating there: what the repeat takes once, what stands after
    it, and both."""
    tree = list(tree)
    for place, (op, value) in enumerate(tree):
        if op in REPEATS:
            inner = value[2]
            if value[1] is parts.MAXREPEAT or value[1] >= LONG:
                once, after = _example(inner) or "a", _example(tree[place + 1 : place + 2])
                yield from ((before, run) for run in (once, after, once + after) if run)
                if len(inner) == 1 and inner[0][0] is parts.BRANCH:
                    yield from ((before, _example(branch) or "a") for branch in inner[0][1][1])
            yield from _runs(inner, before)
        elif op is parts.SUBPATTERN:
            yield from _runs(value[3], before)
        elif op is parts.ATOMIC_GROUP:
            yield from _runs(value, before)
        elif op is parts.BRANCH:
            for branch in value[1]:
                yield from _runs(branch, before)
        elif op in (parts.ASSERT, parts.ASSERT_NOT):
            yield from _runs(value[1], before)
        before += _example([(op, value)])


def _example(tree: Any) -> str:
    """A short text that the parts take, as far as one can be read off them."""
    return "".join(_taken(op, value) for op, value in tree)


def _taken(op: Any, value: Any) -> str:
    if op is parts.LITERAL:
        return chr(value)
    if op is parts.NOT_LITERAL:
        return "a" if value != ord("a") else "b"
    if op is parts.ANY:
        return "a"
    if op is parts.IN:
        return _member(value)
    if op in REPEATS:
        return _example(value[2]) * value[0]
    if op is parts.SUBPATTERN:
        return _example(value[3])
    if op is parts.ATOMIC_GROUP:
        return _example(value)
    if op is parts.BRANCH:
        return _example(value[1][0])
    return ""


def _member(items: Any) -> str:
    """One character of a class."""
    written = re.compile("[" + "".join(map(_written, items)) + "]")
    return next((c for c in 'aA1 -.,"é(\n~' if written.fullmatch(c)), _first(items))


def _written(item: Any) -> str:
    op, value = item
    if op is parts.NEGATE:
        return "^"
    if op is parts.LITERAL:
        return re.escape(chr(value))
    if op is parts.RANGE:
        return f"{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}"
    names = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w", "NOT_DIGIT": r"\D", "NOT_SPACE": r"\S", "NOT_WORD": r"\W"}
    return names[str(value).removeprefix("CATEGORY_")]


def _first(items: Any) -> str:
    return next((chr(v if op is parts.LITERAL else v[0]) for op, v in items if op in (parts.LITERAL, parts.RANGE)), "a")
