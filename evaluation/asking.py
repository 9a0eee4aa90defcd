"""Questions put to a system, several at a time, and what became of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from revelator.errors import RevelatorError, Unavailable
from revelator.trace import Trace

Question = TypeVar("Question")
Ask = Callable[[str], Awaitable[Trace]]


async def ask_each(
    ask: Ask,
    questions: Iterable[Question],
    text: Callable[[Question], str],
    told: Callable[[Question, Trace | RevelatorError], None],
    concurrency: int,
) -> None:
    """`concurrency` questions in flight; `told` is called with each as it ends, and with the error of one that was
    refused. Raises Unavailable when a service is down: what was told by then is all there is."""
    queue = iter(questions)

    async def work() -> None:
        for question in queue:
            outcome: Trace | RevelatorError
            try:
                outcome = await ask(text(question))
            except Unavailable:  # not this question's fault: it stops here
                raise
            except RevelatorError as error:
                outcome = error
            told(question, outcome)

    workers = [asyncio.create_task(work()) for _ in range(concurrency)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


@contextmanager
def kept() -> Iterator[None]:
    """Around `ask_each` where each outcome is written as it is told: an Unavailable says that nothing of it is lost."""
    try:
        yield
    except Unavailable as error:
        hint = f"{error.hint or 'mend it'}; what was asked is kept, and the same command goes on"
        raise Unavailable(error.message, where=error.where, hint=hint) from error


def refusal(error: RevelatorError) -> str:
    """An error as a row keeps it."""
    return f"{type(error).__name__}: {error.message}"
