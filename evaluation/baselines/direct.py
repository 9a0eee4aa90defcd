"""Direct generation, closed book (Roberts et al. 2020, arXiv 2002.08910): what the generator knows by itself."""

from __future__ import annotations

from serving.executor import routes
from serving.executor.run import Run


async def direct(run: Run) -> None:
    await routes.direct(run)
