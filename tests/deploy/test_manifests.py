"""What runs elsewhere: the compose file, HAProxy's, the manifests for Kustomize and the models for Triton, by their own
tools and by what they promise."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import asdict
from pathlib import Path

import pathspec
import pytest
import yaml
from click.testing import CliRunner
from google.protobuf import text_format
from prometheus_client import Gauge
from tritonclient.grpc.model_config_pb2 import ModelConfig

from revelator.channels import TOKEN
from revelator.cli import revelator
from revelator.errors import ConfigError
from revelator.files import write_json
from serving.http.protection import OPEN_TO_ALL
from serving.models.triton import MAX_BATCH
from serving.retrieval.milvus_collection import NEWEST, OLDEST, MilvusAddress
from serving.retrieval.milvus_faults import TOKEN as MILVUS_TOKEN
from serving.service import metrics
from serving.service.addresses import Ports
from serving.triton.repository import read_config
from tests.balanced import find_haproxy
from training.launch import STOP_SECONDS

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = DEPLOY / "compose.yaml"
HAPROXY = DEPLOY / "haproxy.cfg"
SECRETS = [line.rstrip("=") for line in (DEPLOY / "env.example").read_text().splitlines() if line.endswith("=")]
docker_compose = pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
kubectl = pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl, which carries Kustomize, is not installed")


def configured(profile: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["docker-compose", "-f", COMPOSE, "--profile", profile, "config"]
    clean = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(command, env=clean | environment, capture_output=True, text=True, timeout=60)


@docker_compose
@pytest.mark.parametrize(
    ("profile", "service"),
    [
        ("cpu", "service-cpu"),
        ("gpu", "service-gpu"),
        ("vllm", "service-vllm"),
        ("executors", "executor-3"),
        ("milvus", "milvus"),
    ],
)
def test_compose_takes_the_file_with_each_profile_and_says_which_secret_is_missing(profile, service):
    whole = dict.fromkeys(SECRETS, "a-secret")
    done = configured(profile, **whole)
    assert done.returncode == 0, done.stderr
    assert service in yaml.safe_load(done.stdout)["services"]
    for name in SECRETS:
        refused = configured(profile, **{k: v for k, v in whole.items() if k != name})
        assert refused.returncode != 0 and name in refused.stderr


DIGEST = re.compile(r"[\w./-]+:[\w.-]*\d[\w.-]*@sha256:[0-9a-f]{64}")  # a tag for people, a digest for machines


def test_every_image_that_we_do_not_build_is_pinned_by_its_digest():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    pulled = [service["image"] for service in services.values() if "build" not in service]
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
    assert len(secrets) >= 7 and all(value.removeprefix("root:").startswith("${") for value in secrets)
    for file in re.findall(r"\./([\w./-]+):/", COMPOSE.read_text()):
        assert (DEPLOY / file).exists(), file


def test_services_reach_the_milvus_of_its_profile_with_its_password_and_nobody_else_does() -> None:
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    milvus = services["milvus"]
    image, environment = milvus["image"], milvus["environment"]
    version = tuple(map(int, re.findall(r"\d+", image)[:2]))
    assert version >= OLDEST and version[0] <= NEWEST
    assert environment["COMMON_SECURITY_AUTHORIZATIONENABLED"] == "true"
    [secret] = re.findall(r"\$\{(\w+)", environment["COMMON_SECURITY_DEFAULTROOTPASSWORD"])
    named = re.search(r"index: (\S+)", (DEPLOY / "serving.yaml").read_text())
    assert named and secret in SECRETS
    address = MilvusAddress.read(named[1])
    assert address.uri == "http://milvus:19530" and "networks" not in milvus
    assert milvus["ports"] == ["127.0.0.1:19530:19530"] and milvus["volumes"] == ["milvus:/var/lib/milvus"]
    ours = [service for service in services.values() if "serving.yaml" in str(service.get("command"))]
    assert len(ours) == 6 and all(service["environment"][MILVUS_TOKEN] == f"root:${{{secret}:?}}" for service in ours)
    assert all("default" in service["networks"] for service in ours)
    for dockerfile in ("Dockerfile", "gpu.Dockerfile"):
        installs = (DEPLOY / dockerfile).read_text()  # the client alone: Milvus Lite wants faiss-cpu beside faiss-gpu
        assert re.search(r"requirements\.lock .* pymilvus$", installs, re.MULTILINE), dockerfile


def test_the_commands_that_are_started_have_the_options_that_they_are_given():
    pods = yaml.safe_load((DEPLOY / "kubernetes" / "base" / "deployment.yaml").read_text())["spec"]["template"]["spec"]
    patches = yaml.safe_load((DEPLOY / "kubernetes" / "vllm" / "sidecar.yaml").read_text())
    follows = yaml.safe_load((DEPLOY / "kubernetes" / "executors" / "follow.yaml").read_text())["spec"]["template"]
    boxes = pods["initContainers"] + pods["containers"] + follows["spec"]["containers"]
    boxes += [patch["value"] for patch in patches]
    trains = yaml.safe_load((DEPLOY / "kubernetes" / "training" / "job.yaml").read_text())["spec"]["template"]["spec"]
    boxes += trains["containers"]
    given = [box["args"] for box in boxes if isinstance(box, dict) and "args" in box]
    assert len(given) == 5
    given += [
        line.split()[1:]
        for line in COMPOSE.read_text().replace("exec ", "").splitlines()
        if line.strip().startswith("revelator ")
    ]
    for words in given:
        command = list(itertools.takewhile(lambda word: not word.startswith(("--", "$")), words))
        known = CliRunner().invoke(revelator, [*command, "--help"])
        assert known.exit_code == 0
        assert all(option in known.output for option in words if option.startswith("--")), command


def built(folder: str | Path) -> str:
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "kubernetes" / folder], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


FOLDERS = {"base": 7, "gpu": 7, "vllm": 7, "executors": 12, "mlflow": 4, "training": 4}  # how many resources each makes


@kubectl
@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("version", ["1.31", "1.34"])
def test_kustomize_builds_what_the_schemas_of_kubernetes_allow(folder, version):
    validate = pytest.importorskip("kubernetes_validate")
    resources = list(yaml.safe_load_all(built(folder)))
    assert len(resources) == FOLDERS[folder]
    for resource in resources:
        validate.validate(resource, version, strict=True)


@kubectl
def test_a_new_version_is_one_line_by_which_a_pod_has_started(tmp_path):
    shutil.copytree(DEPLOY / "kubernetes" / "base", tmp_path / "base")
    main = tmp_path / "base" / "kustomization.yaml"
    main.write_text(main.read_text().replace("VERSION=1", "VERSION=7"))
    done = subprocess.run(["kubectl", "kustomize", tmp_path / "base"], capture_output=True, text=True, timeout=60)
    before, after = (
        next(r for r in yaml.safe_load_all(text) if r["kind"] == "Deployment") for text in (built("base"), done.stdout)
    )
    [probe] = {
        d["spec"]["template"]["spec"]["containers"][0]["startupProbe"]["exec"]["command"][2] for d in (before, after)
    }
    for served, version, is_ready in ((7, 7, True), (1, 7, False), (77, 7, False), (None, 7, False)):
        (tmp_path / "serve.json").unlink(missing_ok=True)
        if served:
            write_json(tmp_path / "serve.json", {"models": {"executor": 7, "revelator": served}})
        looked = probe.replace("/srv/revelator", str(tmp_path))
        done = subprocess.run(
            ["sh", "-c", looked], env={"VERSION": str(version), "PATH": os.environ["PATH"]}, check=False
        )
        assert (done.returncode == 0) == is_ready
    configured = [
        d["spec"]["template"]["spec"]["containers"][0]["envFrom"][0]["configMapRef"]["name"] for d in (before, after)
    ]
    assert configured[0] != configured[1]  # so the pods roll


@kubectl
@pytest.mark.parametrize("folder", ["base", "gpu", "vllm", "executors"])
def test_a_kubelet_asks_for_what_a_service_shows_without_a_token(folder):
    boxes = rendered("Deployment", folder)["spec"]["template"]["spec"]["containers"]
    [service] = [box for box in boxes if box["name"] == "service"]
    asked = {service[f"{probe}Probe"]["httpGet"]["path"] for probe in ("readiness", "liveness")}
    assert asked == {"/", "/health"} == {*OPEN_TO_ALL}
    ports = {port["name"]: port["containerPort"] for port in service["ports"]}
    assert ports == asdict(Ports()) and service["args"][service["args"].index("--ports") + 1] == "8000,8001"
    assert {port["port"] for port in rendered("Service", folder)["spec"]["ports"]} == {*ports.values()}


def test_prometheus_asks_with_the_token_that_the_service_was_given():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    [job] = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]
    prometheus, service = services["prometheus"], services["service-cpu"]
    assert f'"$${TOKEN}" > {job["authorization"]["credentials_file"]}' in prometheus["command"][0]
    assert TOKEN in prometheus["environment"] and TOKEN in service["environment"]
    [found] = job["dns_sd_configs"]
    assert found["port"] == Ports().http and found["names"] == service["networks"]["default"]["aliases"]


def rendered(kind: str, folder: str = "base") -> dict:
    """That of the service; what else is beside it has other names."""
    found = (r for r in yaml.safe_load_all(built(folder)) if r["metadata"]["name"] == "revelator")
    return next(resource for resource in found if resource["kind"] == kind)


@kubectl
@pytest.mark.parametrize(("folder", "on_a_card"), [("gpu", {"deploy", "service"}), ("vllm", {"vllm"})])
def test_a_pod_of_a_gpu_node_asks_for_its_card_and_may_no_more_than_one_without(folder: str, on_a_card: set) -> None:
    pod = rendered("Deployment", folder)["spec"]["template"]["spec"]
    boxes = {box["name"]: box for box in pod["initContainers"] + pod["containers"]}
    assert {name for name, box in boxes.items() if box["resources"]["limits"].get("nvidia.com/gpu") == 1} == on_a_card
    assert pod["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert {each["key"] for each in pod["tolerations"]} == {"nvidia.com/gpu"}
    assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
    for box in boxes.values():
        closed = box["securityContext"]
        assert closed["readOnlyRootFilesystem"] and not closed["allowPrivilegeEscalation"]
        assert closed["capabilities"] == {"drop": ["ALL"]} and "env" not in box  # secrets come by reference alone
        assert box["image"] == "revelator:0.1.0-gpu" and box["resources"]["limits"]["memory"]
    assert {"secretRef": {"name": "revelator"}} in boxes["service"]["envFrom"]
    mounted = {mount["name"] for mount in (boxes["vllm"] if folder == "vllm" else boxes["service"])["volumeMounts"]}
    assert "shm" in mounted & {volume["name"] for volume in pod["volumes"]}
    assert (folder == "gpu") == (boxes["service"]["args"][-2:] == ["--triton", "local"])


@kubectl
@pytest.mark.parametrize("folder", FOLDERS)
def test_every_pod_is_closed_and_takes_its_secrets_by_reference(folder: str) -> None:
    resources = yaml.safe_load_all(built(folder))
    pods = [r["spec"]["template"]["spec"] for r in resources if r["kind"] in ("Deployment", "Job")]
    assert pods
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] and not pod["automountServiceAccountToken"]
        for box in pod.get("initContainers", []) + pod["containers"]:
            closed = box["securityContext"]
            assert closed["readOnlyRootFilesystem"] and not closed["allowPrivilegeEscalation"]
            assert closed["capabilities"] == {"drop": ["ALL"]} and box["resources"]["limits"]["memory"]
            assert [each["name"] for each in box.get("env", [])] in ([], ["HOME"])
    given = [given for pod in pods for box in pod["containers"] for given in box["envFrom"]]
    secrets = [each["secretRef"]["name"] for each in given if "secretRef" in each]
    assert secrets == [{"mlflow": "mlflow", "training": "train"}.get(folder, "revelator")]


@kubectl
def test_a_training_has_a_process_for_each_card_and_a_place_for_all_that_it_writes(tmp_path: Path) -> None:
    folder = shutil.copytree(DEPLOY / "kubernetes" / "training", tmp_path / "training")
    main = folder / "kustomization.yaml"
    main.write_text(main.read_text().replace("CARDS=1", "CARDS=8"))
    resources = {resource["kind"]: resource for resource in yaml.safe_load_all(built(folder))}
    settings, pod = resources["ConfigMap"]["data"], resources["Job"]["spec"]["template"]["spec"]
    [box] = pod["containers"]
    assert settings["CARDS"] == box["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert box["args"][box["args"].index("--processes") + 1] == "$(CARDS)"
    assert {*re.findall(r"\$\((\w+)\)", " ".join(box["args"]))} <= {*settings}
    [storage] = [mount["mountPath"] for mount in box["volumeMounts"] if mount["name"] == "training"]
    assert all(settings[name].startswith(f"{storage}/") for name in ("BASE", "SET", "OUT", "HF_HOME"))
    assert {mount["mountPath"] for mount in box["volumeMounts"]} == {storage, settings["HOME"], "/dev/shm"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


@kubectl
def test_a_pod_that_trains_is_replaced_once_it_has_ended_unless_its_configuration_was_wrong() -> None:
    resources = {resource["kind"]: resource for resource in yaml.safe_load_all(built("training"))}
    job = resources["Job"]["spec"]
    pod = job["template"]["spec"]
    assert pod["containers"][0]["args"][-1] == "--resume" and pod["restartPolicy"] == "Never"
    assert job["podReplacementPolicy"] == "Failed" and job["backoffLimit"] > 0
    evicted, wrong = job["podFailurePolicy"]["rules"]
    assert evicted == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert (wrong["action"], wrong["onExitCodes"]["values"]) == ("FailJob", [ConfigError.exit_status])
    assert pod["terminationGracePeriodSeconds"] > STOP_SECONDS
    labels = job["template"]["metadata"]["labels"]
    [let_in] = [r for r in yaml.safe_load_all(built("mlflow")) if r["kind"] == "NetworkPolicy"]
    chosen = [each["podSelector"].get("matchLabels") for each in let_in["spec"]["ingress"][0]["from"]]
    assert any(each and each.items() <= labels.items() for each in chosen)


@kubectl
def test_the_autoscaler_goes_by_the_queue_that_a_service_shows_and_an_executor_without_a_model_by_its_own() -> None:
    exposed = {metric._name: metric for metric in vars(metrics).values() if isinstance(metric, Gauge)}
    for folder in ("base", "executors"):
        scaled = [metric["pods"]["metric"] for metric in rendered("HorizontalPodAutoscaler", folder)["spec"]["metrics"]]
        assert [metric["name"] for metric in scaled] == ["revelator_waiting", "revelator_in_flight"]
        for metric in scaled:
            assert {*metric["selector"]["matchLabels"]} == {*exposed[metric["name"]]._labelnames}
        budget = rendered("PodDisruptionBudget", folder)["spec"]
        assert budget["selector"]["matchLabels"].items() <= rendered("Deployment", "base")["metadata"]["labels"].items()


@kubectl
def test_executors_share_a_home_folder_wait_for_its_first_release_and_keep_nothing_else() -> None:
    deployments = {
        r["metadata"]["name"]: r for r in yaml.safe_load_all(built("executors")) if r["kind"] == "Deployment"
    }
    assert {*deployments} == {"revelator", "follow", "vllm"} and "replicas" not in deployments["revelator"]["spec"]
    pods = {name: each["spec"]["template"]["spec"] for name, each in deployments.items()}
    for pod in pods.values():
        [home] = [volume for volume in pod["volumes"] if volume["name"] == "home"]
        assert home["persistentVolumeClaim"] == {"claimName": "home"}
    [waits] = pods["revelator"]["initContainers"]
    assert "/srv/revelator/release.json" in waits["command"][-1] and "args" not in waits
    [follows] = pods["follow"]["containers"]
    assert follows["args"][-3:] == ["--url", "http://vllm:8100", "--watch"]
    cards = {name for name, pod in pods.items() if "nvidia.com/gpu" in pod["containers"][0]["resources"]["limits"]}
    assert cards == {"vllm"}


@kubectl
def test_vllm_answers_before_a_version_is_deployed_to_it_and_only_its_pod_reaches_it() -> None:
    pod = rendered("Deployment", "vllm")["spec"]["template"]["spec"]
    vllm, deploys = pod["initContainers"]
    assert vllm["restartPolicy"] == "Always" and "startupProbe" in vllm  # a sidecar: the next one waits for the probe
    assert "127.0.0.1" in vllm["command"] and "ports" not in vllm
    [watch] = [box for box in pod["containers"] if box["name"] == "watch"]
    assert watch["args"] == [*deploys["args"], "--watch"]
    mounts = {mount["name"]: mount["mountPath"] for mount in vllm["volumeMounts"]}
    assert {each["name"]: each["mountPath"] for each in deploys["volumeMounts"]}.items() <= mounts.items()


@pytest.mark.parametrize("folder", sorted((ROOT / "model_repo").iterdir()), ids=lambda folder: folder.name)
def test_a_model_s_configuration_is_one_that_triton_takes(folder: Path) -> None:
    """What Triton's documentation wants of each model: backend, max_batch_size, and name, type and dims of a tensor."""
    text = (folder / "config.pbtxt").read_text()
    config = text_format.Parse(text, ModelConfig())  # no field is unknown, and no value of another type
    assert config.name in ("", folder.name) and re.search(r"^max_batch_size: \d+$", text, re.MULTILINE)
    assert config.backend == ("vllm" if folder.name == "revelator_vllm" else "python")
    assert (folder / "model.py").exists() == (config.backend == "python"), "vLLM's model is engine arguments"
    for tensors in (config.input, config.output):
        assert len({tensor.name for tensor in tensors}) == len(tensors) > 0
        for tensor in tensors:
            assert tensor.name and tensor.data_type != 0
            assert tensor.dims and all(size == -1 or size > 0 for size in tensor.dims)
    assert not any(tensor.optional for tensor in config.input if config.backend == "python")
    assert all(size <= config.max_batch_size for size in config.dynamic_batching.preferred_batch_size)
    [group] = config.instance_group
    assert (group.kind, group.count) == (group.KIND_MODEL if config.backend == "vllm" else group.KIND_CPU, 1)
    assert config.model_transaction_policy.decoupled == (config.backend == "vllm")


