"""The language art: the atomic reasoning tree as a value, its JSON form, and its check (AtomR, section 3.2).

A node is a question and the way to its answer: one of three operators (`Search`, `Relate`, `Filter`), `children`, or
neither, which is `[DR]`, answered from the earlier answers that its question names: by the operation that it says, else
by the reader. Nodes are numbered breadth-first, the root is 0. `[i]` in a text stands for the answers of node i,
`[[i]]` for the text `[i]`.

`parse` reads the JSON form, `render` writes it; `art.schema.json` describes it (JSON Schema 2020-12), and the decoder's
grammar is derived from that. Faults point into the text: line, column, caret, and the place as a path such as
`children[1].relate.head`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, FailFast, Field, TypeAdapter, ValidationError

from revelator.config import FewKeys, find_first_fault
from revelator.errors import ExpressionError
from revelator.plans import trees
from revelator.plans.bnf import replace_marks
from revelator.plans.faults import Diagnostic, fault, sort_faults
from revelator.plans.grammar import read_grammar_file, read_object
from revelator.plans.operations import COMPUTED
from revelator.plans.operators import CALLS, STRICT, Call, Filter, Relate, Search, Text, spell_call

Path = tuple[str | int, ...]  # of a value inside the JSON form

MAX_DEPTH = 32  # nodes from the root to the deepest leaf; the paper's trees have at most 4
_BRACKETED = re.compile(r"\[(\d{1,4})\]")
REFERENCE = re.compile(r"(?<!\[)(\[++)(\d{1,4})(\]++)")


@dataclass(frozen=True, slots=True)
class Art:
    """A node and what stands below it; a whole tree is its root, and `source` the text that it was parsed from. Raises
    ValueError for two of a call, children and an operation."""

    question: str
    call: Call | None = None
    children: tuple[Art, ...] = ()
    operation: str = ""
    source: str = field(default="", init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if sum(map(bool, (self.call, self.children, self.operation))) > 1:
            raise ValueError("a node has one of an operator, children and an operation")
        if self.operation and self.operation not in COMPUTED:
            raise ValueError(f"there is no operation {self.operation!r}; there are {', '.join(COMPUTED)}")

    @property
    def is_direct(self) -> bool:
        return self.call is None and not self.children

    def locate_texts(self) -> Iterator[tuple[Path, str]]:
        """Finds every text in which a reference may stand, with its path below the node, the question first."""
        yield ("question",), self.question
        if self.call:
            yield from (((_name_way(self.call), *path), text) for path, text in self.call.locate_texts())


@dataclass(frozen=True, slots=True)
class Numbered:
    """A node with its place: `number` breadth-first, numbers of its `parent` (None for the root) and `children`."""

    number: int
    node: Art
    parent: int | None
    children: tuple[int, ...]
    path: Path  # from the root down

    @property
    def needs(self) -> tuple[int, ...]:
        """The nodes whose answers its own texts name, in order of first use."""
        return tuple(dict.fromkeys(i for _, text in self.node.locate_texts() for i in references(text)))


def number_nodes(art: Art) -> tuple[Numbered, ...]:
    """Lists all nodes breadth-first; node i is at index i."""
    found: list[Numbered] = []
    queue: deque[tuple[Art, int | None, Path]] = deque([(art, None, ())])
    last = 0
    while queue:
        node, parent, path = queue.popleft()
        number, below = len(found), tuple(range(last + 1, last + 1 + len(node.children)))
        last += len(below)
        queue.extend((child, number, (*path, "children", place)) for place, child in enumerate(node.children))
        found.append(Numbered(number, node, parent, below, path))
    return tuple(found)


def depth(art: Art) -> int:
    """Counts the nodes from the root to the deepest leaf."""
    return 1 + max((depth(child) for child in art.children), default=0)


def references(text: str) -> tuple[int, ...]:
    """Lists the distinct numbers that a text refers to, in order of first use; `[[i]]` is no reference."""
    found = (match for match in REFERENCE.finditer(text) if len(match[1]) == len(match[3]) == 1)
    return tuple(dict.fromkeys(int(match[2]) for match in found))


def escape(text: str) -> str:
    """Writes `[3]` so that it is no reference."""
    return _BRACKETED.sub(r"[[\1]]", text)


def substitute(text: str, answers: Mapping[int, Sequence[str]]) -> str:
    """The text with each `[i]` that has answers replaced by them (joined by commas), and `[[i]]` turned into `[i]`.

    Answers are put in as they are: brackets in them are not read again.
    """

    def find(number: str, reference: str) -> str:
        return ", ".join(answers[int(number)]) if int(number) in answers else reference

    return replace_marks(REFERENCE, text, find) if "[" in text else text


FORM = (
    'a node is {"question": …} with one of search {name, descriptor}, relate {head, to, inverse}, '
    "filter {entities, condition}, operation, direct (true) or children"
)
CODES = {"missing": "missing", "unexpected_keyword_argument": "unknown", "value_error": "way"}
_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder(parse_int=float)  # of any number of digits


@dataclass(frozen=True, slots=True)
class _Form:
    """A node as its JSON form has it."""

    __pydantic_config__ = STRICT

    question: Text
    search: Search | None = None
    relate: Relate | None = None
    filter: Filter | None = None
    operation: str = ""
    direct: Literal[True] | None = None
    children: Annotated[tuple[_Node, ...], FailFast(), Field(min_length=1)] = ()

    def to_art(self) -> Art:
        """Raises ValueError unless there is one way to answer."""
        ways = [way for way in (*CALLS, "operation", "direct", "children") if getattr(self, way)]
        if len(ways) != 1:
            raise ValueError(f"{len(ways)} ways to answer, where one is needed: {', '.join(ways) or 'none'}")
        below: Any = self.children  # trees by now, by `_Node`
        return Art(self.question, self.search or self.relate or self.filter, below, self.operation)


_Node = Annotated[_Form, FewKeys, AfterValidator(_Form.to_art)]
_NODE: TypeAdapter[Any] = TypeAdapter(_Node)
_CALL: TypeAdapter[Call] = TypeAdapter(Call)


def schema() -> dict[str, Any]:
    """The JSON schema of the form."""
    return json.loads(read_grammar_file("art.schema.json"))


def parse(text: str) -> Art:
    """Parses a JSON text into a tree. Raises ExpressionError with line, column, caret and a hint."""
    try:
        value = json.loads(text, object_pairs_hook=read_object, parse_int=float)  # of any number of digits
        if _is_too_deep(value):
            raise RecursionError
        art: Art = _NODE.validate_python(value)
    except json.JSONDecodeError as error:
        raise fault(text, "not-json", f"not JSON: {error.msg}", error.pos, error.pos + 1, FORM) from error
    except RecursionError as error:
        raise fault(text, "too-deep", f"deeper than {MAX_DEPTH} nodes", 0, 1, "ask a simpler question") from error
    except ValidationError as error:
        raise _explain(text, error) from error
    except ValueError as error:
        raise fault(text, "twice", str(error), 0, len(text), "write each name once, with a value") from error
    object.__setattr__(art, "source", text)
    return art


def _is_too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        lists = [node.get("children") for node in level if isinstance(node, dict)]
        level = [child for children in lists if isinstance(children, list) for child in children]
    return bool(level)


def _explain(text: str, error: ValidationError) -> ExpressionError:
    """The first fault of a tree, with its place in the text."""
    first, (_, reason) = error.errors(include_url=False)[0], find_first_fault(error)
    path, kind = first["loc"], first["type"]
    if kind == "missing":
        path, reason = path[:-1], f"`{path[-1]}` is missing"
    code = CODES.get(kind, "text" if kind.startswith("string") else "type")
    return fault(text, code, f"{_spell_path(path)}: {reason}", *_locate(text, path), FORM)


def render(art: Art) -> str:
    """Writes canonical JSON on one line: `parse(render(art)) == art`."""
    return json.dumps(to_json(art), ensure_ascii=False)


def to_json(art: Art) -> dict[str, Any]:
    """Plain values in the form of `schema()`."""
    if art.call:
        way: Any = {_name_way(art.call): _CALL.dump_python(art.call, mode="json", exclude_defaults=True)}
    elif art.operation:
        way = {"operation": art.operation}
    else:
        way = {"children": [to_json(child) for child in art.children]} if art.children else {"direct": True}
    return {"question": art.question, **way}


def _name_way(call: Call) -> str:
    return type(call).__name__.lower()


def _spell_path(path: Path) -> str:
    words = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return words.removeprefix(".") or "the root"


def _locate(text: str, path: Path) -> tuple[int, int]:
    """Offsets of the value at `path` in a JSON text that has been read without error."""
    at = _skip(text, 0)
    for step in path:
        at, key = _skip(text, at + 1), -1  # past the bracket
        while True:
            if isinstance(step, str):
                key, at = _DECODER.raw_decode(text, at)
                at = _skip(text, _skip(text, at) + 1)  # past the colon
            else:
                key += 1
            if key == step:
                break
            at = _skip(text, _skip(text, _DECODER.raw_decode(text, at)[1]) + 1)  # past the comma
    return at, _DECODER.raw_decode(text, at)[1]


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def check(art: Art) -> tuple[Diagnostic, ...]:
    """Finds what keeps a tree from being executed; empty if it can be. Offsets are in the text parsed, else in
    `render(art)`.

    Execution is post-order: a node is answered after its children, children from left to right. A node may name what
    has been answered when its turn comes: earlier siblings, earlier siblings of what it stands in, and what stands
    below those. A `[DR]` node must name at least one, unless it is the whole tree: it has nothing else to be answered
    from.
    """
    nodes = number_nodes(art)
    return sort_faults(
        Diagnostic(code, f"{_spell_path(path)}: {message}", *_locate(art.source or render(art), path), hint)
        for node in nodes
        for code, message, path, hint in _find_faults(node, nodes)
    )


def _find_faults(at: Numbered, nodes: tuple[Numbered, ...]) -> Iterator[tuple[str, str, Path, str]]:
    """Code, message, path to the text that is wrong, hint."""
    for path, text in at.node.locate_texts():
        for number in references(text):
            if reason := _explain_unready(at, number, nodes):
                hint = "name a node that is answered earlier: one to the left of it, or below such a one"
                yield "reference", f"node {at.number} names [{number}], {reason}", (*at.path, *path), hint
    is_drawn = at.node.is_direct and (at.parent is not None or at.node.operation)
    if is_drawn and not references(at.node.question):
        message = f"node {at.number} is answered from earlier answers but names none"
        hint = "write [i] for the answers that it is drawn from, or give it an operator"
        yield "direct", message, (*at.path, "question"), hint


def _explain_unready(at: Numbered, number: int, nodes: tuple[Numbered, ...]) -> str | None:
    if number >= len(nodes):
        return f"but the last node is {len(nodes) - 1}"
    other = nodes[number]
    if at.path[: len(other.path)] == other.path:
        return "which is that node itself" if other is at else "which it stands in"
    if other.path[: len(at.path)] == at.path:
        return "which stands below it"
    return None if other.path < at.path else "which is answered later"


def make_structure_key(art: Art) -> str:
    """A checked tree's operators and references without its words: equal for trees that differ in words, and in the
    order of nodes that need nothing of one another. References of the question and of the operator are kept apart.
    """
    nodes = number_nodes(art)

    @cache
    def digest(number: int) -> str:
        node, below = nodes[number].node, nodes[number].children
        asked, called = references(node.question), references(" ".join(node.call.texts if node.call else ()))
        way = type(node.call).__name__ if node.call else node.operation or ("children" if below else "direct")
        parts = [sorted(map(digest, named)) for named in (asked, called, below)]
        return hashlib.sha256(f"{way} {parts}".encode()).hexdigest()

    return digest(0)


def draw_tree(art: Art) -> str:
    """Draws the tree; an operator follows its question as a call."""
    nodes = number_nodes(art)

    def label(at: Numbered) -> str:
        way = f"=> {at.node.operation}" if at.node.operation else "[DR]" if at.node.is_direct else ""
        return f"{at.number} {at.node.question}  {spell_call(at.node.call) if at.node.call else way}".rstrip()

    return trees.draw(nodes[0], label, lambda at: [nodes[number] for number in at.children])
