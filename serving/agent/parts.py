"""What an agent's model holds, and how it is logged and registered at MLflow."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from revelator import registry
from revelator.artifact import DEFAULT_BASE, EMBEDDED_BASE, EMBEDDED_READER, read_manifest
from revelator.errors import ConfigError
from revelator.registry import NAME, Version
from serving.home.config import ServingConfig

AGENT = f"{NAME}-agent"  # the registered model
URL = "REVELATOR_URL"  # the environment variable that names a service, which then answers
ADAPTER, INDEX = "adapter", "index"  # artifacts of the model
EXAMPLE = {"input": [{"role": "user", "content": "When was the director of UHF born?"}]}
NOT_PACKED = {"index", "sources", "uploads", "gpus", "instances"}  # of the settings: what one machine alone has


@dataclass(frozen=True)
class Parts:
    """A `version` of the revelator (None: the embedded base) whose files are in the folder `adapter`, and the settings
    of what is served, its index among them; or the address of a service."""

    version: Version | None = None
    adapter: Path | None = None
    config: ServingConfig | None = None
    url: str | None = None

    @property
    def embedded(self) -> list[Path]:
        """The models of this package that it needs: the reader, and the base where no other is named."""
        base = read_manifest(self.adapter).base_name if self.adapter else DEFAULT_BASE
        return [EMBEDDED_READER, *([EMBEDDED_BASE] if base == DEFAULT_BASE else [])] if self.config else []

    @property
    def tags(self) -> dict[str, str]:
        return {"url": self.url} if self.url else {NAME: str(self.version.version) if self.version else "base"}

    def list_artifacts(self) -> dict[str, str]:
        index = self.config.index if self.config else None
        assert not isinstance(index, str)  # `collect_parts` takes folders alone
        found = {ADAPTER: self.adapter, INDEX: index}
        return {name: str(path.resolve()) for name, path in found.items() if path}

    def describe(self) -> dict[str, Any]:
        """What the agent reads when it is loaded, as JSON."""
        if self.url:
            return {"url": self.url}
        assert self.config
        serving = self.config.model_dump(mode="json", exclude=NOT_PACKED)
        return {"serving": serving, "version": asdict(self.version) if self.version else None}


def collect_parts(adapter: str, index: Path | None, home: Path) -> Parts:
    """Fetches the version, and finds its settings: those of the home folder's file, over this index where one is given.
    Raises ConfigError for what cannot be packed."""
    from serving.home.config import read_settings
    from serving.home.configure import configure

    config = configure(home, **read_settings(home).chosen | ({"index": index} if index else {}))
    hint = "let it ask a running service: --url HOST:PORT"
    if config.sources:
        raise ConfigError("a model holds no file of sources", where=str(config.sources), hint=hint)
    if isinstance(config.index, str):
        raise ConfigError("a model holds no collection of Milvus", where=config.index, hint=hint)
    if adapter == "base":
        return Parts(config=config)
    version = registry.resolve(NAME, adapter)
    return Parts(version, registry.fetch(version, home), config)


def log_agent(parts: Parts) -> tuple[str, int]:
    """Logs the model, which MLflow asks a question first, and registers it. Returns the id of MLflow's model and the
    version of the registered one. A tag of it says which version of the revelator it holds, and one of that version
    says which agent holds it."""
    with registry.store_errors(), tempfile.TemporaryDirectory() as place:
        import mlflow

        logged = mlflow.pyfunc.log_model(
            name=AGENT,
            python_model=str(Path(__file__).with_name("agent.py")),
            artifacts=parts.list_artifacts(),
            model_config=parts.describe(),
            code_paths=registry.list_code(parts.embedded, Path(place)),
            pip_requirements=registry.list_requirements(),
            input_example=EXAMPLE,
        )
        number = int(mlflow.register_model(logged.model_uri, AGENT, tags=parts.tags).version)
    if parts.version:
        registry.tag_version(parts.version, "agent", f"{AGENT}/{number}")
    return str(logged.model_id), number
