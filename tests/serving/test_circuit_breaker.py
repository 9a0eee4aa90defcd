"""Retries and the circuit breaker, with a clock, a sleep and a die of the test's own."""

import asyncio

import pytest

from revelator.errors import DeadlineExceeded, InvalidRequest, Overloaded, Unavailable
from serving.circuit_breaker import CircuitBreaker, RetryPolicy


class Source:
    """Fails with each of `errors` in turn, then answers; time passes only while the breaker sleeps."""

    def __init__(self, *errors: Exception, **policy: float) -> None:
        self.errors = list(errors)
        self.calls = 0
        self.now = 0.0
        self.pauses: list[float] = []
        self.pausing = asyncio.Event()
        self.go = asyncio.Event()
        self.go.set()
        self.breaker = CircuitBreaker(
            "the index", RetryPolicy(**policy), clock=lambda: self.now, sleep=self.sleep, random=lambda: 0.5
        )

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        self.pausing.set()
        await self.go.wait()

    async def answer(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "found"

    async def ask(self) -> str:
        return await self.breaker.call(self.answer)

    async def fail(self, times: int) -> None:
        for _ in range(times):
            self.errors.append(Unavailable("down"))
            with pytest.raises(Unavailable):
                await self.ask()


async def test_a_call_that_met_a_source_that_is_down_is_made_again_after_growing_random_pauses():
    source = Source(Unavailable("down"), Overloaded("full"), attempts=4, pause_seconds=0.1)
    assert await source.ask() == "found"
    assert source.calls == 3 and source.pauses == [0.05, 0.1]


async def test_a_connection_that_fails_is_a_source_that_is_down():
    source = Source(ConnectionRefusedError("refused"), OSError("no route to host"))
    assert await source.ask() == "found"
    assert source.calls == 3


@pytest.mark.parametrize("error", [Unavailable("down"), ConnectionResetError("reset"), TimeoutError("late")])
async def test_every_kind_of_failure_to_answer_counts(error):
    source = Source(*[error] * 2, attempts=1, failures=2)
    for _ in range(2):
        with pytest.raises(type(error)):
            await source.ask()
    with pytest.raises(Unavailable, match="left alone"):
        await source.ask()


async def test_pauses_have_a_bound():
    source = Source(*[Overloaded("full")] * 5, attempts=6, pause_seconds=1.0, longest_pause_seconds=2.0)
    await source.ask()
    assert source.pauses == [0.5, 1.0, 1.0, 1.0, 1.0]


async def test_after_the_last_attempt_its_error_is_raised():
    source = Source(*[Unavailable(f"down {n}") for n in range(3)], attempts=3)
    with pytest.raises(Unavailable, match="down 2"):
        await source.ask()


@pytest.mark.parametrize(
    "error",
    [
        InvalidRequest("no"),
        DeadlineExceeded("late"),
        TimeoutError("late"),
        RuntimeError("torn"),
        Unavailable("down", final=True),
    ],
)
async def test_what_another_attempt_cannot_mend_is_raised_at_once(error):
    source = Source(error)
    with pytest.raises(type(error)):
        await source.ask()
    assert source.calls == 1


async def test_a_retry_is_given_up_when_other_calls_have_shown_that_the_source_is_down():
    source = Source(Unavailable("down"), Unavailable("down"), attempts=3, failures=1)
    source.go.clear()
    first = asyncio.create_task(source.ask())
    await source.pausing.wait()
    with pytest.raises(Unavailable):
        await source.breaker.call(Source(Unavailable("down", final=True)).answer)
    source.go.set()
    with pytest.raises(Unavailable):
        await first
    assert source.calls == 2


async def test_a_source_that_fails_again_and_again_is_not_asked_until_it_has_rested():
    source = Source(attempts=1, failures=3, rest_seconds=10)
    await source.fail(3)
    source.now += 9
    with pytest.raises(Unavailable, match="left alone") as refused:
        await source.ask()
    assert source.calls == 3 and refused.value.where == "the index" and refused.value.hint
    source.now += 2
    assert await source.ask() == "found"


async def test_the_first_call_after_a_rest_decides_alone():
    source = Source(attempts=1, failures=2, rest_seconds=10)
    await source.fail(2)
    source.now += 11
    await source.fail(1)
    with pytest.raises(Unavailable, match="left alone"):
        await source.ask()
    source.now += 11
    gate = asyncio.Event()
    first = asyncio.create_task(source.breaker.call(gate.wait))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="left alone"):
        await source.ask()
    gate.set()
    assert await first is True and await source.ask() == "found"


async def test_a_call_from_before_the_rest_that_ends_lets_no_second_trial_begin():
    source = Source(attempts=1, failures=1, rest_seconds=10)
    old = asyncio.create_task(source.breaker.call(asyncio.Event().wait))
    await asyncio.sleep(0)
    await source.fail(1)
    source.now += 11
    gate = asyncio.Event()
    trial = asyncio.create_task(source.breaker.call(gate.wait))
    await asyncio.sleep(0)
    old.cancel()
    await asyncio.wait([old])
    with pytest.raises(Unavailable, match="left alone"):
        await source.ask()
    gate.set()
    assert await trial is True and await source.ask() == "found"


async def test_a_trial_that_is_cancelled_lets_the_next_one_try():
    source = Source(attempts=1, failures=1, rest_seconds=10)
    await source.fail(1)
    source.now += 11
    trial = asyncio.create_task(source.breaker.call(asyncio.Event().wait))
    await asyncio.sleep(0)
    trial.cancel()
    await asyncio.wait([trial])
    assert await source.ask() == "found"


async def test_failures_count_only_in_a_row_and_a_refusal_is_none():
    source = Source(attempts=1, failures=2)
    for error in (Unavailable("down"), InvalidRequest("no"), Unavailable("down")):
        source.errors = [error]
        with pytest.raises(type(error)):
            await source.ask()
    assert await source.ask() == "found"
