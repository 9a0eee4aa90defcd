"""A causal language model on ONNX Runtime, which serves on a CPU: the graph of a Llama or Qwen2 model, and its passes.

For the embedded base a step through transformers spends most of its time between the products, in Python and in reading
weights whose layout suits no single row; here a step is one call. Figures: docs/results.md.

Everything that a forward pass repeats is one operator of the graph: a root mean square norm, a rotation, an attention
with the keys and values of earlier tokens, one product for query, key and value and one for gate and up. The rotations
are tabulated by the model's own module, so whatever scales them holds here, too. In the last layer only the tokens
whose logits are wanted need more than their keys and values. The weights stay outside of the graph: ONNX Runtime takes
them from memory.

    ids, positions (rows, tokens) int64
    mask (rows, 1, tokens, seen) float32      added to the attention's scores; seen = past + tokens
    ends (outputs,) int64                     where, in ids laid out flat, logits are wanted: of each row as many
    key.i, value.i (rows, heads, past, size)  of layer i; seen.key.i and seen.value.i are these and the new ones
    logits (outputs, vocabulary)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from serving.models.decoding import Beams, Constraint, Marks, add_noise, pick_best_tokens, raise_if_cancelled
from serving.models.packing import Pack

CHUNK = 256  # tokens of each prompt in one pass: bounds the attention's scores, (rows, heads, CHUNK, seen)
SPAN = 192  # tokens of a pack in one pass: attention looks at every pair
HIDDEN = np.finfo(np.float32).min  # added to the score of a token that may not be seen

OPSET = 23  # the first with attention, rotation and root mean square norm
IR_VERSION = 11
FAMILIES = ("llama", "qwen2")

Past = list[Any]  # keys and values of each layer, as ONNX Runtime holds them


class OnnxModel:
    """The graph and the weights of a transformers model (`is_supported`), which is not needed afterwards.

    Ids and masks are of shape (rows, tokens), padded on the left; logits (rows, vocabulary) in float32.
    """

    pack_tokens = 1 << 16  # read in spans

    def __init__(self, model: Any, threads: int | None = None) -> None:
        graph, self._weights = build_graph(model)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or torch.get_num_threads()
        options.enable_mem_pattern = False  # one is kept for each shape that was ever met
        options.enable_cpu_mem_arena = False  # keeps what the largest pass took; without it passes take no longer
        options.add_session_config_entry("session.force_spinning_stop", "1")  # no thread turns while nothing runs
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(weight) for weight in self._weights.values()]
        options.add_external_initializers(list(self._weights), values)
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {value.name: value.shape for value in self._session.get_inputs()}
        self._past = list(self._inputs)[4:]
        self._outputs = [value.name for value in self._session.get_outputs()]

    def read_pack(self, group: Pack, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Logits after each member of a pack: (members, vocabulary)."""
        ids, positions, ends = group.ids[None].numpy(), group.positions[None].numpy(), group.ends.numpy()
        past, found = self._make_empty_past(1), []
        for start, stop in group.split_spans(SPAN):
            raise_if_cancelled(cancelled)
            mask = group.make_mask(torch.float32, torch.device("cpu"), start, stop).numpy()
            here = ends[(start <= ends) & (ends < stop)] - start
            logits, seen = self.run(ids[:, start:stop], positions[:, start:stop], mask, here, past)
            found.append(logits)
            if not start and stop < len(group.ids):
                past = [_ort_value(value.numpy()[:, :, : group.shared]) for value in seen]
        return torch.cat(found)

    def read_ends(self, ids: torch.Tensor, mask: torch.Tensor, cancelled: Callable[[], bool]) -> torch.Tensor:
        """Logits after the last token of each row."""
        return self._read_prompts(ids.numpy(), mask.numpy().astype(bool), cancelled)[0]

    def write(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        room: int,
        end: int,
        temperature: float,
        constraint: Constraint | None,
        cancelled: Callable[[], bool],
    ) -> list[list[int]]:
        """At most `room` tokens that follow each row; a row that ended is filled with the end token."""
        rows, width = ids.shape
        kept = mask.numpy().astype(bool)
        hidden = np.zeros((rows, 1, 1, width + room), dtype=np.float32)
        hidden[:, 0, 0, :width][~kept] = HIDDEN
        lengths, each = kept.sum(1, keepdims=True), np.arange(rows)
        logits, past = self._read_prompts(ids.numpy(), kept, cancelled)
        written: list[torch.Tensor] = [ids[:, -1]]
        ended = torch.zeros(rows, dtype=torch.bool)
        while True:
            scores = constraint(written[-1][:, None], logits) if constraint else add_noise(logits, temperature)
            token = pick_best_tokens(scores).masked_fill(ended, end)
            written.append(token)
            ended |= token == end
            if ended.all() or len(written) > room:
                return torch.stack(written[1:], 1).tolist()
            raise_if_cancelled(cancelled)
            number = len(written) - 2  # of the token that is read now
            seen = hidden[..., : width + number + 1]
            logits, past = self.run(token[:, None].numpy(), lengths + number, seen, each, past)

    def search_beams(
        self,
        ids: torch.Tensor,
        mask: torch.Tensor,
        room: int,
        end: int,
        width: int,
        cancelled: Callable[[], bool],
        marks: Marks | None = None,
    ) -> list[list[list[int]]]:
        """For each row up to `width` continuations that end within `room` tokens, likeliest first (`Beams`)."""
        kept = mask.numpy().astype(bool)
        lengths = kept.sum(1)
        logits, past = self._read_prompts(ids.numpy(), kept, cancelled)
        beams = Beams(len(ids), width, end, marks)
        order = np.repeat(np.arange(len(ids)), width)  # of the rows that the last pass had
        parents = beams.step(logits[order])
        for number in range(room - 1):
            if not beams.alive:
                break
            raise_if_cancelled(cancelled)
            past, order = _reorder(past, order[parents]), np.arange(len(parents))
            rows = np.repeat(beams.alive, width)
            hidden = np.zeros((len(rows), 1, 1, ids.shape[1] + number + 1), dtype=np.float32)
            hidden[:, 0, 0, : ids.shape[1]][~kept[rows]] = HIDDEN
            tokens = np.array(beams.tokens)[:, None]
            logits, past = self.run(tokens, lengths[rows, None] + number, hidden, order, past)
            parents = beams.step(logits)
        return beams.list_texts()

    def run(
        self, ids: np.ndarray, positions: np.ndarray, mask: np.ndarray, ends: np.ndarray, past: Past
    ) -> tuple[torch.Tensor, Past]:
        """One pass; the inputs are those of the graph (the module's docstring)."""
        arrays = {"ids": ids, "positions": positions, "mask": mask, "ends": ends}
        feed = {name: _ort_value(array) for name, array in arrays.items()} | dict(zip(self._past, past, strict=True))
        logits, *seen = self._session.run_with_ort_values(self._outputs, feed)
        return torch.from_numpy(logits.numpy()), seen

    def _read_prompts(
        self, ids: np.ndarray, kept: np.ndarray, cancelled: Callable[[], bool]
    ) -> tuple[torch.Tensor, Past]:
        """The prompts, in chunks; logits after the last token of each."""
        rows, width = ids.shape
        positions = np.maximum(kept.cumsum(1) - 1, 0)
        past = self._make_empty_past(rows)
        for start in range(0, width, CHUNK):
            raise_if_cancelled(cancelled)
            stop = min(start + CHUNK, width)
            sees = np.tri(stop - start, stop, start, dtype=bool) & kept[:, None, None, :stop]
            mask = np.where(sees, np.float32(0), HIDDEN)
            ends = np.arange(1, rows + 1) * (stop - start) - 1
            logits, past = self.run(ids[:, start:stop], positions[:, start:stop], mask, ends, past)
        return logits, past

    def _make_empty_past(self, rows: int) -> Past:
        _, heads, _, size = self._inputs[self._past[0]]
        return [_ort_value(np.zeros((rows, heads, 0, size), dtype=np.float32))] * len(self._past)


