"""What scoring an adapter gives: scores by task, one of which decides promotion."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

DECIDING = {  # the score of each task that the gate compares
    "route": "accuracy",
    "relevance": "accuracy",
    "end": "accuracy",
    "decompose": "equal",
    "refine": "equal",
    "translate_bnf": "letters",
    "translate_logic": "truth",
    "translate_art": "structure",
}


@dataclass(frozen=True)
class TaskScore:
    """Scores of one task on `n` rows, each in [0, 1]; `values` holds the score of every row in the order of `ids`.

    Label tasks: `accuracy`, for two labels also `auc` of the first label's probability (no row values).
    decompose: `equal`, the same parts in any order. refine: `equal`, the same question. Both by SQuAD's normaliser.
    translate_bnf, translate_logic, translate_art: those of `evaluation.metrics.plans.PlanScore`,
    `evaluation.metrics.plans.QueryScore`, `evaluation.metrics.plans.TreeScore`.
    """

    task: str
    n: int
    scores: dict[str, float]
    ids: tuple[str, ...]
    values: dict[str, tuple[float, ...]]

    @property
    def deciding(self) -> float:
        return self.scores[DECIDING[self.task]]


Scores = dict[str, TaskScore]


def score_table(scores: Scores, title: str) -> Table:
    table = Table("task", "n", "score", "value", title=title, title_justify="left")
    for task in DECIDING:
        if task in scores:
            for name, value in scores[task].scores.items():
                mark = " (decides)" if name == DECIDING[task] else ""
                table.add_row(task, str(scores[task].n), name + mark, f"{value:.3f}")
    return table
