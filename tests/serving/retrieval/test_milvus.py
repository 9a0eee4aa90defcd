"""An index in Milvus: it finds what an index folder finds, is changed alike, and goes on after what was cut short."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
pytest.importorskip("sentence_transformers", reason="the extra `dense` is not installed")

from click.testing import CliRunner

from revelator.errors import ArtifactError, ConfigError, DataError, DeadlineExceeded, RevelatorError, Unavailable
from serving.commands import index as commands
from serving.knowledge.operators import Query
from serving.knowledge.sources import Sources
from serving.knowledge.text_source import TextSource
from serving.protocols import PassagePlace
from serving.retrieval import (
    Index,
    IndexSettings,
    LocalRetriever,
    build_index,
    milvus_collection,
    milvus_index,
    update_index,
)
from serving.retrieval.index_folder import Kind
from serving.retrieval.logical_search import Label, LogicalSettings, Source, fit_calibrations, search_logical
from serving.retrieval.places import open_index, read_index_manifest
from serving.retrieval.shard_work import PassageEmbedder
from tests.serving.retrieval.milvus_server import MilvusServer, serve_milvus
from tests.serving.retrieval.stopped import Stopped
from tests.serving.retrieval.toy_encoder import WORDS, write_corpus, write_encoder

KINDS: tuple[Kind, ...] = ("bm25", "dense", "hybrid")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusServer]:
    with serve_milvus(tmp_path_factory.mktemp("milvus")) as running:
        yield running


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def address(server: MilvusServer, request: pytest.FixtureRequest) -> str:
    """A collection of the test's own."""
    return server.address(f"test_{abs(hash(request.node.nodeid))}")


def choose(kind: Kind, encoder: Path) -> IndexSettings:
    return IndexSettings(kind=kind, model="" if kind == "bm25" else str(encoder))


@pytest.fixture(scope="module")
def pairs(server: MilvusServer, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, tuple[Any, Any]]:
    """Of each kind an index in a folder and one in Milvus, of the same 600 passages."""
    folder = tmp_path_factory.mktemp("pairs")
    corpus = write_corpus(folder / "corpus.jsonl", 600)
    found = {}
    for kind in KINDS:
        settings = choose(kind, encoder)
        build_index([corpus], folder / kind, settings)
        build_index([corpus], server.address(kind), settings)
        found[kind] = Index.open(folder / kind), open_index(server.address(kind))
    return found


