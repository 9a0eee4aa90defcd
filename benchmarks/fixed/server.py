"""A Triton server with models of the benchmarks' own, and what its processes hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from serving.triton import control
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer, read_ports

MODELS = Path(__file__).parent / "models"
CONFIG = """backend: "python"
input [ {{ name: "{input}" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "{output}" data_type: TYPE_STRING dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: {instances} }} ]
{batching}
{parameters}
"""
TENSORS = {"leaf": ("query", "found"), "single_leaf": ("query", "found"), "calls": ("question", "answer")}
BATCHING = {
    "leaf": "max_batch_size: 64\ndynamic_batching { }",  # what waits in the queue is one batch, as of the revelator
    "single_leaf": "max_batch_size: 1",  # each by itself, any number at a time, as of the generator
    "calls": "max_batch_size: 0",
}


@contextmanager
def serve_models(
    models: Mapping[str, tuple[str, Mapping[str, object]]], instances: Mapping[str, int] | None = None
) -> Iterator[TritonServer]:
    """A server of `models`: by name, the file of fixed/models and its parameters; one instance of each, or as many as
    `instances` says."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        for name, (code, chosen) in models.items():
            (version := work / "models" / name / "1").mkdir(parents=True)
            (version / "model.py").write_bytes((MODELS / f"{code}.py").read_bytes())
            lines = [f'parameters: {{ key: "{k}" value: {{ string_value: "{v}" }} }}' for k, v in chosen.items()]
            source, target = TENSORS[code]
            config = CONFIG.format(
                input=source,
                output=target,
                instances=(instances or {}).get(name, 1),
                batching=BATCHING[code],
                parameters="\n".join(lines),
            )
            (work / "models" / name / "config.pbtxt").write_text(config)
        server = TritonServer(find_installation(work), work / "models", read_ports("auto"), work / "triton.log")
        with server:
            for name in models:
                control.load(work, server.url, name, 1)
            yield server


def find_processes(pid: int) -> dict[str, psutil.Process]:
    """The server with process id `pid`, and the process of each model."""
    server = psutil.Process(pid)
    found = {"server": server}
    for child in server.children():
        code = next((Path(argument) for argument in child.cmdline() if argument.endswith("/model.py")), None)
        if code:
            found[code.parent.parent.name] = child
    return found


def measure_memory(process: psutil.Process) -> float:
    """Megabytes of its own: files and memory that it shares with others are not counted."""
    info = process.memory_info()
    return (info.rss - info.shared) / 2**20
