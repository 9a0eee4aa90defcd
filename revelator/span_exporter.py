"""Sends spans, and tells an MLflow server which version answered: its page of a version lists the traces whose metadata
names the version's model, and `mlflow.search_traces(model_id=…)` finds them.

OTLP carries no metadata of a trace. MLflow's own `POST /api/3.0/mlflow/traces` adds it to a trace that is there, and
makes one that is not.
"""

from __future__ import annotations

import json
import logging
import os
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.trace import StatusCode
from opentelemetry.util.re import parse_env_headers

EXPERIMENT_HEADER = "x-mlflow-experiment-id"  # OTLP's own header to MLflow, and to nobody else
SECONDS = 10.0
log = logging.getLogger(__name__)


class LinkingExporter(OTLPSpanExporter):
    """Makes the attribute `metadata` of a span metadata of the trace before it sends that span, so that a trace which
    has it is linked. The others are sent before: to a trace that it was told of, MLflow adds no tokens of later spans.
    The headers are those of the environment unless they are given."""

    def __init__(self, endpoint: str, metadata: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(endpoint, headers=dict(headers) if headers else None)
        own = {**_read_headers("HEADERS"), **_read_headers("TRACES_HEADERS"), **(headers or {})}
        self._experiment = own.get(EXPERIMENT_HEADER)
        self._link_headers = {**own, "Content-Type": "application/json"}
        self._links = f"{endpoint.removesuffix('/v1/traces')}/api/3.0/mlflow/traces"
        self._metadata = metadata
        self._trusted = ssl.create_default_context(cafile=os.environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE"))

    def export(self, found: Sequence[ReadableSpan]) -> SpanExportResult:
        linking = [span for span in found if self._experiment and self._metadata in (span.attributes or {})]
        if not linking:
            return super().export(found)
        others = [span for span in found if span not in linking]
        done = super().export(others) if others else SpanExportResult.SUCCESS
        try:
            for span in linking:
                self._link(span)
        except (OSError, HTTPException) as error:
            log.warning("traces are not linked to the version that answered: %s", error)
        return max(done, super().export(linking), key=lambda result: result.value)

    def _link(self, span: ReadableSpan) -> None:
        assert span.attributes and span.context and span.start_time and span.end_time
        about = {
            "trace_id": f"tr-{span.context.trace_id:032x}",
            "trace_location": {
                "type": "MLFLOW_EXPERIMENT",
                "mlflow_experiment": {"experiment_id": self._experiment},
            },
            "request_time": datetime.fromtimestamp(span.start_time / 1e9, UTC).isoformat(timespec="milliseconds"),
            "execution_duration": f"{(span.end_time - span.start_time) / 1e9:.3f}s",
            "state": "ERROR" if span.status.status_code is StatusCode.ERROR else "OK",
            "trace_metadata": {self._metadata: str(span.attributes[self._metadata])},
        }
        body = json.dumps({"trace": {"trace_info": about}}).encode()
        request = urllib.request.Request(self._links, body, self._link_headers)
        urllib.request.urlopen(request, timeout=SECONDS, context=self._trusted).close()


def _read_headers(name: str) -> dict[str, str]:
    return dict(parse_env_headers(os.environ.get(f"OTEL_EXPORTER_OTLP_{name}", ""), liberal=True))
