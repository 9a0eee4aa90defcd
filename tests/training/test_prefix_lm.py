"""MiniLM as a prefix language model trains as other bases do: fine-tuned by LoRA, and made in a run that resumes."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from revelator.artifact import read_base_fingerprints, verify_adapter
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_file
from revelator.fingerprints import Fingerprints
from revelator.prefix_lm.model import load_minilm_tokenizer
from revelator.rows import read_split
from serving.models.engine import Engine
from tests.prefix_lm import make_model, write_prefix_base
from tests.training.toy import write_set
from training import pretrain, sft
from training.config import FineTuneConfig, PretrainConfig
from training.mixture import weigh_rows
from training.pretrain import collate, compute_completion_loss
from training.tokens import tokenise


def test_a_prompt_ends_with_the_boundary_and_its_completion_with_the_end(set_folder: Path) -> None:
    tokenizer = load_minilm_tokenizer()
    rows = list(read_split(set_folder, "dev"))
    for row, tokens in zip(rows, tokenise(rows, tokenizer), strict=True):
        prompt = tokens.input_ids[: tokens.prompt_length]
        assert prompt == tokenizer(row.prompt)["input_ids"] and prompt.count(tokenizer.sep_token_id) == 1
        assert tokens.labels[tokens.prompt_length] != -100 and tokens.input_ids[-1] == tokenizer.eos_token_id


def test_nothing_of_a_prompt_is_predicted_and_only_what_is_predicted_is_projected(set_folder: Path) -> None:
    tokenizer, model = load_minilm_tokenizer(), make_model()
    rows = weigh_rows(list(read_split(set_folder, "dev"))[:6], tokenizer, 448)
    for row in rows:
        boundary = row.tokens.tolist().index(tokenizer.sep_token_id)
        assert not row.weights[: boundary + 1].any() and (row.weights[boundary + 2 :] > 0).all()
    tokens, weights = collate(rows, tokenizer.pad_token_id)
    with torch.no_grad():
        logits = model(input_ids=tokens[:, :-1]).logits.flatten(0, 1)
        losses = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten(), reduction="none")
        expected = (losses * weights[:, 1:].flatten()).sum() / weights[:, 1:].sum()
        torch.testing.assert_close(compute_completion_loss(model, tokens, weights), expected)


def test_lora_by_the_fine_tuning_stage_gives_an_adapter_that_the_engine_serves(
    set_folder: Path, empty_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(empty_store, tmp_path)
    monkeypatch.setenv("REVELATOR_HOME", str(tmp_path))
    base = write_prefix_base(tmp_path / "base")
    config = FineTuneConfig(
        base=str(base),
        sets=(set_folder,),
        out=tmp_path / "adapter",
        steps=2,
        batch_size=4,
        learning_rate=1e-2,
        threads=1,
        evaluation={"every": 2, "rows_per_task": 2},
    )
    made = sft.train(config, resume=False)
    assert made and math.isfinite(made["figures"]["train/loss"])
    verify_adapter(tmp_path / "adapter", base)
    prompts = [row.prompt for row in read_split(set_folder, "dev")[:2]]
    plain, tuned = Engine(base, threads=1), Engine(base, tmp_path / "adapter", threads=1)
    pairs = zip(*(e.judge_labels(prompts, ("yes", "no")) for e in (plain, tuned)), strict=True)
    assert max(abs(one["yes"] - other["yes"]) for one, other in pairs) > 1e-3


def test_a_model_that_does_not_end_is_scored_to_its_last_position(set_folder: Path) -> None:
    """One at its beginning writes on and on; behind a long prompt it has fewer positions than a completion may have."""
    row = next(row for row in read_split(set_folder, "dev") if row.task == "refine")
    long = replace(row, prompt=row.prompt.replace("Question: ", "Question: " + "who led Ost and " * 90))
    model = make_model()
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    assert pretrain.score_exact(model, load_minilm_tokenizer(), [row, long]) == 0.0


def test_a_base_is_made_from_minilm_and_a_run_that_is_resumed_ends_in_the_same(
    set_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretrain, "score_tasks", lambda *_, **__: {"route": 0.0})
    common = {"stage": "pretrain", "base": "minilm", "sets": (set_folder,), "steps": 3, "rows": 30}
    common |= {"batch_tokens": 448, "threads": 1, "shares": {"route": 0.5, "translate_bnf": 0.5}}
    straight = pretrain.train(PretrainConfig(**common, out=tmp_path / "straight"), resume=False)
    assert straight["steps"] == 3
    assert json.loads((tmp_path / "straight" / "manifest.json").read_text())["tokens"] == straight["tokens"]

    assert read_base_fingerprints(tmp_path / "straight").unknown == ("all-MiniLM-L6-v2", "toy")
    asked = write_set(tmp_path / "more", seen=Fingerprints.of(["Who sold Ost?"]))
    further = common | {"base": str(tmp_path / "straight"), "sets": (asked,), "steps": 1}
    pretrain.train(PretrainConfig(**further, out=tmp_path / "further"), resume=False)
    seen = read_base_fingerprints(tmp_path / "further")
    assert seen.has_question("Who sold Ost?") and seen.unknown == ("all-MiniLM-L6-v2", "toy")

    broken = PretrainConfig(**common, out=tmp_path / "resumed", save_minutes=1e-9)  # a checkpoint after each step
    saved = pretrain.save_base

    def stop_at_step_2(model: object, tokenizer: object, out: Path, card: dict, seen: Fingerprints) -> None:
        if card["steps"] == 2:
            raise KeyboardInterrupt
        saved(model, tokenizer, out, card, seen)

    with monkeypatch.context() as patch:
        patch.setattr(pretrain, "save_base", stop_at_step_2)
        with pytest.raises(KeyboardInterrupt):
            pretrain.train(broken, resume=False)
    with pytest.raises(ConfigError, match="rows: 30, now 31"):
        pretrain.train(broken.model_copy(update={"rows": 31}), resume=True)
    assert pretrain.train(broken, resume=True) == straight | {"base": str(tmp_path / "resumed")}
    digests = {sha256_file(tmp_path / name / "model.safetensors") for name in ("straight", "resumed")}
    assert len(digests) == 1
    assert Engine(tmp_path / "resumed", threads=1).max_positions == 512


def test_a_base_of_another_kind_is_refused(base: Path, set_folder: Path, tmp_path: Path) -> None:
    common = {"stage": "pretrain", "sets": (set_folder,), "steps": 1, "shares": {"route": 1.0}}
    config = PretrainConfig(**common, base=str(base), out=tmp_path / "out")
    with pytest.raises(ArtifactError, match="this base is none"):
        pretrain.train(config, resume=False)
    assert not (tmp_path / "out").exists()
