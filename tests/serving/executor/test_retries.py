"""Services that fail for a while: what the question, and its trace, show of it."""

import asyncio
from dataclasses import dataclass, field

import pytest

from revelator.errors import Unavailable
from revelator.trace import Passage
from serving.circuit_breaker import RetryPolicy
from serving.executor.executor import Executor
from serving.knowledge.sources import Sources
from serving.knowledge.text_source import TextSource
from tests.serving.executor.world import Toy

AT_ONCE = RetryPolicy(pause_seconds=0)


@dataclass
class Flaky(Toy):
    """The index is down for the first `failures` searches."""

    failures: int = 0
    failed: asyncio.Event = field(default_factory=asyncio.Event)

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        found = await super().search(query, k)
        if self.failures:
            self.failures -= 1
            self.failed.set()
            raise Unavailable("the index is being swapped")
        return found


def executor(world: Toy, policy: RetryPolicy = AT_ONCE) -> Executor:
    return Executor(world, Sources([TextSource(world, "retriever")], policy=policy), world)


async def test_a_search_that_fails_once_is_made_again_and_the_trace_says_so():
    world = Flaky({"Who wrote A?": ["Ann"]}, failures=1)
    trace = await executor(world).run("Who wrote A?", strategy="single")
    assert trace.outcome == "answered" and trace.answers == ["Ann"]
    assert world.asked == ["Who wrote A?"] * 2 and trace.nodes[0].detail["retries"] == {"retriever": 1}


async def test_an_index_that_stays_down_is_asked_no_more_than_its_guard_lets_through():
    world = Flaky({f"Who wrote {n}?": ["Ann"] for n in range(20)}, failures=1000)
    asking = executor(world)
    for n in range(20):
        with pytest.raises(Unavailable) as met:
            await asking.run(f"Who wrote {n}?", strategy="single")
        assert met.value.message == "the index is being swapped" or met.value.final, "the index's own error"
    assert len(world.asked) == AT_ONCE.failures * AT_ONCE.attempts


async def test_a_pause_before_a_retry_ends_with_the_question():
    world = Flaky(failures=1)
    slow = RetryPolicy(pause_seconds=3600, longest_pause_seconds=3600)
    run = asyncio.create_task(executor(world, slow).run("Who wrote A?", strategy="single"))
    await asyncio.wait_for(world.failed.wait(), 10)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(asyncio.all_tasks()) == 1
