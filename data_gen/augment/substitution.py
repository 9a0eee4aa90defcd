"""The same question under other names: what a plan copies from its question is replaced in both, consistently.

A model that sees a structure under ever new names learns the structure; one that sees each name once learns the names.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from data_gen.annotate.names import MAX_NAME, SAFE_NAME, find_planned_names
from data_gen.annotate.trees import rewrite_tree
from data_gen.questions import AnnotatedQuestion, AnnotatedStep
from revelator import plans
from revelator.errors import DataError, ExpressionError
from revelator.plans.art import parse, render
from revelator.plans.bnf import rewrite


def substitute_names(question: AnnotatedQuestion, pool: Sequence[str], rng: Random) -> AnnotatedQuestion | None:
    """The question with every name that it shares with its plan, parts or steps replaced by one drawn from `pool`.

    Passages are left out: they speak of the old names. None when nothing is shared, or when a new name would change
    the plan's shape.
    """
    names = find_planned_names(question)
    if not names:
        return None
    new = dict(zip([name.casefold() for name in names], rng.sample(pool, len(names)), strict=True))
    pattern = re.compile(rf"(?<!\w)(?:{'|'.join(re.escape(name) for name in names)})(?!\w)", re.IGNORECASE)

    def rename(text: str) -> str:
        return pattern.sub(lambda match: new[match[0].casefold()], text)

    def rename_step(step: AnnotatedStep) -> AnnotatedStep:
        return AnnotatedStep(rename(step.question), tuple(map(rename, step.answers)), rename(step.title), step.sources)

    expression = _rename_plan(question.expression, rename)
    if expression is None:
        return None
    return replace(
        question,
        question=rename(question.question),
        expression=expression,
        parts=tuple(map(rename, question.parts)),
        steps=tuple(map(rename_step, question.steps)),
        message=rename(question.message),
        history=tuple(map(rename_step, question.history)),
        answers=tuple(map(rename, question.answers)),
        passages=(),
        entities=tuple(map(rename, question.entities)),
        tree=render(rewrite_tree(parse(question.tree), rename)) if question.tree else "",
    )


def _rename_plan(text: str, rename: Callable[[str], str]) -> str | None:
    if not text:
        return ""
    before = plans.parse(text)
    after = rewrite(before, lambda leaf, _: rename(leaf.text))
    try:
        same = plans.to_letters(after) == plans.to_letters(before) and not plans.check(after)
    except ExpressionError:
        return None
    return plans.render(after) if same and plans.bind(after).sources == plans.bind(before).sources else None


def load_names(path: Path) -> list[str]:
    """Names from a file: one a line, or JSON lines with a `title`. Sorted, each once, short and free of syntax."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            names = {json.loads(line)["title"] if line.startswith("{") else line.strip() for line in file}
    except (OSError, EOFError, ValueError, KeyError) as error:
        raise DataError(
            f"names cannot be read: {error}", where=str(path), hint="one name a line, or JSON lines with a title"
        ) from error
    usable = sorted(name for name in names if 2 < len(name) <= MAX_NAME and SAFE_NAME.fullmatch(name))
    if len(usable) < 100:
        raise DataError(
            f"only {len(usable)} usable names", where=str(path), hint="give a file with a hundred names or more"
        )
    return usable
