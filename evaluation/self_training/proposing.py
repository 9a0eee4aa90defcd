"""How the plans that a model proposes come about: draws at temperatures, or a beam search held to a known graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from data_gen.self_training import PLANNED
from revelator.errors import ConfigError
from revelator.files import sha256_text
from revelator.plans.language import BNF
from serving.models.decoding import Marks
from serving.models.engine import Engine
from serving.models.local import BEAMS, complete
from serving.protocols import Decoding

Propose = Callable[[Sequence[str], int], list[list[str]]]  # prompts, place of the first of them → texts of each


def drawn(engine: Engine, temperatures: Sequence[float], seed: int, decoding: Decoding) -> Propose:
    """A draw at each temperature. Those of one batch depend on nothing but its prompts, its place and the seed."""

    def propose(prompts: Sequence[str], place: int) -> list[list[str]]:
        draws = []
        for number, temperature in enumerate(temperatures):
            torch.manual_seed(int(sha256_text(f"{seed}:{place}:{number}")[:8], 16))
            done = complete(engine, PLANNED, prompts, temperature, BNF.beam_tokens, decoding)
            draws.append([completion.text for completion in done])
        return [list(texts) for texts in zip(*draws, strict=True)]

    return propose


def searched(engine: Engine, letters: str) -> Propose:
    """The likeliest texts, none twice, whose operators ` *` and ` +` are those of `letters`, such as "(A + B) * C", in
    its order, and which open the groups that stand at its beginning.

    No grammar holds them: the model closes a group, or does not. Raises ConfigError where the base's tokenizer has no
    token for an operator.
    """
    tokens = {sign: engine.tokenizer(f" {sign}", add_special_tokens=False)["input_ids"] for sign in "*+"}
    if any(len(found) > 1 for found in tokens.values()):
        hint = "name another base, or leave --letters out"
        raise ConfigError("the tokenizer of this base has no token for an operator", where="--letters", hint=hint)
    signs = {sign: token for sign, (token,) in tokens.items()}
    marks = Marks(list(signs.values()), [signs[sign] for sign in letters if sign in signs])
    groups = "(" * (len(letters) - len(letters.lstrip("(")))

    def propose(prompts: Sequence[str], place: int) -> list[list[str]]:
        begun = [f"{prompt} {groups}" if groups else prompt for prompt in prompts]
        found = engine.likeliest(begun, BEAMS, BNF.beam_tokens, marks=marks)
        return [list(dict.fromkeys(groups + text.text for text in texts)) for texts in found]

    return propose
