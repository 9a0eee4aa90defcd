"""GRPO end to end on a toy: the adapter that it leaves, its curves, resumption after kill -9, and every refusal."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlflow
import psutil
import pytest

from revelator import registry
from revelator.artifact import verify_adapter
from revelator.errors import ArtifactError, ConfigError, DataError
from revelator.files import sha256_file
from revelator.fingerprints import FILE
from tests.training.toy import write_adapter, write_base
from training import grpo, sft
from training.config import FineTuneConfig, GrpoConfig, load_config
from training.grpo import read_inputs

PROGRAM = Path(sys.executable).with_name("revelator")
WEIGHTS = "adapter_model.safetensors"
LEARNT = {"steps": 30, "batch_size": 8, "learning_rate": 1e-2, "threads": 1, "evaluation": {"every": 30}}
SETTINGS = {
    "stage": "grpo",
    "steps": 5,
    "batch_size": 16,
    "completions": 4,
    "learning_rate": 1e-3,
    "max_new_tokens": 24,
    "kl": 0.01,
    "threads": 1,
    "log_every": 1,
    "save_every": 2,
    "evaluation": {"every": 5, "rows_per_task": 4},
}


@dataclass(frozen=True)
class Trained:
    home: Path
    before: Path
    config: GrpoConfig
    result: dict


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture(scope="module")
def trained(
    base: Path, set_folder: Path, empty_store: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Trained]:
    """An adapter that has learnt enough to be right now and then, and what GRPO made of it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REVELATOR_HOME", str(home))
        before = home / "adapters" / "before"
        sft.train(FineTuneConfig(base=str(base), sets=(set_folder,), out=before, **LEARNT), resume=False)
        config = GrpoConfig(
            base=str(base), sets=(set_folder,), adapter=before, out=home / "adapters" / "after", **SETTINGS
        )
        result = grpo.train(config, resume=False)
        assert result
        yield Trained(home, before, config, result)


def test_the_adapter_is_a_lora_of_the_same_form_with_other_weights_and_a_version_of_its_own(
    trained: Trained, base: Path
) -> None:
    after = Path(trained.result["adapter"])
    manifest = verify_adapter(after, base)
    assert {p.name for p in after.iterdir()} == {p.name for p in trained.before.iterdir()}
    assert sha256_file(after / WEIGHTS) != sha256_file(trained.before / WEIGHTS)
    assert (after / FILE).read_bytes() == (trained.before / FILE).read_bytes(), "both learned from one set"
    assert manifest.run_id == trained.result["run_id"] and trained.result["version"] == 2
    config = load_config(after / "config.yaml")
    assert isinstance(config, GrpoConfig) and config.adapter == trained.before


def test_the_run_holds_the_curves_of_every_reward_and_of_the_plans_written_for_dev_rows(trained: Trained) -> None:
    registry.connect(trained.home)
    run = mlflow.get_run(trained.result["run_id"])
    curve = mlflow.MlflowClient().get_metric_history(run.info.run_id, "rollouts/reward")
    assert [point.step for point in curve] == [1, 2, 3, 4, 5] and curve[-1].value > 0
    names = {"valid", "binding", "entities", "leaves", "silent_groups", "kl", "entropy"}
    assert {f"rollouts/{name}" for name in names} <= set(run.data.metrics)
    plans = mlflow.MlflowClient().get_metric_history(run.info.run_id, "dev/exact")
    assert [point.step for point in plans] == [0, 5]
    assert run.data.params["adapter_digest"] == sha256_file(trained.before / "manifest.json")


def test_resuming_what_is_finished_trains_nothing_again(trained: Trained) -> None:
    before = sha256_file(Path(trained.result["adapter"]) / "manifest.json")
    again = grpo.train(trained.config, resume=True)
    assert again and again["version"] == trained.result["version"]
    assert sha256_file(Path(trained.result["adapter"]) / "manifest.json") == before


def test_a_run_that_was_killed_resumes_to_the_same_adapter(
    trained: Trained,
    empty_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    shutil.copy(empty_store, tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(json.dumps(SETTINGS))
    command = [str(PROGRAM), "train", str(path), "--home", str(tmp_path), "--out", str(tmp_path / "a"), "--json"]
    command += ["--set", str(trained.config.sets[0]), "--base", trained.config.base]
    command += ["--adapter", str(trained.before)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("step 3/5"):
                family = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
                for member in family:
                    member.kill()
                psutil.wait_procs(family)
                break
        process.stderr.close()
    assert not (tmp_path / "a").exists()
    monkeypatch.setenv("REVELATOR_HOME", str(tmp_path))
    assert grpo.train(load_config(tmp_path / "a.work" / "config.yaml"), resume=True)
    said = capfd.readouterr().err
    assert "going on from" in said and "checkpoint-2" in said
    assert sha256_file(tmp_path / "a" / WEIGHTS) == sha256_file(Path(trained.result["adapter"]) / WEIGHTS)


def test_what_does_not_fit_is_refused_before_anything_is_loaded(base: Path, set_folder: Path, tmp_path: Path) -> None:
    def inputs(**changes: object) -> object:
        given = {"base": str(base), "sets": (set_folder,), "adapter": adapter, "out": tmp_path / "out"}
        return read_inputs(GrpoConfig(**SETTINGS | given | changes))

    adapter = write_adapter(tmp_path / "adapter", base)
    with pytest.raises(ConfigError, match="--adapter must be given"):
        inputs(adapter=None)
    with pytest.raises(DataError, match="no training row of translate_bnf fits"):
        inputs(max_prompt=16)
    with pytest.raises(DataError, match="the answers cannot be read"):
        inputs(world=tmp_path)
    with pytest.raises(ConfigError, match="`executed` needs a world"):
        inputs(rewards={"executed": 1, "valid": 1})
    other = write_base(tmp_path / "other", seed=9)
    with pytest.raises(ArtifactError, match=r"base: sha256 .* when the adapter was trained"):
        inputs(base=str(other))
    with pytest.raises(ArtifactError, match="reads 512 tokens at most"):
        inputs(max_new_tokens=500)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\ncompletions: 5", "completions must divide the 32 rollouts"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nrewards: {pretty: 1}", "no such reward: pretty"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nrewards: {valid: -1}", "rewards = .*: .*a weight below 0"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nrewards: {valid: .inf}", "rewards = .*: .*not finite"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nrewards: {valid: .nan}", "rewards = .*: .*not finite"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nrewards: {}", "rewards = .*: .*none above"),
        ("stage: dpo\nsteps: 1\nlearning_rate: 1.0e-4", "stage = 'dpo': must be one of sft, grpo"),
        ("stage: grpo\nsteps: 1\nlearning_rate: 1.0e-4\nlora: {rank: 8}", "lora = .*no such field"),
    ],
)
def test_a_wrong_configuration_names_field_and_reason(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_config(path)
