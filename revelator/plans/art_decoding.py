"""The decoder's grammar of ART, derived from `art.schema.json`: what it allows parses, and `check` finds nothing in it.

Nodes are numbered breadth-first but written depth-first: of what stands to its left, a decoder can be sure of the
numbers of the root's children alone. So the definitions of the schema are written out in kinds, as the rules of plans:

    0   the root: no `[i]` in its texts
    k   the k-th child of the root and what stands below it: `[i]` for i from 1 to k - 1; `direct` must name one

Brackets stand nowhere else, texts are on one line, and a tree is at most `DEEPEST` nodes deep. An answer further down
cannot be named; a flat tree, in which what is needed again is a child of the root, can name all of them.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from revelator.plans.art_reading import schema
from revelator.plans.decoding import CONTROLS, Grammar, character_class
from revelator.plans.json_decoding import json_grammar

KINDS = 10  # the tenth child of the root and those after it are of one kind, and may name [1] to [9]
DEEPEST = 4  # nodes from the root to a leaf, as the paper's trees have
REFERRED = re.compile(r'"#/\$defs/(\w+)"')


@cache
def art_grammar() -> Grammar:
    """The grammar of trees in JSON, after the one space that a completion begins with."""
    definitions = _definitions(0, 1)
    for kind in range(1, KINDS + 1):
        for level in range(2, DEEPEST + 1):
            definitions |= _definitions(kind, level)
    return json_grammar({"$ref": "#/$defs/node_0_1", "$defs": definitions})


def _definitions(kind: int, level: int) -> dict[str, Any]:
    """The definitions of the schema for nodes of this kind that stand `level` nodes deep, the root at 1."""
    written = schema()["$defs"]
    written["text"] = _text(kind)
    if kind:
        written["direct"]["properties"]["question"] = _text(kind, naming=True)
    barred = [*["direct"] * (kind == 1), *["parent"] * (level == DEEPEST)]
    ways = written["node"]["anyOf"]
    written["node"]["anyOf"] = [way for way in ways if way["$ref"].rpartition("/")[2] not in barred]
    named = REFERRED.sub(rf'"#/$defs/\1_{kind}_{level}"', json.dumps(written))
    definitions = {f"{name}_{kind}_{level}": value for name, value in json.loads(named).items() if name not in barred}
    if "parent" not in barred:
        below = [kind] if kind else list(range(1, KINDS + 1))
        nodes = [{"$ref": f"#/$defs/node_{k}_{level + 1}"} for k in below]
        definitions[f"parent_{kind}_{level}"]["properties"]["children"] |= {"prefixItems": nodes, "items": nodes[-1]}
    return definitions


def _text(kind: int, naming: bool = False) -> dict[str, Any]:
    """A text on one line with something in it to see; `naming`: with a reference in it."""
    letter = rf"[^\[\]{CONTROLS}]"
    spaces = character_class(r"\s")
    seen = rf"[^\[\]{CONTROLS}{spaces}]"
    reference = rf"\[[1-{kind - 1}]\]"
    either = f"(?:{letter}|{reference})" if kind > 1 else letter
    middle = reference if naming else f"(?:{seen}|{reference})" if kind > 1 else seen
    return {"type": "string", "pattern": f"^{either}*{middle}{either}*$", "examples": ["[1]" if naming else "x"]}
