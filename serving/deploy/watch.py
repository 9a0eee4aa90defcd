"""`revelator model deploy --watch`: one replica follows an alias of the registry, for as long as it runs.

Each look compares what the alias names with the release of this home folder and what its server has ready, and deploys
when they differ. A deploy goes on where a killed one stopped, so the loop stores nothing of its own: it may be killed
at any step and started again. What fails is tried again after a wait that doubles up to five minutes, drawn between
half and the whole of it so that replicas do not come back together.

A loopback HTTP endpoint answers GET /metrics.
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from revelator import registry
from revelator.errors import ConfigError, RevelatorError
from serving.deploy.deploy import deploy
from serving.deploy.engines import find_engine
from serving.models.releases import Release, read_release
from serving.service.addresses import LOOPBACK

FIRST_WAIT = 1.0  # seconds after the first failure
LONGEST_WAIT = 300.0
LOOK_SECONDS = 30.0  # between looks at the alias while nothing fails
PREFIX = "revelator_deploy"


class Reconciler:
    """Brings the home folder to what `alias` of the registered model `name` says. `vllm` as in `deploy`."""

    def __init__(self, home: Path, name: str, alias: str, vllm: str | None = None) -> None:
        self.home, self.name, self.alias, self.vllm = home, name, alias, vllm
        self.metrics = Metrics()
        self._connected = False
        self._finished = False  # a deploy by this process: before it, a killed one may have left work undone

    def reconcile(self) -> Release | None:
        """Deploys the version that the alias names, unless it is served already. Returns the new release, or None.
        Raises what registry and deploy raise."""
        if not self._connected:
            registry.connect(self.home, must_exist=True)
            self._connected = True
        desired = registry.resolve(self.name, self.alias)
        self.metrics.desired.set(desired.version)
        made = None
        if not self._is_live(desired.version):
            made = deploy(self.home, desired, vllm=self.vllm).release
            self._finished = True
        self.metrics.live.set(desired.version)
        return made

    def _is_live(self, version: int) -> bool:
        release, engine = read_release(self.home), find_engine(self.home, self.vllm)
        if not self._finished or release is None or release.version != version:
            self.metrics.live.set(release.version if release else 0)
            return False
        return engine is None or engine.is_ready(version)

    def follow(self, stop: threading.Event, interval: float, report: Callable[[str], None]) -> None:
        """Looks every `interval` seconds until `stop`."""
        failures = 0
        while not stop.is_set():
            try:
                made = self.reconcile()
                failures, wait = 0, interval
                if made:
                    report(f"version {made.version} of {made.model} takes the traffic")
            except Exception as error:  # whatever it is, the next look may find it mended
                failures += 1
                wait = compute_wait(failures)
                kind = type(error).__name__
                self.metrics.failures.labels(kind).inc()
                text = str(error) if isinstance(error, RevelatorError) else f"{kind}: {error}"
                report(f"error: {text}\n  tried again in {wait:.0f} s")
            self.metrics.in_sync.set(failures == 0)
            self.metrics.failing.set(failures)
            self.metrics.wait.set(wait)
            stop.wait(wait)


def compute_wait(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row."""
    whole = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, 30))
    return whole * (0.5 + draw() / 2)


def follow_until_stopped(reconciler: Reconciler, port: int, report: Callable[[str], None]) -> None:
    """Follows in the foreground, with /metrics on loopback, until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with serve_metrics(port, reconciler.metrics) as url:
        report(f"follows {reconciler.alias} of {reconciler.name}; metrics {url}")
        try:
            reconciler.follow(threading.Event(), LOOK_SECONDS, report)
        except KeyboardInterrupt:
            report("stopped")


class Metrics:
    """The loop's state for Prometheus."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        gauge = partial(Gauge, namespace=PREFIX, registry=self.registry)
        self.desired = gauge("desired_version", "Version that the alias names.")
        self.live = gauge("live_version", "Version that takes the traffic; 0: none.")
        self.in_sync = gauge("in_sync", "1 when the last look found or made them the same.")
        self.wait = gauge("wait_seconds", "Seconds between the last look and the next.")
        self.failing = gauge("consecutive_failures", "Failures since the last success.")
        explained = "Looks that ended in an error, by its kind."
        self.failures = Counter("failures", explained, ("error",), namespace=PREFIX, registry=self.registry)


@contextmanager
def serve_metrics(port: int, metrics: Metrics) -> Iterator[str]:
    """Serves /metrics on loopback until the end of the block; yields the address. ConfigError when the port is
    taken."""
    try:
        server, thread = start_http_server(port, LOOPBACK, metrics.registry)
    except OSError as error:
        where, hint = f"{LOOPBACK}:{port}", "name another --port, or 0 for a free one"
        raise ConfigError(f"cannot listen there: {error.strerror}", where=where, hint=hint) from error
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
