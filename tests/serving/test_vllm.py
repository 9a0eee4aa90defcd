"""The revelator behind Triton's vLLM backend: what `deploy --engine vllm` writes, and the executor's client.

Tests marked vllm ask the real vLLM in NVIDIA's own backend, inside the real Triton. The backend is third-party and no
part of this repository: TRITON_VLLM_BACKEND names its folder.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import text_format
from transformers import AutoTokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from revelator import registry, spans
from revelator.config import read_config
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.tasks import TASKS, QuestionInput, RelevanceInput, Task
from serving.commands.deploy import deploy
from serving.models import releases
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.triton import TritonModels, make_strings
from serving.models.vllm import FACTS_FILE, VllmFacts, VllmRevelator, read_facts
from serving.triton import control, repository
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer, read_ports
from serving.triton.vllm_repository import EngineArguments, _read_rank, measure_longest
from tests.causal import TINY
from tests.serving.models.test_endpoint_revelator import PROMPTS
from tests.serving.toy_model import write_adapter

BACKEND = Path(os.environ.get("TRITON_VLLM_BACKEND", Path(__file__).parents[3] / "shared" / "vllm" / "backend"))
ON_A_CPU = "dtype: float32\nenforce_eager: true\n"
QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"
DOCUMENTS = [RelevanceInput(QUESTION, "Port Velm", f"a harbour town {n}") for n in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`revelator_vllm` of a home folder of its own, made by the command from versions 1 and 2 over the base `tiny`."""
    home = tmp_path_factory.mktemp("vllm")
    registry.connect(home)
    for seed in (1, 2):
        registry.register_adapter(write_adapter(home / "adapters" / str(seed), TINY, seed, share=0.02))
    return lay_out(home)


