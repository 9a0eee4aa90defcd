"""The revelator as the executor calls it: the version chosen for a question, and a canary beside the champion."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from revelator.files import sha256_text
from serving.deployment import canary
from serving.protocols import Completion, Revelator
from serving.triton import traffic
from serving.triton.traffic import Choice

log = logging.getLogger(__name__)
Outcome = tuple[list[Completion] | Exception, float]  # and the milliseconds that it took


class RoutedRevelator:
    """`serving.protocols.Revelator` over another one that obeys `traffic.current()`.

    While a canary answers a question, the champion completes the same prompts beside it. The caller waits for the
    canary; if that fails, for the champion, whose answer it gets.
    """

    def __init__(self, revelator: Revelator, home: Path) -> None:
        self._revelator = revelator
        self._home = home
        self._beside: set[asyncio.Task[None]] = set()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        choice = traffic.current()
        if choice.champion is None or temperature > 0:  # what is sampled differs by chance
            return await self._revelator.complete(task, prompts, temperature=temperature)
        beside = replace(choice, version=choice.champion, champion=None, answered=Choice().answered)
        reference = asyncio.create_task(self._timed(beside, task, prompts))
        try:
            found, took = await self._timed(choice, task, prompts)
        except BaseException:
            reference.cancel()
            raise
        comparing = asyncio.create_task(self._compare(choice, task, (found, took), reference))
        self._beside.add(comparing)
        comparing.add_done_callback(self._beside.discard)
        if not isinstance(found, Exception):
            return found
        found, _ = await asyncio.shield(reference)
        choice.answered["revelator"] |= beside.answered["revelator"]
        if isinstance(found, Exception):
            raise found
        return found

    async def _timed(self, choice: Choice, task: str, prompts: Sequence[str]) -> Outcome:
        began = time.perf_counter()
        with traffic.chosen(choice):
            try:
                found: list[Completion] | Exception = await self._revelator.complete(task, prompts)
            except Exception as error:
                found = error
        return found, (time.perf_counter() - began) * 1000

    async def _compare(self, choice: Choice, task: str, answer: Outcome, reference: asyncio.Task[Outcome]) -> None:
        """Writes a line a prompt, unless the champion failed too, or another version stood in for the canary."""
        (found, took), (wanted, champion_took) = answer, await reference
        answered = choice.answered["revelator"]
        if isinstance(wanted, Exception) or (not isinstance(found, Exception) and answered != {choice.version}):
            return
        given: Sequence[Completion | Exception] = [found] * len(wanted) if isinstance(found, Exception) else found
        request = sha256_text(choice.request)[:16]
        times = took, champion_took
        rows = [canary.compared(request, task, g, w, times) for g, w in zip(given, wanted, strict=True)]
        try:
            canary.record(self._home, int(choice.version), rows)
        except OSError as error:
            log.warning("a comparison with the canary is lost: %s", error)

    async def close(self) -> None:
        """Waits for the comparisons under way."""
        await asyncio.gather(*self._beside)
