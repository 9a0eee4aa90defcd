"""`revelator eval run --agent`: MLflow's own evaluation of a logged agent, with our scores as its scorers.

The scorers read what `serving.agent.agent` answers, and what is expected: `answers` (all wanted; none: no document
answers the question), `spellings`, `route`, and `expected_response`, by which MLflow's own scorers go.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from evaluation.harness.config import BenchmarkConfig, describe_own, read_columns
from evaluation.metrics.bootstrap import Interval, bootstrap
from revelator import registry
from revelator.config import check_config
from revelator.endpoints import check_url
from revelator.errors import ConfigError, ExpressionError
from revelator.language_model import KEY_VARIABLE
from revelator.plans.language import LANGUAGES
from revelator.scores import normalise
from revelator.trace import join_answers

if TYPE_CHECKING:
    from mlflow.genai.scorers import Scorer

    from evaluation.harness.formats import BenchmarkQuestion

RIGHT = 0.5  # F1 from which an answer counts as right where it is compared with a judge's word
LABELS = {
    "exact_match": "exact match",
    "f1": "F1",
    "judged": "right, says the judge",
    "refused": "refused, of questions without an answer",
    "citation_support": "values that a cited passage says",
    "right_route": "route is the gold one",
    "valid_plan": "plan is the model's and can be run",
    "agreement": f"judge and F1 (from {RIGHT:g}) agree",
    "kappa": "the same beyond chance (Cohen's kappa)",
}
INSTRUCTIONS = (
    "Decide whether an answer to a question is right. The question: {{ inputs }}. The right answer, in which `;` "
    "stands between several values that are all wanted: {{ expectations }}. The answer to judge: {{ outputs }}. It is "
    "right if it says the same as the right answer, in whatever words, and nothing that contradicts it. Go by the "
    "right answer alone, not by what you know."
)


@dataclass(frozen=True)
class Judge:
    """A language model at an OpenAI-compatible endpoint, which says whether an answer is right."""

    url: str
    model: str

    def make_scorer(self) -> Scorer:
        from mlflow.genai import make_judge, scorer

        os.environ.setdefault(KEY_VARIABLE, "none")
        judge = make_judge(
            name="judged",
            instructions=INSTRUCTIONS,
            model=f"openai:/{self.model}",
            base_url=f"{self.url.rstrip('/')}/chat/completions",  # MLflow takes the whole address
            feedback_value_type=bool,
        )

        @scorer(name="judged")
        def judged(inputs: Any, outputs: Any, expectations: Any) -> Any:
            if not expectations["answers"]:
                return None
            asked = {"question": inputs["input"][-1]["content"]}
            wanted = {"expected_response": expectations["expected_response"]}
            said = {"answer": join_answers(outputs["custom_outputs"]["answers"]) or "no answer"}
            return judge(inputs=asked, outputs=said, expectations=wanted)

        return judged


def measure_agent(
    uri: str,
    questions: Path,
    *,
    columns: Sequence[str] = (),
    sample: int | None = None,
    url: str | None = None,
    model: str | None = None,
    home: Path,
    as_json: bool = False,
) -> None:
    """Lets MLflow evaluate the agent `uri` on a file of questions and answers, and prints its figures. `url` and
    `model` name a language model that judges each answer."""
    if (url is None) != (model is None):
        where = "--answer-judge-model" if url else "--answer-judge"
        raise ConfigError("an endpoint needs an address and a model", where=where)
    judge = Judge(check_url(url), model) if url and model else None
    registry.connect(home, must_exist=True)
    rows = make_rows(read_rows(questions, columns, sample))
    run_id, figures = evaluate_agent(uri, rows, judge)
    if as_json:
        return click.echo(json.dumps({"agent": uri, "run_id": run_id, "asked": len(rows), **figures}))
    table = Table("", "mean", "95 % interval", "n", title=f"{uri}: {len(rows):,} questions", title_justify="left")
    for name, figure in figures.items():
        low, high = figure.get("low"), figure.get("high")
        between = f"[{low:.3f}, {high:.3f}]" if low is not None else ""
        table.add_row(LABELS[name], f"{figure['value']:.3f}", between, f"{figure['n']:,}")
    Console().print(table)
    click.echo(f"every question: MLflow run {run_id}")


def read_rows(questions: Path, columns: Sequence[str], sample: int | None) -> Sequence[BenchmarkQuestion]:
    from evaluation.harness.benchmarks import open_benchmark

    about = describe_own(questions, read_columns(columns), sample=sample)
    return open_benchmark(check_config(about, BenchmarkConfig, "--questions")).questions


def make_rows(questions: Sequence[BenchmarkQuestion]) -> list[dict[str, Any]]:
    """The rows that `mlflow.genai.evaluate` asks."""
    return [
        {
            "inputs": {"input": [{"role": "user", "content": question.gold.question}]},
            "expectations": {
                "answers": [*question.gold.answers],
                "spellings": [[*ways] for ways in question.spellings],
                "route": question.gold.route,
                "expected_response": join_answers(question.gold.answers),
            },
        }
        for question in questions
    ]


def make_scorers() -> list[Scorer]:
    """Our scores as MLflow's scorers; one that does not apply to a question says nothing."""
    from mlflow.genai import scorer

    from evaluation.harness.question_scores import score_answers

    def score(outputs: Any, expectations: Any, name: str) -> float | None:
        golds, values = expectations["answers"], outputs["custom_outputs"]["answers"]
        if not golds:
            return None
        spellings = [tuple(ways) for ways in expectations["spellings"]]
        text = join_answers(values)
        return score_answers(text, values, golds, "squad", is_list=True, spellings=spellings)[name]

    @scorer
    def exact_match(outputs: Any, expectations: Any) -> float | None:
        return score(outputs, expectations, "em")

    @scorer
    def f1(outputs: Any, expectations: Any) -> float | None:
        return score(outputs, expectations, "f1")

    @scorer
    def refused(outputs: Any, expectations: Any) -> float | None:
        return None if expectations["answers"] else float(not outputs["custom_outputs"]["answers"])

    @scorer
    def citation_support(outputs: Any) -> float | None:
        return measure_support(outputs["custom_outputs"])

    @scorer
    def right_route(outputs: Any, expectations: Any) -> float | None:
        wanted = expectations["route"]
        return float(outputs["custom_outputs"]["route"] == wanted) if wanted else None

    @scorer
    def valid_plan(outputs: Any) -> float | None:
        return judge_plan(outputs["custom_outputs"])

    return [exact_match, f1, refused, citation_support, right_route, valid_plan]