def test_the_executor_sends_triton_no_more_rows_than_a_batch_has() -> None:
    assert read_config("revelator").max_batch_size == MAX_BATCH


def test_haproxy_takes_its_file_with_what_the_compose_file_names() -> None:
    program = find_haproxy()
    if not program:
        pytest.skip("haproxy is not installed (Debian: apt-get install haproxy)")
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    given = services["balancer"]["environment"]
    assert {*re.findall(r"\$\{(\w+)\}", HAPROXY.read_text())} == {*given}
    for name, address in given.items():
        if name.startswith("EXECUTOR"):
            executor, port = address.split(":")
            assert executor in services and int(port) == asdict(Ports())[name.rpartition("_")[2].lower()]
    # names that only Docker's network knows are looked up while it runs
    environment = {name: re.sub(r"^[\w-]+:", "127.0.0.1:", address) for name, address in given.items()}
    done = subprocess.run([program, "-c", "-f", HAPROXY], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "valid" in done.stdout + done.stderr and "WARNING" not in done.stderr


def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    files = sorted(DEPLOY.glob("*Dockerfile"))
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), *files], capture_output=True, text=True)
    assert done.returncode == 0 and len(files) == 4, done.stdout


def test_images_have_the_torch_of_everybody_and_a_gpu_node_s_the_python_of_its_server() -> None:
    torch = re.compile(r"torch==[\d.]+")
    files = DEPLOY / "Dockerfile", DEPLOY / "gpu.Dockerfile", ROOT / "Makefile"
    assert len({torch.search(file.read_text())[0] for file in files}) == 1
    assert "python3.12 -m venv" in (DEPLOY / "gpu.Dockerfile").read_text()


