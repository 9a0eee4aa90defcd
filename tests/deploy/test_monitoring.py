"""The dashboard and the alert rules: well formed, and about metrics that a service exposes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client import Counter, Gauge, Histogram

from revelator.client import Client
from serving.service import metrics as metrics_of_models
from tests.serving.operations import metrics_page as metrics

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
DASHBOARD = DEPLOY / "grafana" / "revelator.json"


def expressions() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    groups = yaml.safe_load(RULES.read_text())["groups"]
    asked = [target["expr"] for panel in panels for target in panel["targets"]]
    return asked + [rule["expr"] for group in groups for rule in group["rules"]]


def test_every_metric_of_the_dashboard_and_the_rules_is_one_that_the_service_exposes(served):
    with Client(served.url) as client:
        client.ask("When was Sarnath founded?", strategy="single")
    there = metrics.when(f"{served.http}/metrics", lambda page: metrics.total(page, "revelator_questions_total") > 0)
    ours = {
        f"{metric._name}{end}"
        for metric in vars(metrics_of_models).values()
        if isinstance(metric, Counter | Gauge | Histogram)
        for end in {Counter: ["_total"], Gauge: [""], Histogram: ["_bucket", "_sum", "_count"]}[type(metric)]
    }
    named = {name for text in expressions() for name in re.findall(r"\b(?:revelator|nv|process)_\w+", text)}
    assert len(named) > 12
    assert named <= ours | metrics.names(there)
    exposed = {n for n in metrics.names(there) if n.startswith("revelator_") and not n.endswith("_created")}
    assert exposed <= ours and len(exposed) > 10


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian: apt-get install prometheus)"
)
@pytest.mark.parametrize("check", [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]])
def test_prometheus_takes_the_rules_and_they_fire_when_they_should(check):
    done = subprocess.run(["promtool", *check], cwd=RULES.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed (Debian: apt-get install prometheus)"
)
def test_prometheus_reads_every_expression_of_the_dashboard(tmp_path):
    """As rules, with Grafana's variables filled in."""
    filled = [e.replace("$__rate_interval", "5m").replace("$instance", ".*") for e in expressions()]
    rules = [{"record": f"panel:{n}", "expr": text} for n, text in enumerate(filled)]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", tmp_path / "rules.yaml"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
