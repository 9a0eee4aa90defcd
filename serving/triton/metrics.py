"""Our own metrics on Triton's page (`/metrics`), sent from inside a model's process.

A change takes 30 to 60 µs of message passing to the server. So a request only adds to a table here, and a thread sends
what has changed, twice a second and once at the end: a counter costs one message however many questions it counted, a
histogram one an observation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

import triton_python_backend_utils as pb_utils

from serving.triton.counts import METRICS, Sample

SEND_SECONDS = 0.5
log = logging.getLogger(__name__)

Series = tuple[str, tuple[tuple[str, str], ...]]


class Metrics:
    """The metrics of one model, which every series names as its `model` unless it names another."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._pending: dict[Series, list[float]] = {}
        self._families: dict[str, Any] = {}
        self._series: dict[Series, Any] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_until_closed, name="metrics", daemon=True)
        self._thread.start()

    def add(self, samples: Iterable[Sample]) -> None:
        """Takes samples in; they are on the page within `SEND_SECONDS`."""
        with self._lock:
            for name, labels, value in samples:
                waiting = self._pending.setdefault((name, labels), [])
                kind = METRICS[name].kind
                if kind == "histogram" or not waiting:
                    waiting.append(value)
                else:
                    waiting[0] = value if kind == "gauge" else waiting[0] + value

    def close(self) -> None:
        """Sends what waits."""
        self._ended.set()
        self._thread.join()

    def _send_until_closed(self) -> None:
        while not self._ended.wait(SEND_SECONDS):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        for (name, labels), values in pending.items():
            try:
                series = self._series.get((name, labels)) or self._open(name, labels)
                kind = METRICS[name].kind
                change = {"counter": series.increment, "gauge": series.set, "histogram": series.observe}[kind]
                for value in values:
                    change(value)
            except Exception:  # what comes after it is still sent: unsent values would fill the memory
                log.exception("%s is not on the page of metrics", name)

    def _open(self, name: str, labels: tuple[tuple[str, str], ...]) -> Any:
        metric = METRICS[name]
        if name not in self._families:
            kind = getattr(pb_utils.MetricFamily, metric.kind.upper())
            self._families[name] = pb_utils.MetricFamily(name=name, description=metric.description, kind=kind)
        buckets = {"buckets": list(metric.buckets)} if metric.buckets else {}
        series = self._families[name].Metric(labels={"model": self._model} | dict(labels), **buckets)
        self._series[name, labels] = series
        return series
