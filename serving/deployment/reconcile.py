"""`revelator model deploy --watch`: one replica follows an alias of the registry, for as long as it runs.

Each look compares what the alias names with what this home folder promotes and its server has ready, and deploys when
they differ. A deploy goes on where a killed one stopped, so the loop keeps nothing of its own: it may be killed at any
step and started again. What fails is tried again after a wait that doubles up to five minutes, drawn between half and
the whole of it so that replicas do not come back together. Webhooks only shorten a wait (`serving.deployment.hints`).
"""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from revelator import registry
from revelator.errors import RevelatorError
from serving.deployment import promotion
from serving.deployment.deploy import deploy
from serving.deployment.hints import Metrics, hint_server
from serving.deployment.promotion import Promotion
from serving.triton import control
from serving.triton.live import find_running
from serving.triton.repository import REVELATOR

FIRST_WAIT = 1.0  # seconds after the first failure
LONGEST_WAIT = 300.0


class Reconciler:
    """Brings the home folder to what `alias` of the registered model `name` says."""

    def __init__(self, home: Path, name: str, alias: str, keep: int, tracking_uri: str | None) -> None:
        self.home, self.name, self.alias, self.keep = home, name, alias, keep
        self.metrics = Metrics()
        self._tracking_uri = tracking_uri
        self._connected = False
        self._finished = False  # a deploy by this process: before it, a killed one may have left work undone

    def look(self) -> Promotion | None:
        """One look; the promotion that it made, if any. Raises what the registry or the deploy raises."""
        if not self._connected:
            registry.connect(self._tracking_uri, self.home, must_exist=True)
            self._connected = True
        desired = registry.resolve(self.name, self.alias)
        self.metrics.desired.set(desired.version)
        made = None
        if not self._is_live(desired.version):
            with self.metrics.deploying.track_inprogress():
                made = deploy(self.home, desired, keep=self.keep).promotion
            self.metrics.deploys.inc()
            self._finished = True
        self.metrics.live.set(desired.version)
        self.metrics.last_look.set_to_current_time()
        return made

    def _is_live(self, version: int) -> bool:
        promoted, running = promotion.read(self.home), find_running(self.home)
        if not self._finished or promoted is None or promoted.version != version:
            self.metrics.live.set(promoted.version if promoted else 0)
            return False
        return running is None or control.is_ready(running.grpc, REVELATOR, version)

    def follow(
        self, stop: threading.Event, hint: threading.Event, interval: float, report: Callable[[str], None]
    ) -> None:
        """Looks until `stop`, every `interval` seconds or when `hint` is set."""
        failures = 0
        while not stop.is_set():
            try:
                made = self.look()
                failures, wait = 0, interval
                if made:
                    report(f"version {made.version} of {made.model} takes the traffic")
            except Exception as error:  # whatever it is, the next look may find it mended
                failures += 1
                wait = backoff(failures)
                kind = type(error).__name__
                self.metrics.failures.labels(kind).inc()
                text = str(error) if isinstance(error, RevelatorError) else f"{kind}: {error}"
                report(f"error: {text}\n  tried again in {wait:.0f} s")
            self.metrics.in_sync.set(failures == 0)
            self.metrics.failing.set(failures)
            self.metrics.wait.set(wait)
            hint.wait(wait)
            hint.clear()


def backoff(failures: int, draw: Callable[[], float] = random.random) -> float:
    """Seconds to wait after so many failures in a row."""
    whole = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(failures - 1, 30))
    return whole * (0.5 + draw() / 2)


def follow_until_stopped(reconciler: Reconciler, interval: float, port: int, report: Callable[[str], None]) -> None:
    """Follows in the foreground, with /metrics and /hint on loopback, until SIGINT or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hint = threading.Event()
    with hint_server(port, hint, reconciler.metrics) as url:
        report(f"follows {reconciler.alias} of {reconciler.name}; metrics {url}/metrics, webhook {url}/hint")
        try:
            reconciler.follow(threading.Event(), hint, interval, report)
        except KeyboardInterrupt:
            report("stopped")
