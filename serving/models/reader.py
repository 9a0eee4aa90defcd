"""The reader on ONNX Runtime: MiniLM with a trained reader's weights, as one graph (`revelator.reading`).

    ids, mask, types (windows, tokens) int64 → scores (windows, tokens, 5), kinds (windows, 5)

All of it is in fp32: inputs that are quantised as they come would make an answer depend on what is read beside it. The
weights stay outside of the graph.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401 (bfloat16, as weights are saved, for NumPy)
import numpy as np
from onnx import ModelProto, TensorProto
from safetensors import safe_open
from safetensors.numpy import load_file

from revelator.errors import ArtifactError
from revelator.minilm import TOKENIZER, WEIGHTS, fetch_minilm
from revelator.reading import ANSWER_KINDS, INSIDE, READER_WEIGHTS, Reader, ReadingTokenizer, open_folder
from serving.models.graph import ENCODER, MICROSOFT, PLACES, SEGMENTS, WORDS, OnnxGraph, make_value_info, open_session

EMBEDDINGS = f"{ENCODER}.embeddings"
LAYERS, HEADS = 6, 12
NORM = 1e-12  # epsilon of MiniLM's layer norms


def load_reader(folder: Path, *, threads: int | None = None) -> Reader:
    """The reader of a folder that `revelator train reader` wrote.

    Raises ArtifactError where the folder is no reader, and where its weights do not fit the published MiniLM."""
    calibration, minilm = open_folder(folder), fetch_minilm()
    network = OnnxReader(read_weights(folder / READER_WEIGHTS, minilm), threads=threads)
    return Reader(ReadingTokenizer(minilm / TOKENIZER), network, calibration)


def read_weights(trained: Path, minilm: Path) -> dict[str, np.ndarray]:
    """The reader's own weights and MiniLM's embeddings, in fp32."""
    with safe_open(minilm / WEIGHTS, "numpy") as published:
        names = {f"encoder.{name}": name for name in published.keys()}  # noqa: SIM118
        embeddings = {name: published.get_tensor(own) for name, own in names.items() if name.startswith(EMBEDDINGS)}
        layers = tuple(f"encoder.encoder.layer.{number}." for number in range(LAYERS))
        inside = {name: own for name, own in names.items() if name.startswith(layers)}
        shapes = {name: tuple(published.get_slice(own).get_shape()) for name, own in inside.items()}
    width = len(embeddings[f"{EMBEDDINGS}.LayerNorm.bias"])
    for head, columns in (("tokens", INSIDE + 1), ("kinds", len(ANSWER_KINDS))):
        shapes |= {f"{head}.weight": (columns, width), f"{head}.bias": (columns,)}
    own = load_file(trained)
    found = {name: value.shape for name, value in own.items()}
    if wrong := sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name)):
        message = f"the weights do not fit MiniLM: {wrong[0]} is {found.get(wrong[0])}, not {shapes.get(wrong[0])}"
        raise ArtifactError(message, where=str(trained), hint="train the reader again")
    return {name: value.astype(np.float32, copy=False) for name, value in {**embeddings, **own}.items()}


class OnnxReader:
    """The network behind `revelator.reading.Forward`. Threads may share it."""

    def __init__(self, weights: dict[str, np.ndarray], *, threads: int | None = None) -> None:
        graph = build_graph(weights)
        self._weights = graph.weights  # the session reads them where they are
        self._session = open_session(_to_model(graph), self._weights, threads)

    def __call__(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, kinds = self._session.run(["scores", "kinds"], {"ids": ids, "mask": mask, "types": types})
        return scores, kinds


def build_graph(weights: dict[str, np.ndarray]) -> OnnxGraph:
    """BERT's layers over MiniLM's embeddings, and the reader's two products."""
    graph = OnnxGraph(weights)
    words, segments = (
        graph.add("Gather", graph.weight(WORDS), "ids"),
        graph.add("Gather", graph.weight(SEGMENTS), "types"),
    )
    length = graph.add("Shape", "ids", start=1, end=2)
    places = graph.add("Slice", graph.weight(PLACES), graph.integers(0), length, graph.integers(0))
    x = graph.add("Add", graph.add("Add", words, segments), places)
    x = graph.layer_norm(x, f"{EMBEDDINGS}.LayerNorm", NORM)
    seen = graph.add("Cast", "mask", to=TensorProto.INT32)
    for number in range(LAYERS):
        layer = f"{ENCODER}.encoder.layer.{number}"
        parts = (f"{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        q, k, v = graph.add("Split", graph.linear(x, *parts), outputs=3, axis=-1, num_outputs=3)
        attended = graph.add("MultiHeadAttention", q, k, v, "", seen, num_heads=HEADS, domain=MICROSOFT)
        x = graph.finish_bert_layer(x, attended, layer, NORM)
    first = graph.add("Gather", x, graph.integers(0), axis=1)
    kinds = graph.add("Squeeze", graph.linear(first, "kinds"), graph.integers(1))
    graph.add("Identity", graph.linear(x, "tokens"), outputs=["scores"])
    graph.add("Identity", kinds, outputs=["kinds"])
    return graph


def _to_model(graph: OnnxGraph) -> ModelProto:
    inputs = [make_value_info(name, "windows", "tokens", kind=TensorProto.INT64) for name in ("ids", "mask", "types")]
    outputs = [make_value_info("scores", "windows", "tokens", "columns"), make_value_info("kinds", "windows", "kinds")]
    return graph.to_model(inputs, outputs)
