"""The revelator as the executor calls it: the version chosen for a question, and a canary beside the released version.

The released version completes each prompt of a question that the canary answers; the question waits for the canary
alone. One line a prompt goes to `canary/<version>.jsonl` below the home folder, without any text of questions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from revelator.files import append_lines, read_lines, sha256_text
from revelator.tasks import TASKS
from serving.models.releases import VersionChoice, find_choice, use_choice
from serving.protocols import Completion, Revelator

log = logging.getLogger(__name__)
TimedResult = tuple[list[Completion] | Exception, float]  # and the milliseconds that it took


class CanaryRevelator:
    """`serving.protocols.Revelator` over another one that obeys `find_choice()`.

    While a canary answers a question, the released version completes the same prompts beside it. The caller waits for
    the canary. If the canary fails, the caller waits for the released version and gets its answer.
    """

    def __init__(self, revelator: Revelator, home: Path) -> None:
        self._revelator = revelator
        self._home = home
        self._comparing: set[asyncio.Task[None]] = set()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        choice = find_choice()
        if choice.released is None or temperature > 0:  # what is sampled differs by chance
            return await self._revelator.complete(task, prompts, temperature=temperature)
        beside = replace(choice, version=choice.released, released=None, answered=VersionChoice().answered)
        reference = asyncio.create_task(self._complete_timed(beside, task, prompts))
        try:
            found, took = await self._complete_timed(choice, task, prompts)
        except BaseException:
            reference.cancel()
            raise
        comparing = asyncio.create_task(self._compare(choice, task, (found, took), reference))
        self._comparing.add(comparing)
        comparing.add_done_callback(self._comparing.discard)
        if not isinstance(found, Exception):
            return found
        found, _ = await asyncio.shield(reference)
        choice.answered["revelator"] |= beside.answered["revelator"]
        if isinstance(found, Exception):
            raise found
        return found

    async def _complete_timed(self, choice: VersionChoice, task: str, prompts: Sequence[str]) -> TimedResult:
        began = time.perf_counter()
        with use_choice(choice):
            try:
                found: list[Completion] | Exception = await self._revelator.complete(task, prompts)
            except Exception as error:
                found = error
        return found, (time.perf_counter() - began) * 1000

    async def _compare(
        self, choice: VersionChoice, task: str, answer: TimedResult, reference: asyncio.Task[TimedResult]
    ) -> None:
        """Writes a line a prompt, unless the released version failed, or another version stood in for the canary."""
        (found, took), (expected, released_took) = answer, await reference
        answered = choice.answered["revelator"]
        if isinstance(expected, Exception) or (not isinstance(found, Exception) and answered != {choice.version}):
            return
        given: Sequence[Completion | Exception] = [found] * len(expected) if isinstance(found, Exception) else found
        request = sha256_text(choice.request)[:16]
        times = took, released_took
        rows = [compare(request, task, *pair, times) for pair in zip(given, expected, strict=True)]
        try:
            append_lines(
                find_comparisons_file(self._home, int(choice.version)), [json.dumps(asdict(row)) for row in rows]
            )
        except OSError as error:
            log.warning("a comparison with the canary is lost: %s", error)

    async def close(self) -> None:
        """Waits for the comparisons under way."""
        await asyncio.gather(*self._comparing)


@dataclass(frozen=True)
class CanaryComparison:
    """One prompt, put to both versions. `agrees`: the same shape of a plan, else what the task's parser reads."""

    request: str  # digest of the question's id
    task: str
    canary_ms: float
    released_ms: float
    canary_valid: bool  # False too when the canary gave no answer: `error`
    released_valid: bool
    agrees: bool
    error: str = ""


def compare(
    request: str, task: str, canary: Completion | BaseException, released: Completion, times: tuple[float, float]
) -> CanaryComparison:
    """`times` are the canary's and the released version's milliseconds."""
    canary_ms, released_ms = (round(ms, 3) for ms in times)
    comparable = TASKS[task].make_comparable
    answered = None if isinstance(canary, BaseException) else canary
    return CanaryComparison(
        request,
        task,
        canary_ms,
        released_ms,
        canary_valid=answered is not None and _is_valid(task, answered),
        released_valid=_is_valid(task, released),
        agrees=answered is not None and comparable(answered.text) == comparable(released.text),
        error="" if answered else type(canary).__name__,
    )


def _is_valid(task: str, completion: Completion) -> bool:
    return not completion.degraded and TASKS[task].parse_sound(completion.text) is not None


def find_comparisons_file(home: Path, version: int) -> Path:
    return home / "canary" / f"{version}.jsonl"


def read_comparisons(home: Path, version: int) -> list[CanaryComparison]:
    """The comparisons that are whole so far: the server goes on writing them."""
    return [CanaryComparison(**json.loads(line)) for line in read_lines(find_comparisons_file(home, version))]
