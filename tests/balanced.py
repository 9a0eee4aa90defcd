"""Executors side by side behind HAProxy: each a process on loopback, as a user starts it, over one home folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import SystemRandom

import httpx

from serving.service.addresses import DRAWN, LOOPBACK, Ports

CONFIG = Path(__file__).parents[1] / "deploy" / "haproxy.cfg"
COUNT = 3  # executors that the file names
LONG = 600  # seconds of what ends sooner: how busy the machine is must not decide
LOOK_SECONDS = 0.05


def find_haproxy() -> str | None:
    """The program, which Debian keeps where not every user's PATH leads."""
    return shutil.which("haproxy", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


def draw_ports(count: int) -> list[Ports]:
    """Pairs that are free, below those that Linux gives to connections: an executor that is started anew needs its own
    again."""
    drawn = SystemRandom().sample(DRAWN, len(DRAWN))
    free = (ports for ports in map(Ports, drawn[::2], drawn[1::2]) if not ports.find_taken())
    return [next(free) for _ in range(count)]


def name_addresses(ports: Ports) -> dict[str, str]:
    return {name.upper(): f"{LOOPBACK}:{port}" for name, port in asdict(ports).items()}


@dataclass
class ExecutorProcess:
    """`revelator serve` by the `serving.yaml` of its home folder; what it writes of each question goes to `events`."""

    number: int
    home: Path
    ports: Ports
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def http(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.http}"

    @property
    def events(self) -> Path:
        return self.home / f"events-{self.number}.jsonl"

    def start(self) -> None:
        command = [sys.executable, "-m", "revelator", "serve", "--home", str(self.home)]
        command += [f"--ports={self.ports.http},{self.ports.grpc}"]
        environment = {**os.environ, **self.environment, "REVELATOR_EVENTS": str(self.events)}
        with self.said.open("ab") as said:
            self.process = subprocess.Popen(command, env=environment, stdout=said, stderr=said)

    @property
    def said(self) -> Path:
        return self.home / f"said-{self.number}.txt"

    def wait_until_ready(self) -> None:
        end = time.monotonic() + LONG
        while self.read_health() != "ready":
            assert self.process.poll() is None and time.monotonic() < end, self.said.read_text()
            time.sleep(LOOK_SECONDS)

    def read_health(self) -> str:
        """`ready`, `not ready` or `stopping`; "" while nobody listens."""
        try:
            return str(httpx.get(f"{self.http}/health", trust_env=False, verify=False, timeout=LONG).json()["status"])
        except httpx.TransportError:
            return ""


@contextmanager
def running_executors(executors: Sequence[ExecutorProcess]) -> Iterator[None]:
    """Starts them together, until the end of the block, and waits until all are ready."""
    try:
        for executor in executors:
            executor.start()
        for executor in executors:
            executor.wait_until_ready()
        yield
    finally:
        for executor in executors:
            if hasattr(executor, "process"):
                executor.process.kill()
                executor.process.wait()


@contextmanager
def balancing(executors: Sequence[ExecutorProcess], log: Path) -> Iterator[Ports]:
    """HAProxy by deploy/haproxy.cfg, once it listens, and its ports."""
    program = find_haproxy()
    assert program
    [own] = draw_ports(1)
    named = name_addresses(own)
    for executor in executors:
        addresses = name_addresses(executor.ports).items()
        named |= {f"EXECUTOR_{executor.number}_{name}": address for name, address in addresses}
    with log.open("wb") as said:
        process = subprocess.Popen([program, "-db", "-f", CONFIG], env=os.environ | named, stdout=said, stderr=said)
    try:
        while not _listens(own.grpc):
            assert process.poll() is None, log.read_text()
            time.sleep(LOOK_SECONDS)
        yield own
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return not probe.connect_ex((LOOPBACK, port))
