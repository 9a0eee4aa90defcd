"""How long a question takes at the endpoints of a configuration: one call of each kind, timed when a server starts."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from revelator.errors import DeadlineExceeded, ServingError, Unavailable
from revelator.language_model import Endpoint
from revelator.limits import LONGEST_MS
from revelator.tasks import TASKS, TRANSLATE_BNF, QuestionInput
from revelator.trace import Node, Passage
from serving.executor.judges import JudgeConfig, ListwiseJudge
from serving.home.config import REVELATOR, ServingConfig
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.generators import EndpointGenerator
from serving.models.revelator_reader import RevelatorReader
from serving.protocols import GenerateRequest

STEPS = 3
MARGIN = 2  # times the estimate: other questions are in flight, and some have more steps
ROUND_MS = 10_000
LONGEST_CALL = LONGEST_MS / 1000 / (STEPS * MARGIN)  # seconds: with longer calls no deadline is long enough
QUESTION = "Where was the founder of the harbour of {name} born, and in which year did she leave?"
TEXT = (
    "The harbour of {name} was founded in 1732 by Ines Calloway, who came from the north with eleven families. The "
    "first quay was of timber and stood for forty years. Grain, slate and salted fish were shipped from it, and a toll "
    "was taken on each load. After the flood the town built a mole of stone, which still stands. A market has been "
    "held beside it on the second Sunday of May ever since, and the harbour master's house is a museum today."
)


@dataclass(frozen=True)
class Pace:
    """Seconds of one call: a plan, a judgement of a step's documents, a reading; 0 where no endpoint does it.
    `last_readings` are those at the end of a question: to merge its answers, and to write a text. `silence` says why
    the reader's endpoint gave no answer, which it may give later."""

    plan: float = 0.0
    judgement: float = 0.0
    reading: float = 0.0
    last_readings: int = 0
    silence: str = ""

    @property
    def question(self) -> float:
        """Seconds of a question of `STEPS` steps, one after the other. A route takes as long as a plan, at most."""
        return 2 * self.plan + STEPS * self.judgement + (STEPS + self.last_readings) * self.reading

    @property
    def longest_call(self) -> float:
        return max(self.plan, self.judgement, self.reading)

    @property
    def deadline_ms(self) -> float:
        """The deadline that such a question needs."""
        return min(LONGEST_MS, ceil(MARGIN * self.question * 1000 / ROUND_MS) * ROUND_MS)

    def __str__(self) -> str:
        seconds = {"a plan": self.plan, "a judgement": self.judgement, "a reading": self.reading}
        measured = ", ".join(f"{name} {value:.1f} s" for name, value in seconds.items() if value)
        return f"about {self.question:.0f} s at the endpoint ({measured})"


async def measure_pace(config: ServingConfig) -> Pace:
    """Times one call of each kind that an endpoint answers. A short question before it lets a server load its model.

    Raises the errors of `EndpointRevelator.complete` where the planner or the judge does not answer, and where the
    reader refuses: its address, key or model is wrong. A reader may be started later.
    """
    plan = judgement = reading = 0.0
    silence, seconds = "", config.timeout or LONGEST_CALL
    if config.planner:
        plan, reading = await _time_planner(config.planner, seconds, reads=config.generator == REVELATOR)
    if isinstance(config.judge, JudgeConfig):
        judgement = await _time_judgement(config.judge, seconds)
    if config.reads_at_endpoint:
        try:
            reading = await _time_reading(config.generator, config.generator_model, seconds)
        except (Unavailable, DeadlineExceeded) as error:
            silence = str(error)
    writing = config.writing
    return Pace(plan, judgement, reading, writing.text, silence)


async def _time_planner(planner: PlannerConfig, seconds: float, reads: bool) -> tuple[float, float]:
    """Seconds of a plan, and of a reading if it `reads`, too."""
    revelator = EndpointRevelator(planner, timeout=seconds)
    try:
        await revelator.check()
        question, _ = _write_example(1)
        await revelator.complete("route", [TASKS["route"].render(QuestionInput(question))])
        began = time.perf_counter()
        await revelator.complete(TRANSLATE_BNF.name, [TRANSLATE_BNF.render(QuestionInput(question))])
        planned = time.perf_counter()
        if reads:
            question, passages = _write_example(3)
            await RevelatorReader(revelator).answer(GenerateRequest("read", question, passages=tuple(passages)))
        return planned - began, time.perf_counter() - planned if reads else 0.0
    except ServingError as error:
        _add_hint(error, "without `planner` the release plans")
        raise
    finally:
        await revelator.close()


async def _time_judgement(config: JudgeConfig, seconds: float) -> float:
    judge = ListwiseJudge(config, timeout=seconds)
    try:
        await _warm_up(config.url, config.model, seconds)
        question, passages = _write_example(10)
        began = time.perf_counter()
        await judge.judge(Node("1", "atomic", question), question, passages)
        return time.perf_counter() - began
    except ServingError as error:
        _add_hint(error, "`judge: embedded` lets the release judge")
        raise
    finally:
        await judge.close()


async def _time_reading(url: str, model: str, seconds: float) -> float:
    generator = EndpointGenerator(url, model, timeout=seconds)
    try:
        await _warm_up(url, model, seconds)
        question, passages = _write_example(3)
        began = time.perf_counter()
        await generator.answer(GenerateRequest("read", question, passages=tuple(passages)))
        return time.perf_counter() - began
    except ServingError as error:
        _add_hint(error, "--generator embedded reads without a language model")
        raise
    finally:
        await generator.close()


async def _warm_up(url: str, model: str, seconds: float) -> None:
    """Asks for one word. Raises the errors of `Endpoint.chat`; a refusal names the models that there are."""
    endpoint = Endpoint(url, model, timeout=seconds)
    try:
        await endpoint.chat([{"role": "user", "content": "Reply with one word: ready."}])
    except (Unavailable, DeadlineExceeded):
        raise
    except ServingError as error:
        with suppress(ServingError):
            if names := await endpoint.list_models():
                error.hint = f"its models are {', '.join(sorted(names))}"[:500]
        raise
    finally:
        await endpoint.close()


def _add_hint(error: ServingError, hint: str) -> None:
    error.hint = "; ".join(filter(None, [error.hint, hint]))


def _write_example(count: int) -> tuple[str, list[Passage]]:
    """A question and so many passages of 80 words about it. The name changes from call to call: a server may remember
    what it has read, and what it has not is to be timed."""
    name = f"Port {time.time_ns() // 1000 % 1_000_000}"
    text = TEXT.format(name=name)
    return QUESTION.format(name=name), [Passage(str(n), f"{name}, part {n}", text) for n in range(1, count + 1)]
