"""What a set may cost. A call is only made when its dearest outcome still fits, so the budget is never exceeded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from data_gen.teacher.cache import Reply
from data_gen.teacher.config import BudgetConfig
from revelator.errors import RevelatorError

MILLION = 1_000_000
TEMPLATE_TOKENS = 64  # that a chat template adds to each message, at most


class BudgetSpentError(RevelatorError):
    """The next call does not fit into the budget any more."""


class Budget:
    """Counts tokens and money; `hold` sets aside what a call may cost at most until it is `charge`d."""

    def __init__(self, config: BudgetConfig) -> None:
        self.config = config
        self.tokens_in = self.tokens_out = 0
        self._held: list[tuple[int, int]] = []
        self._settled = asyncio.Condition()

    @property
    def money(self) -> float:
        return self._price(self.tokens_in, self.tokens_out)

    def charge(self, reply: Reply) -> None:
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out

    @asynccontextmanager
    async def hold(self, most_in: int, most_out: int) -> AsyncIterator[None]:
        """Waits for calls under way where their outcome decides; raises BudgetSpentError when it does not fit."""
        call = (most_in, most_out)
        async with self._settled:
            while not self._fits(call):
                if not self._held:
                    raise BudgetSpentError("the budget is spent")
                await self._settled.wait()
            self._held.append(call)
        try:
            yield
        finally:
            self._held.remove(call)
            async with self._settled:
                self._settled.notify_all()

    def _fits(self, call: tuple[int, int]) -> bool:
        calls = [(self.tokens_in, self.tokens_out), *self._held, call]
        tokens_in, tokens_out = (sum(side) for side in zip(*calls, strict=True))
        within_tokens = self.config.tokens is None or tokens_in + tokens_out <= self.config.tokens
        return within_tokens and (self.config.money is None or self._price(tokens_in, tokens_out) <= self.config.money)

    def _price(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.config.price_in + tokens_out * self.config.price_out) / MILLION
