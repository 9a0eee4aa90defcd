"""The reader on ONNX Runtime: MiniLM with a trained reader's weights, as one graph (`revelator.reading`).

    ids, mask, types (windows, tokens) int64 → scores (windows, tokens, 5), kinds (windows, 5)

All of it is in fp32: inputs that are quantised as they come would make an answer depend on what is read beside it. The
weights stay outside of the graph.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes  # noqa: F401 (bfloat16, as weights are saved, for NumPy)
import numpy as np
from onnx import ModelProto, TensorProto, helper
from safetensors import safe_open
from safetensors.numpy import load_file

from revelator.errors import ArtifactError
from revelator.minilm import TOKENIZER, WEIGHTS, fetch_minilm
from revelator.reading import INSIDE, KINDS, Reader, ReaderFolder, ReadingTokenizer, open_folder
from serving.models.graph import MICROSOFT, Graph, open_session

EMBEDDINGS = "encoder.embeddings"
HEADS = 12
NORM = 1e-12  # epsilon of MiniLM's layer norms


def load_reader(folder: Path, minilm: str | None = None, *, threads: int | None = None) -> Reader:
    """The reader of a folder that `revelator train reader` wrote; `minilm` as in `fetch_minilm`.

    Raises ArtifactError where the folder is no reader, and where its weights do not fit the published MiniLM."""
    opened, place = open_folder(folder), fetch_minilm(minilm)
    network = OnnxReader(read_weights(opened, place), opened.layers, threads=threads)
    tokenizer = ReadingTokenizer(place / TOKENIZER, opened.window, opened.stride)
    return Reader(tokenizer, network, opened.calibration)


def read_weights(reader: ReaderFolder, minilm: Path) -> dict[str, np.ndarray]:
    """The reader's own weights and MiniLM's embeddings, in fp32."""
    with safe_open(minilm / WEIGHTS, "numpy") as published:
        names = {f"encoder.{name}": name for name in published.keys()}  # noqa: SIM118
        embeddings = {name: published.get_tensor(own) for name, own in names.items() if name.startswith(EMBEDDINGS)}
        layers = tuple(f"encoder.encoder.layer.{number}." for number in range(reader.layers))
        inside = {name: own for name, own in names.items() if name.startswith(layers)}
        shapes = {name: tuple(published.get_slice(own).get_shape()) for name, own in inside.items()}
    width = len(embeddings[f"{EMBEDDINGS}.LayerNorm.bias"])
    for head, columns in (("tokens", INSIDE + 1), ("kinds", len(KINDS))):
        shapes |= {f"{head}.weight": (columns, width), f"{head}.bias": (columns,)}
    own = load_file(reader.weights_path)
    found = {name: value.shape for name, value in own.items()}
    if wrong := sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name)):
        message = f"the weights do not fit MiniLM: {wrong[0]} is {found.get(wrong[0])}, not {shapes.get(wrong[0])}"
        raise ArtifactError(message, where=str(reader.weights_path), hint="train the reader again")
    return {name: value.astype(np.float32, copy=False) for name, value in {**embeddings, **own}.items()}


class OnnxReader:
    """The network behind `revelator.reading.Forward`. Threads may share it."""

    def __init__(self, weights: dict[str, np.ndarray], layers: int, *, threads: int | None = None) -> None:
        graph = build_graph(weights, layers)
        self._weights = graph.weights  # the session reads them where they are
        self._session = open_session(_to_model(graph), self._weights, threads)

    def __call__(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, kinds = self._session.run(["scores", "kinds"], {"ids": ids, "mask": mask, "types": types})
        return scores, kinds


def build_graph(weights: dict[str, np.ndarray], layers: int) -> Graph:
    """BERT's layers over MiniLM's embeddings, and the reader's two products."""
    graph = Graph()

    def norm(x: str, name: str) -> str:
        scale, bias = (graph.weight(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return graph.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=NORM)

    def product(x: str, *names: str) -> str:
        weight = np.concatenate([weights[f"{name}.weight"] for name in names]).T
        bias = np.concatenate([weights[f"{name}.bias"] for name in names])
        whole = graph.add("MatMul", x, graph.weight(f"{names[0]}.weight", weight))
        return graph.add("Add", whole, graph.weight(f"{names[0]}.bias", bias))

    words = graph.weight("words", weights[f"{EMBEDDINGS}.word_embeddings.weight"])
    places = graph.weight("places", weights[f"{EMBEDDINGS}.position_embeddings.weight"])
    segments = graph.weight("segments", weights[f"{EMBEDDINGS}.token_type_embeddings.weight"])
    length = graph.add("Shape", "ids", start=1, end=2)
    place = graph.add("Slice", places, graph.integers(0), length, graph.integers(0))
    x = graph.add("Add", graph.add("Gather", words, "ids"), graph.add("Gather", segments, "types"))
    x = norm(graph.add("Add", x, place), f"{EMBEDDINGS}.LayerNorm")
    seen = graph.add("Cast", "mask", to=TensorProto.INT32)
    for number in range(layers):
        layer = f"encoder.encoder.layer.{number}"
        parts = (f"{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        q, k, v = graph.add("Split", product(x, *parts), outputs=3, axis=-1, num_outputs=3)
        mixed = graph.add("MultiHeadAttention", q, k, v, "", seen, num_heads=HEADS, domain=MICROSOFT)
        joined = graph.add("Add", x, product(mixed, f"{layer}.attention.output.dense"))
        x = norm(joined, f"{layer}.attention.output.LayerNorm")
        inner = graph.add("Gelu", product(x, f"{layer}.intermediate.dense"))
        x = norm(graph.add("Add", x, product(inner, f"{layer}.output.dense")), f"{layer}.output.LayerNorm")
    first = graph.add("Gather", x, graph.integers(0), axis=1)
    kinds = graph.add("Squeeze", product(first, "kinds"), graph.integers(1))
    graph.add("Identity", product(x, "tokens"), outputs=["scores"])
    graph.add("Identity", kinds, outputs=["kinds"])
    return graph


def _to_model(graph: Graph) -> ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["windows", "tokens"])
        for name in ("ids", "mask", "types")
    ]
    outputs = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["windows", "tokens", "columns"]),
        helper.make_tensor_value_info("kinds", TensorProto.FLOAT, ["windows", "kinds"]),
    ]
    return graph.to_model(inputs, outputs)
