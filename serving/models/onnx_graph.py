"""Graphs that ONNX Runtime runs: of Llama and Qwen2, and of the prefix language model (`revelator.prefix_lm`).

Everything that a forward pass repeats is one operator of the graph: a root mean square norm, a rotation, an attention
with the keys and values of earlier tokens, one product for query, key and value and one for gate and up. The rotations
are tabulated by the model's own module, so whatever scales them holds here, too. In the last layer only the tokens
whose logits are wanted need more than their keys and values. The weights stay outside of the graph: ONNX Runtime takes
them from memory.

    ids, positions (rows, tokens) int64
    mask (rows, 1, tokens, seen) float32      added to the attention's scores; seen = past + tokens
    ends (outputs,) int64                     where, in ids laid out flat, scores are wanted: of each row as many
    likeliest (1,) int64                      how many next tokens are looked for; 0 for the logits of all
    key.i, value.i (rows, heads, past, size)  of layer i; seen.key.i and seen.value.i are these and the new ones
    scores (outputs, vocabulary or at least likeliest)   logits, or log probabilities of the likeliest `tokens`, in any
    tokens (outputs, at least likeliest) int64           order

The graph of a prefix language model takes tokens without earlier ones as a prompt, others as written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto

from revelator.prefix_lm.model import PrefixLMConfig
from serving.models.graph import ENCODER, MICROSOFT, PLACES, SEGMENTS, WORDS, OnnxGraph, make_value_info

PREFIX = PrefixLMConfig.model_type
FAMILIES = ("llama", "qwen2", PREFIX)
PREVIEWED = 8  # tokens looked at twice for each one that is wanted
SEVEN_BITS = 63  # the largest weight: with one of eight bits sums overflow on a CPU without VNNI


def is_supported(config: Any) -> bool:
    """Does this module know the architecture? Others run on transformers."""
    if config.model_type == PREFIX:
        return config.hidden_act == "gelu"
    windowed = getattr(config, "use_sliding_window", False)
    gated = getattr(config, "hidden_act", "") == "silu"
    dynamic = (getattr(config, "rope_parameters", None) or {}).get("rope_type") in ("dynamic", "longrope")
    return config.model_type in FAMILIES and gated and not windowed and not dynamic


def build_graph(model: Any) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The graph of a transformers causal language model, and its weights."""
    graph = OnnxGraph({name: value.detach().float().numpy() for name, value in model.state_dict().items()})
    build = _add_prefix_layers if model.config.model_type == PREFIX else _add_llama_layers
    return build(graph, model), graph.weights


def _add_llama_layers(graph: OnnxGraph, model: Any) -> ModelProto:
    config, epsilon = model.config, model.config.rms_norm_eps
    heads, groups = config.num_attention_heads, config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    rotations = _tabulate_rotations(graph, model, size)
    x = graph.add("Gather", graph.weight("model.embed_tokens.weight"), "ids")
    positions, mask, last = "positions", "mask", config.num_hidden_layers - 1
    for number in range(config.num_hidden_layers):
        layer = f"model.layers.{number}"
        query, key, value, output = (f"{layer}.self_attn.{part}_proj" for part in "qkvo")
        inner = graph.norm(x, f"{layer}.input_layernorm", epsilon)
        if number < last:
            sizes = graph.integers(heads * size, groups * size, groups * size)
            q, k, v = graph.add("Split", graph.linear(inner, query, key, value), sizes, outputs=3, axis=-1)
        else:
            k, v = graph.add("Split", graph.linear(inner, key, value), outputs=2, axis=-1, num_outputs=2)
            x, positions, mask = _select_ends(graph, x, config.hidden_size)
            q = graph.linear(graph.norm(x, f"{layer}.input_layernorm", epsilon), query)
        q = graph.add("RotaryEmbedding", q, *rotations, positions, num_heads=heads)
        k = graph.add("RotaryEmbedding", k, *rotations, "positions", num_heads=groups)
        attended = _attend(graph, number, q, k, v, mask, q_num_heads=heads, kv_num_heads=groups)
        x = graph.add("Add", x, graph.linear(attended, output))
        inner = graph.norm(x, f"{layer}.post_attention_layernorm", epsilon)
        joined = graph.linear(inner, f"{layer}.mlp.gate_proj", f"{layer}.mlp.up_proj")
        gate, up = graph.add("Split", joined, outputs=2, axis=-1, num_outputs=2)
        gate = graph.add("Mul", gate, graph.add("Sigmoid", gate))
        x = graph.add("Add", x, graph.linear(graph.add("Mul", gate, up), f"{layer}.mlp.down_proj"))
    ends = graph.norm(graph.add("Reshape", x, graph.integers(-1, config.hidden_size)), "model.norm", epsilon)
    tied = model.lm_head.weight is model.model.embed_tokens.weight
    head = "model.embed_tokens.weight" if tied else graph.weight("lm_head.weight")
    _add_scores(graph, ends, head)
    return _make_proto(graph, last + 1, groups, size)


