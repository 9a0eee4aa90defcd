"""Configurations: each that ships loads; a wrong one is refused with field, value and reason."""

import itertools
import os
from pathlib import Path

import pytest
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env

from revelator.errors import ConfigError
from training.config import ACCELERATE, CONFIGS, FineTuneConfig, find_config, load_config
from training.launch import make_launch_arguments

SHIPPED = sorted(CONFIGS.glob("*.yaml"))
HUB_BASES = [path for path in SHIPPED if "/" in str(getattr(load_config(path), "base", ""))]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_each_shipped_configuration_loads_and_its_resolved_form_loads_again(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    (tmp_path / "resolved.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "resolved.yaml") == config


def test_those_that_the_documents_name_ship() -> None:
    small = {"demo", "real", "cpu", "world", "logic", "select", "explicit", "gpu", "grpo", "pretrain", "reader"}
    assert {p.stem for p in SHIPPED} == small | {path.stem for path in HUB_BASES}
    for path in HUB_BASES:
        assert f"`{path.stem}`" in (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert find_config("demo") == CONFIGS / "demo.yaml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps: 0\nlearning_rate: 1.0e-3", "steps = 0: .*greater than or equal to 1"),
        ("steps: 5", "learning_rate: this field is needed"),
        ("steps: 5\nlearning_rate: 1.0e-3\nlora: {rank: many}", r"lora\.rank = 'many': "),
        ("steps: 5\nlearning_rate: 1.0e-3\nstepps: 5", "stepps = 5: there is no such field"),
        ("steps: 5\nlearning_rate: 1.0e-3\ntasks: {translate: 1}", "no such task: translate"),
        ("steps: 5\nlearning_rate: 1.0e-3\ntasks: {route: 0}", "none above zero"),
        ("minutes: 5\nlearning_rate: 1.0e-3", "neither steps nor epochs"),
        (
            "epochs: 1\nlearning_rate: 1.0e-3\nbatch_tokens: 1000\ngradient_accumulation: 2",
            "batch_tokens = 1000 has no room for 2 rows .* of max_length = 512",
        ),
        ("stage: grpo\nsteps: 5\nlearning_rate: 1.0e-3\nsets: [a, b]", "sets = .*at most 1"),
        ("- a\n- list", "a mapping is needed"),
        ("a: [", "not YAML"),
    ],
)
def test_a_wrong_configuration_names_field_value_and_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_config(path)
    assert str(path) in str(caught.value) and "docs/configuration.md" in str(caught.value)


def test_an_unknown_name_lists_what_ships() -> None:
    with pytest.raises(ConfigError, match="demo"):
        find_config("dmeo")


def test_options_replace_fields_and_none_leaves_them(tmp_path: Path) -> None:
    config = load_config(CONFIGS / "demo.yaml", steps=3, base=None)
    assert (config.steps, config.base) == (3, "mini")


@pytest.mark.parametrize(
    ("processes", "accelerate"),
    [(2, None), (8, None), *itertools.product((1, 2, 8), ("ddp", "fsdp", "zero3"))],
)
def test_accelerate_launches_a_training_on_any_number_of_cards(processes: int, accelerate: str | None) -> None:
    plain = load_config(CONFIGS / "llama-3.2-3b.yaml")
    assert isinstance(plain, FineTuneConfig)
    accumulation = plain.accumulate_over(processes)
    changes = {"processes": processes, "accelerate": accelerate, "gradient_accumulation": accumulation}
    config = load_config(CONFIGS / "llama-3.2-3b.yaml", **changes)
    assert isinstance(config, FineTuneConfig) and config.global_batch == plain.global_batch
    parser = launch_command_parser()
    arguments, *_ = _validate_launch_command(
        parser.parse_args([*make_launch_arguments(config), "-m", "training.launch"])
    )
    assert arguments.num_processes == processes and arguments.num_machines == 1
    assert (bool(arguments.use_fsdp), bool(arguments.use_deepspeed)) == (accelerate == "fsdp", accelerate == "zero3")
    if accelerate in ("ddp", None):
        assert arguments.multi_gpu
    if accelerate == "zero3":
        assert (arguments.zero_stage, arguments.zero3_save_16bit_model) == (3, True)
    if accelerate == "fsdp":
        started = prepare_multi_gpu_env(arguments)
        assert (started["FSDP_VERSION"], started["FSDP_AUTO_WRAP_POLICY"]) == ("2", "TRANSFORMER_BASED_WRAP")


def test_threads_are_those_of_the_configuration_or_else_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def count(**changes: int) -> str:
        arguments = make_launch_arguments(load_config(CONFIGS / "demo.yaml", processes=2, **changes))
        return arguments[arguments.index("--num_cpu_threads_per_process") + 1]

    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert (count(threads=3), count()) == ("3", "7")
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert int(count()) == max(1, len(os.sched_getaffinity(0)) // 2)


@pytest.mark.parametrize(("processes", "accumulation"), [(1, 8), (2, 4), (3, 3), (8, 1), (16, 1)])
def test_more_processes_share_the_rows_of_a_step(processes: int, accumulation: int) -> None:
    config = load_config(CONFIGS / "qwen3-4b.yaml")
    assert isinstance(config, FineTuneConfig) and config.accumulate_over(processes) == accumulation


@pytest.mark.parametrize("path", sorted(ACCELERATE.glob("*.yaml")), ids=lambda p: p.stem)
def test_each_shipped_accelerate_configuration_is_one_of_accelerates_own(path: Path) -> None:
    cluster = ClusterConfig.from_yaml_file(str(path))  # refuses keys that it does not know
    assert cluster.num_machines == 1 and cluster.mixed_precision == "no" and not cluster.use_cpu


def test_an_accelerate_file_that_is_not_there_names_those_that_ship() -> None:
    with pytest.raises(ConfigError, match=r"accelerate = .fsdq.: no such file; those that ship: ddp, fsdp, zero3"):
        load_config(CONFIGS / "demo.yaml", accelerate="fsdq")
