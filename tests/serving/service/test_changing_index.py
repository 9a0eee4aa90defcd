"""An index that is added to, changed, cut short and damaged while a real service searches it: no question is lost, each
is answered by one version of the index, and the next one finds what stands there."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from revelator.cli import revelator
from revelator.client import Answer, Client
from revelator.errors import Unavailable
from revelator.files import stage_folder
from revelator.trace import Node
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.home.running import find_running_server
from serving.retrieval import INDEX, IndexSettings, build_index, logical_search, update_index
from serving.retrieval import retriever as following
from tests.conftest import Endpoint
from tests.service_thread import serve_in_thread
from tests.serving.conftest import wait_until
from tests.serving.retrieval.test_index_changes import halting
from tests.serving.retrieval.toy_encoder import write_encoder
from tests.serving.service.conftest import WAIT, Service

QUESTION = "Where is the red cat?"
KINDS = {"lexical": ("bm25", ""), "dense": ("dense", "HNSW16"), "hybrid": ("hybrid", ""), "exact": ("dense", "Flat")}


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_encoder(tmp_path_factory.mktemp("encoder")))


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "first.md").write_text("# Red cat\n\nThe red cat is in the tower.\n")
    (folder / "other.md").write_text("# Blue dog\n\nThe blue dog is by the river.\n")
    return folder


@pytest.fixture(name="ix")
def write_ix(documents: Path, tmp_path: Path) -> Path:
    """Version 1, lexical."""
    build_index([documents], tmp_path / "indexes" / "ix")
    return tmp_path / "indexes" / "ix"


@pytest.fixture
def own_home(tmp_path: Path) -> Path:
    release_embedded_base(tmp_path / "home")
    return tmp_path / "home"


@pytest.fixture
def serve(own_home: Path, config: ServingConfig, endpoint: Endpoint) -> Callable[..., object]:
    endpoint.knowledge[QUESTION] = ["tower"]

    @contextmanager
    def serve(index: Path, **changes: object) -> Iterator[Service]:
        with serve_in_thread(own_home, config.model_copy(update={"index": index, **changes})) as (questions, running):
            yield Service(own_home, running, questions, endpoint)

    return serve


def ask(client: Client, question: str = QUESTION, **options: object) -> tuple[Answer, Node]:
    answer = client.ask(question, **{"strategy": "single", **options})  # type: ignore[arg-type]
    return answer, next(node for node in answer.trace.nodes if node.kind == "atomic")


def find_files(node: Node) -> set[str]:
    return {passage.file for passage in node.documents if "cat" in passage.text}


def search(client: Client, **options: object) -> tuple[str, set[str]]:
    """The version of the index that answers, and the files about the cat that it found."""
    answer, leaf = ask(client, **options)
    return answer.trace.versions["retriever"], find_files(leaf)


def add(documents: Path, index: Path, name: str, text: str) -> None:
    (documents / name).write_text(f"# Red cat\n\n{text}\n")
    update_index([documents], index)


def find_removed_files(folder: Path) -> list[str]:
    """The files below the folder that this process has open or mapped, and that have no name any more."""
    opened = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return [file for file in [*opened, *mapped] if f"{folder}/" in file and file.endswith("(deleted)")]


@pytest.mark.parametrize("kind", KINDS)
def test_questions_go_on_while_the_index_changes_and_each_is_answered_by_one_version(
    serve, documents: Path, encoder: str, tmp_path: Path, kind: str
):
    scores, faiss = KINDS[kind]
    index = tmp_path / "indexes" / "ix"
    settings = IndexSettings() if scores == "bm25" else IndexSettings(kind=scores, model=encoder, faiss=faiss)  # type: ignore[arg-type]
    build_index([documents], index, settings)
    held = {"1": {"first.md"}, "2": {"first.md", "second.md"}, "3": {"second.md"}, "4": {"second.md"}}
    stopped, found = threading.Event(), []

    with serve(index, max_in_flight=16) as service, Client(service.url, timeout=WAIT) as client:

        def keep_asking() -> None:
            while not stopped.is_set():
                found.append(search(client))

        with ThreadPoolExecutor(3) as threads:
            asking = [threads.submit(keep_asking) for _ in range(3)]
            try:
                assert search(client) == ("1", held["1"])
                add(documents, index, "second.md", "A red cat is in the city.")
                assert search(client) == ("2", held["2"]), "it is found without a restart"
                update_index([], index, remove=["first.md"])
                assert search(client) == ("3", held["3"])
                (documents / "second.md").write_text("# Red cat\n\nThe red cat is in the house.\n")
                update_index([documents / "second.md"], index)
                answer, leaf = ask(client)
                assert answer.trace.versions["retriever"] == "4"
                assert any("in the house" in passage.text for passage in leaf.documents)
                assert not any("in the city" in passage.text for passage in leaf.documents)
            finally:
                stopped.set()
            assert all(one.result() is None for one in asking), "every question was answered"
        assert len(found) > 10 and all(files == held[version] for version, files in found)
        add(documents, index, "third.md", "A red cat is by the sea.")
        metrics = httpx.get(f"{service.running.http}/metrics").text
        assert 'revelator_index_version{index="retriever"} 5.0' in metrics, "it is taken up by a look at them, too"
        assert 'revelator_index_refused{index="retriever"} 0.0' in metrics
        wait_until(lambda: not find_removed_files(index.parent))  # what no question needs is given back


def test_all_steps_of_a_question_search_the_version_that_it_began_with(serve, ix: Path, documents: Path):
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client, ThreadPoolExecutor(1) as threads:
        service.endpoint.gate("Who is the red cat?", "the red cat")
        service.endpoint.knowledge["Where is the red cat?"] = ["tower"]
        plan = "Who is the red cat? * Where is {1}?"
        asked = threads.submit(client.ask, "Where is it?", plan=plan)
        service.await_start("Who is the red cat?")
        add(documents, ix, "second.md", "A red cat is in the city.")
        assert search(client) == ("2", {"first.md", "second.md"}), "a question that begins later finds it"
        service.release()
        trace = asked.result(WAIT).trace
        leaves = [node for node in trace.nodes if node.kind == "atomic"]
        assert len(leaves) == 2 and trace.versions["retriever"] == "1"
        assert [find_files(leaf) for leaf in leaves] == [{"first.md"}] * 2
        service.endpoint.gates.clear()


def test_questions_do_not_wait_for_a_version_that_takes_long_to_open(
    serve, ix: Path, documents: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "PATIENCE", 0.0)
    opened = threading.Event()
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:
        service.questions.on_indexes = opened.set
        add(documents, ix, "second.md", "A red cat is in the city.")
        assert search(client) == ("1", {"first.md"}), "it is noticed, and opened beside this question"
        assert opened.wait(WAIT)
        assert search(client) == ("2", {"first.md", "second.md"})


@pytest.mark.parametrize("moment", ["counting terms", "merging"])
def test_a_change_that_is_killed_leaves_what_was_served(serve, ix: Path, documents: Path, moment: str):
    (documents / "second.md").write_text("# Red cat\n\nA red cat is in the city.\n")
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:
        with halting("add", documents, ix, moment):
            assert search(client) == ("1", {"first.md"})
        assert search(client) == ("1", {"first.md"})
        assert INDEX.read_manifest(ix, verify=True)["version"] == 1
        update_index([documents], ix)
        assert search(client) == ("2", {"first.md", "second.md"})


def test_a_damaged_version_is_refused_and_named_and_the_one_before_is_searched(
    serve, ix: Path, documents: Path, tmp_path: Path, own_home: Path, caplog: pytest.LogCaptureFixture
):
    shutil.copytree(ix, tmp_path / "copy")
    add(documents, tmp_path / "copy", "second.md", "A red cat is in the city.")
    whole = (tmp_path / "copy" / "passages.jsonl").read_bytes()

    def put(passages: bytes) -> None:
        with stage_folder(ix) as stage:
            shutil.copytree(tmp_path / "copy", stage, dirs_exist_ok=True)
            (stage / "passages.jsonl").write_bytes(passages)

    def examine() -> dict[str, str]:
        said = CliRunner().invoke(revelator, ["doctor", "--home", str(own_home), "--json"])
        return next(one for one in json.loads(said.stdout)["findings"] if one["name"] == "indexes")

    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:

        def read_metrics() -> str:
            return httpx.get(f"{service.running.http}/metrics").text

        assert examine()["found"] == "retriever version 1" and examine()["state"] == "ok"
        for damaged in (whole.replace(b"city", b"cosy"), whole[:-9]):
            put(damaged)
            assert search(client) == ("1", {"first.md"})
            assert 'revelator_index_refused{index="retriever"} 1.0' in read_metrics()
            assert 'revelator_index_version{index="retriever"} 1.0' in read_metrics()
        [line] = caplog.messages
        assert line.startswith(f"version 1 of {ix} is searched as before; what stands there now is refused: ")
        assert line.endswith("passages.jsonl: has changed since it was built")
        assert examine()["state"] == "fault" and "passages.jsonl" in examine()["found"]
        put(whole)
        assert search(client) == ("2", {"first.md", "second.md"})
        assert 'revelator_index_refused{index="retriever"} 0.0' in read_metrics()
        assert examine()["found"] == "retriever version 2"


def test_a_version_that_was_half_copied_is_taken_up_once_it_is_whole(
    serve, ix: Path, documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(following, "AGAIN", 0.0)
    monkeypatch.setattr(following, "IDLE", 0)
    shutil.copytree(ix, tmp_path / "copy")
    add(documents, tmp_path / "copy", "second.md", "A red cat is in the city.")
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:
        for name in sorted((path.name for path in ix.iterdir()), key=lambda name: name != "manifest.json"):
            # as rsync does it: each file aside, then renamed
            shutil.copy(tmp_path / "copy" / name, ix.parent / name)
            (ix.parent / name).replace(ix / name)
            version, files = search(client)
            assert (version, files) in (("1", {"first.md"}), ("2", {"first.md", "second.md"}))
        assert version == "2"


def test_an_index_that_was_written_over_in_place_is_searched_again_once_it_was_built_anew(
    serve, ix: Path, documents: Path, tmp_path: Path
):
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:
        assert search(client) == ("1", {"first.md"})
        passages = ix / "passages.jsonl"
        passages.write_bytes(passages.read_bytes().replace(b"tower", b"house"))
        with pytest.raises(Unavailable, match="written over"):
            ask(client)
        build_index([documents], ix)
        assert search(client) == ("2", {"first.md"})
        passages.touch()
        assert search(client) == ("2", {"first.md"}), "its files are what they were"


def test_a_link_that_leads_to_another_index_is_followed(serve, ix: Path, documents: Path, own_home: Path):
    """So on a file system that several machines share: nothing is removed that another may be reading."""
    link, other = ix.parent / "current", ix.parent / "other"
    link.symlink_to(ix)
    with serve(configure(own_home, index=link).index) as service, Client(service.url, timeout=WAIT) as client:
        assert search(client) == ("1", {"first.md"})
        shutil.copytree(ix, other)
        add(documents, other, "second.md", "A red cat is in the city.")
        (ix.parent / "next").symlink_to(other)
        (ix.parent / "next").replace(link)
        assert search(client) == ("2", {"first.md", "second.md"})


def test_an_index_that_is_gone_is_searched_on(serve, ix: Path):
    with serve(ix) as service, Client(service.url, timeout=WAIT) as client:
        ix.rename(ix.parent / "elsewhere")
        shutil.rmtree(ix.parent / "elsewhere")
        assert search(client) == ("1", {"first.md"})
        running = find_running_server(service.home)
        assert running and running.indexes == {"retriever": 1} and "not an index" in running.refused["retriever"]


def test_what_is_remembered_is_of_the_version_that_said_it(serve, ix: Path, documents: Path):
    with serve(ix, answer_cache=True) as service, Client(service.url, timeout=WAIT) as client:

        def is_cached() -> tuple[bool, str]:
            answer, leaf = ask(client)
            return "cached_from" in leaf.detail, answer.trace.versions["retriever"]

        assert [is_cached() for _ in range(2)] == [(False, "1"), (True, "1")]
        add(documents, ix, "second.md", "A red cat is in the city.")
        assert [is_cached() for _ in range(2)] == [(False, "2"), (True, "2")]
        update_index([], ix, remove=["second.md"])
        assert [is_cached() for _ in range(2)] == [(False, "3"), (True, "3")]


def test_an_index_of_a_list_of_sources_is_followed_too_and_a_passage_that_left_is_not_opened(
    serve, ix: Path, documents: Path, tmp_path: Path
):
    sources = tmp_path / "sources.yaml"
    papers = tmp_path / "indexes" / "papers"
    build_index([documents], papers)
    sources.write_text(f"sources:\n- {{kind: text, name: papers, index: {papers}}}\n- {{kind: text, name: served}}\n")
    with serve(ix, sources=sources) as service, Client(service.url, timeout=WAIT) as client:
        page = f"{service.running.http}/api/passages"

        def find_versions() -> dict[str, int]:
            return {one["source"]: one["version"] for one in ask(client)[1].detail["sources"]}

        assert find_versions() == {"papers": 1, "served": 1}
        id = next(passage.id for passage in ask(client)[1].documents if passage.id.startswith("papers:first.md"))
        assert httpx.get(page, params={"id": id}).status_code == 200
        update_index([], papers, remove=["first.md"])
        assert find_versions() == {"papers": 2, "served": 1}
        assert httpx.get(page, params={"id": id}).status_code == 404
        running = find_running_server(service.home)
        assert running and running.indexes == {"papers": 2, "served": 1}


def test_a_logical_query_over_an_approximate_index_says_in_its_trace_how_many_it_scored(
    serve, documents: Path, encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logical_search, "CANDIDATES", 2)
    for n, word in enumerate(("green bird", "silver fish", "iron bridge", "gold lamp", "copper king", "snow queen")):
        (documents / f"more-{n}.md").write_text(f"# {word}\n\nThe {word} is in the house.\n")
    index, query = tmp_path / "indexes" / "ix", '"red cat" AND NOT "river"'
    build_index([documents], index, IndexSettings(kind="hybrid", model=encoder, faiss="HNSW16"))
    said = json.loads(CliRunner().invoke(revelator, ["index", "search", str(index), query, "--logic", "--json"]).stdout)
    assert said["of"] == 8 > said["scored"] >= 2
    with serve(index) as service, Client(service.url, timeout=WAIT) as client:
        answer, leaf = ask(client, plan=query, strategy="logic")
        assert leaf.detail["scored"] == {"retriever": {"scored": said["scored"], "of": 8}}
        assert f"scored {said['scored']} of 8 passages: those that a term brings" in answer.trace.list_notes()
        assert "scored" not in ask(client)[1].detail
