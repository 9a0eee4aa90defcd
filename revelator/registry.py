"""The model registry that training, serving and evaluation share: adapters as versions of an MLflow registered model.

An adapter is a folder, registered as a LoggedModel that MLflow can load (`serving.models.flavor`). The store is a
SQLite file below the home folder, or any MLflow tracking server. MLflow is imported when it is first needed: it takes
seconds.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import socket
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires
from importlib.metadata import version as find_version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import parse as parse_version

from revelator.artifact import DEFAULT_BASE, EMBEDDED_BASE, explain_full_disk, verify_files
from revelator.errors import ArtifactError, ConfigError, RevelatorError, Unavailable
from revelator.files import sha256_file, stage_folder
from revelator.folders import MANIFEST

if TYPE_CHECKING:
    from mlflow import MlflowClient

NAME = os.environ.get("REVELATOR_MODEL") or "revelator"  # of the registered model
TRACKING_URI = "MLFLOW_TRACKING_URI"  # the environment variable that names a store other than the home folder's
EXPERIMENT = "revelator"
EXPERIMENT_TAGS = {  # without a kind, MLflow's page shows trainings under Evaluations
    "mlflow.experimentKind": "custom_model_development",
    "mlflow.note.content": f"Trainings, promotions, reports and served questions. Versions: the model `{NAME}`.",
}
CHAMPION = "champion"
DIGEST_TAG = "manifest_sha256"
LOADER = "serving.models.flavor"
PACKAGES = Path(__file__).resolve().parents[1]  # beside this package lie the others
REACH_SECONDS = 5.0
NO_VALUES: Mapping[str, Any] = {}
_SQLITE = "sqlite:///"
# Where the environment says nothing else. MLflow would retry 7 times with backoff, about four minutes, before it says
# that a server is gone; and it would print the addresses of runs before a command's JSON.
MLFLOW_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",  # prices of models, which a judge would fetch from github.com
    "MLFLOW_UV_AUTO_DETECT": "false",  # a model's packages are those that we list, not those of a uv project around
}


@dataclass(frozen=True)
class Version:
    """A registered version; `source` is the artifact URI of its LoggedModel."""

    name: str
    version: int
    run_id: str
    source: str
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def model_id(self) -> str:
        """Of the LoggedModel, under which MLflow shows metrics and traces; "" where the source names none."""
        found = re.search(r"\bm-[0-9a-f]{16,}\b", self.source)
        return found[0] if found else ""


def find_home() -> Path:
    """Returns the folder where commands write: the environment variable REVELATOR_HOME, default `runs`."""
    return Path(os.environ.get("REVELATOR_HOME", "runs"))


def require_existing(path: Path) -> Path:
    """Returns `path`, a home folder or a path below one. Raises ConfigError if it does not exist."""
    if not path.exists():
        hint = "is this the right --home, REVELATOR_HOME or MLFLOW_TRACKING_URI? `revelator train` makes a registry"
        raise ConfigError("nothing stands there", where=str(path), hint=hint)
    return path


def connect(home: Path | None = None, *, must_exist: bool = False) -> str:
    """Points MLflow at the store that `find_store` names, and creates the experiment if needed. Returns the URI in use.

    Artifacts of a SQLite store lie in `mlartifacts` below `home`. Raises Unavailable within seconds when a server
    cannot be reached; with `must_exist`, ConfigError for a SQLite store that is not there, and then nothing is made.
    """
    for name, value in MLFLOW_SETTINGS.items():
        os.environ.setdefault(name, value)
    home = (home or find_home()).resolve()
    uri = find_store(home)
    if uri.startswith(("http://", "https://")):
        check_server(uri)
    elif must_exist and uri.startswith(_SQLITE):
        require_existing(Path(uri.removeprefix(_SQLITE)))
    with store_errors(uri), explain_full_disk(home):
        home.mkdir(parents=True, exist_ok=True)
        import mlflow

        for chatty in ("alembic", "mlflow.store.db.utils", "mlflow.system_metrics.system_metrics_monitor"):
            logging.getLogger(chatty).setLevel(logging.WARNING)
        is_set = TRACKING_URI in os.environ
        mlflow.set_tracking_uri(uri)
        if not is_set:  # MLflow sets it, and the next call may be for another home folder
            os.environ.pop(TRACKING_URI, None)
        client = mlflow.MlflowClient()
        if client.get_experiment_by_name(EXPERIMENT) is None:
            place = (home / "mlartifacts").as_uri() if uri.startswith("sqlite:") else None
            client.create_experiment(EXPERIMENT, artifact_location=place, tags=EXPERIMENT_TAGS)
        if "MLFLOW_EXPERIMENT_ID" not in os.environ:  # set by `mlflow run`, whose run is in that experiment
            mlflow.set_experiment(EXPERIMENT)
    return uri


def find_store(home: Path) -> str:
    """Returns the address of MLflow's store: that of the environment, or the file in the home folder."""
    return os.environ.get(TRACKING_URI) or f"{_SQLITE}{home / 'mlflow.db'}"


