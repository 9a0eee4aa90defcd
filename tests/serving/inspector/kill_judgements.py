"""A judgement of a run, killed with -9 at each of its operations on the run's file and before each of its requests to
MLflow, one after the other.

    python -m tests.serving.inspector.kill_judgements TRACKING_SERVER EXPERIMENT RUNS RUN JUDGEMENT

Prints a line of JSON a try: how it ended, and what the run's file says of the judgement then. It stops after the first
try that was not killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import mlflow.tracking  # noqa: F401  once, not in each fork

from revelator import spans
from serving.inspector import Runs, create_app
from tests.serving.inspector.world import Asked


def begin(number: int, server: str, folder: Path, run: str, said: dict[str, Any]) -> int:
    """The process id of a fork that judges, and kills itself at its operation `number`."""
    child = os.fork()
    if child:
        return child
    seen = 0

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        on_file = event == "open" or event.startswith("os.")
        if event == "http.client.send" or (on_file and any(str(folder) in str(argument) for argument in arguments)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    async def judge(app: Any) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as page:
            return (await page.post(f"/api/runs/{run}/judgement", json=said)).status_code

    try:
        spans.start("inspector")
        app = create_app([Asked("one", "7").server()], Runs(folder), tracking_uri=server)
        sys.addaudithook(look)
        os._exit(0 if asyncio.run(judge(app)) == 200 else 1)
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        os._exit(1)


def main(server: str, experiment: str, folder: Path, run: str, said: dict[str, Any]) -> None:
    os.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": server, spans.QUESTIONS_VARIABLE: "1"}
    os.environ["OTEL_EXPORTER_OTLP_HEADERS"] = f"x-mlflow-experiment-id={experiment}"
    status, number = -signal.SIGKILL, 0
    while status == -signal.SIGKILL:
        number += 1
        _, ended = os.waitpid(begin(number, server, folder, run, said), 0)
        status = os.waitstatus_to_exitcode(ended)
        kept = json.loads((folder / f"{run}.json").read_text(encoding="utf-8"))
        print(json.dumps({"status": status, "judged": kept["judged"]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4], json.loads(sys.argv[5]))
