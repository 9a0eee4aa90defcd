"""Services that fail for a while: what the question, and its trace, show of it."""

import asyncio
from dataclasses import replace

import pytest

from revelator.errors import Unavailable
from revelator.trace import Passage
from serving.circuit_breaker import CircuitBreaker
from serving.executor.executor import Executor
from tests.serving.executor.world import Toy


class Flaky(Toy):
    """The index is down for the first `failures` searches."""

    failures = 0

    async def search(self, query: str, k: int) -> list[Passage]:
        found = await super().search(query, k)
        if self.failures:
            self.failures -= 1
            raise Unavailable("the index is being swapped")
        return found


def executor(world: Toy, sleep) -> Executor:
    executor = Executor(world, world, world)
    executor.models = replace(executor.models, search_breaker=CircuitBreaker("the retriever", sleep=sleep))
    return executor


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


async def test_a_search_that_fails_once_is_made_again_and_the_trace_says_so():
    world = Flaky({"Who wrote A?": ["Ann"]})
    world.failures = 1
    trace = await executor(world, at_once).run("Who wrote A?", strategy="single")
    assert trace.outcome == "answered" and trace.answers == ["Ann"]
    assert world.asked == ["Who wrote A?"] * 2 and trace.nodes[0].detail["retries"] == {"retriever": 1}


async def test_an_index_that_stays_down_is_asked_no_more_than_its_guard_lets_through():
    world = Flaky({f"Who wrote {n}?": ["Ann"] for n in range(20)})
    world.failures = 1000
    executor_ = executor(world, at_once)
    for n in range(20):
        with pytest.raises(Unavailable):
            await executor_.run(f"Who wrote {n}?", strategy="single")
    policy = executor_.models.search_breaker.policy
    assert len(world.asked) == policy.failures * policy.attempts


async def test_a_pause_before_a_retry_ends_with_the_question():
    world = Flaky()
    world.failures = 1
    pausing = asyncio.Event()

    async def forever(seconds: float) -> None:
        pausing.set()
        await asyncio.Event().wait()

    run = asyncio.create_task(executor(world, forever).run("Who wrote A?", strategy="single"))
    await asyncio.wait_for(pausing.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(asyncio.all_tasks()) == 1
