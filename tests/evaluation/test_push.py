"""`revelator model push` to a Hub on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from evaluation.gate.command import promote
from evaluation.publish.export import export_adapter
from evaluation.publish.push import push
from revelator import registry
from revelator.artifact import ADAPTER_CONFIG, read_manifest, verify_files, write_manifest
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.registry import NAME
from revelator.rows import SET
from revelator.tasks import TASKS
from serving.models.adapters import Adapter
from tests.loopback import find_port
from tests.model_hub import ModelHub, Repo, make_environment, running
from tests.training.toy import write_adapter, write_base, write_set

TOKEN = "hf_ThisTokenIsNeverShown"
OTHER = "hf_ThisOneNeither"
BASE_ID = "someone/toy-base"
REVISION = "c" * 40
PINNED = f"{BASE_ID}@{REVISION}"
OPEN = "confidence: 0.9\nminimum: 1\nmargins: {}\nfloors: {}\n"


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter as training leaves it: with its configuration, and the digest of its set."""
    root = tmp_path_factory.mktemp("secret-place")
    base, rows = write_base(root / "base"), write_set(root / "toys", train=2, dev=3)
    folder = write_adapter(root / "adapter", base)
    about = {"base": str(base), "sets": [str(rows)], "out": str(folder), "steps": 3}
    (folder / "config.yaml").write_text(yaml.safe_dump(about))
    digests = {"base_digest": read_manifest(folder).base_digest, "data_digest": SET.read_manifest(rows)["digest"]}
    write_manifest(folder, base_name=str(base), **digests, run_id="", tasks=["route", "translate_bnf"])
    return folder


@pytest.fixture(scope="module")
def home(adapter: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry whose version 1 was promoted."""
    home = tmp_path_factory.mktemp("home")
    registry.connect(home)
    registry.register_adapter(adapter, NAME, "", {"set_folder": str(adapter.parent / "toys")})
    (home / "rules.yaml").write_text(OPEN)
    given = ["--home", str(home), "--limit", "1", "--rules", str(home / "rules.yaml")]
    done = CliRunner().invoke(promote, given)
    assert done.exit_code == 0, done.output
    return home


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with running({TOKEN: {"ours"}, OTHER: {"theirs"}}) as hub:
        yield hub


Call = Callable[..., Result]


@pytest.fixture
def call(hub: ModelHub, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The command in this process, which saves a start of the program; huggingface_hub has read the environment by
    now."""
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)

    def call(*arguments: object, token: str | None = TOKEN) -> Result:
        monkeypatch.delenv("HF_TOKEN", raising=False)
        if token is not None:
            monkeypatch.setenv("HF_TOKEN", token)
        done = CliRunner().invoke(push, [*map(str, arguments)])
        assert not [known for known in (TOKEN, OTHER) if known in f"{done.output} {done.exception}"]
        return done

    return call


def test_a_version_is_pushed_whole_in_one_commit_and_its_files_load(
    hub: ModelHub, home: Path, tmp_path: Path, adapter: Path, call: Call
) -> None:
    arguments = ("champion", "--to", "ours/planner", "--base", PINNED, "--private", "--home", home, "--json")
    command = [sys.executable, "-m", "revelator", "model", "push", *map(str, arguments)]
    secret = make_environment(hub.url, tmp_path / "hub", HF_TOKEN=TOKEN)
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=secret)
    assert done.returncode == 0 and TOKEN not in done.stdout + done.stderr, done.stderr
    told, repo = json.loads(done.stdout), hub.repos["ours/planner"]
    assert told["pushed"] and told["url"] == f"{hub.url}/ours/planner" and repo.private and repo.commits == 1
    assert set(told["files"]) == set(repo.files) and repo.large == {"adapter_model.safetensors"}

    fetched = tmp_path / "fetched"
    for name, body in repo.files.items():
        (fetched / name).parent.mkdir(parents=True, exist_ok=True)
        (fetched / name).write_bytes(body)
    assert verify_files(fetched).base_name == PINNED
    peft, card = json.loads(repo.files[ADAPTER_CONFIG]), repo.files["README.md"].decode()
    assert (peft["base_model_name_or_path"], peft["revision"]) == (BASE_ID, REVISION)
    assert f"base_model: {BASE_ID}\n" in card and f"vllm serve {BASE_ID} --revision {REVISION} " in card
    weights = (adapter / "adapter_model.safetensors").read_bytes()
    assert repo.files["adapter_model.safetensors"] == weights
    assert not [name for name, body in repo.files.items() if b"secret-place" in body], "no path of this machine"

    assert call(*arguments).exit_code == 0 and repo.commits == 2, "a repository of one's own is updated"


