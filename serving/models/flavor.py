"""A registered version as MLflow's own `python_function` model, which writes plans:

    model = mlflow.pyfunc.load_model("models:/revelator@champion")
    model.predict(pandas.DataFrame({"question": ["When was the director of UHF born?"]}))

MLflow finds `_load_pyfunc` by its name, and hands it the folder that holds the adapter. The answer has a row for each
question, with the fields of `serving.models.planning.PlannedQuestion` but for its diagnostics.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from revelator.plans.language import LANGUAGES
from serving.models.adapters import Adapter, open_engine
from serving.models.local import complete
from serving.models.planning import plan_questions

COLUMNS = ("question", "route", "plan", "letters", "valid", "degraded", "error")


class Planner:
    def __init__(self, folder: Path) -> None:
        self._engine = open_engine(Adapter(folder))

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        questions = [str(question) for question in model_input["question"]]
        planned = plan_questions(partial(complete, self._engine), questions, LANGUAGES["bnf"])
        return pd.DataFrame([{name: getattr(row, name) for name in COLUMNS} for row in planned], columns=COLUMNS)


def _load_pyfunc(path: str) -> Planner:
    return Planner(Path(path))
