"""Calls of concurrent questions in one batch: who travels together, who waits, and who fails with whom."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from revelator.errors import DeadlineExceeded, ExpressionError, InvalidRequest, Overloaded, Unavailable
from revelator.trace import Passage
from serving.batching import Batcher
from serving.retrieval import Index, IndexSettings, LocalRetriever, build_index
from serving.retrieval.logical_search import search_logical
from tests.serving.retrieval.toy_encoder import write_encoder

MANY = " AND ".join(f'"{n}"' for n in range(65))  # conditions: more than a query may have


class Model:
    """What a batcher runs: it keeps each batch; held by `gate`, it runs one after the other."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[str]]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.live = 0
        self.most = 0
        self.running = asyncio.Event()
        self.left = asyncio.Event()

    async def run(self, key: str, rows: Sequence[str]) -> list[str]:
        self.batches.append((key, list(rows)))
        self.live += 1
        self.most = max(self.most, self.live)
        self.running.set()
        try:
            await self.gate.wait()
        finally:
            self.live -= 1
            self.left.set()
        return [f"{key}: {row}" for row in rows]

    def rows(self) -> list[list[str]]:
        return [rows for _, rows in self.batches]


async def test_calls_of_one_turn_are_one_batch_and_each_gets_its_own_answer():
    model = Model()
    batcher = Batcher(model.run, 64)
    assert await asyncio.gather(*(batcher.submit("k", row) for row in "abc")) == ["k: a", "k: b", "k: c"]
    assert model.rows() == [["a", "b", "c"]]


async def test_keys_are_not_mixed_take_turns_and_a_batch_is_bounded():
    model = Model()
    batcher = Batcher(model.run, 2)
    keys = ["one", "two", "one", "one", "three"]
    await asyncio.gather(*(batcher.submit(key, str(n)) for n, key in enumerate(keys)))
    assert model.batches == [("one", ["0", "2"]), ("two", ["1"]), ("three", ["4"]), ("one", ["3"])]


async def test_what_arrives_while_a_batch_runs_is_the_next_batch_and_none_runs_beside_it():
    model = Model()
    model.gate.clear()
    batcher = Batcher(model.run, 64)
    first = asyncio.create_task(batcher.submit("k", "a"))
    await model.running.wait()
    rest = [asyncio.create_task(batcher.submit("k", text)) for text in "bcd"]
    await asyncio.sleep(0)
    assert model.rows() == [["a"]]
    model.gate.set()
    await asyncio.gather(first, *rest)
    assert model.rows() == [["a"], ["b", "c", "d"]] and model.most == 1


async def test_a_caller_that_leaves_takes_its_row_along_and_the_last_one_the_batch():
    model = Model()
    model.gate.clear()
    batcher = Batcher(model.run, 64)
    first = [asyncio.create_task(batcher.submit("k", text)) for text in "ab"]
    await model.running.wait()
    waiting = asyncio.create_task(batcher.submit("k", "c"))
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
    assert await batcher.submit("k", "d") == "k: d"


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


async def test_words_and_logical_queries_of_one_batch_find_what_each_would_alone(vectors: Index) -> None:
    logical = '"cat" AND NOT "dog"'
    retriever = LocalRetriever(vectors)
    calls = [retriever.search(text, 2) for text in ("cat", logical, MANY, '"cat"')]
    words, conditions, refused, quoted = await asyncio.gather(*calls, return_exceptions=True)
    retriever.close()
    assert [(p.id, p.score) for p in words] == said(vectors.search("cat", 2))
    assert [(p.id, p.score) for p in quoted] == said(vectors.search('"cat"', 2))
    assert [(p.id, p.score) for p in conditions] == said(search_logical(vectors, logical, 2))
    assert isinstance(refused, ExpressionError)


class Failing(Model):
    """Fails a batch that holds a row of this text with this error."""

    def __init__(self, **errors: BaseException) -> None:
        super().__init__()
        self.errors = errors

    async def run(self, key: str, rows: Sequence[str]) -> list[str]:
        found = await super().run(key, rows)
        for error in (self.errors[row] for row in rows if row in self.errors):
            raise error
        return found


@pytest.mark.parametrize("error", [InvalidRequest("too long"), ValueError("torn"), RecursionError("too deep")])
async def test_a_row_that_the_model_fails_on_fails_its_own_caller_alone(error):
    batcher = Batcher(Failing(x=error).run, 64)
    found = await asyncio.gather(*(batcher.submit("k", row) for row in "axb"), return_exceptions=True)
    assert found == ["k: a", error, "k: b"]


@pytest.mark.parametrize("error", [Unavailable("down"), Overloaded("full"), DeadlineExceeded("late")])
async def test_a_model_that_is_down_is_not_asked_again_for_each_caller(error):
    model = Failing(x=error)
    batcher = Batcher(model.run, 64)
    assert await asyncio.gather(*(batcher.submit("k", row) for row in "axb"), return_exceptions=True) == [error] * 3
    assert model.rows() == [["a", "x", "b"]]


async def test_a_batch_that_somebody_else_cancels_is_unavailable_to_its_callers():
    batcher = Batcher(Failing(x=asyncio.CancelledError()).run, 64)
    failed = await asyncio.gather(*(batcher.submit("k", row) for row in "ax"), return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable] * 2
    assert await batcher.submit("k", "b") == "k: b"


@pytest.mark.parametrize("change", [-1, 1])
async def test_a_model_that_gives_too_few_or_too_many_results_fails_its_callers(change):
    async def miscount(key: str, rows: Sequence[str]) -> list[str]:
        return ["one"] * (len(rows) + change)

    batcher = Batcher(miscount, 64)
    failed = await asyncio.gather(*(batcher.submit("k", row) for row in "ab"), return_exceptions=True)
    assert [str(error) for error in failed] == [f"the model gave {1 + change} results for 1 rows"] * 2
