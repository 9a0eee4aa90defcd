"""The walk of a question: the functions between a client's call and the model or the source that it ends in.

Whoever reads how a question is answered goes through these. They are taken from the stacks of the calls themselves,
those of a task behind those of the task that began it; helpers that return before a model is asked are not on the way.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from revelator.client import AsyncClient
from revelator.limits import Limits
from serving.executor.executor import Executor
from serving.home.config import ServingConfig
from serving.knowledge.sources import Sources
from serving.models.releases import Traffic
from serving.protocols import Completion, GenerateRequest, Reading
from serving.service.access import Tokens
from serving.service.grpc_front import bind_grpc, serve_grpc
from serving.service.models import Models
from serving.service.questions import Questions
from tests.serving.executor.world import Toy

ROOT = Path(__file__).parents[2]
MOST = 50  # functions on the ways to all models and sources together
PLAN = "(Who directed Jaws? * When was {1} born?) + (Who directed UHF? * When was {3} born?) => argmin"
KNOWN = {
    "Who directed Jaws?": ["Steven Spielberg"],
    "When was Steven Spielberg born?": ["1946"],
    "Who directed UHF?": ["Jay Levey"],
    "When was Jay Levey born?": ["1953"],
}


class Place(NamedTuple):
    module: str
    function: str


def list_places(frame: FrameType | None) -> list[Place]:
    """The product's functions that this frame was called by, the first one first."""
    places = []
    while frame:
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_qualname
        if path.is_relative_to(ROOT / "serving") and not name.endswith("<listcomp>"):
            places.append(Place(str(path.relative_to(ROOT)), name))
        frame = frame.f_back
    return places[::-1]


class Walks:
    """A factory of tasks that remembers on whose way each began, and the walks to what was asked."""

    def __init__(self) -> None:
        self.taken: list[list[Place]] = []
        self._began: dict[asyncio.Task[Any] | None, list[Place]] = {}

    def __call__(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any
    ) -> asyncio.Task[Any]:
        way = self._find_way(loop)
        task = asyncio.Task(work, loop=loop, **more)
        self._began[task] = way
        return task

    def end_here(self) -> None:
        self.taken.append(self._find_way(asyncio.get_running_loop()))

    def forget(self) -> None:
        """What the start of a server began is on no question's way."""
        self._began.clear()

    def _find_way(self, loop: asyncio.AbstractEventLoop) -> list[Place]:
        before = self._began.get(asyncio.current_task(loop), [])
        return [*before, *list_places(sys._getframe(2))]


class Asked(Toy):
    """The toy world, which notes the way to each of its calls."""

    walks: Walks

    async def search(self, query: str, k: int, scope: object = None) -> Any:
        self.walks.end_here()
        return await super().search(query, k)

    async def complete(self, task: str, *prompts: Any, **more: Any) -> list[Completion]:
        self.walks.end_here()
        return await super().complete(task, *prompts, **more)

    async def answer(self, request: GenerateRequest) -> Reading:
        self.walks.end_here()
        return await super().answer(request)


async def test_a_question_comes_to_no_module_twice_and_through_few_functions(tmp_path: Path) -> None:
    walks = Walks()
    asyncio.get_running_loop().set_task_factory(walks)
    world = Asked(KNOWN, {"route": "complex", "translate_bnf": PLAN}, routes={"complex": 1.0})
    world.walks = walks
    limits = Limits()
    questions = Questions(ServingConfig(), Traffic(tmp_path), Models(world, world, None, None))
    questions.executor = Executor(world, Sources.of_index(world), world, limits, on_finish=questions.record)
    tokens = Tokens("none")
    server, port = bind_grpc(limits, tokens, "127.0.0.1", 0)
    async with serve_grpc(server, questions, tokens), AsyncClient(f"127.0.0.1:{port}") as client:
        walks.forget()
        answer = await client.ask("Which film has the older director, Jaws or UHF?")
    assert answer.answers == ("Jaws",)
    ends = {walk[-1].module for walk in walks.taken}
    assert ends == {
        f"serving/{name}.py" for name in ("executor/model_calls", "knowledge/text_source", "circuit_breaker")
    }
    for walk in walks.taken:
        modules = [module for module, _ in groupby(place.module for place in walk)]
        assert len(set(modules)) == len(modules), modules
    assert len({place for walk in walks.taken for place in walk}) <= MOST