def test_a_card_has_the_figures_of_the_gate_the_data_with_licences_the_base_and_the_prompts(
    home: Path, call: Call, hub: ModelHub
) -> None:
    given = ("champion", "--to", "ours/planner", "--base", BASE_ID, "--dry-run", "--json", "--home", home)
    card = json.loads(call(*given, token=None).stdout)["card"]
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["base_model"] == BASE_ID and front["library_name"] == "peft" and card.count("\n# planner\n") == 1
    assert "| set toys | 22 | CC0-1.0 (22) |" in card
    assert "| translate_bnf | letters | 1 | 0.000 |" in card and "| mean |" in card
    for name in ("route", "translate_bnf"):
        assert TASKS[name].template in card
    assert TASKS["relevance"].template not in card, "it has not learned it"
    assert hub.asked == []


def test_a_dry_run_shows_files_and_card_and_needs_neither_token_nor_hub(
    adapter: Path, call: Call, hub: ModelHub
) -> None:
    done = call(adapter, "--to", "ours/planner", "--base", BASE_ID, "--dry-run", token=None)
    assert done.exit_code == 0 and "nothing is sent" in done.stdout and hub.asked == []
    files, _, card = done.stdout.partition("\n\nREADME.md:\n\n")
    assert {line.split()[0] for line in files.splitlines()[1:]} >= {"adapter_model.safetensors", "README.md"}
    assert card.startswith("---\n") and "It has not been promoted" in card


@pytest.mark.parametrize(
    ("token", "repo", "said"),
    [
        (None, "ours/planner", "the Hub takes no files without a token"),
        ("hf_unknown", "ours/planner", "HF_TOKEN: the Hub refuses the token (401)"),
        (TOKEN, "theirs/planner", "this token may not write there (403)"),
        (TOKEN, "theirs/existing", "this token may not write there (403)"),
        (TOKEN, "planner", "--to planner: this is no name of a repository"),
    ],
)
def test_a_push_that_may_not_be_says_why_and_changes_nothing(
    token: str | None, repo: str, said: str, hub: ModelHub, adapter: Path, call: Call
) -> None:
    hub.repos["theirs/existing"] = Repo(private=False, files={"README.md": b"theirs"})
    error = call(adapter, "--to", repo, "--base", BASE_ID, token=token).exception
    assert isinstance(error, ConfigError) and said in str(error) and error.hint
    assert {name: one.files for name, one in hub.repos.items()} == {"theirs/existing": {"README.md": b"theirs"}}


def test_a_hub_that_cannot_be_reached_is_named(adapter: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nowhere := f"http://127.0.0.1:{find_port()}")
    error = call(adapter, "--to", "ours/planner", "--base", BASE_ID).exception
    assert isinstance(error, Unavailable) and f"{nowhere}: the Hub does not answer" in str(error)
    assert "HF_ENDPOINT" in str(error)


def test_a_commit_that_the_hub_refuses_leaves_the_repository_as_it_was(
    hub: ModelHub, adapter: Path, call: Call
) -> None:
    hub.fails_commit = True
    error = call(adapter, "--to", "ours/planner", "--base", BASE_ID).exception
    assert isinstance(error, ArtifactError) and "a file is not allowed" in str(error)
    assert error.hint == "nothing was committed" and hub.repos["ours/planner"].files == {}


def test_a_public_repository_is_not_taken_for_a_private_one(hub: ModelHub, adapter: Path, call: Call) -> None:
    hub.repos["ours/planner"] = Repo(private=False)
    error = call(adapter, "--to", "ours/planner", "--base", BASE_ID, "--private").exception
    assert isinstance(error, ConfigError) and "is public; nothing was uploaded" in str(error)
    assert hub.repos["ours/planner"].commits == 0


def test_an_adapter_of_a_base_that_nobody_else_has_is_refused(hub: ModelHub, adapter: Path, call: Call) -> None:
    error = call(adapter, "--to", "ours/planner").exception
    assert isinstance(error, ConfigError) and "which nobody else has" in str(error)
    assert "--base ORG/NAME" in str(error) and hub.asked == []


def test_a_changed_file_is_not_pushed(hub: ModelHub, adapter: Path, tmp_path: Path, call: Call) -> None:
    folder = Path(shutil.copytree(adapter, tmp_path / "adapter"))
    os.truncate(folder / "adapter_model.safetensors", 100)
    error = call(folder, "--to", "ours/planner", "--base", BASE_ID).exception
    assert isinstance(error, ArtifactError) and "has changed since it was built" in str(error) and hub.asked == []


def test_the_folder_of_an_export_is_pushed_with_the_card_that_it_has(
    hub: ModelHub, adapter: Path, tmp_path: Path, call: Call
) -> None:
    export_adapter(Adapter(adapter), "hf", tmp_path / "hf")
    assert call(tmp_path / "hf", "--to", "ours/merged").exit_code == 0
    files = hub.repos["ours/merged"].files
    assert files["README.md"] == (tmp_path / "hf" / "README.md").read_bytes() and "model.safetensors" in files
    assert not [name for name, body in files.items() if b"secret-place" in body], "no path of this machine"
