"""`revelator data teach`: questions of any source are annotated by an endpoint, and become an instruction set."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from data_gen.annotated import AnnotatedQuestion
from data_gen.config import TaskConfig
from data_gen.sources import READERS
from data_gen.sources.rows import count
from data_gen.teacher.config import TeachConfig
from data_gen.teacher.prompting import Prompts
from data_gen.teacher.questions import Teaching
from data_gen.teacher.work import QUESTIONS, Admission, Progress, Work, build_set, opened, rows
from revelator.tasks import TASKS


def teach(config: TeachConfig, out: Path, progress: Progress) -> tuple[dict[str, Any], Work]:
    """Asks the endpoint about every question, in the folder `out`, and builds the set there; its manifest.

    Held-out questions, and those met before, are never sent. Raises Unavailable or ServingError when the endpoint
    fails for good: the answers so far are kept. A budget that is spent ends the asking, and the set is what was done.
    """
    with opened(out, config, progress) as work:
        asyncio.run(_annotate(config, out, work))
        untaught = {name: TaskConfig(share=0) for name in TASKS if name not in config.tasks}
        bounds = {name: bound.model_dump() for name, bound in {**config.records, **untaught}.items()}
        manifest = build_set(out, config, work, tasks=bounds, split=config.split.model_dump())
    return manifest, work


async def _annotate(config: TeachConfig, out: Path, work: Work) -> None:
    teaching = Teaching(work.client, Prompts(config.examples, config.seed), config)
    with rows(out / QUESTIONS) as write:
        async for annotated in work.each(questions(config, work.dropped), teaching.annotate):
            if annotated is not None:
                work.kept += 1
                write(annotated)
    await work.client.close()


def total(config: TeachConfig) -> int | None:
    """How many questions will be asked about: what a first reading of the sources gives, where that fetches nothing."""
    if any("://" in source.path for source in config.sources):
        return None
    return sum(1 for _ in questions(config, Counter()))


def questions(config: TeachConfig, dropped: Counter[str]) -> Iterator[AnnotatedQuestion]:
    """Each question of the sources once, under the name and licence of its source."""
    admission = Admission(config.held_out)
    for source in config.sources:
        for outcome in islice(READERS[source.format](source.path), source.limit):
            if not isinstance(outcome, AnnotatedQuestion):
                count(outcome, dropped)
                continue
            name, licence = source.name or outcome.source, source.licence or outcome.licence
            question = replace(outcome, parts=(), source=name, licence=licence)
            if admission.admits(question, dropped):
                yield question
