"""A leaf that an earlier question asked is answered from memory, as long as everything that decides its answer is as it
was and nothing went wrong when it was asked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from revelator.errors import Unavailable
from revelator.limits import Limits
from revelator.trace import Node, Passage, Trace, Usage
from serving.executor.executor import Executor
from serving.executor.judges import JudgeConfig, ListwiseJudge
from serving.executor.leaf_cache import LeafCache, LeafKey
from serving.knowledge.sources import Sources
from serving.knowledge.text_source import TextSource
from serving.models.releases import VersionChoice, find_choice, use_choice
from serving.protocols import Reading, Writing
from serving.retrieval import Index, LocalRetriever, build_index
from tests.chat_server import Reply, running, says
from tests.serving.executor.world import Toy

WHO, WHERE = "Who keeps the Vel lighthouse?", "Where was Ana Berg born?"
PLAN = f"{WHO} * Where was {{keeper}} born?"
KNOWN = {WHO: ["Ana Berg"], WHERE: ["Oslo"]}
ROWS = [
    {"id": "vel", "title": "Vel lighthouse", "text": "The Vel lighthouse is kept by Ana Berg."},
    {"id": "berg", "title": "Ana Berg", "text": "Ana Berg was born in Oslo."},
]
Open = Callable[..., Executor]


def build(folder: Path, rows: list[dict[str, str]]) -> Path:
    (folder.parent / f"{folder.name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    build_index([folder.parent / f"{folder.name}.jsonl"], folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build(tmp_path / "index", ROWS)


@pytest.fixture
def cache() -> LeafCache:
    return LeafCache()


@pytest.fixture
def open_executor(folder: Path, cache: LeafCache) -> Iterator[Open]:
    """An executor over the index with this cache; `options` are its own."""
    with ExitStack() as stack:

        def open_it(world: Toy, folder: Path = folder, **options: Any) -> Executor:
            retriever = LocalRetriever(Index.open(folder))
            stack.callback(retriever.close)
            return Executor(world, Sources.of_index(retriever), world, cache=cache, **options)  # type: ignore[arg-type]

        yield open_it


def leaves(trace: Trace) -> list[Node]:
    return [node for node in trace.nodes if node.kind == "atomic"]


async def ask(executor: Executor, question: str = WHO, **options: Any) -> Node:
    trace = await executor.run(question, strategy="single", **options)
    return leaves(trace)[0]


async def test_what_an_earlier_question_asked_costs_no_call_and_says_where_its_answer_is_from(open_executor: Open):
    world = Toy(KNOWN)
    executor = open_executor(world)
    first = await executor.run("q", plan=PLAN, strategy="compound")
    calls = len(world.calls), len(world.requests)
    again = await executor.run("another", plan=f"{WHERE} + {WHO}", strategy="compound")
    assert (len(world.calls), len(world.requests)) == calls and again.usage == Usage() != first.usage
    assert sorted(again.answers) == ["Ana Berg", "Oslo"]
    asked = {node.asked: node for node in leaves(first)}
    for node in leaves(again):
        source = asked[node.asked]
        assert datetime.fromisoformat(node.detail["cached_from"]) <= datetime.now(UTC)
        assert "calls" not in node.detail and list(node.list_calls()) == []
        assert (node.documents, node.sentence, node.status) == (source.documents, source.sentence, "ok")
    assert all("cached_from" not in node.detail for node in leaves(first))
    assert Trace.from_json(json.loads(again.dump_json())) == again


async def test_without_a_cache_every_question_is_asked(folder: Path):
    retriever, world = LocalRetriever(Index.open(folder)), Toy(KNOWN)
    executor = Executor(world, Sources.of_index(retriever), world)  # type: ignore[arg-type]
    nodes = [await ask(executor) for _ in range(2)]
    retriever.close()
    assert nodes[0].usage == nodes[1].usage != Usage()


async def test_an_honest_leaf_without_an_answer_is_kept_too(open_executor: Open):
    world = Toy({})
    executor = open_executor(world)
    first, second = await ask(executor), await ask(executor)
    assert (first.status, second.status) == ("unanswered", "unanswered") and first.error == second.error
    assert "cached_from" in second.detail and len(world.requests) == 1


@pytest.mark.parametrize(
    "limits",
    [
        {"documents": 1},
        {"kept": 1},
        {"relevance_threshold": 0.6},
        {"relevance_floor": 0.2},
        {"answer_floor": 0.5},
    ],
)
async def test_a_limit_that_decides_the_answer_is_part_of_what_was_asked(open_executor: Open, limits: dict[str, Any]):
    executor = open_executor(Toy(KNOWN))
    await ask(executor)
    assert "cached_from" not in (await ask(executor, limits=Limits(**limits))).detail
    assert "cached_from" in (await ask(executor, limits=Limits(deadline_ms=20_000, leaves=3))).detail


async def test_a_logical_query_is_another_question_than_its_words(open_executor: Open):
    executor = open_executor(Toy(KNOWN))
    await ask(executor)
    plan = '"lighthouse" AND NOT "Oslo"'
    for cached in (False, True):
        [node] = leaves(await executor.run(WHO, plan=plan, strategy="logic"))
        assert ("cached_from" in node.detail) == cached


async def test_an_answer_of_the_documents_alone_is_not_one_of_a_model_that_may_say_what_it_knows(open_executor: Open):
    unknown = "Who paints the Vel lighthouse?"
    world = Toy({f"direct: {unknown}": ["Bo"]})
    assert (await ask(open_executor(world), unknown)).status == "unanswered"
    knowing = open_executor(world, writing=Writing(own_knowledge=True))
    first, second = await ask(knowing, unknown), await ask(knowing, unknown)
    assert first.answers == second.answers == ["Bo"] and "cached_from" not in first.detail
    assert second.detail["unsupported"] == first.detail["unsupported"], "it stays marked"
    assert second.usage == Usage()


async def test_another_index_another_name_or_another_list_of_sources_is_asked_anew(
    tmp_path: Path, open_executor: Open, cache: LeafCache
):
    executor = open_executor(Toy(KNOWN))
    await ask(executor)
    changed = build(tmp_path / "changed", [{**ROWS[0], "text": "The Vel lighthouse is kept by Bo Lund."}])
    anew = await ask(open_executor(Toy({WHO: ["Bo Lund"]}), changed))
    assert anew.answers == ["Bo Lund"] and "cached_from" not in anew.detail
    one, other = (LocalRetriever(Index.open(folder)) for folder in (tmp_path / "index", changed))
    lists = [[TextSource(one, "papers")], [TextSource(one, "papers"), TextSource(other, "notes")]]
    for listed in lists:
        world = Toy(KNOWN, outputs={"translate_art": "{"})
        executor = Executor(world, Sources(listed), world, cache=cache)  # type: ignore[arg-type]
        first, second = await ask(executor), await ask(executor)
        assert "cached_from" not in first.detail and "cached_from" in second.detail
    one.close()
    other.close()


async def test_an_index_that_was_written_over_answers_nothing_from_memory(
    tmp_path: Path, folder: Path, open_executor: Open
):
    executor = open_executor(Toy(KNOWN))
    await ask(executor)
    shutil.copytree(build(tmp_path / "smaller", ROWS[:1]), folder, dirs_exist_ok=True)
    with pytest.raises(Unavailable, match="written over"):
        await ask(executor)


async def test_sources_that_cannot_say_whether_they_have_changed_are_always_asked(cache: LeafCache):
    world = Toy(KNOWN)
    executor = Executor(world, Sources.of_index(world), world, cache=cache)  # type: ignore[arg-type]
    for _ in range(2):
        assert "cached_from" not in (await ask(executor)).detail
    assert world.asked == [WHO, WHO] and len(cache) == 0


async def test_each_version_of_the_release_answers_for_itself_and_a_canary_always(open_executor: Open):
    executor = open_executor(Toy(KNOWN))

    async def ask_version(version: str, released: str | None = None) -> bool:
        with use_choice(VersionChoice(version, released)):
            return "cached_from" in (await ask(executor)).detail

    assert [await ask_version(version) for version in ("1", "2", "1", "2")] == [False, False, True, True]
    assert [await ask_version("2", released="1") for _ in range(2)] == [False, False], "its outputs are compared"


async def test_what_another_version_judged_for_one_that_was_unloaded_is_not_kept(open_executor: Open):
    class Replaced(Toy):
        async def complete(self, *arguments: Any, **options: Any) -> Any:
            find_choice().answered["revelator"].add("2")
            return await super().complete(*arguments, **options)

    executor = open_executor(Replaced(KNOWN))
    with use_choice(VersionChoice("1")) as choice:
        for _ in range(2):
            assert "cached_from" not in (await ask(executor)).detail
    assert choice.answered["revelator"] == {"2"}
    with use_choice(VersionChoice("2")):
        await ask(executor)
    with use_choice(VersionChoice("2")) as choice:
        assert "cached_from" in (await ask(executor)).detail
    assert choice.answered["revelator"] == {"2"}, "the trace names the version that judged"


async def test_a_leaf_that_failed_is_asked_again(open_executor: Open):
    world = Toy({WHO: RuntimeError("torn")})
    executor = open_executor(world)
    assert (await ask(executor)).status == "failed"
    world.knowledge = KNOWN
    again = await ask(executor)
    assert again.answers == ["Ana Berg"] and "cached_from" not in again.detail


async def test_a_reply_that_could_not_be_read_is_asked_for_again(open_executor: Open):
    world = Toy({WHO: Reading("", (), reason="cannot be read", is_degraded=True)})
    executor = open_executor(world)
    first = await ask(executor)
    assert first.status == "unanswered" and first.detail["degraded"]
    world.knowledge = KNOWN
    assert (await ask(executor)).answers == ["Ana Berg"]


async def test_documents_that_a_judge_failed_to_judge_are_judged_again(open_executor: Open):
    with running() as server:
        judge = ListwiseJudge(JudgeConfig(url=server.url, model="m"), timeout=20, retries=0)
        executor = open_executor(Toy(KNOWN), judge=judge)
        replies: list[list[Reply]] = [[says("?"), says("?")], [says('{"numbers": [1]}')], []]
        cached = []
        for server.replies in replies:
            cached.append("cached_from" in (await ask(executor)).detail)
        await judge.close()
    assert cached == [False, False, True]


async def test_a_leaf_that_a_deadline_ended_is_asked_again(open_executor: Open):
    class Slow(Toy):
        async def answer(self, request: Any) -> Reading:
            if request.question == WHERE and not self.requests:
                self.requests.append(request)
                await self.gates["never"].wait()
            return await super().answer(request)

    slow = Slow(KNOWN)
    slow.gate("never")
    executor = open_executor(slow)
    await executor.run("q", plan=WHO)
    slow.requests.clear()
    cut = await executor.run("q", plan=f"{WHO} + {WHERE}", strategy="compound", deadline_ms=1_000)
    assert cut.deadline_exceeded and cut.answers == ["Ana Berg"]
    whole = await executor.run("q", plan=f"{WHO} + {WHERE}", strategy="compound")
    assert [("cached_from" in node.detail) for node in leaves(whole)] == [True, False]
    assert whole.answers == ["Ana Berg", "Oslo"]


async def test_what_a_plan_says_of_its_own_step_is_not_taken_over(open_executor: Open):
    executor = open_executor(Toy(KNOWN))
    first = await executor.run("q", plan=f"({WHERE} + {WHO}) => union")
    second = await executor.run("q", plan=f"({WHO} + {WHERE}) => union")
    for trace in (first, second):
        assert [node.detail["step"] for node in leaves(trace)] == [1, 2]
    assert all("cached_from" in node.detail for node in leaves(second))
    shared = await executor.run("q", plan=f"{WHO} * Where was {{1}} born? + {WHO} * Where was {{3}} born?")
    assert [node.detail["step"] for node in leaves(shared)] == [1, 2, 3, 4], "nor what is shared within a plan"


def fill(node: Node, size: int) -> Callable[[], Any]:
    async def work() -> None:
        node.documents = [Passage("p", "title", "x" * size)]
        node.answers = ["a"]

    return work


def key(number: int) -> LeafKey:
    return LeafKey(f"q{number}", "", None, (), False, "", "")


@pytest.mark.parametrize(("bounds", "size"), [({"entries": 3}, 10), ({"size": 8_000}, 1_000)])
async def test_the_least_recently_used_answers_leave_first(bounds: dict[str, int], size: int):
    cache = LeafCache(**bounds)

    async def is_known(number: int) -> bool:
        node = Node("1", "atomic", "q")
        await cache.answer(node, key(number), fill(node, size))
        return "cached_from" in node.detail

    for number in range(3):
        assert not await is_known(number)
    assert len(cache) == 3
    assert await is_known(0), "it is the latest now"
    assert not await is_known(3) and len(cache) == 3
    assert await is_known(0) and not await is_known(1)


async def test_an_answer_that_is_larger_than_the_cache_is_not_kept():
    cache = LeafCache(size=1_000)
    node = Node("1", "atomic", "q")
    await cache.answer(node, key(1), fill(node, 5_000))
    assert len(cache) == 0 and node.answers == ["a"]
