"""An index for each question that holds its own gold passages and nothing else, so that no search can miss anything.
What an executor answers over it is a plan's executed accuracy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar

from data_gen.questions import AnnotatedQuestion
from evaluation.harness.ablations import list_gold_passages
from revelator.trace import Passage, Trace
from serving.protocols import PUBLIC, Scope

Ask = Callable[[str], Awaitable[Trace]]
_ASKED: ContextVar[str] = ContextVar("the question that is asked")


class GoldRetriever:
    """Finds all gold passages of the question that is asked, whatever a leaf asks, in the order of its benchmark."""

    def __init__(self, golds: Mapping[str, AnnotatedQuestion]) -> None:
        self._golds = golds

    async def search(self, query: str, k: int, scope: Scope = PUBLIC) -> list[Passage]:
        return list(list_gold_passages(self._golds[_ASKED.get()])[:k])


def announce_question(ask: Ask) -> Ask:
    """The same system, which tells its searches the question that is asked: a leaf's own words do not say it."""

    async def ask_one(question: str) -> Trace:
        token = _ASKED.set(question)
        try:
            return await ask(question)
        finally:
            _ASKED.reset(token)

    return ask_one
