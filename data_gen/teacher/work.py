"""A folder in which a teacher works: the answers so far, the annotated questions, and the set that they give.

    calls.sqlite      every answer of the endpoint (`cache`)
    questions.jsonl   annotated questions, in the order of the source; whole or absent
    set/              the instruction set, its manifest written last

Nothing but the answers is needed to make the rest again, and that asks the endpoint nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.questions import QUESTIONS, DroppedError
from data_gen.teacher.client import Budget, BudgetSpentError, Cache, Client
from data_gen.teacher.config import TeacherConfig
from revelator.cluster import Engine, work_here
from revelator.errors import ConfigError, DataError, RevelatorError
from revelator.files import hold_lock
from revelator.language_model import RefusedError

ANSWERS = "calls.sqlite"

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[["Work"], None]


@dataclass
class Work:
    """One run: the client, and what became of the questions."""

    client: Client
    progress: Progress
    kept: int = 0
    asked: int = 0
    stopped: bool = False  # the budget was spent
    dropped: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """What the calls have come to, for a terminal."""
        budget = self.client.budget
        spent = f" {budget.money:.2f}" if budget.config.price_in or budget.config.price_out else ""
        calls = f"kept {self.kept}  calls {self.client.calls} (+{self.client.cached} known)"
        return f"{calls}  tokens {budget.tokens_in + budget.tokens_out:,}{spent}"

    def count_missing(self, enough: int) -> int:
        """How many more have to be kept."""
        return enough - self.kept

    async def make_each(
        self, items: Iterable[T], make: Callable[[T], Awaitable[R]], wanted: Callable[[], float] = lambda: math.inf
    ) -> AsyncIterator[R | None]:
        """What is made of each item, in order; None for an item that is dropped.

        Several are made at once, but never more than are still `wanted`. Once the budget is spent no further item is
        begun; those that could be finished still come.
        """
        window = max(2, self.client.config.concurrency)
        waiting: deque[asyncio.Task[R]] = deque()
        left = iter(items)
        try:
            while True:
                while len(waiting) < min(window, wanted()) and not self.stopped:
                    if (item := next(left, None)) is None:
                        break
                    waiting.append(asyncio.ensure_future(make(item)))
                if not waiting:
                    return
                yield await self._await_result(waiting.popleft())
                self.progress(self)  # whoever took it has counted it by now
        except RevelatorError:
            await asyncio.gather(*waiting, return_exceptions=True)  # what is under way is paid for: let it end
            raise

    async def _await_result(self, task: asyncio.Task[R]) -> R | None:
        try:
            return await task
        except DroppedError as error:
            self.dropped[error.message] += 1
        except RefusedError as error:
            self.dropped[f"the endpoint refused the prompt ({error.status})"] += 1
        except BudgetSpentError:
            self.stopped = True
            self.dropped["not begun or not finished: the budget is spent"] += 1
        finally:
            self.asked += 1
        return None

    def describe(self, config: TeacherConfig) -> dict[str, Any]:
        """What the data card says of the teacher; nothing that differs between a straight and a resumed run."""
        budget, sampling = self.client.budget, config.sampling
        money = {"cost": f"{budget.money:.4f}"} if config.budget.price_in or config.budget.price_out else {}
        return {
            "endpoint": config.endpoint.url,
            "model": config.endpoint.model,
            "samples": f"{sampling.samples} at temperatures {', '.join(map(str, sampling.temperatures))}",
            "answers": f"{self.client.calls + self.client.cached:,}",
            "tokens": f"{budget.tokens_in:,} in, {budget.tokens_out:,} out",
            **money,
            "kept": f"{self.kept:,} of {self.asked:,}",
            **{f"not kept, {reason}": f"{count:,}" for reason, count in sorted(self.dropped.items())},
        }


@contextmanager
def open_work(out: Path, config: TeacherConfig, progress: Progress) -> Iterator[Work]:
    """Work in the folder `out`, which one process at a time may hold.

    Raises ConfigError for a folder that holds something else, or that another process works in.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file", where="--out", hint="name a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / ANSWERS).exists():
        raise ConfigError(
            f"{out} is not empty and no teacher worked there", where="--out", hint="name another folder, or empty it"
        )
    cache = Cache(out / ANSWERS)
    with hold_lock(out / ".lock", "working in this folder", out):
        yield Work(Client(config.endpoint, cache, Budget(config.budget), config.sampling.max_tokens), progress)
        cache.close()


def build_set(
    out: Path, config: TeacherConfig, work: Work, engine: Engine = work_here, **options: Any
) -> dict[str, Any]:
    """The instruction set of the annotated questions in `out`; its manifest. Raises DataError where there is none."""
    if not work.kept:
        reasons = "\n  ".join(f"{reason}: {count}" for reason, count in sorted(work.dropped.items()))
        hint = "the answers themselves are in calls.sqlite; see the model, the prompts and the budget"
        raise DataError(f"not one question was kept\n  {reasons}", where=str(out), hint=hint)
    source = {"format": "world", "path": str(out / QUESTIONS), "sub_questions": 0}
    given = {"name": config.name, "seed": config.seed, "held_out": config.held_out, "sources": [source], **options}
    made = SetConfig.model_validate({**given, "entity_coverage": config.entity_coverage})
    return build(made, out / "set", teaching=work.describe(config), engine=engine)
