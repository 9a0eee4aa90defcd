"""A registered version as MLflow loads it, where this package is installed and where it is not."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import mlflow
import pandas as pd

from revelator import promotions, registry
from revelator.artifact import EMBEDDED_BASE
from tests.training.toy import write_adapter, write_base


def test_mlflow_loads_the_champion_and_it_writes_plans(tmp_path: Path) -> None:
    registry.connect(tmp_path / "home")
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


PLAIN = """
import importlib.util, sys
sys.path.append(sys.argv[1])
assert importlib.util.find_spec("revelator") is None
import mlflow, pandas
model = mlflow.pyfunc.load_model(sys.argv[2])
print(model.predict(pandas.DataFrame({"question": ["When was the director of UHF born?"]}))["plan"][0])
"""


def test_a_version_on_an_embedded_base_plans_where_this_package_is_not_installed(tmp_path: Path) -> None:
    """Without `site`, Python does not read the file by which this checkout is installed among the other packages."""
    registry.connect(tmp_path / "home")
    number = registry.register_adapter(write_adapter(tmp_path / "adapter", EMBEDDED_BASE), "planner")
    source = mlflow.artifacts.download_artifacts(f"models:/planner/{number}", dst_path=str(tmp_path / "elsewhere"))
    command = [sys.executable, "-I", "-S", "-c", PLAIN, sysconfig.get_path("purelib"), source]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0 and ran.stdout.strip(), ran.stderr
    needed = (Path(source) / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert not [line for line in needed if line.startswith("revelator") or "+" in line]
    assert any(line.startswith("faiss-cpu==") for line in needed)


def folder_of(model: mlflow.pyfunc.PyFuncModel) -> Path:
    return Path(mlflow.artifacts.download_artifacts(f"models:/{model.metadata.model_id}"))
