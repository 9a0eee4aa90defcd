"""Training end to end on a toy: what it leaves in MLflow, resumption after kill -9, and every refusal."""

import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import psutil
import pytest
import torch
import yaml
from safetensors.torch import load_file

from revelator import registry, rows
from revelator.artifact import (
    BASE,
    DEFAULT_BASE,
    digest_base,
    read_adapter_fingerprints,
    read_manifest,
    verify_adapter,
)
from revelator.errors import ArtifactError, ConfigError, DataError, Unavailable
from revelator.files import sha256_file
from revelator.fingerprints import FILE, Fingerprints
from revelator.rows import read_split
from revelator.tasks import TASKS
from tests.training.toy import toy_row, write_set
from training import sft
from training.checkpoints import find_checkpoint, lock_work
from training.commands import train
from training.config import FineTuneConfig, Lora
from training.export import find_licence

PROGRAM = Path(sys.executable).with_name("revelator")
WEIGHTS = "adapter_model.safetensors"
SETTINGS = {
    "steps": 60,
    "batch_size": 8,
    "learning_rate": 1e-2,
    "save_every": 5,
    "log_every": 1,
    "threads": 1,
    "lora": {"dropout": 0.1},
    "evaluation": {"every": 30, "rows_per_task": 4},
}


@dataclass(frozen=True)
class Trained:
    home: Path
    config: FineTuneConfig
    result: dict


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def trained(
    base: Path, set_folder: Path, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trained]:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVELATOR_HOME", str(home))
        patch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "1")  # the run is shorter than MLflow's own interval
        config = FineTuneConfig(base=str(base), sets=(set_folder,), out=home / "adapters" / "toy", **SETTINGS)
        result = sft.train(config, resume=False)
        assert result
        yield Trained(home, config, result)


def test_the_adapter_is_whole_and_fits_its_base(trained: Trained, base: Path, set_folder: Path) -> None:
    manifest = verify_adapter(Path(trained.result["adapter"]), base)
    assert manifest.base_name == str(base)
    assert manifest.data_digest == json.loads((set_folder / "manifest.json").read_text())["digest"]
    assert manifest.run_id == trained.result["run_id"]
    assert manifest.tasks == sorted(TASKS), "what the base was asked with, and what its set taught it"
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json", "config.yaml"} <= set(manifest.files)


