"""What a server serves, and how that is changed: load a model, wait until its version is ready, unload it.

The server's own health says nothing about models, and no load call names a version, so the readiness of a model
*version* is polled. Everyone may ask what is served; only who knows the control token may change it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as async_grpc_client
from tritonclient.utils import InferenceServerException

from revelator.channels import ControlToken, make_channel_arguments
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.wire import read_error
from serving.models.releases import name_version
from serving.triton.access import CONTROL, RESTRICTED, read_secret
from serving.triton.server import wait_until

READY_SECONDS = 30.0
LOAD_SECONDS = 900.0  # a large base from a slow disk
UNLOAD_SECONDS = 40.0  # a model's own loop finishes what it is at, for up to `request_loop.DRAIN_SECONDS`
_TRACEBACK = re.compile(r"(?<!\n)\n+At:\n.*", re.DOTALL)
_PREFIX = re.compile(
    r"^load failed for model '[^']*': (?:version \d+ is at UNAVAILABLE state: )?(?:Internal: )?(?:ArtifactError: )?"
)


@contextmanager
def open_control(url: str, home: Path | None = None) -> Iterator[grpc_client.InferenceServerClient]:
    """A client, which may change the server if its home folder is named. Raises Unavailable for a server that does not
    answer, and ConfigError for one that wants another token."""
    client = grpc_client.InferenceServerClient(**make_channel_arguments(url))
    if home:
        client.register_plugin(ControlToken(read_secret(home, CONTROL)))
    try:
        yield client
    except InferenceServerException as error:
        if error.message().startswith(RESTRICTED):
            hint = "the server took the one in the file when it started: start `revelator serve` again"
            raise ConfigError("the server wants another control token", where=url, hint=hint) from error
        raise Unavailable(f"the Triton server says: {error.message()}", where=url) from error
    finally:
        client.close()


def load(home: Path, url: str, model: str, version: int, config: str | None = None) -> None:
    """Loads `model` as its config.pbtxt says, or `config` (JSON), and returns when `version` is ready.

    Versions that were ready stay so until the new ones are, also when the load fails, which raises ArtifactError with
    the reason. A version whose files have not changed since it was loaded is not loaded again.
    """
    with open_control(url, home) as client:
        try:
            client.load_model(model, config=config, client_timeout=LOAD_SECONDS)
        except InferenceServerException as error:
            if error.status() in ("StatusCode.UNAVAILABLE", "StatusCode.DEADLINE_EXCEEDED"):
                raise
            if error.status() == "StatusCode.UNIMPLEMENTED":
                hint = "stop it, deploy, and start it again, so that it is of the version that is installed now"
                raise ConfigError("this service cannot change versions while it runs", where=url, hint=hint) from error
            why = read_reason(error.message()) or _read_recorded_reason(client, model, version)
            raise ArtifactError(f"does not load: {why}", where=f"model {model}") from error
        wait_until(
            lambda: client.is_model_ready(model, str(version)), f"{describe_version(version)} of {model}", READY_SECONDS
        )


def _read_recorded_reason(client: grpc_client.InferenceServerClient, model: str, version: int) -> str:
    """The reason in Triton's index of models: its answer to a load with a configuration names none."""
    index = client.get_model_repository_index().models
    found = (entry.reason for entry in index if (entry.name, entry.version) == (model, str(version)))
    return read_reason(next(found, "")) or "the server's log holds the reason"


def is_ready(url: str, model: str, version: int) -> bool:
    with open_control(url) as client:
        return bool(client.is_model_ready(model, str(version)))


def unload(home: Path, url: str, model: str) -> None:
    """Takes `model` out of service at once, and returns when the requests that it is answering are finished."""
    with open_control(url, home) as client:
        client.unload_model(model)

        def is_over() -> bool:
            states = {found.state for found in client.get_model_repository_index().models if found.name == model}
            return not states & {"READY", "UNLOADING"}

        wait_until(is_over, f"the end of model {model}", UNLOAD_SECONDS)


def read_reason(message: str) -> str:
    """Cuts the one line that a person needs from Triton's report on a model that did not load."""
    return _PREFIX.sub("", _TRACEBACK.sub("", message)).strip(" ;\n")


ANSWER_SECONDS = 5.0
MODELS = ("executor", "executor_stream", "generator", "retriever", "revelator", "revelator_vllm")


def describe_version(version: int | str) -> str:
    """What people call a version of a model: the embedded base has no number."""
    return "embedded base" if name_version(str(version)) == "0" else f"version {version}"


async def find_served_models(url: str) -> dict[str, str]:
    """The version of each model that is ready on the Triton server at `url`. Raises Unavailable, with what to do."""
    client = async_grpc_client.InferenceServerClient(**make_channel_arguments(url))
    try:
        await client.is_server_live(client_timeout=ANSWER_SECONDS)
        asked = [client.get_model_metadata(model, client_timeout=ANSWER_SECONDS) for model in MODELS]
        found = await asyncio.gather(*asked, return_exceptions=True)  # an error of a model: it is not loaded
    except InferenceServerException as error:
        code = (error.status() or "").removeprefix("StatusCode.")
        hint = "start one with `revelator serve`, which prints its gRPC address, and give that as --url host:port"
        message = f"no Triton server answers: {read_error(code, error.message()).message}"
        raise Unavailable(message, where=url, hint=hint) from error
    finally:
        await client.close()
    loaded = [model for model in found if not isinstance(model, BaseException) and model.versions]
    return {model.name: name_version(max(model.versions, key=int)) for model in loaded}
