"""A registered version as MLflow loads it, without a word of ours but the installed package."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd
import pytest

from revelator import promotions, registry
from tests.training.toy import write_adapter, write_base


def test_mlflow_loads_the_champion_and_it_writes_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    registry.connect(None, tmp_path / "home")
    folder = write_adapter(tmp_path / "adapter", write_base(tmp_path / "base"))
    number = registry.register_adapter(folder, "planner")
    promotions.move("planner", number, promotions.read_standing("planner"))

    model = mlflow.pyfunc.load_model("models:/planner@champion")
    assert [column.name for column in model.metadata.signature.inputs] == ["question"]
    asked = ["When was the director of UHF born?", ""]
    planned = model.predict(pd.DataFrame({"question": asked}))
    assert list(planned["question"]) == asked
    assert planned["plan"][0] and planned["route"][0] and planned["error"][1] == "the question is empty"
    assert set(planned.columns) == {column.name for column in model.metadata.signature.outputs}
    assert list(model.metadata.load_input_example(str(folder_of(model)))["question"])


def folder_of(model: mlflow.pyfunc.PyFuncModel) -> Path:
    return Path(mlflow.artifacts.download_artifacts(f"models:/{model.metadata.model_id}"))
