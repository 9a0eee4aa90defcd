"""What a decoder is held to: of plans and logical queries what `bnf.decoder.lark` and `logic.lark` have, of JSON the
grammar of a schema, and of trees one that is derived from `art.schema.json`.

What `make_plan_grammar` allows parses, and checks by `scoped` but for the numbers of steps and what an operation can be
done with. Of the spellings that the parser reads, only those that `render` could write are left: ` * ` and not ` × `,
no escape of what needs none, no control characters. Depth and the limits of an executor are no part of it.

What `make_logic_grammar` allows parses and can be run. In JSON keys follow the schema's order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from string import Template
from typing import Any

from revelator.plans.art import schema
from revelator.plans.grammar import CONTROLS, Grammar, character_class, read_grammar_file
from revelator.plans.operations import CHOOSING, CONDITIONAL, EXTREMES, OPERATIONS, SIGNS

QUOTE = r'"\""'
ESCAPE = r'"\\" /["\\]/'  # a quote or a backslash in a text between quotes


@cache
def make_plan_grammar() -> Grammar:
    """The grammar of plans."""
    space = character_class(r"\s")
    inside = rf'/[^"\\{{}}{CONTROLS}]/'
    classes = {
        "word": character_class(r"\w"),
        "begin": character_class(r"[^\W\d]"),
        "first": rf'/[^{space}(){{}}"+*×={CONTROLS}]/',
        "rest": rf"/[^{space}(){{}}{CONTROLS}]/",
        "inside": inside,
        "escaped": rf'({inside} | "\\" /["\\bfnrt]/)',
        "plain": rf'/[^{space}(){{}}"+*×=⇒→><!{CONTROLS}]/',
    }
    names = {
        "operations": _list_words(name for name in OPERATIONS if name not in CHOOSING),
        "choices": _list_words(EXTREMES),
        "filters": _list_words(CONDITIONAL),
        "signs": _list_words(SIGNS),
    }
    return Grammar(tuple(_write_kinds(Template(read_grammar_file("bnf.decoder.lark")).substitute(classes | names))))


def _list_words(words: Iterable[str]) -> str:
    return " | ".join(map(json.dumps, words))


def _write_kinds(text: str) -> Iterator[tuple[str, str]]:
    for name, body in _read_rules(text):
        kinds = (("unfed", "NONE"), ("any", "ANY"), ("none", "NONE")) if name.endswith("_kind") else (("", ""),)
        for kind, held in kinds:
            yield name.replace("kind", kind), body.replace("_kind", f"_{kind}").replace("_KIND", f"_{held}")


def _read_rules(text: str) -> list[tuple[str, str]]:
    """The rules of a grammar file, each on one line, without comments and what their parts are called."""
    lines = re.sub(r"(?m)^//.*\n| *->.*$", "", text)
    return re.findall(r"(?m)^(\w+): (.*)", re.sub(r"\n +", " ", lines))


@cache
def make_logic_grammar() -> Grammar:
    """The grammar of logical queries.

    Of what `logic.check` reports the grammar keeps out terms without a word. Too many terms, and that nothing or
    everything matches (`"a" AND NOT "a"`), show in the whole alone. A term may begin with a space, as it is learnt
    (`render_spaced`).
    """
    file = re.sub(r"\bstart\b", "query", read_grammar_file("logic.lark"))
    space, letter = character_class(r"\s"), character_class(r"[^\W_]")
    texts = [
        ("TERM", f'{QUOTE} " "? VISIBLE* LETTER CHARACTER* {QUOTE}'),
        ("VISIBLE", rf'/[^{space}"\\{CONTROLS}]/'),
        ("LETTER", rf"/[{letter}]/"),
        ("CHARACTER", rf'/[^"\\{CONTROLS}]/ | {ESCAPE}'),
    ]
    return Grammar((*(rule for rule in _read_rules(file) if rule[0] != "TERM"), *texts))


Schema = dict[str, Any]


def make_json_grammar(schema: Schema, texts: Iterable[tuple[str, str]] = ()) -> Grammar:
    """The grammar of JSON values of a schema, on one line.

    Of a schema it reads `$ref`, `anyOf`, `const`, `enum`, objects whose first key is required, arrays with
    `prefixItems`, which may be empty unless `minItems` is given, and of which another `maxItems` than 1 is not held,
    booleans, numbers from 0 to 999,999, and strings: with
    something in them to see, unless `x-text` names the one of `texts` that says what they are. Raises KeyError for
    another type.
    """
    definitions = schema.get("$defs", {})
    rules = [("value", _write_value(schema)), *((name, _write_value(part)) for name, part in definitions.items())]
    character, visible = (rf'(/[^"\\{CONTROLS}{barred}]/ | {ESCAPE})' for barred in ("", character_class(r"\s")))
    text = ("TEXT", f"{QUOTE} {character}* {visible} {character}* {QUOTE}")
    number = ("NUMBER", '"0" | /[1-9]/ /[0-9]/{0,5}')
    return Grammar((*rules, text, number, *texts))


def _write_value(schema: Schema) -> str:
    if "$ref" in schema:
        return schema["$ref"].rpartition("/")[2]
    if "const" in schema:
        return _quote(json.dumps(schema["const"]))
    if "enum" in schema:
        return f"({' | '.join(_quote(json.dumps(value)) for value in schema['enum'])})"
    if "anyOf" in schema:
        return f"({' | '.join(map(_write_value, schema['anyOf']))})"
    write: dict[str, Callable[[Schema], str]] = {
        "object": _write_object,
        "array": _write_array,
        "string": lambda text: text.get("x-text", "TEXT"),
        "boolean": lambda _: '("true" | "false")',
        "integer": lambda _: "NUMBER",
    }
    return write[schema["type"]](schema)


def _write_object(schema: Schema) -> str:
    named = {key: _quote(f"{json.dumps(key)}: ") for key in schema["properties"]}
    pairs = [(key, f"{named[key]} {_write_value(part)}") for key, part in schema["properties"].items()]
    (_, first), *later = pairs
    joined = [f'", " {pair}' if key in schema["required"] else f'(", " {pair})?' for key, pair in later]
    return f'"{{" {first} {" ".join(joined)} "}}"'


def _write_array(schema: Schema) -> str:
    """`prefixItems` first, each but the first only after the one before."""
    items = f'(", " ({_write_value(schema["items"])}))*'
    first, *later = [f"({_write_value(item)})" for item in schema.get("prefixItems", [schema["items"]])]
    for item in reversed(later):
        items = f'(", " {item} {items})?'
    if schema.get("maxItems") == 1:
        items = ""
    inside = f"{first} {items}" if schema.get("minItems") else f"({first} {items})?"
    return f'"[" {inside} "]"'


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


DRAWN = ("operation", "direct")  # the ways that are answered from earlier answers
CHILD_KINDS = 10  # the tenth child of the root and those after it are of one kind, and may name [1] to [9]
DEEPEST = 4  # nodes from the root to a leaf, as the paper's trees have
REFERRED = re.compile(r'"#/\$defs/(\w+)"')


@cache
def make_art_grammar() -> Grammar:
    """The grammar of trees in JSON: what it allows parses, and `art.check` finds nothing in it.

    Nodes are numbered breadth-first but written depth-first: of what stands to its left, a decoder can be sure of the
    numbers of the root's children alone. So the definitions of the schema are written out in kinds, as the rules of
    plans:

        0   the root: no `[i]` in its texts
        k   the k-th child of the root and what stands below it: `[i]` for i from 1 to k - 1; `direct` and `operation`
            must name one

    Brackets stand nowhere else, texts are on one line, and a tree is at most `DEEPEST` nodes deep. An answer further
    down cannot be named; a flat tree, in which what is needed again is a child of the root, can name all of them.
    """
    definitions = _make_definitions(0, 1)
    for kind in range(1, CHILD_KINDS + 1):
        for level in range(2, DEEPEST + 1):
            definitions |= _make_definitions(kind, level)
    return make_json_grammar({"$ref": "#/$defs/node_0_1", "$defs": definitions}, _list_texts())


def _make_definitions(kind: int, level: int) -> dict[str, Any]:
    """The definitions of the schema for nodes of this kind that stand `level` nodes deep, the root at 1."""
    written = schema()["$defs"]
    written["text"] = {"type": "string", "x-text": f"TEXT_{kind}"}
    if kind:
        for name in DRAWN:
            written[name]["properties"]["question"] = {"type": "string", "x-text": f"NAMING_{kind}"}
    barred = [*(DRAWN if kind == 1 else ["operation"] if kind == 0 else []), *["parent"] * (level == DEEPEST)]
    ways = written["node"]["anyOf"]
    written["node"]["anyOf"] = [way for way in ways if way["$ref"].rpartition("/")[2] not in barred]
    named = REFERRED.sub(rf'"#/$defs/\1_{kind}_{level}"', json.dumps(written))
    definitions = {f"{name}_{kind}_{level}": value for name, value in json.loads(named).items() if name not in barred}
    if "parent" not in barred:
        below = [kind] if kind else list(range(1, CHILD_KINDS + 1))
        nodes = [{"$ref": f"#/$defs/node_{k}_{level + 1}"} for k in below]
        definitions[f"parent_{kind}_{level}"]["properties"]["children"] |= {"prefixItems": nodes, "items": nodes[-1]}
    return definitions


def _list_texts() -> Iterator[tuple[str, str]]:
    """Of each kind the texts on one line with something in them to see, and those with a reference in them."""
    letter, seen = (rf'/[^\[\]"\\{CONTROLS}{barred}]/ | {ESCAPE}' for barred in ("", character_class(r"\s")))
    for kind in range(CHILD_KINDS + 1):
        reference = f'"[" /[1-{kind - 1}]/ "]"'
        either, some = (f"({sign} | {reference})" if kind > 1 else f"({sign})" for sign in (letter, seen))
        yield f"TEXT_{kind}", f"{QUOTE} {either}* {some} {either}* {QUOTE}"
        if kind > 1:
            yield f"NAMING_{kind}", f"{QUOTE} {either}* {reference} {either}* {QUOTE}"
