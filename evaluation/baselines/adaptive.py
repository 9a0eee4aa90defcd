"""Adaptive-RAG (Jeong et al. 2024, arXiv 2403.14403, section 3): a small classifier sends a question one of three ways,
no retrieval, one step, or several steps, which are IRCoT.

The classifier is the revelator's route, whose compound and complex questions both go the third way.
"""

from __future__ import annotations

from evaluation.baselines.ircot import ircot
from evaluation.baselines.naive import naive_5
from serving.executor import routes
from serving.executor.run import Run


async def adaptive(run: Run) -> None:
    match await routes.route(run):
        case "straightforward":
            await routes.direct(run)
        case "single":
            await naive_5(run)
        case _:
            await ircot(run)
