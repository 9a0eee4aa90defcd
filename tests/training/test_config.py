"""Configurations: each that ships loads; a wrong one is refused with field, value and reason."""

from pathlib import Path

import pytest

from revelator.errors import ConfigError
from training.config import CONFIGS, find_config, load_config

SHIPPED = sorted(CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_each_shipped_configuration_loads_and_its_resolved_form_loads_again(path: Path, tmp_path: Path) -> None:
    config = load_config(path)
    (tmp_path / "resolved.yaml").write_text(config.to_yaml())
    assert load_config(tmp_path / "resolved.yaml") == config


def test_the_four_that_the_documents_name_ship() -> None:
    assert {"demo", "tiny-cpu", "real", "qwen2.5-0.5b"} <= {p.stem for p in SHIPPED}
    assert find_config("demo") == CONFIGS / "demo.yaml"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("steps: 0\nlearning_rate: 1.0e-3", r"steps: .*greater than or equal to 1 \(given: 0\)"),
        ("steps: 5", "learning_rate: Field required"),
        ("steps: 5\nlearning_rate: 1.0e-3\nlora: {rank: many}", r"lora\.rank: .*\(given: 'many'\)"),
        ("steps: 5\nlearning_rate: 1.0e-3\nstepps: 5", r"stepps: Extra inputs"),
        ("steps: 5\nlearning_rate: 1.0e-3\ntasks: {translate: 1}", "no such task: translate"),
        ("steps: 5\nlearning_rate: 1.0e-3\ntasks: {route: 0}", "one must be above zero"),
        ("- a\n- list", "mapping of fields"),
        ("a: [", "no valid YAML"),
    ],
)
def test_a_wrong_configuration_names_field_value_and_reason(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_config(path)
    assert str(path) in str(caught.value)


def test_an_unknown_name_lists_what_ships() -> None:
    with pytest.raises(ConfigError, match="demo"):
        find_config("dmeo")


def test_options_replace_fields_and_none_leaves_them(tmp_path: Path) -> None:
    config = load_config(CONFIGS / "demo.yaml", steps=3, base=None)
    assert (config.steps, config.base) == (3, "tiny")
