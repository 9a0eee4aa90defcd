"""Graphs for ONNX Runtime while they are built from a model's weights, and the sessions that run them.

Weights stay outside of a graph: a session reads them where they are. Nothing here needs torch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

OPSET = 23  # the first with attention, rotation and root mean square norm
IR_VERSION = 11
MICROSOFT = "com.microsoft"  # operators of ONNX Runtime's own
ENCODER = "encoder"  # where BERT stands in a prefix language model, and in a reader
WORDS, PLACES, SEGMENTS = (
    f"{ENCODER}.embeddings.{name}_embeddings.weight" for name in ("word", "position", "token_type")
)

Part = Callable[[], Sequence[str]]


@dataclass
class OnnxGraph:
    """Nodes, constants and weights as they are added. `source` has the model's weights by name, in float32; of several
    linear layers that are one product, the product's weights have the name of the first."""

    source: Mapping[str, np.ndarray]
    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    def add(self, operator: str, *inputs: str, outputs: int | list[str] = 1, **attributes: Any) -> Any:
        """The name of the operator's output, or a list of names of several."""
        name = f"{operator}.{next(self.numbers)}"
        names = outputs if isinstance(outputs, list) else [f"{name}.{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name, **attributes))
        return names[0] if len(names) == 1 else names

    def add_choice(self, condition: str, kinds: Mapping[str, int], then: Part, otherwise: Part) -> None:
        """Adds two parts, of which `then` runs where the condition holds. Each adds its operators and returns the names
        of what it gives as the outputs that `kinds` names, with their types."""
        outer, parts = self.nodes, []
        for build in (then, otherwise):
            self.nodes = []
            given = [make_value_info(name, kind=kind) for name, kind in zip(build(), kinds.values(), strict=True)]
            parts.append(helper.make_graph(self.nodes, f"part.{next(self.numbers)}", [], given))
        self.nodes = outer
        self.add("If", condition, outputs=[*kinds], then_branch=parts[0], else_branch=parts[1])

    def weight(self, name: str, value: np.ndarray | None = None) -> str:
        """Adds an array: `value`, or the model's own of this name."""
        self.weights[name] = np.ascontiguousarray(self.source[name] if value is None else value)
        return name

    def integers(self, *values: int) -> str:
        name = f"integers.{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def linear(self, x: str, *layers: str) -> str:
        """Several linear layers of one input as one product."""
        weight, bias = f"{layers[0]}.weight", f"{layers[0]}.bias"
        joined = np.concatenate([self.source[f"{layer}.weight"] for layer in layers]).T
        x = self.add("MatMul", x, self.weight(weight, joined))
        if bias not in self.source:
            return x
        joined = np.concatenate([self.source[f"{layer}.bias"] for layer in layers])
        return self.add("Add", x, self.weight(bias, joined))

    def norm(self, x: str, name: str, epsilon: float) -> str:
        """A root mean square norm."""
        return self.add("RMSNormalization", x, self.weight(f"{name}.weight"), axis=-1, epsilon=epsilon)

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        return self.add("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)

    def finish_bert_layer(self, x: str, attended: str, layer: str, epsilon: float) -> str:
        """What follows the attention in a layer of BERT: two products, each added to its input, with a norm after the
        sum."""
        x = self.add("Add", x, self.linear(attended, f"{layer}.attention.output.dense"))
        x = self.layer_norm(x, f"{layer}.attention.output.LayerNorm", epsilon)
        inner = self.add("Gelu", self.linear(x, f"{layer}.intermediate.dense"))
        x = self.add("Add", x, self.linear(inner, f"{layer}.output.dense"))
        return self.layer_norm(x, f"{layer}.output.LayerNorm", epsilon)

    def to_model(self, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> ModelProto:
        tensors = [*self.constants, *(_make_external(name, value) for name, value in self.weights.items())]
        made = helper.make_graph(self.nodes, "revelator", inputs, outputs, tensors)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION)


def make_value_info(name: str, *shape: str | int, kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape or None)


def _make_external(name: str, value: np.ndarray) -> TensorProto:
    """A weight whose numbers are given to the session, not written into the graph."""
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(value.dtype), dims=value.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor


def open_session(
    model: ModelProto, weights: Mapping[str, np.ndarray], threads: int | None = None
) -> onnxruntime.InferenceSession:
    """A session on the CPU, on all cores that the process may use unless `threads` says how many. The caller keeps the
    weights: they are not copied."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or len(os.sched_getaffinity(0))
    options.enable_mem_pattern = False  # one is kept for each shape that was ever met
    options.enable_cpu_mem_arena = False  # keeps what the largest pass took; without it passes take no longer
    options.add_session_config_entry("session.force_spinning_stop", "1")  # no thread turns while nothing runs
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in weights.values()]
    options.add_external_initializers(list(weights), values)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
