"""The trainer's own parts: its loss is the model's, its scores are those of decoding, it keeps the best adapter; two
processes train what one does with twice the accumulation; 4-bit bases."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import mlflow
import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BloomConfig,
    CohereConfig,
    Gemma2Config,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    OPTConfig,
    Phi3Config,
    PreTrainedConfig,
)

from evaluation.publish.export import export_adapter
from revelator import registry
from revelator.artifact import ADAPTER, ADAPTER_WEIGHTS, BASE, MERGED, read_base_fingerprints, verify_adapter
from revelator.errors import ArtifactError, ConfigError
from revelator.files import sha256_file
from revelator.fingerprints import FILE, Fingerprints
from revelator.folders import MANIFEST
from revelator.rows import read_split, sample_rows
from revelator.tasks import TASKS
from serving.models.adapters import Adapter
from serving.models.engine import Engine
from tests.training.toy import write_adapter
from training import sft
from training.base_model import check_base, choose_precision, has_bf16_units
from training.checkpoints import BEST
from training.config import FineTuneConfig
from training.sft import TaskTrainer, project_only, read_best
from training.tracking import ProgressCallback

PROGRAM = Path(sys.executable).with_name("revelator")
SETTINGS = {
    "steps": 6,
    "batch_size": 4,
    "learning_rate": 1e-3,
    "log_every": 1,
    "threads": 1,
    "evaluation": {"every": 6, "rows_per_task": 3},
}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
GATED = SIZE | {"intermediate_size": 48, "num_key_value_heads": 2}
ARCHITECTURES = (
    LlamaConfig(**GATED, tie_word_embeddings=True),
    Phi3Config(**GATED, pad_token_id=0),
    Gemma2Config(**GATED, head_dim=8, query_pre_attn_scalar=8),  # caps its logits
    CohereConfig(**GATED),  # scales its logits
    OPTConfig(**SIZE, ffn_dim=48, word_embed_proj_dim=32),
    GPT2Config(n_embd=32, n_layer=2, n_head=4),
    GPTNeoXConfig(**SIZE, intermediate_size=48),
    BloomConfig(hidden_size=32, n_layer=2, n_head=4),
)


@pytest.fixture(scope="module")
def home(empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_store, home)
    return home


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("REVELATOR_HOME", str(home))


def toy_trainer(base: Path, set_folder: Path, folder: Path, **changes: object) -> TaskTrainer:
    config = FineTuneConfig(base=str(base), sets=(set_folder,), out=folder / "out", **SETTINGS | changes)
    return sft.make_trainer(config, sft.read_inputs(config), ProgressCallback(Console(), active=False))


def write_architecture(settings: PreTrainedConfig, base: Path, folder: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(base)
    settings.vocab_size = len(tokenizer)
    settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = None, tokenizer.eos_token_id, 0
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(settings).to(torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("settings", ARCHITECTURES, ids=lambda s: s.model_type)
def test_any_causal_lm_trains_by_its_own_loss_through_its_linear_layers(
    settings: PreTrainedConfig, base: Path, set_folder: Path, tmp_path: Path
) -> None:
    trainer = toy_trainer(write_architecture(settings, base, tmp_path / "base"), set_folder, tmp_path)
    batch = next(iter(trainer.get_train_dataloader()))
    own = trainer.model.get_base_model()
    with torch.no_grad():
        whole = own(**{k: v for k, v in batch.items() if k != "labels"}, use_cache=False).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    wanted = torch.nn.functional.cross_entropy(whole[labels != -100], labels[labels != -100])
    loss = trainer.compute_loss(trainer.model, dict(batch))
    torch.testing.assert_close(loss, wanted, rtol=1e-5, atol=1e-6)

    loss.backward()
    trained = {name: p.grad for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name and "lm_head" not in name for name in trained)
    assert all(grad.abs().sum() > 0 for name, grad in trained.items() if "lora_B" in name)
    assert trainer.evaluate()["eval_score"] <= 1


def test_logits_are_those_of_the_learnt_positions_and_whole_again_afterwards(base: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    ids = torch.arange(2, 14).view(2, 6)
    learnt = torch.zeros(2, 5, dtype=torch.bool)
    learnt[0, 3:] = learnt[1, 2] = True
    whole = model(ids).logits
    with project_only(model, learnt):
        torch.testing.assert_close(model(ids).logits, whole[:, :-1][learnt])
    torch.testing.assert_close(model(ids).logits, whole)


def test_a_score_is_the_share_that_decoding_writes_as_gold(base: Path, set_folder: Path, tmp_path: Path) -> None:
    config = FineTuneConfig(
        base=str(base),
        sets=(set_folder,),
        out=tmp_path / "a",
        **SETTINGS | {"steps": 50, "learning_rate": 1e-2},
        tasks={"refine": 1, "route": 1},
    )
    made = sft.train(config, resume=False)
    assert made
    engine = Engine(base, tmp_path / "a", threads=1)
    rows = sample_rows([row for row in read_split(set_folder, "dev") if row.task in config.tasks], 3)
    for task in config.tasks:
        mine = [row for row in rows if row.task == task]
        prompts = [row.prompt for row in mine]
        if labels := TASKS[task].labels:
            written = [max(p, key=lambda label: p[label]) for p in engine.judge_labels(prompts, labels)]
        else:
            written = [w.text for w in engine.generate(prompts, max_new_tokens=40)]
        right = [text == row.completion.strip() for text, row in zip(written, mine, strict=True)]
        step = made["figures"]["best/step"]
        scores = mlflow.MlflowClient().get_metric_history(made["run_id"], f"dev/score_{task}")
        assert next(m.value for m in scores if m.step == step) == pytest.approx(sum(right) / len(right))


def test_the_adapter_of_the_best_mean_score_is_kept_and_of_equal_scores_that_of_lower_loss(
    base: Path, set_folder: Path, tmp_path: Path
) -> None:
    trainer = toy_trainer(base, set_folder, tmp_path)
    kept = []
    for score, loss in ((0.5, 1.0), (0.4, 0.1), (0.5, 0.9), (0.5, 0.9), (0.6, 2.0)):
        with torch.no_grad():
            next(p for p in trainer.model.parameters() if p.requires_grad).add_(1.0)
        trainer._save_if_best({"eval_score": score, "eval_loss": loss})
        kept.append(sha256_file(trainer.work / BEST / ADAPTER_WEIGHTS))
    assert kept[0] == kept[1] and kept[2] == kept[3] and len(set(kept)) == 3
    assert read_best(trainer.work) == {"score": 0.6, "loss": 2.0, "step": 0}


@pytest.mark.parametrize("size", [{}, {"batch_tokens": 1500, "max_length": 256}], ids=["rows", "tokens"])
def test_two_processes_train_what_one_does_with_twice_the_accumulation(
    size: dict[str, int], base: Path, set_folder: Path, tmp_path: Path, home: Path
) -> None:
    """Within 1e-5 in each loss and 1e-4 in each weight, of magnitude 0.1: sums of floats in another order."""
    (tmp_path / "two.yaml").write_text(json.dumps(SETTINGS | size))
    command = [str(PROGRAM), "train", str(tmp_path / "two.yaml"), "--processes", "2", "--home", str(home), "--json"]
    command += ["--set", str(set_folder), "--base", str(base), "--out", str(tmp_path / "two")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)
    config = FineTuneConfig(
        base=str(base), sets=(set_folder,), out=tmp_path / "one", gradient_accumulation=2, **SETTINGS | size
    )
    one = sft.train(config, resume=False)
    assert one
    registry.connect(home)
    for name in ("train/loss", "train/grad_norm", "train/tokens", "dev/loss"):
        curves = [mlflow.MlflowClient().get_metric_history(run["run_id"], name) for run in (one, two)]
        assert [p.value for p in curves[0]] == pytest.approx([p.value for p in curves[1]], rel=1e-5), name
    weights = [load_file(Path(run["adapter"]) / ADAPTER_WEIGHTS) for run in (one, two)]
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-4)


def test_a_step_by_tokens_is_the_same_in_any_number_of_parts(
    base: Path, set_folder: Path, tmp_path: Path, home: Path
) -> None:
    registry.connect(home)
    asked = {"base": str(base), "sets": (set_folder,), "batch_tokens": 1500, "max_length": 256}
    made = []
    for parts in (1, 4):
        config = FineTuneConfig(**SETTINGS | asked, gradient_accumulation=parts, out=tmp_path / f"{parts}")
        made.append(sft.train(config, resume=False))
    for name in ("train/loss", "train/grad_norm", "train/tokens", "dev/loss"):
        curves = [mlflow.MlflowClient().get_metric_history(run["run_id"], name) for run in made if run]
        assert [p.value for p in curves[0]] == pytest.approx([p.value for p in curves[1]], rel=1e-5), name
    weights = [load_file(tmp_path / f"{parts}" / ADAPTER_WEIGHTS) for parts in (1, 4)]
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-4)


def test_an_epoch_shows_each_row_once_and_steps_end_it_earlier(base: Path, set_folder: Path, tmp_path: Path) -> None:
    asked = {"base": str(base), "sets": (set_folder,), "out": tmp_path / "a", "tasks": {"end": 1.0}, "epochs": 2}
    for size in ({"batch_tokens": 1500}, {"batch_size": 20}):
        config = FineTuneConfig(**SETTINGS | asked | size | {"steps": None})
        inputs = sft.read_inputs(config)
        assert sorted(row for step in inputs.steps for row in step) == sorted([*range(60)] * 2)
        fewer = sft.read_inputs(config.model_copy(update={"steps": 3}))
        assert fewer.steps == inputs.steps[:3] or "batch_size" in size
        assert len(fewer.steps) == 3
        assert "steps of" in inputs.describe(config) and "2 epochs" in inputs.describe(config)


def test_minutes_end_a_training_and_lower_its_rate_as_steps_do(
    base: Path, set_folder: Path, tmp_path: Path, home: Path
) -> None:
    trainer = toy_trainer(base, set_folder, tmp_path, minutes=2.0, warmup=0.0)
    trainer.create_optimizer()
    scheduler = trainer.create_scheduler(6)
    assert trainer.limit and scheduler.get_last_lr()[0] == pytest.approx(1e-3)
    for seconds, left in ((0, 5 / 6), (90, 1 / 4), (120, 0)):
        trainer.limit.seconds = seconds
        scheduler.step()
        assert scheduler.get_last_lr()[0] == pytest.approx(1e-3 * left)

    config = FineTuneConfig(
        base=str(base), sets=(set_folder,), out=tmp_path / "short", minutes=1e-6, **SETTINGS | {"steps": 1000}
    )
    made = sft.train(config, resume=False)
    assert made and made["figures"]["best/step"] == 1


def test_a_resumed_training_has_the_minutes_that_are_left(
    base: Path, set_folder: Path, tmp_path: Path, home: Path
) -> None:
    trainer = toy_trainer(base, set_folder, tmp_path, minutes=100.0, save_every=2)
    assert trainer.limit
    trainer.limit.seconds = 50.0 * 60  # as of a run before
    trainer.train()
    resumed = toy_trainer(base, set_folder, tmp_path, minutes=100.0, save_every=2)
    resumed.train(str(tmp_path / "out.work" / "checkpoint-4"))
    assert resumed.limit and 50 * 60 < resumed.limit.seconds < 51 * 60


def test_bf16_is_refused_on_a_cpu_without_units_for_it(
    base: Path, set_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = FineTuneConfig(base=str(base), sets=(set_folder,), out=tmp_path / "a", precision="bf16", **SETTINGS)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert choose_precision(config) == torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    assert choose_precision(config.model_copy(update={"precision": "auto"})) == torch.float32
    with pytest.raises(ConfigError, match="this device has no units for bf16"):
        sft.train(config, resume=False)


@pytest.mark.skipif(not has_bf16_units(), reason="this device has no units for bf16")
def test_a_training_in_bf16_learns_weights_of_fp32(base: Path, set_folder: Path, tmp_path: Path, home: Path) -> None:
    losses = []
    for precision in ("fp32", "bf16"):
        config = FineTuneConfig(
            base=str(base), sets=(set_folder,), out=tmp_path / precision, precision=precision, **SETTINGS
        )
        made = sft.train(config, resume=False)
        assert made
        losses.append(made["figures"]["train/loss"])
        weights = load_file(tmp_path / precision / ADAPTER_WEIGHTS)
        assert {value.dtype for value in weights.values()} == {torch.float32}
    assert losses[0] != losses[1] and losses[0] == pytest.approx(losses[1], rel=0.02)


def test_an_adapter_of_a_4_bit_base_is_served_and_merged_on_the_bf16_one(
    base: Path, set_folder: Path, tmp_path: Path
) -> None:
    config = FineTuneConfig(
        base=str(base),
        sets=(set_folder,),
        out=tmp_path / "a",
        quantization="nf4",
        **SETTINGS | {"learning_rate": 1e-2},
    )
    quantized = sft.make_trainer(config, sft.read_inputs(config), ProgressCallback(Console(), active=False)).model
    assert {p.dtype for n, p in quantized.named_parameters() if "q_proj.base_layer" in n} == {torch.uint8}
    made = sft.train(config, resume=False)
    assert made and made["figures"]["train/loss"] < 8
    verify_adapter(tmp_path / "a", base)

    record, _ = export_adapter(Adapter(tmp_path / "a"), "hf", tmp_path / "merged")
    assert record["base"]["name"] == str(base)
    assert read_base_fingerprints(tmp_path / "merged").unknown == ("toy",), "so base and set are called"
    merged, served = (
        load_file(path) for path in (tmp_path / "merged" / "model.safetensors", base / "model.safetensors")
    )
    assert {value.dtype for value in merged.values()} == {torch.bfloat16} and merged.keys() == served.keys()
    adapter = load_file(tmp_path / "a" / ADAPTER_WEIGHTS)
    name = "model.layers.0.self_attn.q_proj"
    a, b = (adapter[f"base_model.model.{name}.lora_{side}.weight"].float() for side in "AB")
    delta = merged[f"{name}.weight"].float() - served[f"{name}.weight"].float()
    torch.testing.assert_close(delta, b @ a * 2, rtol=0.02, atol=2e-3)  # alpha / rank is 2; bf16 steps near 0.5
    assert (b @ a).abs().max() > 5e-3

    whole, parts = Engine(tmp_path / "merged", threads=1), Engine(base, tmp_path / "a", threads=1)
    prompts = [row.prompt for row in read_split(set_folder, "dev")[:6]]
    for one, other in zip(*(e.judge_labels(prompts, ("yes", "no")) for e in (whole, parts)), strict=True):
        assert one == pytest.approx(other, abs=0.05)


def test_a_merged_model_lists_what_base_and_adapter_have_seen_and_another_list_is_not_believed(
    base: Path, tmp_path: Path
) -> None:
    known = Path(shutil.copytree(base, tmp_path / "base"))
    adapter = write_adapter(tmp_path / "adapter", known)
    for folder, kind, question in ((known, BASE, "Who built Ost?"), (adapter, ADAPTER, "Who sold Ost?")):
        Fingerprints.of([question]).write(folder)
        kind.write_manifest(folder, kind.find_manifest(folder))
    out = tmp_path / "merged"
    export_adapter(Adapter(adapter), "hf", out, str(known))
    assert {"model.safetensors", "tokenizer.json", FILE} <= MERGED.read_manifest(out, verify=True)["files"].keys()
    seen = read_base_fingerprints(out)
    assert seen.has_question("Who built Ost?") and seen.has_question("Who sold Ost?") and not seen.unknown

    Fingerprints.of(["Who burnt Ost?"]).write(out)
    with pytest.raises(ArtifactError, match="has changed since it was built"):
        read_base_fingerprints(out)
    (out / MANIFEST).unlink()
    assert read_base_fingerprints(out).unknown == ("merged",)


def test_a_base_whose_weights_are_stored_in_4_bits_is_refused(base: Path, set_folder: Path, tmp_path: Path) -> None:
    config = FineTuneConfig(base=str(base), sets=(set_folder,), out=tmp_path / "a", quantization="nf4", **SETTINGS)
    folder = tmp_path / "small"
    sft.load_base(config, base, torch.float32).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.save_pretrained(folder)
    with pytest.raises(ArtifactError, match=r"stored quantised \(bitsandbytes\).*bf16 weights alone"):
        check_base(folder, tokenizer, longest=9, largest_id=9)
