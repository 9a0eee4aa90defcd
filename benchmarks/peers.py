"""The same plans through LangGraph, through LlamaIndex's sub-question engine, and through this executor.

    python benchmarks/peers.py [--latency 20] [--repeats 20] [--env runs/peers]

Makes an environment of its own from benchmarks/peers.txt (LangGraph and LlamaIndex are no dependency of Revelator) and
runs in it all of them in turn, in one process, over the same leaves, each a sleep:

* executor: the plan's text parsed, checked, bound and run as `PlanRun`, with its trace;
* LangGraph: a `StateGraph` with a node a leaf and an edge from each producer, as its documentation builds graphs, the
  answers merged by a reducer; once compiled for each question, as the plan is the question's own, and once before;
* LlamaIndex: `SubQuestionQueryEngine(use_async=True)` with the leaves as sub-questions. It has no dependencies between
  sub-questions, so only lists can be run by it;
* depth first: one leaf after the other.

Times are medians in ms beside the critical path of the plan; requests a second are for 16 questions at a time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Awaitable, Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
AT_A_TIME = 16

Ask = Callable[[], Awaitable[object]]


def make_environment(folder: Path) -> Path:
    """The Python of an environment with what benchmarks/peers.txt names."""
    python, installed, wanted = folder / "bin" / "python", folder / "installed", (HERE / "peers.txt").read_text()
    if not installed.exists() or installed.read_text() != wanted:
        print(f"making {folder} from {HERE / 'peers.txt'}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        done = subprocess.run([python, "-m", "pip", "install", "-q", "-r", HERE / "peers.txt"], check=False)
        if done.returncode:
            sys.exit("error: the peers could not be installed; this benchmark needs a package index")
        installed.write_text(wanted)
    return python


def make_executor(plan: str, seconds: dict[str, float]) -> Ask:
    from fixed import LIMITS

    from revelator.plans import check, parse
    from serving.executor.recording import Recorder
    from serving.executor.scheduler import PlanRun

    async def answer(node, work) -> None:
        await asyncio.sleep(seconds[node.question])
        node.answers = [f"value of {node.asked}"]

    async def ask() -> None:
        expression = parse(plan)
        assert not check(expression)
        recorder = Recorder("q", "auto")
        await PlanRun(expression, answer, recorder, LIMITS).run()
        assert all(node.status == "ok" for node in recorder.finish().nodes)

    return ask


def make_langgraph(plan: str, seconds: dict[str, float], *, compiled: bool) -> Ask:
    import operator
    from typing import Annotated, TypedDict

    from langgraph.graph import END, START, StateGraph

    from revelator.plans import bind, list_leaves, parse, substitute

    State = TypedDict("State", {"answers": Annotated[dict, operator.or_]})  # noqa: UP013 (names of this function)

    def build():
        expression = parse(plan)
        graph = StateGraph(State)
        sources = bind(expression).sources
        texts = [leaf.text for leaf in list_leaves(expression)]
        needed = {producer for source in sources for producer in source.values()}
        for number, (text, source) in enumerate(zip(texts, sources, strict=True)):

            async def answer(state: dict, number=number, text=text, source=source) -> dict:
                asked = substitute(text, {name: state["answers"][producer] for name, producer in source.items()})
                await asyncio.sleep(seconds[text])
                return {"answers": {number: f"value of {asked}"}}

            graph.add_node(str(number), answer)
        for number, source in enumerate(sources):
            producers = [str(producer) for producer in sorted(set(source.values()))]
            graph.add_edge(producers if len(producers) > 1 else producers[0] if producers else START, str(number))
            if number not in needed:
                graph.add_edge(str(number), END)
        return graph.compile(), len(texts)

    built = build()

    async def ask() -> None:
        graph, count = built if compiled else build()
        state = await graph.ainvoke({"answers": {}})
        assert len(state["answers"]) == count

    return ask


def make_llama_index(plan: str, seconds: dict[str, float]) -> Ask | None:
    from llama_index.core import Settings, get_response_synthesizer
    from llama_index.core.llms import MockLLM
    from llama_index.core.query_engine import CustomQueryEngine, SubQuestionQueryEngine
    from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
    from llama_index.core.response_synthesizers import ResponseMode
    from llama_index.core.tools import QueryEngineTool, ToolMetadata

    from revelator.plans import list_leaves, parse

    texts = [leaf.text for leaf in list_leaves(parse(plan))]
    if any("{" in text for text in texts):
        return None

    class Leaf(CustomQueryEngine):
        def custom_query(self, query_str: str) -> str:
            raise NotImplementedError

        async def acustom_query(self, query_str: str) -> str:
            await asyncio.sleep(seconds[query_str])
            return f"value of {query_str}"

    class Leaves(BaseQuestionGenerator):
        def generate(self, tools, query):
            return [SubQuestion(sub_question=text, tool_name="leaf") for text in texts]

        async def agenerate(self, tools, query):
            return self.generate(tools, query)

        def _get_prompts(self):
            return {}

        def _update_prompts(self, prompts) -> None:
            pass

    Settings.llm = MockLLM()
    synthesizer = get_response_synthesizer(response_mode=ResponseMode.NO_TEXT, use_async=True)
    tools = [QueryEngineTool(query_engine=Leaf(), metadata=ToolMetadata(name="leaf", description="one leaf"))]
    engine = SubQuestionQueryEngine(Leaves(), synthesizer, tools, verbose=False, use_async=True)

    async def ask() -> None:
        response = await engine.aquery("q")
        assert len(response.source_nodes) == len(texts)

    return ask


def make_sequence(plan: str, seconds: dict[str, float]) -> Ask:
    from revelator.plans import list_leaves, parse

    async def ask() -> None:
        for leaf in list_leaves(parse(plan)):
            await asyncio.sleep(seconds[leaf.text])

    return ask


async def measure_medians(ways: list[Ask | None], repeats: int) -> list[float]:
    """Each way once a round, so that what else the machine does meets all alike; two rounds do not count."""
    times: list[list[float]] = [[] for _ in ways]
    for number in range(repeats + 2):
        for way, found in zip(ways, times, strict=True):
            began = time.perf_counter()
            if way:
                await way()
            if number >= 2:
                found.append((time.perf_counter() - began) * 1000)
    return [statistics.median(found) for found in times]


async def measure_rate(way: Ask, rounds: int) -> float:
    async def client() -> None:
        for _ in range(rounds):
            await way()

    await way()
    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(AT_A_TIME)))
    return AT_A_TIME * rounds / (time.perf_counter() - began)


async def compare(name: str, plan: str, slow: str, latency: float, repeats: int) -> None:
    from fixed import compute_critical_path

    from revelator.plans import list_leaves, parse

    expression = parse(plan)
    seconds = {leaf.text: latency * (5 if leaf.text == slow else 1) for leaf in list_leaves(expression)}
    ways = [
        make_executor(plan, seconds),
        make_langgraph(plan, seconds, compiled=False),
        make_langgraph(plan, seconds, compiled=True),
        make_llama_index(plan, seconds),
        make_sequence(plan, seconds),
    ]
    walls = await measure_medians(ways, repeats)
    path = compute_critical_path(expression, seconds) * 1000
    cells = "".join(f"{wall:14.1f}" if way else f"{'—':>14}" for way, wall in zip(ways, walls, strict=True))
    print(f"{name:14}{path:8.0f}{cells}", flush=True)
    rates = [await measure_rate(way, 3) if way else None for way in ways]
    cells = "".join(f"{found:14.1f}" if found else f"{'—':>14}" for found in rates)
    print(f"{'':14}{'req/s':>8}{cells}", flush=True)


def main() -> None:
    import click

    @click.command()
    @click.option("--latency", default=20.0, show_default=True, help="Milliseconds that a leaf takes.")
    @click.option("--repeats", default=20, show_default=True, help="Measured runs of each plan.")
    @click.option("--env", default="runs/peers", show_default=True, help="The environment, made when it is not there.")
    def command(latency: float, repeats: int, env: str) -> None:
        """The same plans through this executor, LangGraph and LlamaIndex."""
        if importlib.util.find_spec("langgraph") is None:
            python = make_environment(Path(env))
            raise SystemExit(subprocess.run([python, *sys.argv], check=False).returncode)
        from importlib.metadata import version

        from fixed import list_plans

        versions = ", ".join(f"{name} {version(name)}" for name in ("langgraph", "llama-index-core"))
        machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"{machine}, Python {platform.python_version()}, {versions}; leaves of {latency:g} ms, n = {repeats}\n")
        names = ("executor", "LangGraph", "(compiled)", "LlamaIndex", "depth first")
        print(f"{'plan':14}{'path ms':>8}" + "".join(f"{name:>14}" for name in names))
        slow = "Where is the river?"
        chain = "Who wrote it? * Where was {writer} born? * Who ruled {town}?"
        uneven = f"({chain} + {slow}) * Did {{ruler}} see {{river}}?"
        for name, plan in {**list_plans(), "uneven of 5": uneven}.items():
            asyncio.run(compare(name, plan, slow, latency / 1000, repeats))

    command()


if __name__ == "__main__":
    main()