def measure_support(told: Mapping[str, Any]) -> float | None:
    """The share of an answer's values that stand in a cited passage, word for word but for case, articles and
    punctuation; a value that was computed, and a verdict, stand in none. None without an answer."""
    values = [normalise(value) for value in told["answers"]]
    cited = [f" {normalise(source['text'])} " for source in told["sources"]]
    return sum(any(f" {value} " in text for text in cited) for value in values) / len(values) if values else None


def judge_plan(told: Mapping[str, Any]) -> float | None:
    """1 for a plan that the model wrote and that checks, 0 for another; None where no plan was run."""
    if not told["plan"]:
        return None
    language = LANGUAGES[told["plan_language"]]
    try:
        return float(told["plan_source"] == "model" and not language.check(language.parse(told["plan"])))
    except ExpressionError:
        return 0.0


def evaluate_agent(
    uri: str, rows: list[dict[str, Any]], judge: Judge | None = None
) -> tuple[str, dict[str, dict[str, float]]]:
    """Asks the agent every question within an MLflow run. Returns the run's id, and the figures of `LABELS` that there
    are, {n, value} with the ends of a 95 % interval where there is one; those of the judge's agreement go to the run,
    too."""
    scorers = [*make_scorers(), *([judge.make_scorer()] if judge else [])]
    with registry.store_errors(), redirect_stdout(sys.stderr):
        import mlflow

        model = mlflow.pyfunc.load_model(uri)

        def ask(input: Any) -> Any:
            return model.predict({"input": input})

        result = mlflow.genai.evaluate(data=rows, predict_fn=ask, scorers=scorers, model_id=model.model_id)
        table = result.result_df
        assert table is not None
        scores = {name: table[f"{name}/value"] for name in LABELS if f"{name}/value" in table}
        figures = {name: bootstrap(column.dropna().astype(float)).to_json() for name, column in scores.items()}
        if "judged" in scores:
            both = table[["f1/value", "judged/value"]].dropna()
            figures |= measure_agreement(list(both["f1/value"] >= RIGHT), list(both["judged/value"].astype(bool)))
            for name in ("agreement", "kappa"):
                registry.open_client().log_metric(result.run_id, name, figures[name]["value"])
    return str(result.run_id), figures


def measure_agreement(ours: Sequence[bool], theirs: Sequence[bool]) -> dict[str, dict[str, float]]:
    """How often two judges say the same, and Cohen's kappa: that beyond what their shares of yes give by chance; 1
    where both say the same of every question."""
    same: Interval = bootstrap([one == other for one, other in zip(ours, theirs, strict=True)])
    mine, others = sum(ours) / len(ours), sum(theirs) / len(theirs)
    chance = mine * others + (1 - mine) * (1 - others)
    kappa = 1.0 if same.mean == 1 else (same.mean - chance) / (1 - chance)
    return {"agreement": same.to_json(), "kappa": {"n": same.n, "value": kappa}}