def check_server(uri: str) -> None:
    """Checks that a server answers; even an error page is an answer."""
    try:
        urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=REACH_SECONDS).close()
    except urllib.error.HTTPError:
        return
    except (urllib.error.URLError, TimeoutError, socket.gaierror, ConnectionError, ValueError) as error:
        raise _unreachable(uri, str(getattr(error, "reason", error))) from error


def _unreachable(uri: str, reason: str) -> Unavailable:
    return Unavailable(
        f"the tracking server or store cannot be used: {reason}",
        where=uri,
        hint="start it (deploy/compose.yaml, or `mlflow server`), correct MLFLOW_TRACKING_URI, or unset it to use the "
        "SQLite file below --home",
    )


@contextmanager
def store_errors(uri: str | None = None) -> Iterator[None]:
    """Turns MLflow's errors into ours: ArtifactError for what is missing, Unavailable for an unusable store.

    With `uri`, while the store is opened, every error counts: MLflow does not wrap those of the file system.
    """
    try:
        yield
    except (RevelatorError, KeyboardInterrupt):
        raise
    except Exception as error:
        kind = type(error)
        if uri is None and not kind.__module__.startswith(("mlflow.", "sqlalchemy.", "requests.", "sqlite3")):
            raise
        reason = str(error).strip().splitlines()[0]
        if getattr(error, "error_code", "") == "RESOURCE_DOES_NOT_EXIST":
            hint = "is this the right --home or MLFLOW_TRACKING_URI? `revelator train` registers a version"
            raise ArtifactError(reason, where="model registry", hint=hint) from error
        import mlflow

        raise _unreachable(uri or mlflow.get_tracking_uri(), reason) from error


def open_client() -> MlflowClient:
    import mlflow

    return mlflow.MlflowClient()


def register_adapter(
    folder: Path,
    name: str = NAME,
    run_id: str = "",
    tags: Mapping[str, str] = NO_VALUES,
    *,
    description: str = "",
    params: Mapping[str, str] = NO_VALUES,
    metrics: Mapping[str, float] = NO_VALUES,
) -> int:
    """Registers an adapter folder as the next version of `name`, with `params` and `metrics` on MLflow's model of it.
    An adapter that is registered keeps its version.

    The version appears only when every file is stored. Raises ArtifactError for a folder that does not match its
    manifest, Unavailable for a store that cannot be used.
    """
    manifest = verify_files(folder)
    digest = sha256_file(folder / MANIFEST)
    with store_errors(), explain_full_disk(folder):
        import mlflow

        client = mlflow.MlflowClient()
        for known in client.search_model_versions(f"name='{name}'"):
            if known.tags.get(DIGEST_TAG) == digest:
                return int(known.version)
        model = mlflow.initialize_logged_model(
            name=name, source_run_id=run_id or None, params=dict(params), model_type="adapter"
        )
        try:
            client.log_model_artifacts(model.model_id, str(folder))
            with tempfile.TemporaryDirectory() as place:
                flavor = _write_flavor(Path(place) / "flavor", model.model_id, run_id, manifest.base_name)
                client.log_model_artifacts(model.model_id, str(flavor))
        except BaseException:
            client.finalize_logged_model(model.model_id, "FAILED")
            raise
        client.finalize_logged_model(model.model_id, "READY")
        for key, value in metrics.items():
            client.log_metric(run_id, key, value, model_id=model.model_id)
        all_tags = {**tags, "run_id": run_id, DIGEST_TAG: digest}
        number = int(mlflow.register_model(f"models:/{model.model_id}", name, tags=all_tags).version)
        client.update_model_version(name, str(number), description)
        return number


def _write_flavor(folder: Path, model_id: str, run_id: str, base: str) -> Path:
    """Writes what MLflow needs to load the adapter that lies beside these files, in an environment where this package
    is not installed: loader, code, an embedded base, requirements, signature, an example."""
    import mlflow.pyfunc
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    text, truth = DataType.string, DataType.boolean
    kinds = {"question": text, "route": text, "plan": text, "letters": text, "valid": truth, "degraded": truth}
    written = Schema(
        [ColSpec(kind, name, required=name != "letters") for name, kind in (kinds | {"error": text}).items()]
    )
    mlflow.pyfunc.save_model(
        path=str(folder),
        loader_module=LOADER,
        code_paths=list_code([EMBEDDED_BASE] if base == DEFAULT_BASE else [], folder.parent),
        mlflow_model=Model(model_id=model_id, run_id=run_id or None, artifact_path="."),
        signature=ModelSignature(Schema([ColSpec(text, "question")]), written),
        input_example={"question": ["When was the director of UHF born?"]},
        pip_requirements=list_requirements(),
    )
    return folder


