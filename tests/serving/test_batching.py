"""Calls of concurrent questions in one batch: who travels together, who waits, and who fails with whom."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from revelator.errors import DeadlineExceeded, InvalidRequest, Overloaded, ServingError, Unavailable
from revelator.trace import Passage
from serving.batching import BatchedRevelator, Call, take_turns
from serving.executor.executor import Executor
from serving.protocols import Completion
from serving.retrieval import Index, IndexSettings, LocalRetriever, build_index
from serving.triton.inside.retriever import Search, search
from tests.serving.executor.world import Toy
from tests.serving.retrieval.toy_encoder import write_encoder


class Model:
    """A revelator that keeps each batch; held by `gate`, it runs one after the other."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, float, list[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.live = 0
        self.most = 0
        self.running = asyncio.Event()
        self.left = asyncio.Event()

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        self.batches.append((task, temperature, list(prompts)))
        self.live += 1
        self.most = max(self.most, self.live)
        self.running.set()
        try:
            await self.gate.wait()
        finally:
            self.live -= 1
            self.left.set()
        return [Completion(f"{task}: {prompt}") for prompt in prompts]

    def rows(self) -> list[list[str]]:
        return [prompts for _, _, prompts in self.batches]


async def test_calls_of_one_turn_are_one_batch_and_each_gets_its_own_answers_in_order():
    model = Model()
    batched = BatchedRevelator(model)
    one, two = await asyncio.gather(batched.complete("end", ["a", "b"]), batched.complete("end", ["c"]))
    assert model.rows() == [["a", "b", "c"]]
    assert [c.text for c in one] == ["end: a", "end: b"] and [c.text for c in two] == ["end: c"]
    assert await batched.complete("end", []) == []


async def test_tasks_and_temperatures_are_not_mixed_and_take_turns():
    model = Model()
    batched = BatchedRevelator(model, size=2)
    calls = [("end", 0.0), ("route", 0.0), ("end", 0.0), ("refine", 0.5), ("refine", 0.0), ("end", 0.0)]
    await asyncio.gather(*(batched.complete(task, [str(n)], temperature=t) for n, (task, t) in enumerate(calls)))
    assert [(task, t) for task, t, _ in model.batches] == [
        ("end", 0.0), ("route", 0.0), ("refine", 0.5), ("refine", 0.0), ("end", 0.0),
    ]  # fmt: skip


async def test_what_arrives_while_a_batch_runs_is_the_next_batch_and_none_runs_beside_it():
    model = Model()
    model.gate.clear()
    batched = BatchedRevelator(model)
    first = asyncio.create_task(batched.complete("end", ["a"]))
    await model.running.wait()
    rest = [asyncio.create_task(batched.complete("end", [text])) for text in "bcd"]
    await asyncio.sleep(0)
    assert model.rows() == [["a"]]
    model.gate.set()
    await asyncio.gather(first, *rest)
    assert model.rows() == [["a"], ["b", "c", "d"]] and model.most == 1


async def test_a_caller_with_many_rows_does_not_keep_one_with_a_single_row_waiting():
    model = Model()
    batched = BatchedRevelator(model, size=4)
    many = [f"m{n}" for n in range(20)]
    greedy, small = await asyncio.gather(batched.complete("end", many), batched.complete("end", ["s"]))
    assert "s" in model.rows()[0] and all(len(rows) <= 4 for rows in model.rows())
    assert [c.text for c in greedy] == [f"end: {text}" for text in many] and small[0].text == "end: s"


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 12))
def test_turns_are_even_bounded_and_leave_no_room_unused(lengths, size):
    calls = [Call([(n, row) for row in range(length)], asyncio.Future(loop=LOOP)) for n, length in enumerate(lengths)]
    shares = {id(call): len(rows) for call, rows in take_turns(calls, size)}
    assert sum(shares.values()) == min(size, sum(lengths))
    left_out = [shares.get(id(call), 0) for call in calls if call.sent < len(call.rows)]
    assert all(share <= min(left_out, default=9) + 1 for share in shares.values())


LOOP = asyncio.new_event_loop()


async def test_a_caller_that_leaves_takes_its_rows_along_and_the_last_one_the_batch():
    model = Model()
    model.gate.clear()
    batched = BatchedRevelator(model)
    first = [asyncio.create_task(batched.complete("end", [text])) for text in "ab"]
    await model.running.wait()
    waiting = asyncio.create_task(batched.complete("end", ["c"]))
    await asyncio.sleep(0)
    for task in (first[0], waiting):
        task.cancel()
    await asyncio.wait([first[0], waiting])
    assert model.live == 1
    first[1].cancel()
    await asyncio.wait([first[1]])
    await model.left.wait()
    assert model.live == 0 and model.rows() == [["a", "b"]]
    model.gate.set()
    assert (await batched.complete("end", ["d"]))[0].text == "end: d"


async def test_the_leaves_of_many_questions_share_the_passes_of_the_model():
    questions = [f"Who wrote {n}?" for n in range(16)]
    world = Toy({question: [f"Author {question}"] for question in questions})
    executor = Executor(BatchedRevelator(world), world, world)
    traces = await asyncio.gather(*(executor.run(question, strategy="single") for question in questions))
    assert [trace.answers for trace in traces] == [[f"Author {question}"] for question in questions]
    assert [rows for _, rows, _ in world.calls] == [64, 64, 32]
    assert all(trace.usage.model_calls == 10 for trace in traces)


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """A hybrid index of four passages."""
    pytest.importorskip("sentence_transformers", reason="the optional dependency group `dense` is not installed")
    folder = tmp_path_factory.mktemp("index")
    texts = ["red cat", "blue dog", "silver fish in the sea", "a house and a tree"]
    (folder / "c.jsonl").write_text("".join(json.dumps({"id": t, "title": t, "text": t}) + "\n" for t in texts))
    model = write_encoder(folder / "model")
    build_index([folder / "c.jsonl"], folder / "ix", IndexSettings(kind="hybrid", model=str(model)))
    return Index.open(folder / "ix")


