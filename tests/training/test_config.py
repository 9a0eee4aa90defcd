"""Configurations: each that ships loads; a wrong one is refused with field, value and reason."""

from pathlib import Path

import pytest
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from peft import get_peft_model
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from revelator.errors import ConfigError
from training.config import ACCELERATE, CONFIGS, TrainConfig, find_config, load_config
from training.launch import make_launch_arguments
from training.sft import make_lora

SHIPPED = sorted(CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_each_shipped_configuration_loads_and_its_resolved_form_loads_again(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    (tmp_path / "resolved.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "resolved.yaml") == config


def test_those_that_the_documents_name_ship() -> None:
    one_device = {"demo", "real", "tiny-cpu", "world", "logic", "tiny-gpu"}
    one_device |= {"qwen2.5-0.5b", "llama-3.2-1b", "llama-3.2-3b"}
    several = {"qwen2.5-0.5b-ddp", "llama-3.2-3b-fsdp", "qwen2.5-7b-qlora-ddp"}
    assert {p.stem for p in SHIPPED} == one_device | {
        "qwen2.5-7b-qlora",
        "grpo-tiny",
        "pretrain-tiny",
        "reader",
        "pretrain-minilm",
    } | several
    assert {p.stem for p in SHIPPED if load_config(p).processes > 1} == several
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
    assert (config.steps, config.base) == (3, "tiny")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_accelerate_launches_each_shipped_configuration_as_it_says(path: Path) -> None:
    config = load_config(path)
    parser = launch_command_parser()
    arguments, *_ = _validate_launch_command(
        parser.parse_args([*make_launch_arguments(config), "-m", "training.launch"])
    )
    assert arguments.num_processes == config.processes and arguments.num_machines == 1
    assert (bool(arguments.multi_gpu), bool(arguments.use_fsdp)) == (
        config.accelerate == "ddp",
        config.accelerate == "fsdp",
    )
    if config.processes > 1:
        started = prepare_multi_gpu_env(arguments)
        assert (started.get("FSDP_VERSION"), started.get("FSDP_AUTO_WRAP_POLICY")) == (
            ("2", "TRANSFORMER_BASED_WRAP") if config.accelerate == "fsdp" else (None, None)
        )


@pytest.mark.parametrize("path", sorted(ACCELERATE.glob("*.yaml")), ids=lambda p: p.stem)
def test_each_shipped_accelerate_configuration_is_one_of_accelerates_own(path: Path) -> None:
    cluster = ClusterConfig.from_yaml_file(str(path))  # refuses keys that it does not know
    assert cluster.num_machines == 1 and cluster.mixed_precision == "no" and not cluster.use_cpu
    assert path.stem in {load_config(config).accelerate for config in SHIPPED}


@pytest.mark.parametrize("path", [p for p in SHIPPED if load_config(p).stage == "sft"], ids=lambda p: p.stem)
def test_each_shipped_configuration_trains_all_seven_projections_of_its_bases_architecture(path: Path) -> None:
    config = load_config(path)
    assert isinstance(config, TrainConfig)
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    settings = Qwen2Config if config.base.startswith("Qwen/Qwen2.5-") else LlamaConfig
    assert config.base == "tiny" or config.base.startswith(("Qwen/Qwen2.5-", "meta-llama/Llama-3.2-"))
    base = AutoModelForCausalLM.from_config(settings(**size, num_key_value_heads=2, vocab_size=64))
    model = get_peft_model(base, make_lora(config))
    trained = {name.split(".lora_")[0].rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {f"{name}_proj" for name in ("q", "k", "v", "o", "gate", "up", "down")}


def test_an_accelerate_file_that_is_not_there_names_those_that_ship() -> None:
    with pytest.raises(ConfigError, match=r"accelerate = .fsdq.: no such file; those that ship: ddp, fsdp"):
        load_config(CONFIGS / "demo.yaml", accelerate="fsdq")