def list_code(embedded: Iterable[Path], place: Path) -> list[str]:
    """The folders of code that a model needs where this package is not installed, and `embedded` models of this
    package, which are copied to `place`."""
    for model in embedded:
        shutil.copytree(model, place / model.relative_to(PACKAGES))
    copied = place / "training"
    return list(map(str, [PACKAGES / "revelator", PACKAGES / "serving", *([copied] if copied.is_dir() else [])]))


def list_requirements() -> list[str]:
    """What serving needs, faiss included, which `serving.retrieval` imports: in the versions that are installed here; a
    range of what is not."""
    known = [Requirement(line) for line in requires("revelator") or ()]
    extras = [{"extra": "serve"}, {"extra": "dense"}]
    wanted = [one for one in known if one.marker is None or any(map(one.marker.evaluate, extras))]
    for one in wanted:
        one.marker = None
        with suppress(PackageNotFoundError):
            release = parse_version(find_version(one.name)).public  # the index has no 2.13.0+cpu
            one.specifier = SpecifierSet(f"=={release}")
    return sorted(set(map(str, wanted)))


def resolve(name: str, alias_or_version: str | int) -> Version:
    """Finds a version by number, `latest` (the highest number) or alias. Raises ArtifactError if there is none."""
    asked = str(alias_or_version)
    with store_errors():
        known = {version.version: version for version in search_versions(name)}
        if not known:
            raise ArtifactError(
                f"the registry holds no version of {name!r}",
                where="model registry",
                hint="register one: `revelator train CONFIG.yaml`",
            )
        aliases = open_client().get_registered_model(name).aliases
    number = max(known) if asked == "latest" else int(asked if asked.isdigit() else aliases.get(asked, 0))
    if number not in known:
        raise ArtifactError(
            f"{name!r} has no version or alias {asked!r}; versions: {', '.join(map(str, sorted(known)))}",
            where="model registry",
            hint="give one of these numbers, `latest`, or promote one: `revelator model promote`",
        )
    return known[number]


def list_versions(name: str = NAME) -> list[tuple[Version, tuple[str, ...]]]:
    """Lists the versions with their aliases, newest first. Raises ArtifactError if there is none."""
    resolve(name, "latest")
    names: dict[int, list[str]] = {}
    with store_errors():
        for alias, number in sorted(open_client().get_registered_model(name).aliases.items()):
            names.setdefault(int(number), []).append(alias)
    return [(version, tuple(names.get(version.version, ()))) for version in search_versions(name)]


def search_versions(name: str) -> list[Version]:
    """Lists the versions of `name`, newest first; an unknown name has none."""
    with store_errors():
        entries = open_client().search_model_versions(f"name='{name}'")
    found = [Version(name, int(e.version), e.tags.get("run_id", ""), e.source or "", dict(e.tags)) for e in entries]
    return sorted(found, key=lambda version: -version.version)


def find_champion(name: str = NAME) -> Version | None:
    """Finds the champion, or None before the first promotion."""
    with store_errors():
        number = open_client().get_registered_model(name).aliases.get(CHAMPION)
    return None if number is None else resolve(name, number)


def download(version: Version, into: Path) -> Path:
    """Downloads and verifies the adapter's files at `into`. A folder there that has the same files is kept.

    Raises ArtifactError naming the file that does not match the manifest; `into` is then as it was.
    """
    wanted = version.tags.get(DIGEST_TAG)
    if (into / MANIFEST).is_file() and sha256_file(into / MANIFEST) == wanted:
        verify_files(into)
        return into
    with store_errors(), explain_full_disk(into), stage_folder(into) as stage:
        import mlflow

        mlflow.artifacts.download_artifacts(f"models:/{version.name}/{version.version}", dst_path=str(stage))
        _keep_adapter(stage)
        if wanted and sha256_file(stage / MANIFEST) != wanted:
            raise ArtifactError(
                "the manifest is not the one that was registered",
                where=version.source,
                hint="register the adapter again",
            )
    return into


def fetch(version: Version, home: Path) -> Path:
    """Downloads a version's adapter into the home folder, if it is not there yet."""
    return download(version, home / "adapters" / f"{version.name}-{version.version}")


def _keep_adapter(folder: Path) -> None:
    """Verifies the adapter in a folder, and removes the files that MLflow put beside it."""
    kept = {MANIFEST, *verify_files(folder).files}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_file() and path.relative_to(folder).as_posix() not in kept:
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def tag_version(version: Version, key: str, value: str) -> None:
    with store_errors():
        open_client().set_model_version_tag(version.name, str(version.version), key, value)
