"""What a person says of a run, kept in MLflow on the trace that the server sent: feedback `correct`, with a comment, an
expectation `plan`, the plan as it should be, and expectations `relevance`, each whether a document helps to answer the
question of a step. `revelator data build` makes questions to learn from of all three.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from pydantic import Field, StrictBool

from revelator import spans
from revelator.errors import InvalidRequest
from revelator.plans.language import LANGUAGES
from revelator.registry import store_errors
from serving.http.protection import Body
from serving.inspector.runs import StoredRun

SOURCE = "inspector"
SENDING = "start `revelator serve` with OTEL_EXPORTER_OTLP_ENDPOINT=MLFLOW (docs/operations.md)"


class Judgement(Body):
    """The body of `POST /api/runs/{id}/judgement`: whether the answer is right, or not said; the right plan; and
    whether documents are relevant, by the ids of node and document."""

    right: bool | None = None
    comment: str = Field("", max_length=2_000)
    plan: str | None = Field(None, max_length=8_000)
    relevant: dict[str, dict[str, StrictBool]] = Field(default_factory=dict, max_length=100)

    def add_to(self, earlier: dict[str, Any] | None) -> dict[str, Any]:
        """What a person has said of a run by now: this over what was said before."""
        said = {**(earlier or {}), **self.model_dump(exclude_unset=True)}
        if before := (earlier or {}).get("relevant"):
            nodes = {*before, *self.relevant}
            said["relevant"] = {id: {**before.get(id, {}), **self.relevant.get(id, {})} for id in sorted(nodes)}
        return said


def keep_judgement(run: StoredRun, said: Judgement, tracking_uri: str | None) -> None:
    """Keeps a judgement on the run's trace; what was said last, and is said again, is kept once, so a judgement whose
    process was killed can be made again. Raises InvalidRequest for one that says nothing, gives a plan that cannot
    be run or judges a document that the run did not find, for documents where traces hold no texts, and where MLflow
    did not get the run; Unavailable where MLflow does not take it."""
    relevance = list(_list_relevance(run, said))
    if said.right is None and said.plan is None and not relevance:
        raise InvalidRequest("the judgement says nothing", hint='give "right", "plan" or "relevant"')
    if said.plan is not None and not LANGUAGES[run.trace.plan_language].diagnose(said.plan)["valid"]:
        raise InvalidRequest("the plan cannot be run", where="plan", hint="check it first: POST /api/check")
    if relevance and not spans.may_hold_texts():
        hint = "start the server and `revelator inspect` with REVELATOR_LOG_QUESTIONS=1"
        raise InvalidRequest("a judged document is kept with its text, and traces may hold none", hint=hint)
    if not tracking_uri or not run.trace_id:
        raise InvalidRequest("MLflow did not get this run, so nothing can be kept with it", hint=SENDING)
    with store_errors(tracking_uri):
        import mlflow
        from mlflow.entities import AssessmentSource, Expectation, Feedback

        mlflow.set_tracking_uri(tracking_uri)
        person = AssessmentSource(source_type="HUMAN", source_id=SOURCE)
        trace = f"tr-{run.trace_id}"
        stored = mlflow.get_trace(trace, silent=True)
        _send_missing_spans(run, stored)
        words: list[Any] = [Expectation("relevance", value, source=person) for value in relevance]
        if said.plan is not None:
            words.insert(0, Expectation("plan", said.plan, source=person))
        if said.right is not None:
            words.insert(0, Feedback("correct", said.right, source=person, rationale=said.comment or None))
        earlier = sorted(stored.info.assessments if stored else (), key=lambda word: word.create_time_ms)
        last = {_name_subject(word): word for word in earlier if word.source.source_type == "HUMAN"}
        for word in words:
            before = last.get(_name_subject(word))
            if before is None or (before.value, before.rationale or None) != (word.value, word.rationale):
                mlflow.log_assessment(trace, word)


def _name_subject(word: Any) -> tuple[str, ...]:
    """What a person's word is about: the answer, the plan, or a document beside the question of a step."""
    about = word.value if word.name == "relevance" and isinstance(word.value, dict) else {}
    return word.name, str(about.get("question")), str(about.get("document"))


def _list_relevance(run: StoredRun, said: Judgement) -> Iterator[dict[str, Any]]:
    """What is kept of each document that is judged: the step's question, the document, and whether it is relevant."""
    nodes = {node.id: node for node in run.trace.nodes}
    for id, documents in said.relevant.items():
        node = nodes.get(id)
        found = {passage.id: passage for passage in node.documents} if node else {}
        for document, relevant in documents.items():
            if node is None or document not in found:
                hint = "name steps and documents by their ids in the run's trace"
                raise InvalidRequest(f"step {id} found no document {document}", where="relevant", hint=hint)
            passage = found[document]
            about = {"question": node.asked or node.question, "document": document}
            yield about | {"title": passage.title, "text": passage.text, "relevant": relevant}


def _send_missing_spans(run: StoredRun, stored: Any) -> None:
    """Sends the question from the run where MLflow holds no span of it: a server sends spans some seconds after an
    answer, and those of a server that was killed never arrive."""
    if stored and any(spans.ROUTE in span.attributes for span in stored.data.spans):
        return
    trace = run.trace
    with spans.open_span("executor", "server", f"00-{run.trace_id}-{secrets.token_hex(8)}-01"):
        for node in trace.nodes:
            if node.kind == "atomic":
                with spans.open_span(node.kind, node=node.id):
                    spans.describe(node.asked or node.question, node.answers)
        spans.describe_served(trace)
    spans.flush()