@contextmanager
def counted(index: Index) -> Iterator[list[int]]:
    """One entry for each pass of the index's model."""
    passes: list[int] = []
    with index.encoder._model.register_forward_pre_hook(lambda *_: passes.append(1)):
        yield passes


def said(passages: Sequence[Passage]) -> list[tuple[str, object]]:
    return [(passage.id, pytest.approx(passage.score, abs=1e-6)) for passage in passages]


def test_many_searches_are_one_pass_of_the_model_and_find_what_each_would_alone(vectors: Index) -> None:
    queries = ["cat", "a blue house", "sea", "", "cat"]
    alone = [said(vectors.search(query, 3)) for query in queries]
    with counted(vectors) as passes:
        together = vectors.search_many(queries, 3)
    assert len(passes) == 1
    assert [[(p.id, p.score) for p in found] for found in together] == alone


async def test_searches_of_concurrent_questions_share_passes_of_the_model(vectors: Index) -> None:
    retriever = LocalRetriever(vectors)
    with counted(vectors) as passes:
        calls = [retriever.search(query, 2) for query in ("cat", "dog", "fish")] + [retriever.search("tree", 1)]
        found = await asyncio.gather(*calls, retriever.search("sea", 0), return_exceptions=True)
    retriever.close()
    assert [[p.id.split()[1] for p in passages][:1] for passages in found[:2]] == [["cat"], ["dog"]]
    assert [len(passages) for passages in found[:4]] == [2, 2, 2, 1] and isinstance(found[4], InvalidRequest)
    assert len(passes) == 2  # one for each k


def test_searches_that_a_server_hands_over_together_have_an_outcome_each(vectors: Index) -> None:
    with counted(vectors) as passes:
        outcomes = search(
            vectors, [Search("cat", 2), Search("dog", 1), Search("fish", 0), Search("sea", 2), Search("tree", 0)]
        )
    assert len(passes) == 2
    assert [len(o) if isinstance(o, list) else type(o) for o in outcomes] == [2, 1, InvalidRequest, 2, InvalidRequest]
    assert outcomes[0][0].id == "red cat" and outcomes[1][0].id == "blue dog"
    assert outcomes[2].__traceback__ is None  # its frames would hold the scores


def test_a_search_that_fails_unexpectedly_is_logged_and_fails_alone(
    vectors: Index, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vectors, "search_many", None)
    wrong, refused = search(vectors, [Search("cat", 2), Search("cat", 2, "sparql")])
    assert isinstance(wrong, ServingError) and "TypeError" in wrong.message and wrong.__traceback__ is None
    assert isinstance(refused, InvalidRequest) and caplog.text.count("Traceback") == 1


class Failing(Model):
    """Fails a batch that holds a row of this text with this error."""

    def __init__(self, **errors: BaseException) -> None:
        super().__init__()
        self.errors = errors

    async def complete(self, task: str, prompts: Sequence[str], *, temperature: float = 0.0) -> list[Completion]:
        found = await super().complete(task, prompts, temperature=temperature)
        for error in (self.errors[prompt] for prompt in prompts if prompt in self.errors):
            raise error
        return found


@pytest.mark.parametrize("error", [InvalidRequest("too long"), ValueError("torn"), RecursionError("too deep")])
async def test_a_row_that_the_model_fails_on_fails_its_own_caller_alone(error):
    batched = BatchedRevelator(Failing(x=error))
    one, failed, two = await asyncio.gather(*(batched.complete("end", [t]) for t in "axb"), return_exceptions=True)
    assert one[0].text == "end: a" and two[0].text == "end: b" and failed is error


@pytest.mark.parametrize("error", [Unavailable("down"), Overloaded("full"), DeadlineExceeded("late")])
async def test_a_model_that_is_down_is_not_asked_again_for_each_caller(error):
    model = Failing(x=error)
    batched = BatchedRevelator(model)
    assert await asyncio.gather(*(batched.complete("end", [t]) for t in "axb"), return_exceptions=True) == [error] * 3
    assert model.rows() == [["a", "x", "b"]]


async def test_a_batch_that_somebody_else_cancels_is_unavailable_to_its_callers():
    batched = BatchedRevelator(Failing(x=asyncio.CancelledError()))
    failed = await asyncio.gather(*(batched.complete("end", [t]) for t in "ax"), return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable] * 2
    assert (await batched.complete("end", ["b"]))[0].text == "end: b"


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_model_that_gives_too_few_or_too_many_results_fails_its_callers(change):
    class Miscounting(Model):
        async def complete(self, task, prompts, *, temperature=0.0):
            return [Completion("one")] * (len(prompts) + change)

    batched = BatchedRevelator(Miscounting())
    failed = await asyncio.gather(*(batched.complete("end", [t]) for t in "ab"), return_exceptions=True)
    assert [str(error) for error in failed] == [f"the model gave {1 + change} results for 1 rows"] * 2