def lay_out(home: Path, engine: str = "") -> Path:
    """By the command, for a CPU, with these lines in the engine's configuration."""
    (home / "engine.yaml").write_text(ON_A_CPU + engine)
    asked = ["--engine", "vllm", "--alias", "1", "--also", "2", "--engine-config", str(home / "engine.yaml")]
    asked += ["--home", str(home), "--json"]
    done = CliRunner().invoke(deploy, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["versions"] == {"1": "revelator_vllm-1", "2": "revelator_vllm-2"}
    return Path(told["folder"])


@pytest.fixture(scope="module")
def models(folder: Path, vllm: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Triton server that has loaded the folder by the real backend."""
    if not (BACKEND / "model.py").is_file():
        pytest.skip(f"no vLLM backend of Triton in {BACKEND}: name its folder by TRITON_VLLM_BACKEND")
    home = folder.parents[1]
    lay_out(home, f"environment: {vllm}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_VLLM_BACKEND", str(BACKEND))
        installation = find_installation(tmp_path_factory.mktemp("triton"), "vllm")
    log = home / "logs" / "triton.log"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("VLLM_CPU_KVCACHE_SPACE", "1"), ("VLLM_NO_USAGE_STATS", "1"), ("HF_HUB_OFFLINE", "1")):
            patch.setenv(name, value)
        with TritonServer(installation, folder.parent, read_ports("auto"), log) as server:
            control.load(home, server.url, repository.VLLM, 1)
            yield server.url


def test_the_repository_has_what_the_backend_reads(folder: Path) -> None:
    base = TINY
    config = text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())
    assert config.backend == "vllm" and config.model_transaction_policy.decoupled and config.max_batch_size == 0
    assert [i.name for i in config.input if not i.optional] == ["text_input"]
    engine, loras = (json.loads((folder / "1" / name).read_text()) for name in ("model.json", "multi_lora.json"))
    assert Path(engine["model"]) == base.resolve() and engine["max_loras"] == 2 and engine["max_lora_rank"] == 8
    for number, name in (("1", "revelator_vllm-1"), ("2", "revelator_vllm-2")):
        assert Path(loras[name]) == folder / "adapters" / number
        assert (folder / "adapters" / number / "adapter_model.safetensors").is_file()
    assert (engine["dtype"], engine["enforce_eager"], engine["enable_prefix_caching"]) == ("float32", True, True)
    assert engine["structured_outputs_config"] == {"backend": "auto"}
    tokenizer = AutoTokenizer.from_pretrained(base)
    assert tokenizer.decode([read_facts(folder / "1").label_tokens["yes"]]) == " yes"


@pytest.mark.parametrize(
    ("setting", "says"),
    [({"modules_to_save": ["lm_head"]}, "modules_to_save"), ({"use_dora": True}, "DoRA"), ({"r": 1024}, "rank 1024")],
)
def test_an_adapter_that_vllm_refuses_is_refused_before_it_is_deployed(
    tmp_path: Path, setting: dict, says: str
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8, "bias": "none", **setting}))
    with pytest.raises(ArtifactError, match=says) as caught:
        _read_rank(tmp_path)
    assert "revelator model merge" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("structured_outputs: outlines", "structured_outputs = 'outlines': .*'auto' or 'xgrammar'"),
        ("gpu_memory_utilization: 1.5", "gpu_memory_utilization = 1.5"),
        ("tensor_parallel_size: 0", "tensor_parallel_size = 0"),
        ("environment: /nowhere", "environment = .*no virtual environment: it has no bin/activate"),
        ("max_lora_rank: 8", "max_lora_rank = 8: there is no such field"),
    ],
)
def test_engine_arguments_that_vllm_or_a_plan_cannot_live_with_are_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "engine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=says):
        read_config(tmp_path / "engine.yaml", EngineArguments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_model_len: 999999999", "max_model_len = 999999999: the base reads 2048 tokens"),
        ("tensor_parallel_size: 64", "tensor_parallel_size = 64: torch sees [0-9]+ GPUs"),
    ],
)
def test_engine_arguments_that_the_base_or_the_machine_cannot_meet_are_refused_by_the_command(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "engine.yaml").write_text(text)
    asked = ["--engine", "vllm", "--alias", "1", "--engine-config", str(tmp_path / "engine.yaml")]
    asked += ["--home", str(tmp_path)]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder.parents[1] / 'mlflow.db'}")
    with pytest.raises(ConfigError, match=says):
        CliRunner().invoke(deploy, asked, catch_exceptions=False)
    assert not list(tmp_path.rglob(FACTS_FILE))


def test_places_of_our_own_engine_are_refused_for_vllm(tmp_path: Path) -> None:
    made = CliRunner().invoke(deploy, ["--engine", "vllm", "--home", str(tmp_path), "--gpus", "0"])
    assert made.exit_code == 2 and "--gpus and --instances place our own engine" in made.output


@pytest.mark.parametrize("positions", [1024, 32_768])
def test_the_longest_sequence_follows_from_the_tasks_and_not_from_the_bases_context(positions: int) -> None:
    longest = measure_longest(AutoTokenizer.from_pretrained(TINY), positions)
    assert longest == 1024 if positions == 1024 else 1_500 < longest < 3_000


@pytest.mark.vllm
@pytest.mark.timeout(1800)
async def test_labels_are_those_of_the_engine_by_version(models: str, folder: Path) -> None:
    """The route's and the documents' probabilities of versions 1 and 2."""
    judged = [TASKS["relevance"].render(document) for document in DOCUMENTS]
    routed = [TASKS["route"].render(QuestionInput(QUESTION))]
    async with TritonModels(models) as channel:
        for version in (1, 2):
            engine = Engine(TINY, folder / "adapters" / str(version), threads=1)
            client = VllmRevelator(channel, read_facts(folder / "1"), version)
            for task, prompts in (("relevance", judged), ("route", routed)):
                expected = complete(engine, task, prompts)
                for theirs, ours in zip(await client.complete(task, prompts), expected, strict=True):
                    assert ours.text == theirs.text and ours.tokens_in == theirs.tokens_in
                    assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-3)


@pytest.mark.vllm
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("task", [task for task in TASKS.values() if task.language], ids=lambda task: task.name)
async def test_a_plan_of_any_language_is_held_to_it(models: str, folder: Path, task: Task) -> None:
    async with TritonModels(models) as channel:
        client = VllmRevelator(channel, read_facts(folder / "1"))
        with releases.use_choice(releases.VersionChoice()) as choice:
            [plan] = await client.complete(task.name, [PROMPTS[task.name]])
        assert task.parse_sound(plan.text) is not None and plan.tokens_out > 0 and not plan.degraded
        model_id = registry.resolve(registry.NAME, 1).model_id
        assert choice.versions() == {repository.VLLM: "1", "revelator": "1", spans.MODEL_ID: model_id} and model_id


@pytest.mark.vllm
@pytest.mark.timeout(1800)
async def test_what_the_backend_refuses_is_an_error_that_says_so(models: str, folder: Path) -> None:
    facts = read_facts(folder / "1")
    with pytest.raises(ConfigError, match="version 7 is not served by vLLM"):
        VllmRevelator(TritonModels(models), facts, 7)
    async with TritonModels(models) as channel:
        with pytest.raises(RevelatorError, match="LoRA other is not supported"):
            await channel.ask_stream(
                repository.VLLM,
                text_input=make_strings(["Who?"]),
                sampling_parameters=make_strings([json.dumps({"lora_name": "other"})]),
            )
        gone = VllmRevelator(channel, VllmFacts("other", {}, facts.label_tokens))
        with pytest.raises(RevelatorError, match="LoRA other is not supported"):
            await gone.complete("route", ["Who?", "Where?"])
        with pytest.raises(Unavailable, match="nowhere"):
            await channel.ask_stream("nowhere", text_input=make_strings(["Who?"]))


@pytest.mark.parametrize("option", [["--rollback"], ["--watch"], ["--canary", "10%"]])
def test_what_the_backend_cannot_do_is_refused_with_the_reason(tmp_path: Path, option: list[str]) -> None:
    done = CliRunner().invoke(deploy, ["--engine", "vllm", *option, "--home", str(tmp_path)])
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "Triton's vLLM backend reads its adapters once, when it is loaded" in said and "need a vLLM server" in said


def test_a_folder_without_facts_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="deploy --engine vllm"):
        read_facts(tmp_path)
