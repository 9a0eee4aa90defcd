"""Graphs that ONNX Runtime runs: of Llama and Qwen2, and of the prefix language model (`revelator.prefix_lm`).

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

The graph of a prefix language model takes tokens without earlier ones as a prompt, others as written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from revelator.prefix_lm.model import PrefixLMConfig
from serving.models.graph import Graph

PREFIX = PrefixLMConfig.model_type
FAMILIES = ("llama", "qwen2", PREFIX)


def is_supported(config: Any) -> bool:
    """Does this module know the architecture? Others run on transformers."""
    if config.model_type == PREFIX:
        return config.hidden_act == "gelu"
    windowed = getattr(config, "use_sliding_window", False)
    gated = getattr(config, "hidden_act", "") == "silu"
    dynamic = (getattr(config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope")
    return config.model_type in FAMILIES and gated and not windowed and not dynamic


class ModelGraph(Graph):
    """A graph whose weights are those of torch modules."""

    def weight(self, name: str, value: torch.Tensor) -> str:
        return super().weight(name, value.detach().float().numpy())

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

    def layer_norm(self, x: str, name: str, module: Any) -> str:
        weight, bias = self.weight(name, module.weight), self.weight(f"{name}.bias", module.bias)
        return self.add("LayerNormalization", x, weight, bias, axis=-1, epsilon=module.eps)


def build_graph(model: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The graph of a transformers causal language model, and its weights."""
    if model.config.model_type == PREFIX:
        return _build_prefix_graph(model)
    config, graph = model.config, ModelGraph()
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


def _build_prefix_graph(model: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """BERT's layers, which take their norm after each sum, and the map to the space of the word embeddings."""
    config, graph, embeddings = model.config, ModelGraph(), model.encoder.embeddings
    heads, width = config.num_attention_heads, config.hidden_size
    words = graph.weight("embedding", embeddings.word_embeddings.weight)
    places = graph.weight("places", embeddings.position_embeddings.weight)
    types = graph.weight("types", embeddings.token_type_embeddings.weight)
    past = graph.add("Shape", "key.0", start=2, end=3)
    kind = graph.add("Gather", types, graph.add("Min", past, graph.integers(1)))
    x = graph.add("Add", graph.add("Gather", words, "ids"), graph.add("Gather", places, "positions"))
    x = graph.layer_norm(graph.add("Add", x, kind), "embedding.norm", embeddings.LayerNorm)
    mask, last = "mask", len(model.encoder.encoder.layer) - 1
    for number, layer in enumerate(model.encoder.encoder.layer):
        own, output = layer.attention.self, layer.attention.output
        if number < last:
            joined = graph.linear(x, f"{number}.qkv", own.query, own.key, own.value)
            q, k, v = graph.add("Split", joined, outputs=3, axis=-1, num_outputs=3)
        else:
            joined = graph.linear(x, f"{number}.kv", own.key, own.value)
            k, v = graph.add("Split", joined, outputs=2, axis=-1, num_outputs=2)
            x, _, mask = _select_ends(graph, x, width)
            q = graph.linear(x, f"{number}.q", own.query)
        seen = [f"attended.{number}", f"seen.key.{number}", f"seen.value.{number}"]
        earlier = f"key.{number}", f"value.{number}"
        graph.add("Attention", q, k, v, mask, *earlier, outputs=seen, q_num_heads=heads, kv_num_heads=heads)
        x = graph.add("Add", x, graph.linear(seen[0], f"{number}.output", output.dense))
        x = graph.layer_norm(x, f"{number}.norm", output.LayerNorm)
        inner = graph.add("Gelu", graph.linear(x, f"{number}.mlp.in", layer.intermediate.dense))
        x = graph.add("Add", x, graph.linear(inner, f"{number}.mlp.out", layer.output.dense))
        x = graph.layer_norm(x, f"{number}.mlp.norm", layer.output.LayerNorm)
    ends = graph.linear(graph.add("Reshape", x, graph.integers(-1, width)), "map", model.map)
    graph.add("Gemm", graph.layer_norm(ends, "norm", model.norm), words, outputs=["logits"], transB=1)
    return _make_proto(graph, last + 1, heads, width // heads), graph.weights


def _select_ends(graph: ModelGraph, x: str, width: int) -> list[str]:
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


def _tabulate_rotations(graph: ModelGraph, model: Any, size: int) -> tuple[str, str]:
    """Tables of cosines and sines, (positions, size / 2), as the model's own module computes them."""
    positions = torch.arange(model.config.max_position_embeddings)[None]
    with torch.inference_mode():
        cosines, sines = model.model.rotary_emb(torch.zeros(1), positions)
    half = size // 2
    return graph.weight("cosines", cosines[0, :, :half]), graph.weight("sines", sines[0, :, :half])


def _make_proto(graph: ModelGraph, layers: int, groups: int, size: int) -> ModelProto:
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
    return graph.to_model(inputs, outputs)


def _make_value_info(name: str, shape: list[str | int], kind: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)
