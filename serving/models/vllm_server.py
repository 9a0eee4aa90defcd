"""A vLLM server that loads adapters while it runs: versions of the revelator by name, and which of them answers.

A version is loaded as `revelator-N`; a question asks for the one that its choice names (`serving.models.releases`), so
a switch needs nothing of the server. The server must be started with `--enable-lora` and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, and reads the adapter's folder by the path that it has here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from revelator.artifact import digest_base, read_manifest, split_revision
from revelator.endpoints import check_url
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.language_model import MESSAGE_CHARACTERS, read_key
from serving.models.endpoint_revelator import EndpointRevelator, PlannerConfig
from serving.models.releases import find_choice

PREFIX = "revelator-"
LOAD_SECONDS = 900.0


class ReleasedAdapter(EndpointRevelator):
    """`serving.protocols.Revelator` of a vLLM server: the adapter of the version that the question's choice names.

    A server whose structured outputs take no grammar answers no plan: a deploy hears of it from its smoke questions.
    """

    needs_structure = True

    def __init__(self, url: str, timeout: float | None = None) -> None:
        super().__init__(PlannerConfig(url=url, model=PREFIX, prompt="trained", structure="vllm"), timeout=timeout)

    def _name_model(self) -> str:
        return f"{PREFIX}{find_choice().version}"

    def _name_answer(self, model: str) -> str:
        return model.removeprefix(PREFIX)


class VllmServer:
    """Calls that change the server. `url` is its OpenAI-compatible base, with or without `/v1`; the key is that of the
    environment (OPENAI_API_KEY).

    Each raises Unavailable when the server does not answer, ConfigError when it changes no adapters or wants another
    key, and ArtifactError when it refuses an adapter.
    """

    def __init__(self, url: str) -> None:
        self.url = complete_url(url)

    def list_versions(self) -> set[int]:
        """The versions that are loaded."""
        names = [str(model["id"]) for model in self._list_models()]
        numbers = [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]
        return {int(number) for number in numbers if number.isdigit()}

    def load(self, version: int, adapter: Path) -> None:
        """Returns when the version answers; one that is loaded stays as it is."""
        if version not in self.list_versions():
            self._check_base(adapter)
            named = {"lora_name": f"{PREFIX}{version}", "lora_path": str(adapter.resolve())}
            self._call("POST", "load_lora_adapter", named)

    def unload(self, version: int) -> None:
        if version in self.list_versions():
            self._call("POST", "unload_lora_adapter", {"lora_name": f"{PREFIX}{version}"})

    def _check_base(self, adapter: Path) -> None:
        """Refuses an adapter of another base: vLLM would take it, and answer at random. A base that lies here is
        compared by its digest, one that lies elsewhere by its name."""
        trained = read_manifest(adapter)
        roots = [model["root"] for model in self._list_models() if model.get("root") and not model.get("parent")]
        for base in map(Path, roots):  # an adapter has a parent, a base has none
            same_name = base.name.lower() == Path(split_revision(trained.base_name)[0]).name.lower()
            if not (digest_base(base) == trained.base_digest if base.is_dir() else same_name):
                message = f"the server's base is {base}; the adapter was trained on {trained.base_name}"
                hint = "serve that base, from a folder of that name"
                raise ArtifactError(message, where=str(adapter), hint=hint)

    def _list_models(self) -> list[dict[str, Any]]:
        return list(self._call("GET", "models").get("data", []))

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> dict[str, Any]:
        key = read_key()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            with httpx.Client(timeout=LOAD_SECONDS, trust_env=False, headers=headers) as client:
                reply = client.request(method, f"{self.url}/{path}", json=body)
        except httpx.HTTPError as error:
            raise Unavailable(f"vLLM does not answer: {error}", where=self.url, hint="is it running?") from error
        if reply.is_success:
            return reply.json() if method == "GET" else {}
        said = _read_message(reply)
        if reply.status_code in (401, 403):
            raise ConfigError(f"vLLM refuses the key: {said}", where=self.url, hint="export its OPENAI_API_KEY")
        if said is None or reply.status_code == 405:
            hint = "start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            raise ConfigError("this server loads no adapters while it runs", where=self.url, hint=hint)
        if reply.status_code > 500 or body is None:  # an adapter's rank is refused with 500
            raise Unavailable(f"vLLM answered {reply.status_code}: {said}", where=self.url)
        raise ArtifactError(f"vLLM refuses the adapter: {said}", where=(body or {}).get("lora_path", self.url))


def complete_url(url: str) -> str:
    """The checked base URL of a server, with the protocol's `/v1` behind it."""
    url = check_url(url).rstrip("/")
    return url if url.endswith("/v1") else f"{url}/v1"


def _read_message(reply: httpx.Response) -> str | None:
    """The error that vLLM words; None for that of a path which it does not have."""
    try:
        return str(reply.json()["error"]["message"])[:MESSAGE_CHARACTERS]
    except (ValueError, KeyError, TypeError):
        return None if reply.status_code == 404 else reply.text[:MESSAGE_CHARACTERS]
