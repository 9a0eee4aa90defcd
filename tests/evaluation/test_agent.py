"""`revelator eval run --agent`: MLflow's evaluation asks a logged agent, and a language model on loopback judges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pytest
from click.testing import CliRunner

from evaluation.agent import judge_plan, measure_agreement, measure_support
from evaluation.publish.export import export
from evaluation.run import evaluate
from revelator import registry
from revelator.errors import ConfigError
from serving.retrieval import build_index
from tests.chat_server import running, says

VELM = "# Velm\n\nThe harbour master of Velm is Ana Berg. The ferry of Velm is called Gull.\n"
ROWS = (
    "question,answer,route\n"
    "Who is the harbour master of Velm?,Ana Berg,single\n"
    "What is the ferry of Velm called?,the Seagull,single\n"
)


def call(command: Any, *arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(command, [*arguments, "--json"], standalone_mode=False)
    if result.exception:
        raise result.exception
    return json.loads(result.stdout)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry with an agent over one document."""
    home = tmp_path_factory.mktemp("home")
    (home / "velm.md").write_text(VELM)
    build_index([home / "velm.md"], home / "index")
    call(export, "base", "--format", "agent", "--index", str(home / "index"), "--home", str(home))
    return home


@pytest.mark.timeout(600)
def test_scores_a_judge_and_how_far_they_agree_stand_in_one_run(home: Path, tmp_path: Path) -> None:
    (tmp_path / "qa.csv").write_text(ROWS)
    with running() as server:
        server.replies = [says(json.dumps({"result": True, "rationale": "it says the same"}))]
        judge = ("--answer-judge", server.url, "--answer-judge-model", "m")
        said = call(evaluate, "--questions", str(tmp_path / "qa.csv"), "--agent", "--home", str(home), *judge)
    assert {request["path"] for request in server.requests} == {"/v1/chat/completions"}
    sent = json.dumps(server.requests[-1])
    assert "question" in sent and "expected_response" in sent and "sources" not in sent
    assert said["asked"] == 2 and said["exact_match"]["value"] == said["f1"]["value"] == 0.5
    assert said["judged"] == {"n": 2, "value": 1.0, "low": 1.0, "high": 1.0}
    assert said["agreement"]["value"] == 0.5 and said["kappa"]["value"] == 0.0
    assert said["citation_support"]["value"] == said["right_route"]["value"] == 1.0
    run = mlflow.get_run(said["run_id"])
    assert (run.data.metrics["f1/mean"], run.data.metrics["agreement"]) == (0.5, 0.5)
    model_id = mlflow.models.get_model_info("models:/revelator-agent/latest").model_id
    assert "f1/mean" in {metric.key for metric in registry.open_client().get_logged_model(model_id).metrics}
    traces = mlflow.search_traces(run_id=said["run_id"], return_type="list")
    assert {"f1", "judged"} <= {one.name for one in traces[0].info.assessments}


def test_a_judge_needs_an_address_and_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="an address and a model"):
        call(evaluate, "--questions", "qa.csv", "--agent", "--answer-judge", "http://127.0.0.1:1/v1")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--questions", "qa.csv", "--agent", "--index", "ix"], "--index has no meaning with --agent"),
        (["--questions", "qa.csv", "--answer-judge", "http://127.0.0.1:1/v1"], "add --questions FILE --agent"),
        (["x.yaml", "--agent"], "add --questions FILE --agent"),
    ],
)
def test_an_option_of_another_measurement_is_refused(arguments: list[str], said: str) -> None:
    refused = CliRunner().invoke(evaluate, arguments)
    assert said in f"{refused.output}{refused.exception}"


def test_a_value_is_supported_by_a_cited_passage_that_says_it() -> None:
    cited = [{"text": "The harbour master of Velm is Ana Berg."}]
    assert measure_support({"answers": ["ana berg", "Jo Roe"], "sources": cited}) == 0.5
    assert measure_support({"answers": ["An"], "sources": cited}) == 0.0
    assert measure_support({"answers": [], "sources": []}) is None


def test_a_plan_is_valid_if_the_model_wrote_it_and_it_can_be_run() -> None:
    plan = {"plan": "Who directed UHF? * Where was {director} born?", "plan_language": "bnf", "plan_source": "model"}
    assert judge_plan(plan) == 1.0
    assert judge_plan(plan | {"plan_source": "fallback"}) == 0.0
    assert judge_plan(plan | {"plan": "Who directed UHF? *"}) == 0.0
    assert judge_plan(plan | {"plan": None}) is None


def test_agreement_is_counted_and_corrected_for_chance() -> None:
    ours, theirs = [True, True, False, False], [True, False, False, False]
    found = measure_agreement(ours, theirs)
    assert found["agreement"]["value"] == 0.75 and found["kappa"]["value"] == pytest.approx(0.5)
    assert measure_agreement([True], [True])["kappa"]["value"] == 1.0