def test_an_adapter_has_seen_what_its_base_its_adapter_and_its_set_have(
    trained: Trained, base: Path, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(empty_store, tmp_path)
    monkeypatch.setenv("REVELATOR_HOME", str(tmp_path))
    known = Path(shutil.copytree(base, tmp_path / "base"))
    Fingerprints.of(["Who built Ost?"]).write(known)
    BASE.write_manifest(known, {})
    assert digest_base(known) == digest_base(base), "an adapter fits a base with or without them"
    first = Path(shutil.copytree(trained.result["adapter"], tmp_path / "first"))
    one = {"base": str(known), "steps": 1, "evaluation": {"every": 1, "rows_per_task": 1}}
    for number, asked in enumerate(["Who sold Ost?", "Who burnt Ost?"]):
        chosen = write_set(tmp_path / f"set{number}", train=8, dev=1, seen=Fingerprints.of([asked]))
        out = tmp_path / f"adapter{number}"
        config = FineTuneConfig(**SETTINGS | one, adapter=first, sets=(chosen,), out=out)
        assert sft.train(config, resume=False)
        first = out
    verify_adapter(first, known)
    seen = read_adapter_fingerprints(first, known)
    assert all(map(seen.has_question, ["Who built Ost?", "Who sold Ost?", "Who burnt Ost?"]))
    assert seen.unknown == ("toy",), "base and set of the first adapter have that name, and no fingerprints"

    (first / FILE).write_bytes((known / FILE).read_bytes())
    for read in (verify_adapter, read_adapter_fingerprints):
        with pytest.raises(ArtifactError, match="has changed since it was built"):
            read(first, known)


def test_the_run_holds_parameters_curves_data_set_system_metrics_and_environment(trained: Trained) -> None:
    registry.connect(trained.home)
    run = mlflow.get_run(trained.result["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["learning_rate"] == "0.01" and run.data.params["lora.rank"] == "16"
    curve = [m.value for m in mlflow.MlflowClient().get_metric_history(run.info.run_id, "train/loss")]
    assert len(curve) == 60 and curve[-1] < 0.8 * curve[0]
    tasks = {row.task for row in read_split(trained.config.sets[0], "dev")}
    for name in ("dev/loss", "dev/score", *(f"dev/{kind}_{task}" for kind in ("loss", "score") for task in tasks)):
        assert [m.step for m in mlflow.MlflowClient().get_metric_history(run.info.run_id, name)] == [30, 60]
    assert any(name.startswith("system/") for name in run.data.metrics)
    assert run.data.params["rows.lost"] == run.data.params["rows.lost_dev"] == "0"
    data = run.inputs.dataset_inputs[0].dataset
    assert trained.result["adapter"] and data.digest == run.data.params["data_digest"][:36]
    stored = {item.path for item in mlflow.artifacts.list_artifacts(run_id=run.info.run_id)}
    assert {"config.yaml", "environment.txt", "set_manifest.json"} <= stored


def test_the_version_downloads_as_the_same_adapter(trained: Trained, tmp_path: Path) -> None:
    registry.connect(trained.home)
    version = registry.resolve("revelator", trained.result["version"])
    folder = registry.download(version, tmp_path / "got")
    assert sha256_file(folder / WEIGHTS) == sha256_file(Path(trained.result["adapter"]) / WEIGHTS)
    assert version.run_id == trained.result["run_id"]


def test_mlflow_says_what_experiment_run_and_version_are_and_shows_the_models_figures(trained: Trained) -> None:
    registry.connect(trained.home)
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name(registry.EXPERIMENT)
    assert experiment.tags["mlflow.experimentKind"] == "custom_model_development"
    run = mlflow.get_run(trained.result["run_id"])
    assert "60 steps of 8 rows" in run.data.tags["mlflow.note.content"]
    [version] = client.search_model_versions("name='revelator'")[-1:]
    assert "60 steps of 8 rows of the set toy" in version.description
    assert "| base `" in version.description and "| not stated |" in version.description
    assert "| set toy | 660 | CC0-1.0 (660) |" in version.description
    model = client.get_logged_model(registry.resolve("revelator", 1).model_id)
    assert model.params["learning_rate"] == "0.01" and model.params["lora.rank"] == "16"
    assert {metric.key for metric in model.metrics} >= {"model/dev/score", "model/best/score"}


def test_a_base_has_the_licence_that_its_page_names(tmp_path: Path) -> None:
    assert find_licence(DEFAULT_BASE) == "Apache-2.0"
    assert find_licence(str(tmp_path)) == "not stated"
    (tmp_path / "README.md").write_text("---\nlicense: mit\n---\n\n# A base\n")
    assert find_licence(str(tmp_path)) == "mit"


def test_the_run_says_how_many_tokens_it_reads_a_second(trained: Trained) -> None:
    rates, read = (
        [value for _, value in curve(trained.home, trained.result["run_id"], f"train/{name}")]
        for name in ("tokens_per_second", "tokens")
    )
    assert len(rates) == 60 and min(rates) > 0
    mean = trained.result["figures"]["train/tokens_per_second"]
    steps = [after - before for before, after in itertools.pairwise([0, *read])]
    seconds = sum(tokens / rate for tokens, rate in zip(steps, rates, strict=True))
    assert mean == pytest.approx(read[-1] / seconds)


def test_several_sets_train_one_adapter_that_names_them_all(
    base: Path, set_folder: Path, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(empty_store, tmp_path)
    monkeypatch.setenv("REVELATOR_HOME", str(tmp_path))
    other = write_set(tmp_path / "other", train=8, dev=1, seen=Fingerprints.of(["Who built Ost?"]))
    few = {"steps": 2, "evaluation": {"every": 1, "rows_per_task": 1}}
    config = FineTuneConfig(**SETTINGS | few, base=str(base), sets=(set_folder, other, other), out=tmp_path / "several")
    inputs = sft.read_inputs(config)
    shown = Counter(
        inputs.tokens.sets[row] for step in sft.order_steps(config, inputs.tokens, [1, 200]) for row in step
    )
    assert shown[1] > shown[0], "as a set does that is named 200 times"
    made = sft.train(config, resume=False)
    assert made
    digests = [rows.SET.read_manifest(folder)["digest"] for folder in (set_folder, other)]
    assert verify_adapter(tmp_path / "several", base).data_digest.split() == [*digests, digests[1]]
    assert read_adapter_fingerprints(tmp_path / "several", base).has_question("Who built Ost?")
    run = mlflow.get_run(made["run_id"])
    assert {used.dataset.name for used in run.inputs.dataset_inputs} == {set_folder.name, "other"}
    version = registry.resolve("revelator", made["version"])
    assert version.tags["set_folder"] == str(set_folder) and json.loads(version.tags["other_sets"]) == [str(other)]
    assert sft.train(config, resume=True) == made | {"figures": {}}, "it is finished"


def test_a_training_goes_on_from_a_version_of_the_registry(trained: Trained, tmp_path: Path) -> None:
    path, out = tmp_path / "on.yaml", tmp_path / "on"
    settings = trained.config.model_dump(mode="json") | {"steps": 1, "learning_rate": 1e-9, "out": str(out)}
    path.write_text(yaml.safe_dump(settings))
    command = [str(path), "--adapter", str(trained.result["version"]), "--home", str(trained.home)]
    train.main(command, standalone_mode=False)
    before, after = (load_file(folder / WEIGHTS) for folder in (trained.config.out, out))
    assert before.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=1e-6, msg=name)
    on = registry.search_versions(registry.NAME)[0]
    assert "adapter_digest" in mlflow.get_run(on.run_id).data.params


def test_going_on_with_other_settings_than_the_adapters_names_them(trained: Trained, tmp_path: Path) -> None:
    changed = trained.config.model_copy(update={"adapter": trained.config.out, "out": tmp_path / "on", "lora": Lora()})
    with pytest.raises(ConfigError, match=r"dropout=0\.0: the adapter has rank=16 alpha=32 dropout=0\.1") as error:
        sft.train(changed, resume=False)
    assert error.value.hint == "write them into the configuration: lora: {rank: 16, alpha: 32, dropout: 0.1}"


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_going_on_with_another_revision_of_the_base_is_refused(name: str, trained: Trained, tmp_path: Path) -> None:
    other = Path(shutil.copytree(trained.config.base, tmp_path / "base"))
    (other / name).write_bytes((other / name).read_bytes() + b" ")
    changed = {"adapter": trained.config.out, "base": str(other), "out": tmp_path / "on"}
    with pytest.raises(ArtifactError, match=r"base: sha256 .* when the adapter was trained"):
        sft.train(trained.config.model_copy(update=changed), resume=False)


def test_resuming_what_is_finished_trains_and_registers_nothing_again(trained: Trained) -> None:
    before = sha256_file(Path(trained.result["adapter"]) / "manifest.json")
    again = sft.train(trained.config, resume=True)
    assert sha256_file(Path(trained.result["adapter"]) / "manifest.json") == before
    assert again and again["version"] == trained.result["version"]


def test_a_run_killed_at_any_step_resumes_to_the_same_adapter(
    trained: Trained, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    command = [
        str(PROGRAM),
        "train",
        str(_config_file(tmp_path)),
        "--home",
        str(tmp_path),
        "--out",
        str(tmp_path / "a"),
    ]
    command += ["--set", str(trained.config.sets[0]), "--base", trained.config.base, "--json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step 22/60"):
                family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
                for member in family:
                    member.kill()
                break
        process.stderr.close()
    assert not (tmp_path / "a").exists()
    torn = tmp_path / "a.work" / "checkpoint-59"
    torn.mkdir()
    (torn / "adapter_model.safetensors").write_bytes(b"half")

    done = subprocess.run([*command, "--resume"], capture_output=True, text=True, check=True)
    assert "going on from" in done.stderr and "checkpoint-20" in done.stderr
    result = json.loads(done.stdout)
    assert result["version"] == 1 and not (tmp_path / "a.work").exists()
    straight, resumed = read_manifest(Path(trained.result["adapter"])).files, read_manifest(tmp_path / "a").files
    assert straight["adapter_model.safetensors"] == resumed["adapter_model.safetensors"]
    assert {name for name in straight if straight[name] != resumed[name]} == {"config.yaml"}  # it names `out`
    for name in ("train/loss", "train/tokens", "dev/loss", "dev/score"):
        assert curve(tmp_path, result["run_id"], name) == curve(trained.home, trained.result["run_id"], name)


def curve(home: Path, run_id: str, name: str) -> list[tuple[int, float]]:
    """(step, value) of a metric: a step that both a killed run and its resumption took is one point if equal."""
    client = mlflow.MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    return sorted({(m.step, m.value) for m in client.get_metric_history(run_id, name)})


@pytest.mark.parametrize(("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_training_ends_with_the_command_that_started_it(
    number: int, status: int, trained: Trained, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    command = [str(PROGRAM), "train", str(_config_file(tmp_path)), "--home", str(tmp_path), "--steps", "100000"]
    command += ["--set", str(trained.config.sets[0]), "--base", trained.config.base, "--out", str(tmp_path / "a")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step 7/"):
                process.send_signal(number)
        # Standard error has ended: no process that was started holds it any more.
    assert process.returncode == status
    assert find_checkpoint(tmp_path / "a.work")
    registry.connect(tmp_path)
    (run,) = mlflow.search_runs(experiment_names=[registry.EXPERIMENT], output_format="list")
    assert run.info.status == "KILLED"


def test_a_process_of_several_that_is_stopped_ends_at_once_and_quietly(
    base: Path, set_folder: Path, empty_store: Path, tmp_path: Path
) -> None:
    shutil.copy(empty_store, tmp_path)
    config = FineTuneConfig(base=str(base), sets=(set_folder,), out=tmp_path / "a", **SETTINGS | {"steps": 100_000})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    command = [sys.executable, "-m", "training.launch", str(tmp_path / "config.yaml")]
    environment = os.environ | {"REVELATOR_HOME": str(tmp_path), "WORLD_SIZE": "1"}  # as torchrun starts it
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=environment, **pipes, text=True) as process:
        assert process.stdin and process.stdout and process.stderr
        assert any(line.startswith("step 7/") for line in process.stderr)
        process.stdin.close()  # the starter has ended
        assert "Traceback" not in process.stderr.read() and process.stdout.read() == ""
    assert process.returncode == 0, "torchrun would print a traceback for another"
    assert find_checkpoint(config.work) and not (config.work / "writer.lock").exists()
    registry.connect(tmp_path)
    (run,) = mlflow.search_runs(experiment_names=[registry.EXPERIMENT], output_format="list")
    assert run.info.status == "KILLED"


def test_a_training_that_diverges_is_stopped_and_registers_nothing(trained: Trained, tmp_path: Path) -> None:
    wild = trained.config.model_copy(update={"learning_rate": 1.0, "out": tmp_path / "wild", "warmup": 0.0})
    wild = wild.model_copy(update={"lora": wild.lora.model_copy(update={"alpha": 10**20})})
    tasks = wild.tasks | {"read": 0.0}  # whose long rows overflow in the first step
    wild = wild.model_copy(update={"log_every": 50, "save_every": 1, "tasks": tasks})
    with pytest.raises(ConfigError, match=r"the training diverged: .* is (nan|inf) at step 2"):
        sft.train(wild, resume=False)
    assert not (tmp_path / "wild").exists()
    assert find_checkpoint(wild.work) == wild.work / "checkpoint-1", "the last one before"
    weights = load_file(wild.work / "checkpoint-1" / WEIGHTS)
    assert all(value.isfinite().all() for value in weights.values())


def test_what_is_refused_at_once_costs_an_earlier_run_nothing(trained: Trained, set_folder: Path) -> None:
    kept = find_checkpoint(trained.config.work)
    assert kept
    with pytest.raises(ArtifactError):
        sft.train(trained.config.model_copy(update={"sets": (set_folder / "none",)}), resume=False)
    assert find_checkpoint(trained.config.work) == kept


def test_resuming_with_another_configuration_names_the_field(trained: Trained) -> None:
    other = trained.config.model_copy(update={"learning_rate": 0.5})
    with pytest.raises(ConfigError, match=r"learning_rate: 0\.01, now 0\.5"):
        sft.train(other, resume=True)


def test_a_full_disk_is_one_clear_error_and_leaves_no_adapter(trained: Trained, tmp_path: Path) -> None:
    out = tmp_path / "full"
    lora = trained.config.lora.model_copy(update={"rank": 256})  # a checkpoint of several MB
    config = trained.config.model_copy(update={"out": out, "steps": 5, "lora": lora})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, hard))  # a file system whose files end at 3 MB
    try:
        with pytest.raises(ArtifactError, match="disk is full or a quota is reached") as caught:
            sft.train(config, resume=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "--resume" not in str(caught.value)  # the command names it where a whole checkpoint stands
    assert not out.exists()
    sft.train(config, resume=True)
    assert (out / "manifest.json").is_file()


def _config_file(folder: Path) -> Path:
    path = folder / "toy.yaml"
    path.write_text(json.dumps(SETTINGS))  # JSON is YAML
    return path


def test_a_missing_base_is_refused_before_anything_is_written(set_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="does not exist"):
        _train_command(tmp_path, "--set", str(set_folder), "--base", "./nowhere")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.yaml"]


def test_a_missing_set_leaves_nothing_behind(base: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="this is not an instruction set"):
        _train_command(tmp_path, "--set", str(tmp_path / "none"), "--base", str(base))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["toy.yaml"]


def test_what_a_started_training_refuses_is_said_once_and_leaves_nothing_behind(
    base: Path, set_folder: Path, tmp_path: Path
) -> None:
    command = [str(PROGRAM), "train", str(_config_file(tmp_path)), "--set", str(set_folder), "--base", str(base)]
    command += ["--home", str(tmp_path), "--processes", "2"]
    environment = os.environ | {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("error: ")) == (1, "", 1)
    assert "Traceback" not in done.stderr and "--resume" not in done.stderr
    assert not (tmp_path / "adapters").exists()


def test_the_adapter_takes_the_place_of_nothing_but_an_adapter(base: Path, set_folder: Path, tmp_path: Path) -> None:
    taken = tmp_path / "thesis"
    taken.mkdir()
    (taken / "chapter").write_text("years of work")
    for out in (taken, taken / "chapter", set_folder):
        with pytest.raises(ConfigError, match="something stands there that is not an adapter"):
            _train_command(tmp_path, "--set", str(set_folder), "--base", str(base), "--out", str(out))
    assert (taken / "chapter").read_text() == "years of work"


def test_an_empty_set_is_refused(base: Path, tmp_path: Path) -> None:
    empty = write_set(tmp_path / "set", train=0, dev=1)
    config = FineTuneConfig(base=str(base), sets=(empty,), out=tmp_path / "out", **SETTINGS)
    with pytest.raises(DataError, match="the split is empty"):
        sft.read_inputs(config)


def test_a_set_without_a_row_of_the_tasks_is_refused(base: Path, tmp_path: Path) -> None:
    with rows.write_set(tmp_path / "set", {}) as writer:
        writer.add(rows.make_table([toy_row(id="1", split="train", task="end", prompt="Done?", completion=" yes")]))
    config = FineTuneConfig(base=str(base), sets=(tmp_path / "set",), out=tmp_path / "out", **SETTINGS)
    with pytest.raises(DataError, match="no row belongs to a task with a weight above zero"):
        sft.read_inputs(config.model_copy(update={"tasks": {"route": 1.0, "end": 0.0}}))


def test_an_unreachable_tracking_server_is_said_within_seconds(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    began = time.monotonic()
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1: the tracking server or store cannot be used"):
        sft.train(trained.config.model_copy(update={"out": trained.home / "none"}), resume=False)
    assert time.monotonic() - began < 60
    assert not (trained.home / "none").exists()


def test_two_trainings_do_not_write_to_one_folder(base: Path, set_folder: Path, tmp_path: Path) -> None:
    with (
        lock_work(tmp_path / "a.work", "starter"),
        pytest.raises(ConfigError, match=r"another process .\d+. is training here"),
    ):
        _train_command(tmp_path, "--set", str(set_folder), "--base", str(base), "--out", str(tmp_path / "a"))


def _train_command(home: Path, *arguments: str) -> None:
    train.main([str(_config_file(home)), "--home", str(home), *arguments], standalone_mode=False)
