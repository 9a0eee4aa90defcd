"""A small world behind a real inspector on loopback: an executor in this process stands for the service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import uvicorn

from revelator.errors import Unavailable
from revelator.limits import Limits
from revelator.spans import MODEL_ID
from revelator.trace import Event, Passage
from serving.executor.executor import Executor
from serving.inspector import Runs, Server, create_app
from serving.knowledge.sources import Sources
from serving.protocols import Completion, GenerateRequest, Reading, Writing
from tests.serving.executor.world import Toy, stream

QUESTION = "Where was the director of UHF born?"
PLAN = "Who directed UHF? * Where was {director} born?"
SCRIPT = "<script>window.injected = true</script><img src=x onerror='window.injected = true'>"
TEXTS = {
    "Who directed UHF?": ("UHF", f"UHF is a comedy of 1989. Jay Levey directed it. {SCRIPT}"),
    "Where was Jay Levey born?": ("Jay Levey", "Jay Levey was born in Detroit in the year 1953."),
    "When was Jay Levey born?": ("Jay Levey", "Jay Levey was born in Detroit in the year 1953."),
}
KNOWLEDGE = {
    "Who directed UHF?": ["Jay Levey"],
    "Where was Jay Levey born?": ["Detroit"],
    "When was Jay Levey born?": ["1953"],
    "Who sank?": Unavailable("the generator is down", where="generator", hint="start it"),
}
OTHER = "What is the capital of Peru?"
MODEL = f"m-{7:032x}"  # MLflow's, of version 7


@dataclass
class World(Toy):
    """`Toy`, with documents that say something; every question is a complex one. `text` is what it writes of answers,
    where `writing` lets it."""

    knowledge: Any = field(default_factory=lambda: dict(KNOWLEDGE))
    outputs: Any = field(default_factory=lambda: {"translate_bnf": PLAN, "rewrite": QUESTION})
    writing: Writing = field(default_factory=Writing)
    text: str = ""

    def executor(self, **limits: float) -> Executor:
        return Executor(self, Sources.of_index(self), self, Limits(**limits), writing=self.writing)  # type: ignore[arg-type]

    async def answer(self, request: GenerateRequest) -> Reading:
        if request.mode == "compose":
            self.requests.append(request)
            for end in range(len(self.text)) if request.listener else ():
                request.listener(self.text[:end])
            return Reading(self.text, (self.text,), method="toy")
        return await super().answer(request)

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        if task == "route":
            return [Completion("complex", {"complex": 0.9, "single": 0.06, "compound": 0.04}, 21)]
        return await super().complete(task, prompts, temperature=temperature)

    async def search(self, query: str, k: int, scope: object = None) -> list[Passage]:
        await super().search(query, k)
        title, text = TEXTS.get(query, ("Feathers", "A quill is a feather to write with."))
        other = Passage("2", "Feathers", "A quill is a feather to write with.", 1.25)
        return [Passage("1", title, text, 9.5), other]


@dataclass
class Asked:
    """A world's executor as a server of the inspector: `left` is set when a question was given up."""

    name: str
    version: str
    world: World = field(default_factory=World)
    begun: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None  # raised instead of any answer
    refusals: list[Exception] = field(default_factory=list)  # raised one after the other, instead of the first answers

    async def stream(self, question: str, groups: object, **options: Any) -> AsyncGenerator[Event, None]:
        if self.refusals:
            raise self.refusals.pop(0)
        if self.error:
            raise self.error
        self.begun.set()
        try:
            async for event in stream(self.world.executor(), question, **options):
                if event.kind == "finished":
                    event.changes["versions"] = {"revelator": self.version, MODEL_ID: MODEL}
                yield event
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            raise

    async def list_models(self) -> dict[str, str]:
        return {"revelator": self.version}

    def server(self) -> Server:
        return Server(self.name, self.stream, self.list_models)


@contextmanager
def inspecting(servers: list[Server], runs: Runs, **options: Any) -> Iterator[str]:
    """The inspector's address, in a thread of its own."""
    config = uvicorn.Config(create_app(servers, runs, **options), port=0, log_level="warning")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    ready = threading.Event()

    async def serve() -> None:
        running = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:  # noqa: ASYNC110 (uvicorn offers no event)
            await asyncio.sleep(0.01)
        ready.set()
        await running

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    host, port = listening.getsockname()
    yield f"http://{host}:{port}"
    server.should_exit = True
    thread.join()


def runs_in(folder: Path, kept: int = 50) -> Runs:
    return Runs(folder / "inspected", kept)


def asking(url: str) -> httpx.Client:
    """A client of the page's routes. Without certificates, which would take longer to read than a test runs."""
    return httpx.Client(base_url=url, timeout=30, trust_env=False, verify=False)


def speaking(url: str, **options: Any) -> openai.OpenAI:
    """A client of OpenAI's route."""
    return openai.OpenAI(
        **{"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0, "http_client": asking(url), **options}
    )
