"""Jobs on a cluster of several processes on this machine: a head without a CPU, and three nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from rich.progress import Progress, TaskID

from data_gen.build import build
from data_gen.config import SetConfig
from data_gen.prepare import CHUNK
from data_gen.world.generate import generate
from evaluation.harness.folder import METRICS, NO_COST, QuestionRow, read_questions
from evaluation.harness.run import prepare_run, run_questions
from evaluation.run import PACKAGES, read_runs
from revelator.cli import revelator
from revelator.cluster import open_engine
from revelator.errors import DataError
from revelator.files import sha256_folder
from serving.retrieval import IndexSettings, build_index
from tests.chat_server import running
from tests.data_gen.toy_teacher import Teacher, planner, teaching
from tests.evaluation.test_evaluate import ASKED
from tests.evaluation.test_evaluate import config as write_config
from tests.serving.retrieval.stopped import Stopped
from tests.serving.retrieval.toy_encoder import WORDS, write_corpus, write_encoder

ray = pytest.importorskip("ray", reason="needs the extra `ray`")
from ray.cluster_utils import Cluster  # noqa: E402

ROOT = Path(__file__).parents[1]
STORE = 80_000_000  # bytes of a node's object store; Ray's least is 75 MiB
HEARTBEATS = {"health_check_initial_delay_ms": 1_000, "health_check_period_ms": 500}  # a lost node is noticed sooner
NODE = {"num_cpus": 1, "object_store_memory": STORE}

# four nodes start a dozen processes, which takes long where the cores are shared
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("RAY_memory_monitor_refresh_ms", "0")  # or it ends workers where other programs fill the memory
        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False, "_system_config": HEARTBEATS}
        made = Cluster(initialize_head=True, head_node_args=head)
        try:
            ray.init(address=made.address, log_to_driver=False)
            yield made
        finally:
            ray.shutdown()
            made.shutdown()


@pytest.fixture
def cluster(nodes: Cluster) -> Cluster:
    """Three nodes that live, whatever the test before did."""
    for _ in range(3 - len(nodes.worker_nodes)):
        nodes.add_node(**NODE)
    return nodes


def lose_a_node(cluster: Cluster, node: str = "") -> None:
    """A node dies without a word; returns when the head has noticed, by the heartbeats that are missing."""
    lost = next(each for each in cluster.worker_nodes if node in ("", each.node_id))
    cluster.remove_node(lost, allow_graceful=False)
    while next(each["Alive"] for each in ray.nodes() if each["NodeID"] == lost.node_id):
        time.sleep(0.1)


class Calls(Progress):
    """Calls once when a stage has done something."""

    def __init__(self, stage: str, call: Callable[[], None]) -> None:
        super().__init__(disable=True)
        self.stage, self.calls = stage, [call]

    def update(self, task_id: TaskID, **what: Any) -> None:
        super().update(task_id, **what)
        if self.tasks[task_id].description == self.stage and self.calls:
            self.calls.pop()()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        self.update(task_id, advance=advance)


def test_a_node_that_is_lost_takes_its_own_items_with_it_and_no_others(cluster: Cluster, tmp_path: Path) -> None:
    log, held, never = tmp_path / "log", tmp_path / "held", tmp_path / "never"
    os.mkfifo(held)
    os.mkfifo(never)

    def square(item: int) -> int:
        node = ray.get_runtime_context().get_node_id()
        is_first = f"{item} " not in log.read_text()
        with log.open("a") as file:
            file.write(f"{item} {node}\n")
        if item == 14 and is_first:
            held.write_text(node)
            never.read_text()
        return item * item

    log.touch()
    with open_engine("ray") as engine:
        results = engine(square, range(10, 50))
        found = [next(results)]
        lost = held.read_text()
        lose_a_node(cluster, lost)
        found += results
    assert found == [number * number for number in range(10, 50)]
    runs = [line.split() for line in log.read_text().splitlines()]
    repeated = {item for item, count in Counter(item for item, _ in runs).items() if count > 1}
    assert "14" in repeated and len(repeated) <= 2, "one under way, one done and not handed over"
    assert repeated <= {item for item, node in runs if node == lost}


def test_an_index_is_the_same_after_an_end_and_a_lost_node(cluster: Cluster, tmp_path: Path) -> None:
    words, documents = WORDS.split(), tmp_path / "documents"
    documents.mkdir()
    for number in range(8):
        text = " ".join(words[number:] * 12)
        (documents / f"{number}.md").write_text(f"# {words[number]}\n\n{text}\n")
    (documents / "broken.pdf").write_bytes(b"no PDF")
    rows = [f'{{"title": "{word}", "text": "{word} and {words[0]} {place}"}}\n' for place, word in enumerate(words)]
    (tmp_path / "rows.jsonl").write_text("".join(rows * 3))
    paths = [documents, tmp_path / "rows.jsonl"]
    settings = IndexSettings(kind="hybrid", model=str(write_encoder(tmp_path / "encoder")), chunk=64, overlap=0)
    alone = build_index(paths, tmp_path / "alone", settings, shard_size=16)
    assert "broken.pdf" in alone["unread"]
    with open_engine("ray", "revelator", "serving") as engine:
        with pytest.raises(KeyboardInterrupt):
            stopped = Stopped("embedding", at=32)
            build_index(paths, tmp_path / "ix", settings, shard_size=16, progress=stopped, engine=engine)
        assert len([*(tmp_path / ".ix.building").glob("*.npz")]) == 2
        calls = Calls("embedding", lambda: lose_a_node(cluster))
        build_index(paths, tmp_path / "ix", settings, shard_size=16, progress=calls, engine=engine)
        assert not calls.calls
        assert sha256_folder(tmp_path / "ix") == sha256_folder(tmp_path / "alone")

        def change_a_document() -> None:
            (documents / "0.md").write_text("# dog\n\nWhat a node has that does not share the folder.\n")

        changes = Calls("reading", change_a_document)
        with pytest.raises(DataError, match=r"on the Ray node .*: another file than where the build was started"):
            build_index(paths, tmp_path / "new", progress=changes, engine=engine)
    assert not (tmp_path / "new").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from revelator.cluster import open_engine
from serving.retrieval import IndexSettings, build_index
from rich.progress import Progress

class Killed(Progress):
    def update(self, task, **what):
        super().update(task, **what)
        if self.tasks[task].description == "embedding" and what["completed"] == 32:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    settings = IndexSettings(kind="dense", model=str(folder / "encoder"))
    with open_engine("ray", "revelator", "serving") as engine:
        killed = Killed(disable=True)
        build_index([folder / "c.jsonl"], folder / "ix", settings, shard_size=16, progress=killed, engine=engine)
"""


