"""xgrammar, which holds what vLLM writes, over single bytes."""

from __future__ import annotations

from functools import cache

import numpy as np
import xgrammar

END = 256
_SIGNS = xgrammar.TokenizerInfo([*(bytes([n]) for n in range(END)), "</s>"], stop_token_ids=[END])


@cache
def _compile(ebnf: str) -> xgrammar.CompiledGrammar:
    return xgrammar.GrammarCompiler(_SIGNS).compile_grammar(f"root ::= output\n{ebnf}")


def accepts(ebnf: str, text: str) -> bool:
    """Whether vLLM, held to the rule `output`, could write the text and end."""
    matcher = xgrammar.GrammarMatcher(_compile(ebnf))
    return all(map(matcher.accept_token, text.encode())) and matcher.accept_token(END)


def draw_text(ebnf: str, characters: str, bias: float, most: int, seed: int) -> str | None:
    """What random weights write that prefer `characters` by `bias`; None where `most` bytes are no end."""
    matcher, draw = xgrammar.GrammarMatcher(_compile(ebnf)), np.random.default_rng(seed)
    mask, written = xgrammar.allocate_token_bitmask(1, END + 1), bytearray()
    while len(written) < most:
        matcher.fill_next_token_bitmask(mask)
        allowed = np.unpackbits(mask.numpy().view(np.uint8), bitorder="little")[: END + 1].astype(bool)
        weights = draw.normal(size=END + 1) * 2
        weights[[*characters.encode(), END]] += bias
        token = int(np.where(allowed, weights, -np.inf).argmax())
        matcher.accept_token(token)
        if token == END:
            return written.decode(errors="replace")  # halves of surrogates, which a class with ^ allows
        written.append(token)
    return None
