"""The reader on ONNX Runtime: MiniLM with a trained reader's weights, as one graph (`revelator.reading`).

    ids, mask, types (windows, tokens) int64 → scores (windows, tokens, 5), kinds (windows, 5)

With `int8` the products of the layers run on 8-bit weights, one scale an output column, and on inputs that are
quantised as they come; embeddings, norms and attention stay in fp32. The weights stay outside of the graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper
from safetensors.torch import load_file

from revelator.errors import ArtifactError
from revelator.minilm import TOKENIZER, WEIGHTS, fetch_minilm
from revelator.reading import INSIDE, KINDS, Reader, ReaderFolder, ReadingTokenizer, open_folder
from serving.models.onnx_graph import IR_VERSION, OPSET, Graph

HEADS = 12
NORM = 1e-12  # epsilon of MiniLM's layer norms
MICROSOFT = "com.microsoft"  # operators of ONNX Runtime's own


def load_reader(folder: Path, minilm: str | None = None, *, threads: int | None = None, int8: bool = True) -> Reader:
    """The reader of a folder that `revelator train reader` wrote; `minilm` as in `fetch_minilm`.

    Raises ArtifactError where the folder is no reader, and where its weights do not fit the published MiniLM."""
    opened, place = open_folder(folder), fetch_minilm(minilm)
    network = OnnxReader(read_weights(opened, place), opened.layers, threads=threads, int8=int8)
    tokenizer = ReadingTokenizer(place / TOKENIZER, opened.window, opened.stride)
    return Reader(tokenizer, network, opened.calibration)


def read_weights(reader: ReaderFolder, minilm: Path) -> dict[str, torch.Tensor]:
    """The reader's own weights and MiniLM's embeddings, in fp32."""
    published = {f"encoder.{name}": value for name, value in load_file(minilm / WEIGHTS).items()}
    embeddings = {name: value for name, value in published.items() if name.startswith("encoder.embeddings.")}
    layers = tuple(f"encoder.encoder.layer.{number}." for number in range(reader.layers))
    shapes = {name: value.shape for name, value in published.items() if name.startswith(layers)}
    width = embeddings["encoder.embeddings.LayerNorm.bias"].shape[0]
    for head, columns in (("tokens", INSIDE + 1), ("kinds", len(KINDS))):
        shapes |= {f"{head}.weight": torch.Size([columns, width]), f"{head}.bias": torch.Size([columns])}
    own = load_file(reader.weights_path)
    found = {name: value.shape for name, value in own.items()}
    if wrong := sorted(name for name in shapes.keys() | found.keys() if shapes.get(name) != found.get(name)):
        message = f"the weights do not fit MiniLM: {wrong[0]} is {found.get(wrong[0])}, not {shapes.get(wrong[0])}"
        raise ArtifactError(message, where=str(reader.weights_path), hint="train the reader again")
    return {name: value.float() for name, value in {**embeddings, **own}.items()}


class OnnxReader:
    """The network behind `revelator.reading.Forward`. Threads may share it."""

    def __init__(
        self, weights: dict[str, torch.Tensor], layers: int, *, threads: int | None = None, int8: bool = True
    ) -> None:
        graph = build_graph(weights, layers, int8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.enable_mem_pattern = False  # one is kept for each shape that was ever met
        options.enable_cpu_mem_arena = False  # keeps what the largest pass took
        options.add_session_config_entry("session.force_spinning_stop", "1")
        self._weights = graph.weights  # ONNX Runtime reads them where they are
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in self._weights.values()]
        options.add_external_initializers(list(self._weights), values)
        model = _to_model(graph).SerializeToString()
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def __call__(self, ids: np.ndarray, mask: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, kinds = self._session.run(["scores", "kinds"], {"ids": ids, "mask": mask, "types": types})
        return scores, kinds


def build_graph(weights: dict[str, torch.Tensor], layers: int, int8: bool) -> Graph:
    """BERT's layers over MiniLM's embeddings, and the reader's two products."""
    graph = Graph()

    def norm(x: str, name: str) -> str:
        scale, bias = (graph.weight(f"{name}.{part}", weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return graph.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=NORM)

    def product(x: str, *names: str, quantised: bool = int8) -> str:
        weight = torch.cat([weights[f"{name}.weight"] for name in names]).t()
        bias = graph.weight(f"{names[0]}.bias", torch.cat([weights[f"{name}.bias"] for name in names]))
        if not quantised:
            return graph.add("Add", graph.add("MatMul", x, graph.weight(f"{names[0]}.weight", weight)), bias)
        scale = weight.abs().amax(0).clamp(min=1e-8) / 127
        whole = (weight / scale).round().to(torch.int8).numpy()
        graph.weights[f"{names[0]}.int8"] = np.ascontiguousarray(whole)
        inputs = (x, f"{names[0]}.int8", graph.weight(f"{names[0]}.scale", scale), "", bias)
        return graph.add("DynamicQuantizeMatMul", *inputs, domain=MICROSOFT)

    table = "encoder.embeddings"
    words = graph.weight("words", weights[f"{table}.word_embeddings.weight"])
    places = graph.weight("places", weights[f"{table}.position_embeddings.weight"])
    segments = graph.weight("segments", weights[f"{table}.token_type_embeddings.weight"])
    length = graph.add("Shape", "ids", start=1, end=2)
    place = graph.add("Slice", places, graph.integers(0), length, graph.integers(0))
    x = graph.add("Add", graph.add("Gather", words, "ids"), graph.add("Gather", segments, "types"))
    x = norm(graph.add("Add", x, place), f"{table}.LayerNorm")
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
    kinds = graph.add("Squeeze", product(first, "kinds", quantised=False), graph.integers(1))
    graph.add("Identity", product(x, "tokens", quantised=False), outputs=["scores"])
    graph.add("Identity", kinds, outputs=["kinds"])
    return graph


def _to_model(graph: Graph) -> Any:
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["windows", "tokens"])
        for name in ("ids", "mask", "types")
    ]
    outputs = [
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["windows", "tokens", "columns"]),
        helper.make_tensor_value_info("kinds", TensorProto.FLOAT, ["windows", "kinds"]),
    ]
    tensors = [*graph.constants, *(_outside(name, value) for name, value in graph.weights.items())]
    made = helper.make_graph(graph.nodes, "reader", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION)


def _outside(name: str, value: np.ndarray) -> TensorProto:
    """A weight whose numbers are given to the session, not written into the graph."""
    kind = TensorProto.INT8 if value.dtype == np.int8 else TensorProto.FLOAT
    tensor = TensorProto(name=name, data_type=kind, dims=value.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor
