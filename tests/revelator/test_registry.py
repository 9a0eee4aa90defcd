"""The registry on a real SQLite store and on a real tracking server."""

import os
from pathlib import Path

import mlflow
import pytest

from revelator import promotions, registry
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.files import sha256_folder
from revelator.folders import MANIFEST
from tests.revelator.adapters import folder_of


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def register_and_fetch(root: Path) -> None:
    first = registry.register_adapter(folder_of(root / "one", "1"), "m", "", {"data": "x"})
    second = registry.register_adapter(folder_of(root / "two", "2"), "m")
    assert (first, second) == (1, 2)
    assert registry.register_adapter(root / "one", "m") == 1  # the same folder is the same version
    assert registry.resolve("m", "latest").version == 2
    assert registry.resolve("m", 1).tags["data"] == "x"

    got = registry.download(registry.resolve("m", 1), root / "got")
    assert sha256_folder(got) == sha256_folder(root / "one")

    assert registry.find_champion("m") is None
    assert promotions.move("m", 1, promotions.read_standing("m")).replaced is None
    assert promotions.move("m", 2, promotions.read_standing("m")).replaced == 1
    champion = registry.resolve("m", "champion")
    assert champion.version == 2 and champion.tags["champion_replaced"] == "1"


def test_versions_aliases_and_downloads_in_a_sqlite_store(home: Path, tmp_path: Path) -> None:
    assert registry.connect(home) == f"sqlite:///{home / 'mlflow.db'}"
    register_and_fetch(tmp_path)
    assert (home / "mlartifacts").is_dir()


def test_versions_aliases_and_downloads_through_a_tracking_server(
    tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_server)
    assert registry.connect(tmp_path) == tracking_server
    register_and_fetch(tmp_path)
    assert not (tmp_path / "mlflow.db").exists()


def test_the_store_of_one_home_folder_is_not_that_of_the_next(tmp_path: Path) -> None:
    for name in ("one", "other"):
        assert registry.connect(tmp_path / name) == f"sqlite:///{tmp_path / name / 'mlflow.db'}"
        assert mlflow.get_tracking_uri().endswith(f"{name}/mlflow.db")
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_what_is_not_registered_is_said_with_what_is(home: Path, tmp_path: Path) -> None:
    registry.connect(home)
    registry.register_adapter(folder_of(tmp_path / "a", "a"), "known")
    with pytest.raises(ArtifactError, match="no version or alias 'champion'; versions: 1"):
        registry.resolve("known", "champion")
    with pytest.raises(ArtifactError, match="no version of 'unknown'"):
        registry.resolve("unknown", "latest")
    with pytest.raises(ArtifactError):
        registry.find_champion("unknown")


def test_a_damaged_artifact_is_named_and_replaces_nothing(home: Path, tmp_path: Path) -> None:
    registry.connect(home)
    registry.register_adapter(folder_of(tmp_path / "a", "whole"), "damaged")
    version = registry.resolve("damaged", 1)
    stored = Path(mlflow.artifacts.download_artifacts(version.source))
    (stored / "adapter_model.safetensors").write_text("other")
    target = folder_of(tmp_path / "target", "before")
    before = sha256_folder(target)
    with pytest.raises(ArtifactError, match=r"adapter_model\.safetensors: has changed"):
        registry.download(version, target)
    assert sha256_folder(target) == before
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_folder_that_is_not_whole_is_not_registered(home: Path, tmp_path: Path) -> None:
    registry.connect(home)
    half = folder_of(tmp_path / "half", "text")
    (half / MANIFEST).unlink()
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        registry.register_adapter(half, "half")
    with pytest.raises(ArtifactError, match="no version of 'half'"):
        registry.resolve("half", "latest")


@pytest.mark.parametrize("uri", ["http://127.0.0.1:1", "http://nowhere.invalid:5000", "sqlite:////proc/none/mlflow.db"])
def test_a_store_that_cannot_be_used_is_one_error_with_a_way_out(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    with pytest.raises(Unavailable, match="cannot be used") as caught:
        registry.connect(tmp_path)
    assert uri in str(caught.value) and "MLFLOW_TRACKING_URI" in str(caught.value)


def test_a_reader_of_a_store_that_is_not_there_makes_none(
    home: Path, tracking_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "mistyped"
    with pytest.raises(ConfigError, match="nothing stands there") as caught:
        registry.connect(missing, must_exist=True)
    assert str(missing) in str(caught.value) and "--home" in str(caught.value) and not missing.exists()
    registry.connect(home)
    for uri in (f"sqlite:///{home / 'mlflow.db'}", tracking_server):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert registry.connect(missing, must_exist=True) == uri


def test_a_server_that_dies_later_is_unavailable_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.connect(home)
    for name, value in {"MAX_RETRIES": "0", "TIMEOUT": "2"}.items():
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", value)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")  # `set_tracking_uri` would leave it set
    mlflow.set_tracking_uri("http://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"http://127\.0\.0\.1:1"):
        registry.resolve("revelator", "latest")
