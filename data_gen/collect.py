"""`rows: collected` of `revelator data build`: questions that a deployment answered and a person judged.

They are read from MLflow's trace store, where served questions are spans (`revelator.spans`, with texts). A person's
feedback on a trace says that it is right; an expectation named `plan` says what its plan should have been, and those
named `relevance` whether documents help to answer the question of a step. The page of `revelator inspect` writes all
three. MLflow's page Traces takes them, too, and so do `mlflow.log_feedback` and `mlflow.log_expectation`.

OUT/questions.jsonl   annotated questions, a source of format `world`
OUT/manifest.json     where they come from, and what was left out and why; written last
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from data_gen.questions import (
    QUESTIONS,
    AnnotatedPassage,
    AnnotatedQuestion,
    AnnotatedStep,
    DroppedError,
    write_questions,
)
from data_gen.redact import RedactRules, redact
from revelator.config import FilePath, Strict
from revelator.errors import ArtifactError, DataError
from revelator.files import sha256_text, stage_folder
from revelator.fingerprints import normalise
from revelator.folders import FolderKind
from revelator.plans import Atomic, Expression, list_leaves, parse, render
from revelator.plans.language import BNF, LANGUAGES
from revelator.registry import EXPERIMENT, connect, open_client, store_errors
from revelator.spans import PLAN, PLAN_LANGUAGE, READER, ROUTE, VERSION
from revelator.tasks import translate_task

COLLECTED = FolderKind("a folder of collected questions", "revelator-collected-1", "revelator data build CONFIG.yaml")
PAGE = 100  # traces in one request
RIGHT = ("yes", "true", "good", "correct", "right")  # what a person's feedback says of a right trace
WRONG = ("no", "false", "bad", "incorrect", "wrong")
PERSON = "person:"  # before the version that a person corrected, in the teacher of a row
RELEVANCE_ALONE = ("relevance",)  # what a question teaches of which a person judged documents, and nothing else


class CollectConfig(Strict):
    """Which questions to collect. The server sent their traces to MLflow, with texts if its `serving.yaml` says
    `log_questions: true`. `feedback: good` takes those that people call right, `corrected` those where they corrected
    the plan or judged documents only."""

    rows: Literal["collected"]
    experiment: str = EXPERIMENT  # MLflow's experiment of the traces
    since: datetime | None = None  # only what was asked since then (UTC)
    feedback: Literal["good", "corrected"] | None = None  # both unless it is given
    redact: RedactRules | None = None  # personal data stays unless it is given
    home: FilePath | None = None  # home folder of the registry: REVELATOR_HOME, else `runs`


def collect(config: CollectConfig, out: Path) -> dict[str, Any]:
    """Writes OUT from the traces of an experiment and returns its manifest.

    If a question has several judged traces, the one asked last counts. The manifest counts questions by what planned
    them, `versions`: a version, or the model that an endpoint reported; and by what read for them, `readers`. Raises
    ArtifactError for an unknown experiment and DataError where nothing is left.
    """
    COLLECTED.check_place(out)
    connect(Path(config.home) if config.home else None, must_exist=True)
    since = config.since.replace(tzinfo=config.since.tzinfo or UTC) if config.since else None
    wanted, experiment = config.feedback, config.experiment
    left: Counter[str] = Counter()
    found: dict[str, AnnotatedQuestion] = {}
    for trace in _read_traces(experiment, since):
        try:
            made = redact(read_judged(trace), config.redact) if config.redact else read_judged(trace)
        except DroppedError as reason:
            left[reason.message] += 1
            continue
        if wanted and wanted != ("corrected" if made.teacher.startswith(PERSON) else "good"):
            left[f"not {wanted}"] += 1
            continue
        text = normalise(made.question)
        earlier = found.pop(text, None)
        left["asked again later"] += earlier is not None
        # the question's id, not the trace's: what is collected again stays in its split
        id = f"collected:{sha256_text(text)[:16]}"
        found[text] = replace(_join(earlier, made) if earlier else made, id=id)
    if not found:
        reasons = ", ".join(f"{reason}: {n:,}" for reason, n in left.items()) or "there is no trace"
        raise DataError(f"nothing to collect; {reasons}", where=experiment, hint="judge traces on MLflow's page Traces")
    with stage_folder(out) as folder:
        with write_questions(folder / QUESTIONS) as write:
            for question in found.values():
                write(question)
        about = {
            "experiment": experiment,
            "since": since.isoformat() if since else None,
            "redacted": config.redact.model_dump(mode="json") if config.redact else None,
            "questions": len(found),
            "versions": dict(sorted(Counter(q.teacher.partition(":")[2] for q in found.values()).items())),
            "readers": dict(sorted(Counter(q.reader for q in found.values() if q.reader).items())),
            "teachers": dict(Counter(question.teacher for question in found.values())),
            "left_out": {reason: n for reason, n in sorted(left.items()) if n},
        }
        return COLLECTED.write_manifest(folder, about)


def _read_traces(experiment: str, since: datetime | None) -> Iterator[Any]:
    """The traces of an experiment, the earliest first."""
    with store_errors():
        known = open_client().get_experiment_by_name(experiment)
        if known is None:
            raise ArtifactError("there is no such experiment", where=experiment, hint="name it: `experiment: NAME`")
        after = f"timestamp_ms >= {int(since.timestamp() * 1000)}" if since else None
        token = None
        while True:
            page = open_client().search_traces(
                [known.experiment_id], after, PAGE, order_by=["timestamp_ms ASC"], page_token=token
            )
            yield from page
            if not (token := page.token):
                return


def read_judged(trace: Any) -> AnnotatedQuestion:
    """The question of one of MLflow's traces. Raises DroppedError with the reason why nothing can be learnt from it.

    The latest word of a person counts; feedback of models does not. A corrected plan is in the language of the one that
    it corrects. A logical query or a tree teaches its own translation alone, and relevance. Of a bnf plan that is right
    the answered leaves are the steps; those of a corrected one are not known. A corrected one of one leaf makes the
    question a single one; another one leaves the route as it was, if that has plans, for `A + B` may be two questions
    or a comparison. Where documents alone were judged, relevance alone is taught.
    """
    spans = sorted(trace.data.spans, key=lambda span: span.start_time_ns)
    served = next((span for span in spans if ROUTE in span.attributes), None)
    if served is None or not served.inputs:
        raise DroppedError("without texts: serve with `log_questions: true`")
    assessments = sorted(trace.info.assessments, key=lambda assessment: assessment.create_time_ms or 0)
    judged = [assessment for assessment in assessments if assessment.source.source_type == "HUMAN"]
    expected = [(assessment.name, assessment.value) for assessment in judged if assessment.expectation]
    corrected = [value for name, value in expected if name == "plan"]
    if corrected and not (isinstance(corrected[-1], str) and corrected[-1].strip()):
        raise DroppedError(f"the expectation `plan` of {trace.info.trace_id} is no text")
    feedback = [_read_verdict(assessment.value) for assessment in judged if assessment.feedback]
    verdicts = [right for right in feedback if right is not None]
    try:
        passages = _read_passages([value for name, value in expected if name == "relevance"])
    except (TypeError, KeyError, ValueError):
        raise DroppedError(f"an expectation `relevance` of {trace.info.trace_id} has another form") from None
    version, plan = served.attributes.get(VERSION, ""), served.attributes.get(PLAN) or ""
    if not (isinstance(served.inputs, str) and isinstance(plan, str)):  # MLflow read JSON in place of a text
        raise DroppedError(f"question or plan of {trace.info.trace_id} is no text")
    if corrected:
        made = _annotate(trace, served, corrected[-1], (), f"{PERSON}{version}")
    elif verdicts and verdicts[-1]:
        leaves = [span for span in spans if span.name == "atomic" and span.inputs and span.outputs]
        steps = dict.fromkeys(AnnotatedStep(span.inputs, tuple(span.outputs)) for span in leaves)  # some are sent twice
        made = _annotate(trace, served, plan, tuple(steps), f"served:{version}")
    elif passages:
        made = replace(_annotate(trace, served, plan, (), f"{PERSON}{version}"), tasks=RELEVANCE_ALONE)
    else:
        raise DroppedError("judged wrong, and not corrected" if verdicts else "not judged by a person")
    return replace(made, passages=passages)


def _read_verdict(value: Any) -> bool | None:
    """Whether feedback says right or wrong; a rating or a tone says neither, None."""
    text = str(value).lower()
    return text in RIGHT if text in RIGHT + WRONG else None


def _read_passages(judged: Sequence[Any]) -> tuple[AnnotatedPassage, ...]:
    """The documents that a person judged, each once for a question, with the last judgement. Raises KeyError, TypeError
    or ValueError for what has another form."""
    latest = {(one["question"], one["document"]): one for one in judged}
    return tuple(
        _PASSAGE.validate_python(
            {"title": one["title"], "text": one["text"], "relevant": one["relevant"], "id": document, "asked": asked}
        )
        for (asked, document), one in latest.items()
    )


_PASSAGE = TypeAdapter(AnnotatedPassage)


def _join(earlier: AnnotatedQuestion, later: AnnotatedQuestion) -> AnnotatedQuestion:
    """Returns the later row, or the earlier one if the later has judged documents only; always with the judged
    documents of both."""
    again = {(passage.asked, passage.id) for passage in later.passages}
    passages = [passage for passage in earlier.passages if (passage.asked, passage.id) not in again]
    planned = earlier if later.tasks == RELEVANCE_ALONE else later
    return replace(planned, passages=(*passages, *later.passages))


def _annotate(trace: Any, served: Any, plan: str, steps: Sequence[AnnotatedStep], teacher: str) -> AnnotatedQuestion:
    """The question with a plan in the language that the span names: of bnf, where it names none."""
    name = served.attributes.get(PLAN_LANGUAGE, BNF.name)
    if (language := LANGUAGES.get(name)) is None:
        raise DroppedError(f"the plan of {trace.info.trace_id} is in {name}, which this release does not read")
    verdict = language.diagnose(plan) if plan else None
    if verdict and not verdict["valid"]:
        code = verdict["diagnostics"][0]["code"]  # not its message, which may quote personal data
        raise DroppedError(f"the plan of {trace.info.trace_id} cannot be run ({code})")
    question = AnnotatedQuestion(
        id=f"collected:{trace.info.trace_id}",
        source="collected",
        licence="own",
        split="",
        question=served.inputs,
        route=served.attributes[ROUTE],
        answers=() if teacher.startswith(PERSON) else tuple(served.outputs or ()),
        teacher=teacher,
        reader=served.attributes.get(READER, ""),
    )
    if verdict is None or language is BNF:
        made = _add_expression(question, parse(plan) if plan else None, steps)
    else:  # it says nothing of the route, nor of the steps that a loop would take
        planned = replace(question, route=question.route or "complex").replace_plan(language, language.parse(plan))
        made = replace(planned, tasks=("relevance", translate_task(language.name).name))
    return AnnotatedQuestion.from_json(made)


def _add_expression(
    question: AnnotatedQuestion, expression: Expression | None, steps: Sequence[AnnotatedStep]
) -> AnnotatedQuestion:
    """The question with its plan, None where it was answered without one, and the route that the plan makes sure."""
    route = question.route
    if isinstance(expression, Atomic):
        route = "single"
    elif expression is not None and route not in ("compound", "complex"):
        route = "complex"
    elif not route:
        raise DroppedError("asked without a route, and without a plan")
    asked = question.question if route == "single" else ""
    parts = tuple(leaf.text for leaf in list_leaves(expression)) if expression and route == "compound" else ()
    text = asked if expression is None else render(expression)
    return replace(question, route=route, expression=text, parts=parts, steps=tuple(steps))
