"""Two `revelator model promote` commands at once on one tracking server: one wins, the other says so and exits with 1.

Both talk to the server through a proxy on loopback that holds requests, so what comes before what is decided and not
left to chance.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import mlflow
import pytest

from revelator import promotions, registry
from revelator.cli import main
from tests.loopback import serving
from tests.training.toy import write_adapter, write_base, write_set

PATIENCE = 600  # seconds until a command that does not come fails the test
PROCESSES = multiprocessing.get_context("forkserver")  # each command is a process; what all import is imported once
PROCESSES.set_forkserver_preload(["evaluation.gate.command", "serving.models.local", "training.tracking"])
ENTRY, ALIAS = "/api/2.0/mlflow/model-versions/create", "/api/2.0/mlflow/registered-models/alias"


class Race:
    """What two commands ask of the server, in order: both have seen the champion before either writes its entry.

    The second entry is written after the first; with `late`, only once the command of the first has ended. Otherwise
    the alias is moved only once the command of the second has ended. `ended` is set when one of the commands has.
    """

    def __init__(self, late: bool) -> None:
        self.late = late
        self.both = threading.Barrier(2)
        self.ended = threading.Event()
        self.entries: list[int] = []
        self._lock = threading.Lock()

    def end(self) -> None:
        """A command has ended. Where it never came to its entry, the other does not wait for it."""
        self.ended.set()
        self.both.abort()

    @contextmanager
    def around(self, path: str, body: bytes) -> Iterator[None]:
        asked = json.loads(body) if path in (ENTRY, ALIAS) else {}
        if path == ALIAS and not self.late:
            assert self.ended.wait(PATIENCE)
        if path != ENTRY or not asked["name"].endswith("-promotions"):
            yield
            return
        self.both.wait(PATIENCE)
        with self._lock:  # held by the first until its entry is written
            if self.entries and self.late:
                assert self.ended.wait(PATIENCE)
            self.entries.append(int(asked["source"].rpartition("/")[2]))
            yield


class Proxy(ThreadingHTTPServer):
    """Passes each request on to `target` and the answer back, within what `race` puts around it."""

    daemon_threads = True

    def __init__(self, target: str, race: Race) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.race = race
        self.client = httpx.Client(base_url=target, trust_env=False, timeout=PATIENCE)


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def passed_on(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        kept = {name: value for name, value in self.headers.items() if name in ("Content-Type", "Authorization")}
        with self.server.race.around(self.path, body):
            answer = self.server.client.request(self.command, self.path, content=body, headers=kept)
        self.send_response(answer.status_code)
        for name in ("Content-Type", "Content-Disposition"):
            if name in answer.headers:
                self.send_header(name, answer.headers[name])
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, format: str, *args: Any) -> None:
        pass


for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.passed_on)


@contextmanager
def passing(target: str, race: Race) -> Iterator[str]:
    with serving(Proxy(target, race), race.end) as proxy:
        yield f"http://127.0.0.1:{proxy.server_port}"


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    root = tmp_path_factory.mktemp("material")
    base, folder = write_base(root / "base"), write_set(root / "set", train=1, dev=3)
    return folder, [write_adapter(root / f"adapter-{seed}", base, seed=seed) for seed in (1, 2, 3)]


@dataclass(frozen=True)
class Ended:
    status: int | None
    stdout: str
    stderr: str


def run_program(arguments: list[str], folder: Path, uri: str) -> None:
    """Runs `revelator` in this process over the registry at `uri`, with its output in files of `folder`."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.update(MLFLOW_TRACKING_URI=uri, MLFLOW_HTTP_REQUEST_TIMEOUT=str(PATIENCE))
    sys.argv = ["revelator", *arguments]
    main()


def promoted(uri: str, home: Path, version: int) -> Ended:
    """`revelator model promote` of a version, whatever it scores: there are no floors, and the champion is left out."""
    rules = home / "rules.yaml"
    rules.write_text("confidence: 0.9\nminimum: 0\nmargins: {}\nfloors: {}\n")
    arguments = ["model", "promote", "--version", str(version), "--rules", str(rules), "--floors-only"]
    arguments += ["--limit", "1", "--home", str(home), "--json"]
    process = PROCESSES.Process(target=run_program, args=(arguments, home, uri))
    process.start()
    process.join(PATIENCE)
    return Ended(process.exitcode, (home / "stdout").read_text(), (home / "stderr").read_text())


@pytest.fixture
def empty_registry(tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The registry at the tracking server; what a test registers there leaves with it."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    registry.connect(tmp_path)
    yield
    for name in (registry.NAME, f"{registry.NAME}-promotions"):
        registry.open_client().delete_registered_model(name)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("champion", "late"), [(None, False), (1, True)])
def test_of_two_promotions_at_once_one_wins_and_the_other_ends_with_a_message_and_status_1(
    champion: int | None,
    late: bool,
    material: tuple[Path, list[Path]],
    tracking_server: str,
    empty_registry: None,
    tmp_path: Path,
) -> None:
    (folder, adapters), name = material, registry.NAME
    for adapter in adapters:
        registry.register_adapter(adapter, name, "", {"set_folder": str(folder)})
    if champion:
        promotions.move(name, champion, promotions.read_standing(name))
    race = Race(late)
    with passing(tracking_server, race) as uri, ThreadPoolExecutor(2) as pool:
        commands: dict[Future[Ended], int] = {}
        for version in (2, 3):
            (tmp_path / str(version)).mkdir()
            commands[pool.submit(promoted, uri, tmp_path / str(version), version)] = version
        ended, _ = wait(commands, PATIENCE, FIRST_COMPLETED)
        race.end()
        results = {version: command.result(PATIENCE) for command, version in commands.items()}
        [first_to_end] = [commands[command] for command in ended]
    assert len(race.entries) == 2, results
    first, second = race.entries
    assert first_to_end == (first if late else second)

    assert (results[first].status, results[second].status) == (0, 1), results
    summary = json.loads(results[first].stdout)
    assert (summary["version"], summary["replaced"], summary["moved"]) == (first, champion, True)
    said = f"another promotion came first and made version {first} champion; nothing was moved here"
    assert f"error: registered model {name}: {said}\n" in results[second].stderr
    assert "hint: run the command again" in results[second].stderr and "Traceback" not in results[second].stderr
    refused = json.loads(results[second].stdout)
    assert (refused["version"], refused["moved"], refused["conflict"]) == (second, False, said)

    now, standing = registry.find_champion(name), promotions.read_standing(name)
    assert now and now.version == first and now.tags["champion_replaced"] == str(champion or "none")
    assert [move.version for move in standing.moves] == ([champion] if champion else []) + [first]
    assert standing.moves[-1].settled
    run = mlflow.get_run(registry.resolve(name, second).tags["promotion_run"])
    assert run.data.tags["outcome"] == said

    if champion:
        again = promoted(tracking_server, tmp_path / str(second), second)
        assert again.status == 0 and json.loads(again.stdout)["replaced"] == first