def _reorder(past: Past, order: np.ndarray) -> Past:
    """Keys and values of the rows `order`, which may name a row twice or leave one out."""
    if len(past) and np.array_equal(order, np.arange(past[0].shape()[0])):
        return past
    return [_ort_value(value.numpy().take(order, axis=0)) for value in past]


def _ort_value(array: np.ndarray) -> onnxruntime.OrtValue:
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def is_supported(config: Any) -> bool:
    """Whether this module knows the architecture; others run on transformers."""
    windowed = getattr(config, "use_sliding_window", False)
    gated = getattr(config, "hidden_act", "") == "silu"
    dynamic = (getattr(config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope")
    return config.model_type in FAMILIES and gated and not windowed and not dynamic


@dataclass
class Graph:
    """Nodes, constants and weights (name to array) as they are added."""

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, operator: str, *inputs: str, outputs: int | list[str] = 1, **attributes: Any) -> Any:
        """The name of the operator's output, or a list of names of several."""
        names = outputs if isinstance(outputs, list) else [f"{operator}.{len(self.nodes)}.{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, f"{operator}.{len(self.nodes)}", **attributes))
        return names[0] if len(names) == 1 else names

    def weight(self, name: str, value: torch.Tensor) -> str:
        self.weights[name] = np.ascontiguousarray(value.detach().float().numpy())
        return name

    def integers(self, *values: int) -> str:
        name = f"integers.{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def linear(self, x: str, name: str, *parts: Any) -> str:
        """Several linear layers of one input as one product."""
        weight = self.weight(name, torch.cat([part.weight for part in parts]).t())
        x = self.add("MatMul", x, weight)
        if parts[0].bias is None:
            return x
        return self.add("Add", x, self.weight(f"{name}.bias", torch.cat([part.bias for part in parts])))

    def norm(self, x: str, name: str, module: Any) -> str:
        weight = self.weight(name, module.weight)
        return self.add("RMSNormalization", x, weight, axis=-1, epsilon=module.variance_epsilon)


def build_graph(model: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The graph of a transformers causal language model, and its weights."""
    config, graph = model.config, Graph()
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    rotations = _tabulate_rotations(graph, model, size)
    x = graph.add("Gather", graph.weight("embedding", model.model.embed_tokens.weight), "ids")
    positions, mask, last = "positions", "mask", len(model.model.layers) - 1
    for number, layer in enumerate(model.model.layers):
        attention, mlp = layer.self_attn, layer.mlp
        inner = graph.norm(x, f"{number}.norm", layer.input_layernorm)
        if number < last:
            joined = graph.linear(inner, f"{number}.qkv", attention.q_proj, attention.k_proj, attention.v_proj)
            sizes = graph.integers(heads * size, groups * size, groups * size)
            q, k, v = graph.add("Split", joined, sizes, outputs=3, axis=-1)
        else:
            joined = graph.linear(inner, f"{number}.kv", attention.k_proj, attention.v_proj)
            k, v = graph.add("Split", joined, outputs=2, axis=-1, num_outputs=2)
            x, positions, mask = _select_ends(graph, x, config.hidden_size)
            q = graph.linear(graph.norm(x, f"{number}.norm", layer.input_layernorm), f"{number}.q", attention.q_proj)
        q = graph.add("RotaryEmbedding", q, *rotations, positions, num_heads=heads)
        k = graph.add("RotaryEmbedding", k, *rotations, "positions", num_heads=groups)
        seen = [f"attended.{number}", f"seen.key.{number}", f"seen.value.{number}"]
        past = f"key.{number}", f"value.{number}"
        graph.add("Attention", q, k, v, mask, *past, outputs=seen, q_num_heads=heads, kv_num_heads=groups)
        x = graph.add("Add", x, graph.linear(seen[0], f"{number}.output", attention.o_proj))
        inner = graph.norm(x, f"{number}.mlp.norm", layer.post_attention_layernorm)
        joined = graph.linear(inner, f"{number}.mlp.in", mlp.gate_proj, mlp.up_proj)
        gate, up = graph.add("Split", joined, outputs=2, axis=-1, num_outputs=2)
        gate = graph.add("Mul", gate, graph.add("Sigmoid", gate))
        x = graph.add("Add", x, graph.linear(graph.add("Mul", gate, up), f"{number}.mlp.out", mlp.down_proj))
    ends = graph.norm(graph.add("Reshape", x, graph.integers(-1, config.hidden_size)), "norm", model.model.norm)
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    head = "embedding" if tied else graph.weight("head", model.lm_head.weight)
    graph.add("Gemm", ends, head, outputs=["logits"], transB=1)
    return _make_proto(graph, len(model.model.layers), groups, size), graph.weights


def _select_ends(graph: Graph, x: str, width: int) -> list[str]:
    """Of what a layer reads, the tokens at `ends`: x (rows, wanted, width), their positions, their rows of the mask."""
    rows, each = graph.add("Shape", "ids", start=0, end=1), graph.integers(-1)

    def pick(flat: str, *shape: str) -> str:
        return graph.add("Reshape", graph.add("Gather", flat, "ends"), graph.add("Concat", rows, *shape, axis=0))

    seen = graph.add("Shape", "mask", start=3, end=4)
    return [
        pick(graph.add("Reshape", x, graph.integers(-1, width)), each, graph.integers(width)),
        pick(graph.add("Reshape", "positions", each), each),
        pick(graph.add("Flatten", "mask", axis=3), graph.integers(1), each, seen),
    ]


def _tabulate_rotations(graph: Graph, model: Any, size: int) -> tuple[str, str]:
    """Tables of cosines and sines, (positions, size / 2), as the model's own module computes them."""
    positions = torch.arange(model.config.max_position_embeddings)[None]
    with torch.inference_mode():
        cosines, sines = model.model.rotary_emb(torch.zeros(1), positions)
    half = size // 2
    return graph.weight("cosines", cosines[0, :, :half]), graph.weight("sines", sines[0, :, :half])


def _make_proto(graph: Graph, layers: int, groups: int, size: int) -> ModelProto:
    past = [f"{name}.{number}" for number in range(layers) for name in ("key", "value")]
    inputs = [
        _make_value_info("ids", ["rows", "tokens"], TensorProto.INT64),
        _make_value_info("positions", ["rows", "tokens"], TensorProto.INT64),
        _make_value_info("mask", ["rows", 1, "tokens", "seen"]),
        _make_value_info("ends", ["outputs"], TensorProto.INT64),
        *(_make_value_info(name, ["rows", groups, "past", size]) for name in past),
    ]
    outputs = [
        _make_value_info("logits", ["outputs", "vocabulary"]),
        *(_make_value_info(f"seen.{name}", ["rows", groups, "seen", size]) for name in past),
    ]
    tensors = [*graph.constants, *(_make_external(name, value) for name, value in graph.weights.items())]
    made = helper.make_graph(graph.nodes, "revelator", inputs, outputs, tensors)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def _make_value_info(name: str, shape: list[str | int], kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _make_external(name: str, value: np.ndarray) -> TensorProto:
    """A weight whose numbers are given to the session, not written into the graph."""
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=value.shape)
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="memory")
    return tensor
