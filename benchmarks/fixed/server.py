"""A Triton server with models of the benchmarks' own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from serving.triton import control
from serving.triton.installation import find_installation
from serving.triton.server import TritonServer, read_ports

MODELS = Path(__file__).parent / "models"
CONFIG = """backend: "python"
input [ {{ name: "{input}" data_type: TYPE_STRING dims: [ 1 ] }} ]
output [ {{ name: "{output}" data_type: TYPE_STRING dims: [ 1 ] }} ]
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
{batching}
{parameters}
"""
TENSORS = {"leaf": ("query", "found"), "calls": ("question", "answer")}
BATCHING = {
    "leaf": "max_batch_size: 64\ndynamic_batching { }",  # what waits in the queue is one batch, as of every inner model
    "calls": "max_batch_size: 0",
}


@contextmanager
def serve_models(models: Mapping[str, tuple[str, Mapping[str, object]]]) -> Iterator[TritonServer]:
    """A server of `models`: by name, the file of fixed/models and its parameters; one instance of each."""
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
                batching=BATCHING[code],
                parameters="\n".join(lines),
            )
            (work / "models" / name / "config.pbtxt").write_text(config)
        server = TritonServer(find_installation(work), work / "models", read_ports("auto"), work / "triton.log")
        with server:
            for name in models:
                control.load(work, server.url, name, 1)
            yield server
