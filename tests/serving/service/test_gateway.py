"""MLflow's AI Gateway in front of a running service, and its Playground, which chats with the gateway's endpoints."""

from __future__ import annotations

import uuid

import mlflow
import openai
import pytest
from mlflow.entities.gateway_endpoint import GatewayEndpointModelConfig, GatewayModelLinkageType
from mlflow.store.tracking.rest_store import RestStore
from mlflow.utils.rest_utils import MlflowHostCreds
from playwright.sync_api import Browser, expect

from tests.serving.service.conftest import FAST, WAIT, Service


@pytest.fixture
def name(service: Service, tracking_server: str) -> str:
    """The name of an endpoint whose model is the running service."""
    store, name = RestStore(lambda: MlflowHostCreds(tracking_server)), f"documents-{uuid.uuid4().hex[:8]}"
    place = {"api_base": f"{service.running.http}/v1"}
    secret = store.create_gateway_secret(name, {"api_key": "any"}, "openai", place)
    model = store.create_gateway_model_definition(name, secret.secret_id, "openai", "revelator")
    config = GatewayEndpointModelConfig(model.model_definition_id, GatewayModelLinkageType.PRIMARY)
    store.create_gateway_endpoint(name, [config])
    return name


def test_an_endpoint_of_mlflow_s_gateway_answers_with_its_sources_at_once_and_streamed(
    name: str, tracking_server: str
) -> None:
    client = openai.OpenAI(base_url=f"{tracking_server}/gateway/mlflow/v1", api_key="any", timeout=WAIT, max_retries=0)
    asked = [{"role": "user", "content": FAST}]
    reply = client.chat.completions.create(model=name, messages=asked)
    streamed = client.chat.completions.create(model=name, messages=asked, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices]
    assert "Orland" in reply.choices[0].message.content and "[1]" in reply.choices[0].message.content
    assert len(texts) > 1 and "Orland" in "".join(texts) and "[1]" in "".join(texts)


def test_a_person_asks_the_documents_in_the_playground(browser: Browser, name: str, tracking_server: str) -> None:
    experiment = mlflow.MlflowClient(tracking_server).create_experiment(name)
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    page.set_default_timeout(1000 * WAIT)
    page.goto(f"{tracking_server}/#/experiments/{experiment}/playground")
    page.get_by_role("combobox").click()
    page.get_by_role("option", name=name).click()
    page.get_by_placeholder("Type a message").fill(FAST)
    page.get_by_role("button", name="Submit").click()
    expect(page.get_by_text("Orland").first).to_be_visible(timeout=1000 * WAIT)
    expect(page.get_by_text("[1]").first).to_be_visible()
    page.close()
