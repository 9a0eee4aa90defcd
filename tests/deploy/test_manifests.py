"""What runs elsewhere: the compose file and the Kustomize base, by their own tools and by what they promise."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from revelator.cli import revelator

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
SECRETS = [line.rstrip("=") for line in (DEPLOY / "env.example").read_text().splitlines() if line.endswith("=")]
docker_compose = pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl, which carries Kustomize, is not installed")


def configured(profile: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["docker-compose", "-f", COMPOSE, "--profile", profile, "config"]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=60)


@docker_compose
@pytest.mark.parametrize("profile", ["cpu", "gpu"])
def test_compose_takes_the_file_with_each_profile_and_says_which_secret_is_missing(profile):
    whole = dict.fromkeys(SECRETS, "a-secret")
    done = configured(profile, **whole)
    assert done.returncode == 0, done.stderr
    assert f"triton-{profile}" in yaml.safe_load(done.stdout)["services"]
    for name in SECRETS:
        refused = configured(profile, **{k: v for k, v in whole.items() if k != name})
        assert refused.returncode != 0 and name in refused.stderr


DIGEST = re.compile(r"[\w./-]+:[\w.-]*\d[\w.-]*@sha256:[0-9a-f]{64}")  # a tag for people, a digest for machines


def test_every_image_that_we_do_not_build_is_pinned_by_its_digest():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    pulled = [service["image"] for service in services.values() if "build" not in service]
    pulled += re.findall(r"REVELATOR_GPU_BASE:-([^}]+)", COMPOSE.read_text())
    for dockerfile in DEPLOY.glob("*ockerfile"):
        pulled += re.findall(r"^(?:FROM +|ARG BASE=)([^$\s]+)", dockerfile.read_text(), re.MULTILINE)
    assert len(pulled) >= 8
    assert [image for image in pulled if not DIGEST.fullmatch(image)] == []


def test_images_are_pinned_ports_are_on_loopback_and_no_secret_is_written_down():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    for name, service in services.items():
        assert re.search(r":[^:]*\d", service["image"]) and "latest" not in service["image"], name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
    secrets = re.findall(r"(?:PASSWORD|TOKEN|SECRET_ACCESS_KEY|API_KEY): +\"?([^\s\",}]+)", COMPOSE.read_text())
    assert len(secrets) >= 5 and all(value.startswith("${") for value in secrets)
    for file in re.findall(r"\./([\w./-]+):/", COMPOSE.read_text()):
        assert (DEPLOY / file).exists(), file


def test_the_commands_that_are_started_have_the_options_that_they_are_given():
    pods = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    given = [box["args"] for box in pods["initContainers"] + pods["containers"]]
    given += [
        line.split()[1:]
        for line in COMPOSE.read_text().replace("exec ", "").splitlines()
        if line.strip().startswith("revelator ")
    ]
    for command, *options in given:
        known = CliRunner().invoke(revelator, [command, "--help"]).output
        assert all(option in known for option in options if option.startswith("--")), command


def built(folder: str) -> str:
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "kubernetes" / folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@kubectl
@pytest.mark.parametrize("folder", ["base", "gpu"])
@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_kustomize_builds_what_the_schemas_of_kubernetes_allow(folder, version):
    validate = pytest.importorskip("kubernetes_validate")
    resources = list(yaml.safe_load_all(built(folder)))
    assert len(resources) == 7
    for resource in resources:
        validate.validate(resource, version, strict=True)


@kubectl
def test_a_new_version_is_one_line_which_the_readiness_of_a_pod_goes_by(tmp_path):
    shutil.copytree(DEPLOY / "kubernetes" / "base", tmp_path / "base")
    main = tmp_path / "base" / "kustomization.yaml"
    main.write_text(main.read_text().replace("VERSION=1", "VERSION=7"))
    done = subprocess.run(["kubectl", "kustomize", tmp_path / "base"], capture_output=True, text=True, timeout=60)
    before, after = (
        next(r for r in yaml.safe_load_all(text) if r["kind"] == "Deployment") for text in (built("base"), done.stdout)
    )
    ready = [
        d["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["path"] for d in (before, after)
    ]
    assert ready == [f"/v2/models/revelator/versions/{n}/ready" for n in (1, 7)]
    configured = [
        d["spec"]["template"]["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] for d in (before, after)
    ]
    assert configured[0] != configured[1]  # so the pods roll