def make_questions(count: int) -> list[str]:
    chance = random.Random(1)
    return [" ".join(chance.choices(WORDS.split()[2:], k=4)) for _ in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_milvus_finds_what_a_folder_finds(pairs: dict[Kind, tuple[Any, Any]], kind: Kind) -> None:
    """Of vectors the exact ten, .98 at least; of BM25 the same, of which some are equally good."""
    folder, collection = pairs[kind]
    shares, questions = [], make_questions(50)
    for exact, found in zip(folder.search_many(questions, 10), collection.search_many(questions, 10), strict=True):
        assert len(found) == 10 and [p.score for p in found] == sorted((p.score for p in found), reverse=True)
        wanted = {passage.id for passage in exact}
        if kind == "bm25":  # a score is another by a factor alone, and equal ones are in another order
            factor = found[0].score / exact[0].score
            assert [p.score for p in found] == pytest.approx([p.score * factor for p in exact], rel=1e-3)
        if kind == "dense":
            assert [p.score for p in found] == pytest.approx([p.score for p in exact], abs=1e-4)
        shares.append(len(wanted & {passage.id for passage in found}) / 10)
    print(f"{kind}: recall@10 {np.mean(shares):.4f}")
    assert np.mean(shares) >= (0.98 if kind == "dense" else 0.9)


@pytest.mark.parametrize("source", ["dense", "bm25", "both"])
@pytest.mark.parametrize("query", ['"red cat" AND NOT "river"', '("snow" OR "opera choir") AND "lamp"'])
def test_a_logical_query_scores_a_candidate_as_a_folder_does(
    pairs: dict[Kind, tuple[Any, Any]], query: str, source: Source
) -> None:
    folder, collection = pairs["hybrid"]
    how = LogicalSettings(source=source)
    exact, found = (search_logical(index, query, 600, how) for index in (folder, collection))
    scores = {passage.id: passage.score for passage in exact}
    assert found.scored and found.scored[0] <= found.scored[1] == 600
    assert len(found) >= 20
    assert [p.score for p in found] == pytest.approx([scores[p.id] for p in found], abs=1e-3)
    assert [p.score for p in found[:10]] == pytest.approx([p.score for p in exact[:10]], abs=1e-3)
    assert all(passage.text for passage in found)


def test_only_the_best_of_each_term_are_scored_and_counted(
    pairs: dict[Kind, tuple[Any, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.retrieval.logical_search.CANDIDATES", 40)
    found = search_logical(pairs["dense"][1], '"red cat" AND NOT "river"', 10)
    assert found.scored and 40 <= found.scored[0] <= 80 and found.scored[1] == 600


def test_a_passage_opens_with_its_neighbours_by_an_id_with_marks(
    server: MilvusServer, address: str, library: Path, pairs: dict[Kind, tuple[Any, Any]]
) -> None:
    folder, collection = pairs["bm25"]
    for id in ('corpus "7" \\', "none"):
        assert collection.open_passage(id) == folder.open_passage(id)
    build_index([library], address)
    opened = open_index(address)
    place = opened.open_passage(opened.search_many(["gearbox shaft"], 1)[0][0].id)
    assert isinstance(place, PassagePlace) and place.before and "Ana Berg" in place.before.text
    place = opened.open_passage(place.before.id)
    assert place and place.after and "propeller" in place.after.text


def test_calibrations_are_fitted_alike(pairs: dict[Kind, tuple[Any, Any]]) -> None:
    labels = [Label(term="red cat", passage=f'corpus "{n}" \\', relevant=n % 2 == 0) for n in range(20)]
    exact, found = (fit_calibrations(index, labels, "dense") for index in pairs["dense"])
    assert found.general.threshold == pytest.approx(exact.general.threshold, abs=1e-3)
    with pytest.raises(DataError, match="holds no passage 'none'"):
        fit_calibrations(pairs["dense"][1], [*labels, Label(term="x", passage="none", relevant=True)], "dense")


def test_an_index_is_changed_as_a_folder_is(library: Path, tmp_path: Path, address: str) -> None:
    for out in (tmp_path / "ix", address):
        build_index([library], out)
        (library / "log.txt").write_text("On Sunday the ship was sold.")
        (library / "new.txt").write_text("The mast is of ash.")
        (library / "crew.html").unlink()
        assert update_index([library], out, sync=True)["version"] == 2
        assert update_index([library], out, sync=True)["version"] == 2  # nothing has changed
        update_index([], out, remove=["ships"])
        (library / "log.txt").write_text("On Monday the ship left Holm.\n\nOn Friday it came to Port Biro.\n")
        (library / "new.txt").unlink()
        (library / "crew.html").write_text("<h1>Crew</h1><p>The cook is Per Dal.</p>")
    folder, collection = (read_index_manifest(out, verify=True) for out in (tmp_path / "ix", address))
    same = ("version", "count", "corpora", "settings", "unread")
    assert {name: collection[name] for name in same} == {name: folder[name] for name in same}
    opened = open_index(address)
    assert opened.search_many(["Friday", "captain"], 3) == [[], []]
    assert opened.search_many(["mast"], 3)[0][0].text == "The mast is of ash."
    with pytest.raises(DataError, match=r"ships is not in the index"):
        update_index([], address, remove=["ships"])


@pytest.mark.parametrize("kind", ["bm25", "dense"])
def test_a_passage_that_moves_to_another_file_is_there_once(
    tmp_path: Path, address: str, kind: Kind, encoder: Path
) -> None:
    """Where it stands in another partition, too: Milvus Lite parts vectors by file, and no words."""
    rows = [json.dumps({"id": str(n), "title": "", "text": f"cat number {n}"}) + "\n" for n in range(3)]
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    one.write_text(rows[0] + rows[1])
    two.write_text(rows[2])
    build_index([one, two], address, choose(kind, encoder))
    one.write_text(rows[0])
    two.write_text(rows[1] + rows[2])
    assert update_index([one, two], address)["count"] == 3
    opened = open_index(address)
    assert sorted(passage.id for passage in opened.search_many(["cat"], 10)[0]) == ["0", "1", "2"]
    collection = milvus_collection.MilvusCollection(milvus_collection.MilvusAddress.read(address))
    assert sorted(row["id"] for row in collection.read_rows('source == "two.jsonl"', ["id"])) == ["1", "2"]
    assert (len(collection.call("list_partitions", collection.name)) > 1) == (kind == "dense")


def test_a_build_that_was_killed_goes_on_without_duplicates(
    tmp_path: Path, address: str, encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, settings, embedded = write_corpus(tmp_path / "c.jsonl", 700), choose("hybrid", encoder), []
    embed = PassageEmbedder.__call__

    def count(self: PassageEmbedder, passages: Any) -> np.ndarray:
        embedded.append(len(passages))
        return embed(self, passages)

    monkeypatch.setattr(PassageEmbedder, "__call__", count)
    with pytest.raises(KeyboardInterrupt):
        build_index([corpus], address, settings, progress=Stopped("writing passages", 256))
    for read in (open_index, read_index_manifest, lambda place: update_index([corpus], place)):
        with pytest.raises(ArtifactError, match="was not finished"):
            read(address)
    manifest = build_index([corpus], address, settings)
    assert (sum(embedded), manifest["version"], manifest["count"]) == (700, 1, 700)
    assert read_index_manifest(address, verify=True) == manifest
    opened = open_index(address)
    assert len({passage.id for passage in opened.search_many(["cat"], 1_000)[0]}) == 700


def test_a_change_that_was_killed_is_told_and_made_whole_by_the_next(
    tmp_path: Path, address: str, encoder: Path
) -> None:
    kept, corpus = write_corpus(tmp_path / "k.jsonl", 10), write_corpus(tmp_path / "c.jsonl", 600)
    build_index([kept, corpus], address, choose("dense", encoder))
    write_corpus(corpus, 550, seed=5)
    with pytest.raises(KeyboardInterrupt):
        update_index([corpus], address, progress=Stopped("writing passages", 256))
    assert open_index(address).find_state() is None
    with pytest.raises(ArtifactError, match="cut short"):
        read_index_manifest(address, verify=True)
    with pytest.raises(ConfigError, match=r"a change of c\.jsonl was cut short"):
        update_index([], address, remove=["k.jsonl"])
    manifest = update_index([corpus], address)
    assert (manifest["count"], manifest["version"]) == (560, 2)
    assert read_index_manifest(address, verify=True) == manifest
    whole = build_index([kept, corpus], tmp_path / "ix", choose("dense", encoder))
    assert manifest["corpora"] == whole["corpora"]
    question = [make_questions(1)[0]]
    fresh, found = (
        Index.open(tmp_path / "ix").search_many(question, 10)[0],
        open_index(address).search_many(question, 10)[0],
    )
    assert [p.score for p in found] == pytest.approx([p.score for p in fresh], abs=1e-4)


# ---- bad input


def list_collections(server: MilvusServer) -> set[str]:
    from pymilvus import MilvusClient

    return set(MilvusClient(f"http://127.0.0.1:{server.port}").list_collections())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "dense"}, "built with kind 'hybrid', not 'dense'"),
        ({"chunk": 64}, "built with chunk 250, not 64"),
        ({"model": "other"}, "built with model"),
    ],
)
def test_an_index_of_other_settings_is_refused_and_stays(
    tmp_path: Path, server: MilvusServer, encoder: Path, change: dict[str, Any], message: str
) -> None:
    address, corpus = server.address("settings"), write_corpus(tmp_path / "c.jsonl", 5)
    before = build_index([corpus], address, choose("hybrid", encoder))
    other = write_encoder(tmp_path / "other", seed=1)
    given = {"kind": "hybrid", "model": str(encoder)} | change
    given["model"] = str(other) if given["model"] == "other" else given["model"]
    with pytest.raises(ArtifactError, match=message.replace("250", r"\d+")):
        build_index([corpus], address, IndexSettings(**given))
    assert read_index_manifest(address, verify=True) == before


def test_a_model_of_the_same_name_that_is_another_one_is_refused(tmp_path: Path, address: str) -> None:
    corpus, model = write_corpus(tmp_path / "c.jsonl", 5), write_encoder(tmp_path / "model")
    build_index([corpus], address, choose("dense", model))
    write_encoder(tmp_path / "model", seed=1)
    with pytest.raises(ArtifactError, match="another model called"):
        update_index([corpus], address)
    with pytest.raises(ArtifactError, match="not the one that this index was built with"):
        open_index(address).search_many(["cat"], 1)


def test_a_collection_of_somebody_else_is_refused_before_anything_is_written(
    tmp_path: Path, server: MilvusServer
) -> None:
    from pymilvus import MilvusClient

    client = MilvusClient(f"http://127.0.0.1:{server.port}")
    client.create_collection("theirs", dimension=4)
    with pytest.raises(ConfigError, match="that is not an index"):
        build_index([write_corpus(tmp_path / "c.jsonl", 5)], server.address("theirs"))
    with pytest.raises(ArtifactError, match="it has no manifest"):
        open_index(server.address("theirs"))
    assert "theirs_manifest" not in list_collections(server)


def test_a_collection_of_other_fields_is_refused(tmp_path: Path, address: str, server: MilvusServer) -> None:
    from pymilvus import MilvusClient

    corpus, name = write_corpus(tmp_path / "c.jsonl", 5), address.rpartition("/")[2]
    build_index([corpus], address)
    client = MilvusClient(f"http://127.0.0.1:{server.port}")
    client.drop_collection(name)
    client.create_collection(name, dimension=4)
    for use in (open_index, lambda place: update_index([corpus], place)):
        with pytest.raises(ArtifactError, match=r"a collection of other fields: it has .* is missing"):
            use(address)


def test_a_passage_that_no_field_holds_is_a_fault_of_its_file(
    tmp_path: Path, server: MilvusServer, address: str
) -> None:
    long = tmp_path / "long.jsonl"
    long.write_text(json.dumps({"id": "a", "title": "", "text": "ä" * 40_000}) + "\n")
    with pytest.raises(DataError, match="`text` of passage 'a' has 80,000 bytes; Milvus holds 65,535"):
        build_index([long], address)
    assert not {name for name in list_collections(server) if address.endswith(name.removesuffix("_manifest"))}
    write_corpus(tmp_path / "c.jsonl", 5)
    assert "long.jsonl" in build_index([tmp_path], address)["unread"]


@pytest.mark.parametrize("text", ["milvus://host", "milvus://user:secret@host/name", "milvus:name", "milvus://h/a b"])
def test_an_address_that_is_none_is_told_without_what_could_be_a_secret(text: str) -> None:
    done = CliRunner().invoke(commands.search, [text, "cat"])
    assert isinstance(done.exception, ConfigError) and "secret" not in str(done.exception)


@contextmanager
def serve_replies(version: str = "", refusal: str = "") -> Iterator[str]:
    """A server that tells a version, and refuses a collection with how it is parted; or refuses every call."""
    import grpc
    from pymilvus.grpc_gen import common_pb2, milvus_pb2, milvus_pb2_grpc, schema_pb2

    class Servicer(milvus_pb2_grpc.MilvusServiceServicer):
        def _answer(self, context: grpc.ServicerContext) -> None:
            if refusal:
                context.abort(grpc.StatusCode.UNAUTHENTICATED, refusal)

        def Connect(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            self._answer(context)
            return milvus_pb2.ConnectResponse(status=common_pb2.Status(), identifier=1)

        def GetVersion(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            self._answer(context)
            return milvus_pb2.GetVersionResponse(status=common_pb2.Status(), version=version)

        def DescribeCollection(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            return milvus_pb2.DescribeCollectionResponse(status=common_pb2.Status(code=100, reason="not found"))

        def CreateCollection(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
            fields = schema_pb2.CollectionSchema.FromString(request.schema).fields
            parted = [field.name for field in fields if field.is_partition_key]
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"parted by {parted}")

    serving = grpc.server(futures.ThreadPoolExecutor(2))
    milvus_pb2_grpc.add_MilvusServiceServicer_to_server(Servicer(), serving)
    port = serving.add_insecure_port("127.0.0.1:0")
    serving.start()
    try:
        yield f"milvus://127.0.0.1:{port}/name"
    finally:
        serving.stop(0).wait()


@pytest.mark.parametrize("version", ["v1.1.0", "2.4.9", "4.0.0", "unknown"])
def test_a_server_of_another_version_is_refused(tmp_path: Path, version: str) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", 5)
    with serve_replies(version) as address, pytest.raises(ArtifactError, match=rf"version {version} answers"):
        build_index([corpus], address)


def test_a_server_is_asked_to_part_words_by_file_too() -> None:
    """Its BM25 counts over all partitions of a collection. (No such server runs here: the request alone is read.)"""
    with serve_replies("v2.6.3") as address:
        collection = milvus_collection.MilvusCollection(milvus_collection.MilvusAddress.read(address))
        with pytest.raises(Exception, match=r"parted by \['source'\]"):
            collection.create_passages(IndexSettings(), 0)


@pytest.mark.parametrize("token", ["", "root:hidden"])
def test_a_token_that_is_missing_or_wrong_is_told_and_never_shown(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILVUS_TOKEN", token)
    with serve_replies(refusal=f"auth check failure of {token}") as address, pytest.raises(ConfigError) as refused:
        open_index(address)
    text = str(refused.value)
    assert ("refuses the token of MILVUS_TOKEN" if token else "there is none in MILVUS_TOKEN") in text
    assert "hidden" not in text and "\n" not in refused.value.message


# ---- an engine that is down, slow or started anew


@pytest.fixture
def own(tmp_path: Path) -> Iterator[MilvusServer]:
    """A server that a test may stop."""
    with serve_milvus(tmp_path / "own") as running:
        yield running


def test_an_engine_that_was_started_anew_answers_the_next_question(tmp_path: Path, own: MilvusServer) -> None:
    build_index([write_corpus(tmp_path / "c.jsonl", 20)], own.address("a"))
    opened = open_index(own.address("a"))
    before = opened.search_many(["cat"], 5)
    own.stop()
    for ask in (
        lambda: opened.search_many(["cat"], 5),
        lambda: search_logical(opened, '"cat" OR "dog"', 3),
        opened.reopen,
    ):
        with pytest.raises(Unavailable, match="Milvus does not answer"):
            ask()
    with pytest.raises(Unavailable, match="Milvus does not answer"):
        open_index(own.address("a"))
    own.start()
    assert await_answer(lambda: opened.search_many(["cat"], 5)) == before
    assert opened.reopen() is opened


def await_answer(ask: Any, seconds: float = 30.0) -> Any:
    """What it gives once the connection stands again."""
    ends = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except Unavailable:
            assert time.monotonic() < ends


def test_a_build_waits_for_an_engine_that_is_started_anew(tmp_path: Path, own: MilvusServer) -> None:
    class Restarts(Stopped):
        def update(self, task_id: Any, **what: Any) -> None:
            if self.tasks[task_id].description == self.stage and not self.at:
                self.at = 1
                own.stop()
                timer.start()
            super().update(task_id, **what)

    import threading

    timer = threading.Timer(1.0, own.start)
    corpus = write_corpus(tmp_path / "c.jsonl", 600)
    manifest = build_index([corpus], own.address("a"), progress=Restarts("writing passages", 0))
    timer.join()
    assert read_index_manifest(own.address("a"), verify=True) == manifest and manifest["count"] == 600


def test_a_build_whose_engine_stays_away_says_how_it_goes_on(
    tmp_path: Path, own: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_collection, "PATIENCE", 0.2)
    build_index([write_corpus(tmp_path / "c.jsonl", 5)], own.address("a"))
    collection = milvus_collection.MilvusCollection(milvus_collection.MilvusAddress.read(own.address("a")))
    own.stop()
    with pytest.raises(Unavailable) as away:
        collection.insist("flush", "a")
    assert "it goes on where it was" in str(away.value.hint)


def test_a_question_to_a_slow_engine_ends_in_its_time(
    tmp_path: Path, own: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_collection.MilvusCollection.call, "__kwdefaults__", {"seconds": 0.5})
    build_index([write_corpus(tmp_path / "c.jsonl", 20)], own.address("a"))
    opened = open_index(own.address("a"))
    own.flows.clear()
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="did not answer within"):
        opened.search_many(["cat"], 5)
    assert time.monotonic() - started < 5
    own.flows.set()
    assert len(await_answer(lambda: opened.search_many(["cat"], 3))[0]) == 3


async def test_a_question_goes_on_without_an_engine_that_is_down(tmp_path: Path, own: MilvusServer) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", 20)
    build_index([corpus], own.address("a"))
    build_index([corpus], tmp_path / "ix")
    remote, local = LocalRetriever(open_index(own.address("a"))), LocalRetriever(Index.open(tmp_path / "ix"))
    sources = Sources([TextSource(remote, "remote"), TextSource(local, "local")])
    own.stop()
    found = await sources.gather(Query("cat?", "cat?", ("cat",)), 5)
    outcomes = {report.source: (report.outcome, report.error) for report in found.reports}
    assert outcomes["local"][0] == "passages" and found.passages[0]
    assert outcomes["remote"][0] == "failed" and "Milvus does not answer" in outcomes["remote"][1]
    remote.close()
    local.close()


async def test_a_service_takes_up_what_was_changed_and_searches_on_while_the_engine_is_away(
    tmp_path: Path, own: MilvusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(milvus_index, "LOOK", 1e-6)
    build_index([write_corpus(tmp_path / "c.jsonl", 20)], own.address("a"))
    retriever = LocalRetriever(await asyncio.to_thread(open_index, own.address("a")))
    state = retriever.find_state()
    await asyncio.to_thread(update_index, [write_corpus(tmp_path / "d.jsonl", 3)], own.address("a"))
    await retriever.follow()
    assert retriever.index.version == 2 and len(retriever.index) == 23
    assert retriever.find_state() != state and not retriever.refused
    own.stop()
    await retriever.follow()
    assert "Milvus does not answer" in retriever.refused and retriever.index.version == 2
    own.start()
    while retriever.refused:
        await retriever.follow()
    assert len(await retriever.search("cat", 3)) == 3
    retriever.close()


# ---- commands, and Milvus Lite in this process


def test_the_commands_take_a_collection_as_they_take_a_folder(library: Path, tmp_path: Path) -> None:
    place = f"milvus:{tmp_path / 'made' / 'lite.db'}/library"

    def run(command: Any, *arguments: str) -> Any:
        done = CliRunner().invoke(command, [*arguments, "--json"], catch_exceptions=False)
        return json.loads(done.stdout)

    with pytest.raises(ArtifactError, match="there is no such database"):
        run(commands.info, place)
    assert not (tmp_path / "made").exists()
    built = run(commands.build, str(library), "--to", place)
    assert (built["out"], built["version"]) == (place, 1)
    (library / "log.txt").write_text("On Sunday the ship was sold.")
    assert run(commands.update, place, str(library))["changed"] == ["log.txt"]
    assert run(commands.search, place, "ship sold", "-k", "1")[0]["text"] == "On Sunday the ship was sold."
    logical = run(commands.search, place, '"captain" AND NOT "gearbox"', "--logic")
    assert logical["passages"][0]["id"].startswith("ships/lomvi.md") and logical["scored"] <= logical["of"]
    assert run(commands.update, place, "--remove", "log.txt")["removed"] == ["log.txt"]
    told = CliRunner().invoke(commands.info, [place], catch_exceptions=False).stdout
    assert "version 3" in told and "the index is as it was built" in told
    with pytest.raises(ConfigError, match="Milvus indexes vectors itself"):
        run(commands.build, str(library), "--to", place, "--kind", "dense", "--model", "minilm", "--faiss", "Flat")


def test_files_of_milvus_lite_that_another_process_has_open_are_told(tmp_path: Path, own: MilvusServer) -> None:
    place = own.folder.rename(tmp_path / "own.db")  # its lock goes with it
    own.folder = place
    with pytest.raises(RevelatorError, match="cannot open its files"):
        build_index([write_corpus(tmp_path / "c.jsonl", 5)], f"milvus:{place}/name")
