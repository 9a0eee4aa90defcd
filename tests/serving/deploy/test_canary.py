"""The rule by which a canary is promoted or withdrawn, and what a verdict leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from revelator import registry
from revelator.errors import ConfigError, Conflict
from serving.commands.deploy import deploy as command
from serving.deploy.canary import CanaryPlan, CanaryRules, judge_canary
from serving.deploy.deploy import deploy
from serving.home.configure import configure
from serving.models.comparisons import CanaryComparison
from serving.models.releases import read_release
from serving.service import control
from tests.service_thread import serve_in_thread

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
    assert "exclude one another" in run(command, ["--canary", "0.1", "--watch"]).output


@pytest.mark.timeout(900)  # loads of torch; how busy the machine is must not decide
def test_a_canary_is_told_to_the_registry_and_another_deploy_ends_it(registered, index, endpoint, tmp_path):
    """How it answers its share meanwhile: tests/serving/service/test_versions.py."""
    registry.connect(registered)
    first, second = (registry.resolve(registry.NAME, n) for n in (1, 2))
    deploy(tmp_path, first)
    plan = CanaryPlan(tmp_path, second, 0.5, RULES)
    with pytest.raises(ConfigError, match="needs a running server"):
        plan.begin()
    config = configure(tmp_path, index=index, generator=endpoint.url, generator_model="m", text=False)
    with serve_in_thread(tmp_path, config) as (_, running):
        with pytest.raises(ConfigError, match="takes all traffic already"):
            CanaryPlan(tmp_path, first, 0.5, RULES).begin()
        begun = plan.begin().canary
        assert begun and (begun.version, begun.model_id) == (2, second.model_id) and second.model_id
        assert control.is_ready(running.grpc, 2)

        plan.conclude(judge_canary(2, 1, [replace(GOOD, agrees=False)] * 100, RULES))
        now = read_release(tmp_path)
        assert now and (now.version, now.canary) == (1, None) and not control.is_ready(running.grpc, 2)
        assert registry.resolve(registry.NAME, 2).tags["canary"].startswith("withdrawn: agreement")

        plan.begin()
        plan.conclude(judge_canary(2, 1, [GOOD] * 100, RULES))
        assert read_release(tmp_path).version == 2 and not control.is_ready(running.grpc, 1)
        assert registry.resolve(registry.NAME, 2).tags["canary"] == "deployed"

        back = CanaryPlan(tmp_path, first, 0.5, RULES)
        back.begin()
        deploy(tmp_path, first)  # somebody deploys while the canary is under way
        assert read_release(tmp_path).canary is None
        with pytest.raises((Conflict, ConfigError)):
            back._reload_if_lost()
