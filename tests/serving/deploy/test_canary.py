"""The rule by which a canary is promoted or withdrawn, and a canary in a running server from start to verdict."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.client import Client
from revelator.errors import ConfigError, Conflict
from serving.commands.deploy import deploy as command
from serving.deploy.canary import CanaryPlan, CanaryRules, judge_canary
from serving.deploy.deploy import deploy
from serving.models import releases
from serving.models.comparisons import CanaryComparison
from serving.triton import control

RULES = CanaryRules(comparisons=100)
GOOD = CanaryComparison("r", "route", 10.0, 10.0, True, True, True)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([GOOD] * 100, None),
        ([GOOD] * 99 + [replace(GOOD, canary_valid=False)], None),
        ([GOOD] * 97 + [replace(GOOD, canary_valid=False)] * 3, "valid 97.0%, the released version 100.0%"),
        ([GOOD] * 97 + [replace(GOOD, canary_valid=False, released_valid=False)] * 3, None),
        ([replace(GOOD, canary_ms=14.9)] * 100, None),
        ([replace(GOOD, canary_ms=15.1)] * 100, "1.51 times"),
        ([GOOD] * 50 + [replace(GOOD, agrees=False)] * 50, None),
        ([GOOD] * 49 + [replace(GOOD, agrees=False)] * 51, "agreement 49.0%"),
        ([replace(GOOD, error="Unavailable", canary_valid=False)] * 2, "errors 100.0%"),  # no need to wait for 100
    ],
)
def test_the_rule_promotes_or_says_why_not(rows, reason):
    verdict = judge_canary(2, 1, rows, RULES)
    assert verdict is not None and verdict.passes == (reason is None)
    assert reason is None or any(reason in text for text in verdict.reasons)


def test_there_is_no_verdict_before_enough_was_compared():
    assert judge_canary(2, 1, [GOOD] * 99, RULES) is None
    assert judge_canary(2, 1, [], RULES) is None
    assert judge_canary(2, 1, [GOOD], RULES, is_late=True).reasons == (
        "1 comparisons in the time given, and 100 are needed",
    )


def test_a_share_is_given_in_percent_or_as_a_part_and_modes_exclude_one_another():
    run = CliRunner().invoke
    assert "no share of the questions" in run(command, ["--canary", "200%"]).output
    assert "exclude one another" in run(command, ["--canary", "0.1", "--rollback"]).output


@pytest.mark.timeout(900)  # loads of torch; how busy the machine is must not decide
def test_a_canary_answers_its_share_is_compared_and_then_promoted_or_withdrawn(served):
    registry.connect(served.home)
    first, second = (registry.resolve(registry.NAME, n) for n in (1, 2))
    question = "Where is Port Velm?"
    served.endpoint.knowledge[question] = ["Orland"]
    patient = CanaryRules(comparisons=8, latency_ratio=1e9, agreement=0.0, validity_loss=1.0)  # no timing
    with Client(served.url, 60) as client:
        plan = CanaryPlan(served.home, second, 0.5, patient)
        asked = iter(range(10_000))

        def ask(_: int) -> None:
            for _ in range(4):
                answer = client.ask(f"{question} {next(asked)}", strategy="single")
                answered.add(answer.trace.versions["revelator"])

        answered: set[str] = set()
        with pytest.raises(ConfigError, match="takes all traffic already"):
            CanaryPlan(served.home, first, 0.5, patient).begin()
        begun = plan.begin().canary
        assert (begun.version, begun.model_id) == (2, second.model_id) and second.model_id
        strict = replace(plan, rules=replace(patient, agreement=1.01))
        verdict = strict.run(ask)
        assert not verdict.passes and answered == {"1", "2"} and verdict.comparisons >= 8
        now = releases.read_release(served.home)
        assert (now.version, now.canary) == (1, None)
        assert not control.is_ready(served.url, "revelator", 2)
        assert registry.resolve(registry.NAME, 2).tags["canary"].startswith("withdrawn: agreement")

        verdict = plan.run(ask)
        assert verdict.passes and releases.read_release(served.home).version == 2
        assert registry.resolve(registry.NAME, 2).tags["canary"] == "deployed"
        assert client.ask(question, strategy="single").trace.versions["revelator"] == "2"

        back = CanaryPlan(served.home, first, 0.5, patient)
        back.begin()
        deploy(served.home, first)  # somebody deploys while the canary is under way
        assert releases.read_release(served.home).canary is None
        with pytest.raises((Conflict, ConfigError)):
            back._reload_if_lost()
