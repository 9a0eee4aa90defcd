"""The planner that ships for llama.cpp: whole, small, and of the prompts and plan languages of this release."""

from pathlib import Path

import training
from revelator.artifact import GGUF
from revelator.plans.language import grammar_hash
from revelator.tasks import prompt_hash
from training.gguf import LORA_FILE

PLANNER = Path(training.__file__).parent / "planners" / "qwen2.5-coder-0.5b"


def test_the_planner_that_ships_is_whole_and_has_learned_what_is_asked_today() -> None:
    manifest = GGUF.read_manifest(PLANNER, verify=True)
    assert manifest["files"].keys() == {LORA_FILE, "README.md", "fingerprints.npz"}
    assert manifest["prompt_hash"] == prompt_hash(manifest["tasks"]) and manifest["grammar_hash"] == grammar_hash()
    assert (PLANNER / LORA_FILE).stat().st_size < 20_000_000
    assert manifest["base"]["sha256"][:8] in (PLANNER / "README.md").read_text()
