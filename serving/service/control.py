"""What a running service serves, and how a deploy changes it: load a version, wait until it is ready.

Everyone may ask what is served; only who knows the control token may change it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as async_grpc_client
from tritonclient.utils import InferenceServerException

from revelator.channels import TOKEN, Headers, Tls, make_channel_arguments, read_token
from revelator.errors import ArtifactError, ConfigError, Unavailable
from revelator.wire import read_error
from serving.home.versions import REVELATOR
from serving.models.releases import name_version
from serving.service.access import read_control_token

READY_SECONDS = 30.0
LOAD_SECONDS = 900.0  # a large base from a slow disk
ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.1
TOKEN_HINT = f"export {TOKEN}=…, as where the service was started"
MODELS = ("executor", REVELATOR)


@contextmanager
def open_control(url: str, home: Path | None = None) -> Iterator[grpc_client.InferenceServerClient]:
    """A client, which may change the service if its home folder is named. Raises Unavailable for a service that does
    not answer, and ConfigError for one that wants another token."""
    client = grpc_client.InferenceServerClient(**make_channel_arguments(url, Tls.from_environment()))
    client.register_plugin(Headers(read_control_token(home) if home else read_token()))
    try:
        yield client
    except InferenceServerException as error:
        if error.status() == "StatusCode.UNAUTHENTICATED":
            hint = "it took the one in the file when it started: start `revelator serve` again"
            message, hint = ("the service wants another control token", hint) if home else (error.message(), TOKEN_HINT)
            raise ConfigError(message, where=url, hint=hint) from error
        raise Unavailable(f"the service says: {error.message()}", where=url) from error
    finally:
        client.close()


def load(home: Path, url: str, versions: Collection[int]) -> None:
    """Loads these versions of the revelator beside the release, in place of those of the call before, and returns when
    they are ready. Those that were ready stay so until then, also when one does not load, which raises ArtifactError
    with the reason."""
    config = json.dumps({"version_policy": {"specific": {"versions": sorted(versions)}}})
    with open_control(url, home) as client:
        try:
            client.load_model(REVELATOR, config=config, client_timeout=LOAD_SECONDS)
        except InferenceServerException as error:
            if error.status() not in ("StatusCode.INVALID_ARGUMENT", "StatusCode.INTERNAL"):
                raise
            raise ArtifactError(f"does not load: {error.message()}", where=f"model {REVELATOR}") from error
        end = time.monotonic() + READY_SECONDS
        while not all(client.is_model_ready(REVELATOR, str(version)) for version in versions):
            if time.monotonic() > end:
                raise Unavailable(f"the versions were not ready after {READY_SECONDS:g} s", where=url)
            time.sleep(LOOK_SECONDS)


def is_ready(url: str, version: int, home: Path | None = None) -> bool:
    """Whether this version of the revelator answers."""
    with open_control(url, home) as client:
        return bool(client.is_model_ready(REVELATOR, str(version)))


def describe_version(version: int | str) -> str:
    """What people call a version of a model: the embedded base has no number."""
    return "embedded base" if name_version(str(version)) == "0" else f"version {version}"


async def find_served_models(url: str) -> dict[str, str]:
    """The version of each model that is ready on the service at `url`. Raises Unavailable, with what to do."""
    client = async_grpc_client.InferenceServerClient(**make_channel_arguments(url, Tls.from_environment()))
    client.register_plugin(Headers(read_token()))
    try:
        await client.is_server_live(client_timeout=ANSWER_SECONDS)
        asked = [client.get_model_metadata(model, client_timeout=ANSWER_SECONDS) for model in MODELS]
        found = await asyncio.gather(*asked, return_exceptions=True)  # an error of a model: it is not served
    except InferenceServerException as error:
        code = (error.status() or "").removeprefix("StatusCode.")
        hint = "start one with `revelator serve`, which prints its gRPC address, and give that as --url host:port"
        message = f"no service answers: {read_error(code, error.message()).message}"
        raise Unavailable(message, where=url, hint=hint) from error
    finally:
        await client.close()
    loaded = [model for model in found if not isinstance(model, BaseException) and model.versions]
    return {model.name: name_version(max(model.versions, key=int)) for model in loaded}