def _add_prefix_layers(graph: OnnxGraph, model: Any) -> ModelProto:
    """BERT's layers, and the map to the space of the word embeddings."""
    config, epsilon = model.config, model.config.layer_norm_eps
    heads, width = config.num_attention_heads, config.hidden_size
    past = graph.add("Shape", "key.0", start=2, end=3)
    kind = graph.add("Gather", graph.weight(SEGMENTS), graph.add("Min", past, graph.integers(1)))
    words, places = (
        graph.add("Gather", graph.weight(WORDS), "ids"),
        graph.add("Gather", graph.weight(PLACES), "positions"),
    )
    x = graph.add("Add", graph.add("Add", words, places), kind)
    x = graph.layer_norm(x, f"{ENCODER}.embeddings.LayerNorm", epsilon)
    mask, last = "mask", config.num_hidden_layers - 1
    for number in range(config.num_hidden_layers):
        layer = f"{ENCODER}.encoder.layer.{number}"
        query, key, value = (f"{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        if number < last:
            q, k, v = graph.add("Split", graph.linear(x, query, key, value), outputs=3, axis=-1, num_outputs=3)
        else:
            k, v = graph.add("Split", graph.linear(x, key, value), outputs=2, axis=-1, num_outputs=2)
            x, _, mask = _select_ends(graph, x, width)
            q = graph.linear(x, query)
        attended = _attend(graph, number, q, k, v, mask, q_num_heads=heads, kv_num_heads=heads)
        x = graph.finish_bert_layer(x, attended, layer, epsilon)
    ends = graph.linear(graph.add("Reshape", x, graph.integers(-1, width)), "map")
    _add_scores(graph, graph.layer_norm(ends, "norm", epsilon), WORDS, preview=True)
    return _make_proto(graph, last + 1, heads, width // heads)


def _add_scores(graph: OnnxGraph, x: str, head: str, *, preview: bool = False) -> None:
    """Scores and tokens, from x (outputs, width) and the output's weights.

    With a preview a product in 8 bits finds PREVIEWED times as many tokens as are wanted, and their logits are computed
    again in float32. The others count in the sum of the softmax alone (SVD-softmax, Shim et al. 2017, section 3,
    previews by fewer dimensions). The product with 30,522 word embeddings reads half of all weights of a step.
    """

    def multiply() -> str:
        return graph.add("Gemm", x, head, transB=1)

    def find_likeliest() -> Sequence[str]:
        if preview:
            logits, best = _preview(graph, x, head)
        else:
            logits = multiply()
            best = _find_best(graph, logits, "likeliest", head)
        return graph.add("GatherElements", graph.add("LogSoftmax", logits), best, axis=1), best

    kinds = {"scores": TensorProto.FLOAT, "tokens": TensorProto.INT64}
    searches = graph.add("Cast", "likeliest", to=TensorProto.BOOL)
    graph.add_choice(searches, kinds, find_likeliest, lambda: (multiply(), graph.add("Identity", "ends")))


def _preview(graph: OnnxGraph, x: str, head: str) -> tuple[str, str]:
    """The logits (outputs, vocabulary), of which those of the tokens that are returned are exact."""
    weights = graph.weights[head]
    scales = np.abs(weights).max(1).clip(min=1e-9) / SEVEN_BITS
    small = graph.weight(f"{head}.small", np.rint(weights / scales[:, None]).T.astype(np.int8))
    operands = x, small, graph.weight(f"{head}.scales", scales)
    logits = graph.add("DynamicQuantizeMatMul", *operands, domain=MICROSOFT)
    wanted = graph.add("Mul", "likeliest", graph.integers(PREVIEWED))
    best = _find_best(graph, logits, wanted, head)
    last = graph.integers(2)
    exact = graph.add("MatMul", graph.add("Gather", head, best), graph.add("Unsqueeze", x, last))
    return graph.add("ScatterElements", logits, best, graph.add("Squeeze", exact, last), axis=1), best


def _find_best(graph: OnnxGraph, logits: str, wanted: str, head: str) -> str:
    most = graph.add("Min", wanted, graph.integers(len(graph.weights[head])))
    return graph.add("TopK", logits, most, outputs=2, sorted=0)[1]


def _attend(graph: OnnxGraph, number: int, q: str, k: str, v: str, mask: str, **heads: int) -> str:
    """The attention of a layer, over the keys and values of earlier tokens, too."""
    outputs = [f"attended.{number}", f"seen.key.{number}", f"seen.value.{number}"]
    return graph.add("Attention", q, k, v, mask, f"key.{number}", f"value.{number}", outputs=outputs, **heads)[0]


def _select_ends(graph: OnnxGraph, x: str, width: int) -> list[str]:
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


def _tabulate_rotations(graph: OnnxGraph, model: Any, size: int) -> tuple[str, str]:
    """Tables of cosines and sines, (positions, size / 2), as the model's own module computes them."""
    positions = torch.arange(model.config.max_position_embeddings)[None]
    with torch.inference_mode():
        cosines, sines = model.model.rotary_emb(torch.zeros(1), positions)
    half = size // 2
    tables = (("cosines", cosines), ("sines", sines))
    cosines, sines = (graph.weight(name, table[0, :, :half].float().numpy()) for name, table in tables)
    return cosines, sines


def _make_proto(graph: OnnxGraph, layers: int, groups: int, size: int) -> ModelProto:
    past = [f"{name}.{number}" for number in range(layers) for name in ("key", "value")]
    inputs = [
        make_value_info("ids", "rows", "tokens", kind=TensorProto.INT64),
        make_value_info("positions", "rows", "tokens", kind=TensorProto.INT64),
        make_value_info("mask", "rows", 1, "tokens", "seen"),
        make_value_info("ends", "outputs", kind=TensorProto.INT64),
        make_value_info("likeliest", 1, kind=TensorProto.INT64),
        *(make_value_info(name, "rows", groups, "past", size) for name in past),
    ]
    outputs = [
        make_value_info("scores", "outputs", "candidates"),
        make_value_info("tokens", kind=TensorProto.INT64),
        *(make_value_info(f"seen.{name}", "rows", groups, "seen", size) for name in past),
    ]
    return graph.to_model(inputs, outputs)