def test_a_build_whose_starter_was_killed_goes_on_from_its_last_shard(cluster: Cluster, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c.jsonl", 64)
    settings = IndexSettings(kind="dense", model=str(write_encoder(tmp_path / "encoder")))
    (tmp_path / "killed.py").write_text(KILLED)
    environment = {**os.environ, "RAY_ADDRESS": cluster.address, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(tmp_path / "killed.py"), str(tmp_path)]
    ended = subprocess.run(command, env=environment, check=False)
    shards = {path: path.stat().st_mtime_ns for path in (tmp_path / ".ix.building").glob("*.npz")}
    assert ended.returncode == -signal.SIGKILL and len(shards) == 2 and not (tmp_path / "ix").exists()
    made: list[float] = []

    class Seen(Progress):
        def update(self, task_id: TaskID, **what: Any) -> None:
            if self.tasks[task_id].description == "embedding":
                made.append(what["completed"])

    with open_engine("ray", "revelator", "serving") as engine:
        build_index([corpus], tmp_path / "ix", settings, shard_size=16, progress=Seen(disable=True), engine=engine)
    build_index([corpus], tmp_path / "alone", settings, shard_size=16)
    assert sha256_folder(tmp_path / "ix") == sha256_folder(tmp_path / "alone")
    assert min(made) >= 32, "the first two shards were made before"


def test_a_collection_of_milvus_holds_what_one_process_writes_after_a_lost_node(
    cluster: Cluster, tmp_path: Path
) -> None:
    pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")
    from serving.retrieval.places import open_index
    from tests.serving.retrieval.milvus_server import serve_milvus

    corpus = write_corpus(tmp_path / "c.jsonl", 700)
    settings = IndexSettings(kind="hybrid", model=str(write_encoder(tmp_path / "encoder")))
    with serve_milvus(tmp_path / "milvus") as server:
        build_index([corpus], server.address("alone"), settings)
        calls = Calls("writing passages", lambda: lose_a_node(cluster))
        with open_engine("ray", "revelator", "serving") as engine:
            build_index([corpus], server.address("together"), settings, progress=calls, engine=engine)
        assert not calls.calls
        alone, together = (open_index(server.address(name)) for name in ("alone", "together"))
        questions = WORDS.split()[2:]
        assert together.search_many(questions, 700) == alone.search_many(questions, 700)
        assert len({passage.id for passage in together.search_many(["cat"], 1_000)[0]}) == 700


def test_a_set_is_the_same_after_a_lost_node(cluster: Cluster, tmp_path: Path) -> None:
    generate(3 * CHUNK, 1, tmp_path / "world")
    source = {"format": "world", "path": str(tmp_path / "world")}
    config = SetConfig.model_validate({"name": "t", "sources": [source] * 3})
    alone = build(config, tmp_path / "alone")
    (tmp_path / "t.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    command = [sys.executable, "-m", "revelator", "data", "build", str(tmp_path / "t.yaml"), "--engine", "ray"]
    by_command = subprocess.run(
        [*command, "--json", "--out", str(tmp_path / "named")],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        stdout=subprocess.PIPE,
        check=True,
    )
    assert json.loads(by_command.stdout)["digest"] == alone["digest"]
    arrived: list[int] = []

    def progress(source: str, rows: int) -> None:
        arrived.append(rows)
        if len(arrived) == 1:
            lose_a_node(cluster)

    with open_engine("ray", "revelator", "data_gen") as engine:
        together = build(config, tmp_path / "together", progress, engine=engine)
        assert {**together, "created": ""} == {**alone, "created": ""}
        assert sorted(arrived) == sorted(3 * [*range(CHUNK, 3 * CHUNK + 1, CHUNK)])

        absent = config.sources[0].model_copy(update={"path": str(tmp_path / "absent.jsonl")})
        broken = config.model_copy(update={"sources": (config.sources[0], absent)})
        with pytest.raises(DataError, match="no such file"):
            build(broken, tmp_path / "together", engine=engine)


def test_a_taught_set_is_the_same(cluster: Cluster, tmp_path: Path) -> None:
    made = []
    with running() as server:
        Teacher(server, {"translate_bnf": planner})
        (tmp_path / "teach.yaml").write_text(yaml.safe_dump(teaching(server.url, tmp_path)))
        for name in ("local", "ray"):
            command = ["data", "build", str(tmp_path / "teach.yaml"), "--out", str(tmp_path / name), "--engine", name]
            made.append(CliRunner().invoke(revelator, [*command, "--json"], catch_exceptions=False).stdout)
    assert json.loads(made[0])["digest"] == json.loads(made[1])["digest"]


def read_rows(folder: Path) -> list[QuestionRow]:
    """The rows of a run, without what differs from run to run."""
    return [replace(row, cost=NO_COST, trace=None) for row in read_questions(folder)]


def test_a_run_has_the_rows_of_one_process(cluster: Cluster, tmp_path: Path, index: Path) -> None:
    path = write_config(tmp_path, index, concurrency=1)
    for name in ("local", "ray"):
        command = ["eval", "run", str(path), "--out", str(tmp_path / name), "--engine", name]
        CliRunner().invoke(revelator, command, catch_exceptions=False)

    together = read_rows(tmp_path / "ray")
    assert together == read_rows(tmp_path / "local") and all(row.scores["em"] == 1 for row in together)
    assert (tmp_path / "ray" / METRICS).exists()


def test_a_run_has_the_rows_of_one_process_after_a_lost_node(cluster: Cluster, tmp_path: Path, index: Path) -> None:
    path = write_config(tmp_path, index, concurrency=1)
    asked = [
        {"id": f"{n}", "question": question, "answer": [ASKED[question]]} for n, question in enumerate(6 * [*ASKED])
    ]
    (tmp_path / "nq.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in asked))
    config, run, benchmark = prepare_run(read_runs(path, None)[""], "eval run")
    run_questions(config, run, benchmark, tmp_path / "alone", Progress(disable=True))
    calls = Calls(run.name, lambda: lose_a_node(cluster))
    with open_engine("ray", *PACKAGES) as engine:
        run_questions(config, run, benchmark, tmp_path / "together", calls, engine=engine)
    assert not calls.calls, "the first row came while the others were asked"
    rows = read_rows(tmp_path / "together")
    assert rows == read_rows(tmp_path / "alone") and [row.id for row in rows] == [*run.ids]


ELSEWHERE = """
import sys
from importlib.machinery import PathFinder

class Elsewhere:  # before the path, to which Ray adds that of whoever starts the job
    def find_spec(name, path=None, target=None):
        return PathFinder.find_spec(name, [{!r}]) if name == "revelator" else None

sys.meta_path.insert(0, Elsewhere)
"""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise ModuleNotFoundError(\"No module named 'revelator'\")", "cannot run revelator: .*No module named"),
        ("VERSION = 0", "has another release of revelator"),
    ],
)
def test_a_node_without_this_release_is_named_and_nothing_is_begun(
    cluster: Cluster, tmp_path: Path, code: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "revelator", tmp_path / "elsewhere" / "revelator")
    (tmp_path / "elsewhere" / "revelator" / "__init__.py").write_text(f"{code}\n")
    (tmp_path / "elsewhere" / "sitecustomize.py").write_text(ELSEWHERE.format(str(tmp_path / "elsewhere")))
    (tmp_path / "rows.jsonl").write_text('{"title": "a", "text": "b"}\n')
    with monkeypatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path / "elsewhere"))
        other = cluster.add_node(**NODE)
    command = ["index", "build", str(tmp_path / "rows.jsonl"), "--out", str(tmp_path / "ix"), "--engine", "ray"]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "revelator", *command], env=environment, capture_output=True, text=True, check=False
        )
    finally:
        cluster.remove_node(other)
    assert ran.stderr.count("\n") == 2, ran.stderr
    said, hint = ran.stderr.splitlines()
    assert ran.returncode == 1 and re.search(reason, said) and "install there" in hint
    assert not (tmp_path / "ix").exists() and not (tmp_path / ".ix.building").exists()
