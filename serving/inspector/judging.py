"""What a person says of a run, kept in MLflow on the trace that the server told: feedback `correct`, with a comment,
and an expectation `plan`, the plan as it should be. `revelator data collect` makes questions to learn from of both.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from revelator import spans
from revelator.errors import InvalidRequest
from revelator.plans.language import LANGUAGES
from revelator.registry import store_errors
from serving.inspector.runs import Run

SOURCE = "inspector"
TOLD = "start the server and `revelator inspect` with OTEL_EXPORTER_OTLP_ENDPOINT=MLFLOW (docs/operations.md)"


class Judgement(BaseModel):
    """The body of `POST /api/runs/{id}/judgement`: whether the answer is right, or not said; and the right plan."""

    model_config = ConfigDict(extra="forbid", strict=True)

    right: bool | None = None
    comment: str = Field("", max_length=2_000)
    plan: str | None = Field(None, max_length=8_000)


def judge(run: Run, said: Judgement, tracking_uri: str | None) -> None:
    """Keeps a judgement on the run's trace. Raises InvalidRequest for one that says nothing or gives a plan that cannot
    be run, and where MLflow was not told of the run; Unavailable where MLflow does not take it."""
    if said.right is None and said.plan is None:
        raise InvalidRequest("the judgement says nothing", hint='give "right", "plan" or both')
    if said.plan is not None and not LANGUAGES["bnf"].verdict(said.plan)["valid"]:
        raise InvalidRequest("the plan cannot be run", where="plan", hint="check it first: POST /api/check")
    if not tracking_uri or not run.trace_id:
        raise InvalidRequest("MLflow was not told of this run, so that nothing can be kept with it", hint=TOLD)
    with store_errors(tracking_uri):
        import mlflow
        from mlflow.entities import AssessmentSource

        mlflow.set_tracking_uri(tracking_uri)
        person = AssessmentSource(source_type="HUMAN", source_id=SOURCE)
        trace = f"tr-{run.trace_id}"
        if said.right is not None:
            mlflow.log_feedback(
                trace_id=trace, name="correct", value=said.right, rationale=said.comment or None, source=person
            )
        if said.plan is not None:
            mlflow.log_expectation(trace_id=trace, name="plan", value=said.plan, source=person)


def find_tracking_server() -> str | None:
    """The MLflow server that spans are told to, by the environment: the address before the path of OTLP."""
    told = spans.endpoint()
    return told.removesuffix("/v1/traces") if told else None
