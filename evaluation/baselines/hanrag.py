"""HANRAG (Sun et al. 2025, section 4) as published: the same four routes and one-step reading as ours, but a complex
question goes through the loop of refine, retrieve and end instead of a compiled plan."""

from __future__ import annotations

from serving.executor import routes
from serving.executor.run import Run

WAYS = {"straightforward": routes.direct, "single": routes.single, "compound": routes.compound}


async def hanrag(run: Run) -> None:
    run.kind = await routes.route(run)
    await WAYS.get(run.kind, routes.iterate)(run)
