"""The revelator behind Triton's vLLM backend: what `deploy --engine vllm` writes, and the executor's client.

vLLM itself does not run here: a model of Triton's Python backend speaks the backend's protocol (`vllm_stand_in`).
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from google.protobuf import text_format
from transformers import AutoTokenizer
from tritonclient.grpc.model_config_pb2 import ModelConfig

from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.plans import check, parse
from revelator.tasks import TASKS, RelevanceInput, RouteInput, TranslateInput
from serving.commands.deploy import deploy
from serving.models import releases
from serving.models.engine import Engine
from serving.models.local import complete
from serving.models.triton import TritonModels, make_strings
from serving.models.vllm import VllmFacts, VllmRevelator, read_facts
from serving.triton import control, repository
from serving.triton.vllm_repository import _read_rank
from tests import conftest

STAND_IN = Path(__file__).parent / "vllm_stand_in" / "model.py"
QUESTION = "Who wrote the song that the ferry of Little Quay is named after?"
DOCUMENTS = [RelevanceInput(QUESTION, "Port Velm", f"a harbour town {n}") for n in range(4)]


@pytest.fixture(scope="module")
def folder(registered: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`revelator_vllm` of a home folder of its own, made by the command from versions 1 and 2."""
    home = tmp_path_factory.mktemp("vllm")
    store = f"sqlite:///{registered / 'mlflow.db'}"
    asked = ["--engine", "vllm", "--also", "2", "--home", str(home), "--tracking-uri", store, "--json"]
    done = CliRunner().invoke(deploy, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["versions"] == {"1": "revelator_vllm-1", "2": "revelator_vllm-2"}
    return Path(told["folder"])


@pytest.fixture(scope="module")
def models(folder: Path, served: conftest.Served) -> Iterator[str]:
    """The running server with the stand-in loaded from what was laid out; only the backend's name is another."""
    live = repository.repository_folder(served.home) / repository.VLLM
    shutil.copytree(folder, live)
    shutil.copyfile(STAND_IN, live / "1" / "model.py")
    config = (live / "config.pbtxt").read_text().replace('backend: "vllm"', 'backend: "python"')
    (live / "config.pbtxt").write_text(config.replace("KIND_MODEL", "KIND_CPU"))
    control.load(served.home, served.url, repository.VLLM, 1)
    yield served.url
    shutil.rmtree(live)


def test_the_repository_has_what_the_backend_reads(folder: Path, base: Path) -> None:
    config = text_format.Parse((folder / "config.pbtxt").read_text(), ModelConfig())
    assert config.backend == "vllm" and config.model_transaction_policy.decoupled and config.max_batch_size == 0
    assert [i.name for i in config.input if not i.optional] == ["text_input"]
    engine, loras = (json.loads((folder / "1" / name).read_text()) for name in ("model.json", "multi_lora.json"))
    assert Path(engine["model"]) == base.resolve() and engine["max_loras"] == 2 and engine["max_lora_rank"] == 8
    for number, name in (("1", "revelator_vllm-1"), ("2", "revelator_vllm-2")):
        assert Path(loras[name]) == folder / "adapters" / number
        assert (folder / "adapters" / number / "adapter_model.safetensors").is_file()
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


async def test_labels_and_plans_are_those_of_the_engine_by_version(models: str, folder: Path, base: Path) -> None:
    """The route's and the documents' probabilities of versions 1 and 2, and a plan that parses and checks."""
    judged = [TASKS["relevance"].render(document) for document in DOCUMENTS]
    routed = [TASKS["route"].render(RouteInput(QUESTION))]
    async with TritonModels(models) as channel:
        for version in (1, 2):
            engine = Engine(base, folder / "adapters" / str(version), threads=1)
            client = VllmRevelator(channel, read_facts(folder / "1"), version)
            for task, prompts in (("relevance", judged), ("route", routed)):
                for ours, theirs in zip(
                    await client.complete(task, prompts), complete(engine, task, prompts), strict=True
                ):
                    assert ours.text == theirs.text and ours.tokens_in == theirs.tokens_in
                    assert ours.probabilities == pytest.approx(theirs.probabilities, abs=1e-4)
        with releases.use_choice(releases.Choice()) as choice:
            [plan] = await client.complete("translate_bnf", [TASKS["translate_bnf"].render(TranslateInput(QUESTION))])
        assert check(parse(plan.text)) == () and plan.tokens_out > 0
        assert choice.versions() == {repository.VLLM: "1"}


async def test_what_the_backend_refuses_is_an_error_that_says_so(models: str, folder: Path) -> None:
    facts = read_facts(folder / "1")
    with pytest.raises(ConfigError, match="version 7 is not served by vLLM"):
        VllmRevelator(TritonModels(models), facts, 7)
    async with TritonModels(models) as channel:
        for sampling, says in (
            ({"lora_name": "other"}, "LoRA other is not supported"),
            ({"lora_name": facts.adapter, "structured_outputs": json.dumps({"grammar": "start: x"})}, "Invalid BNF"),
        ):
            with pytest.raises(RevelatorError, match=says):
                await channel.ask_stream(
                    repository.VLLM,
                    text_input=make_strings(["Who?"]),
                    sampling_parameters=make_strings([json.dumps(sampling)]),
                )
        gone = VllmRevelator(channel, VllmFacts("other", {}, facts.label_tokens))
        with pytest.raises(RevelatorError, match="LoRA other is not supported"):
            await gone.complete("route", ["Who?", "Where?"])
        with pytest.raises(Unavailable, match="nowhere"):
            await channel.ask_stream("nowhere", text_input=make_strings(["Who?"]))


async def test_the_executor_answers_with_vllm_as_its_planner(models: str, folder: Path) -> None:
    from contextlib import AsyncExitStack

    from serving.triton.inside.executor import QuestionService

    questions = QuestionService(models, folder, {"vllm": str(folder / "1")})
    async with AsyncExitStack() as stack:
        await questions.open(stack)
        trace = await questions.answer(QUESTION, "", None)
    assert trace.route and trace.versions[repository.VLLM] == "1" and "revelator" not in trace.versions


def test_a_folder_without_facts_says_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="deploy --engine vllm"):
        read_facts(tmp_path)
