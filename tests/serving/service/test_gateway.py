"""MLflow's AI Gateway, whose endpoints the Playground chats with, in front of a running service."""

from __future__ import annotations

import openai
from mlflow.entities.gateway_endpoint import GatewayEndpointModelConfig, GatewayModelLinkageType
from mlflow.store.tracking.rest_store import RestStore
from mlflow.utils.rest_utils import MlflowHostCreds

from tests.serving.service.conftest import FAST, WAIT, Service


def test_an_endpoint_of_mlflow_s_gateway_answers_with_its_sources_at_once_and_streamed(
    service: Service, tracking_server: str
) -> None:
    store = RestStore(lambda: MlflowHostCreds(tracking_server))
    place = {"api_base": f"{service.running.http}/v1"}
    secret = store.create_gateway_secret("any", {"api_key": "any"}, "openai", place)
    model = store.create_gateway_model_definition("revelator", secret.secret_id, "openai", "revelator")
    config = GatewayEndpointModelConfig(model.model_definition_id, GatewayModelLinkageType.PRIMARY)
    store.create_gateway_endpoint("documents", [config])
    client = openai.OpenAI(base_url=f"{tracking_server}/gateway/mlflow/v1", api_key="any", timeout=WAIT, max_retries=0)
    asked = [{"role": "user", "content": FAST}]
    reply = client.chat.completions.create(model="documents", messages=asked)
    streamed = client.chat.completions.create(model="documents", messages=asked, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices]
    assert "Orland" in reply.choices[0].message.content and "[1]" in reply.choices[0].message.content
    assert len(texts) > 1 and "Orland" in "".join(texts) and "[1]" in "".join(texts)