TEMPTING = [
    ".env",
    "deploy/.env",
    "deploy/.env.production",
    "a/b/server.key",
    "ca.pem",
    "home/.control-token",
    "home/triton/tls/key.pem",
    "x/credentials.json",
    ".aws/credentials",
    ".venv/bin/python",
    "id_rsa",
    ".netrc",
    "runs/mlflow.db",
    ".git/config",
    "serving/.env",
    "serving/server.key",
    "training/.control-token",
    "model_repo/mlflow.db",
    "revelator/__pycache__/cli.cpython-311.pyc",
    "home/inspected/0123456789abcdef.json",
    "home/logs/events.jsonl",
    "secrets.yaml",
    "serving/secrets.yaml",
    "serving/.envrc",
    "serving/.git-credentials",
    "training/.docker/config.json",
    "training/.kube/config",
    "revelator/.pgpass",
    "revelator/id_ecdsa",
    "data_gen/store.pfx",
    "serving/.control-token.4711.0123abcd",
    "notes.txt",
]


@pytest.fixture(scope="module")
def left_out() -> pathspec.GitIgnoreSpec:
    """As Docker reads .dockerignore: patterns are anchored at the root, as a leading slash makes them for pathspec."""
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    anchored = [f"!/{line[1:]}" if line.startswith("!") else f"/{line}" for line in lines]
    return pathspec.GitIgnoreSpec.from_lines(anchored)


@pytest.mark.parametrize("tempting", TEMPTING)
def test_no_secret_gets_into_a_layer_of_an_image(left_out: pathspec.GitIgnoreSpec, tempting: str):
    assert left_out.match_file(tempting)


def test_all_that_the_package_is_built_of_gets_into_an_image(left_out: pathspec.GitIgnoreSpec):
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    folders = (*build["packages"], *build["force-include"])
    wanted = [file for file in tracked if file.split("/")[0] in folders]
    assert len(wanted) > 300
    assert [file for file in (*wanted, "pyproject.toml", "README.md") if left_out.match_file(file)] == []
