"""A service over an index in Milvus: who may read what, over every way in, and no documents from the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

pytest.importorskip("milvus_lite", reason="the extra `milvus` is not installed")

from revelator.errors import ConfigError
from serving.deploy.deploy import release_embedded_base
from serving.home.config import ServingConfig
from serving.home.configure import configure
from serving.retrieval import build_index
from serving.service.addresses import Exposure
from tests.chat_server import Server, running
from tests.service_thread import serve_in_thread
from tests.serving.retrieval.milvus_server import serve_milvus
from tests.serving.service import test_permissions as permissions

Laid = tuple[Path, ServingConfig, Server]


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laid]:
    folder = tmp_path_factory.mktemp("archive")
    for name, text in permissions.FILES.items():
        (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / name).write_text(text)
    release_embedded_base(folder / "home")
    with serve_milvus(folder / "milvus") as engine, running() as reader:
        build_index([folder / "files"], engine.address("archive"))
        reader.replies = [permissions.read]
        chosen = {"generator": reader.url, "generator_model": "m", "text": False, "judge": "none"}
        yield folder, configure(folder / "home", index=engine.address("archive"), **chosen), reader


def test_no_way_into_the_service_leaks_a_title_to_a_caller_without_the_group(laid: Laid) -> None:
    folder, config, reader = laid
    with serve_in_thread(folder / "home", config, Exposure(clients=permissions.name_clients())) as (_, service):
        archive = permissions.Archive(service.grpc, service.http, reader, folder)
        permissions.test_no_way_into_the_service_leaks_a_title_to_a_caller_without_the_group(archive)


def test_the_page_takes_no_documents(laid: Laid) -> None:
    folder, config, _ = laid
    with serve_in_thread(folder / "home", config) as (_, service):
        assert httpx.get(f"{service.http}/api/documents", trust_env=False).status_code == 404
    told = config.model_copy(update={"uploads": True})
    with pytest.raises(ConfigError, match="to an index in a folder"), serve_in_thread(folder / "home", told):
        pass
