"""What a decoder of plans and logical queries is held to, derived from `bnf.lark` and `logic.lark`.

What `make_plan_grammar` allows parses, and checks by `scoped` but for the numbers of steps and what an operation can be
done with. Whether a part of a plan holds a placeholder becomes
grammar. Each rule of the file is written out in up to four kinds:

    unfed   nothing stands to its left: no leaf holds a placeholder, but for those right of a `*` inside it
    any     something stands to its left: leaves may hold placeholders
    some    a right operand of `*`: at least one placeholder in it
    none    no placeholder in it

A symbol right of TIMES is `some`; a sequence of symbols is `some` if one of them is. Of the spellings that the parser
reads, only those that `render` could write are left: ` * ` and not ` × `, no escape of what needs none, no control
characters; a brace is always that of a placeholder. Depth and the limits of an executor are no part of it.

What `make_logic_grammar` allows parses and can be run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache

from lark import Lark
from lark.lexer import Pattern, PatternRE

from revelator.plans.grammar import CONTROLS, Grammar, character_class, read_grammar_file
from revelator.plans.operations import CHOOSING, CONDITIONAL, EXTREMES, OPERATIONS, SIGNS

TEXTS = ("WORD", "QUOTATION", "TAIL", "QUOTED")  # terminals that hold what a person wrote
WHOLE = (
    "OPERATION",
    "CHOICE",
    "FILTER",
    "REFERENCE",
    "COMPARED",
    "VALUE",
)  # terminals that are spelled apart, and hold no text
CANONICAL = {"TIMES": " * "}  # of several spellings the one that `render` writes
QUOTE = r'"\""'
ESCAPE = r'"\\" /["\\]/'  # a quote or a backslash in a text between quotes


@cache
def make_plan_grammar() -> Grammar:
    """The grammar of plans."""
    rules = [(name, " | ".join(ways)) for name, ways in RulesByKind().rules("start", "unfed")]
    return Grammar((*rules, *_list_texts()))


def _list_texts() -> Iterator[tuple[str, str]]:
    """The terminals of texts by kind."""
    word, begin, space = (character_class(kind) for kind in (r"\w", r"[^\W\d]", r"\s"))
    first = rf'/[^{space}(){{}}"+*×={CONTROLS}]/'
    rest = rf"/[^{space}(){{}}{CONTROLS}]/"
    inside = rf'/[^"\\{{}}{CONTROLS}]/'
    escaped = rf'({inside} | "\\" /["\\bfnrt]/)'
    plain = rf'/[^{space}(){{}}"+*×=⇒→><!{CONTROLS}]/'
    number = "/[1-9]/ /[0-9]/?"
    yield "OPERATION", " | ".join(json.dumps(name) for name in OPERATIONS if name not in CHOOSING)
    for terminal, names in (("CHOICE", EXTREMES), ("FILTER", CONDITIONAL), ("COMPARED", SIGNS)):
        yield terminal, " | ".join(map(json.dumps, names))
    yield "REFERENCE", f'"{{" {number} "}}"'
    yield "VALUE", f'{plain}+ (" " {plain}+)*'
    yield "NAME", rf'"{{" ({number} "*"? | /[{begin}]/ (/[{word} .\x27\-]/{{0,62}} /[{word}]/)?) "}}"'
    for kind in ("NONE", "ANY", "SOME"):
        yield f"TAIL_{kind}", _write_kinds(rest, rest)[kind]
        yield f"WORD_{kind}", f"{_write_kinds(rest, first)[kind]} | /[+*×]/ TAIL_{kind}"
        yield f"QUOTATION_{kind}", f"{QUOTE} {_write_kinds(inside)[kind]} {QUOTE}"
        yield f"QUOTED_{kind}", f"{QUOTE} {_write_kinds(escaped)[kind]} {QUOTE}"


def _write_kinds(character: str, first: str = "") -> dict[str, str]:
    """A text by kind: NONE (no placeholder), ANY, SOME (at least one), each of them between runs of characters.

    `first` is what the first character is taken from, if there must be one."""
    run, names = f"{first} {character}*", f"(NAME {character}*)"
    begun = f" | {names}+" if first else ""
    return {"NONE": run, "ANY": f"{run} {names}*{begun}", "SOME": f"{run} {names}+{begun}"}


@cache
def _open_grammar() -> Lark:
    return Lark(read_grammar_file("bnf.lark"), parser="earley")


Part = tuple[str, str]  # a symbol of the file and its kind


class RulesByKind:
    """The rules of the file, written out by kind."""

    def __init__(self) -> None:
        self.expansions: dict[str, list[list[str]]] = {}
        for rule in _open_grammar().rules:
            self.expansions.setdefault(rule.origin.name, []).append([symbol.name for symbol in rule.expansion])
        terminals = ((each.name, each.pattern) for each in _open_grammar().terminals)
        self.terminals = {name: name if name in WHOLE else _spell_terminal(name, form) for name, form in terminals}
        self.productive = self._find_productive()

    def rules(self, rule: str, kind: str) -> Iterator[tuple[str, list[str]]]:
        """(name, alternatives) of each rule that can be reached from this one, itself first."""
        waiting = [(rule, kind)]
        for part in waiting:
            kept = [a for a in self._expand(*part) if self.productive.issuperset(self._find_rules(a))]
            yield self._spell(*part), [" ".join(self._spell(*symbol) for symbol in a) for a in kept]
            waiting += dict.fromkeys(p for a in kept for p in self._find_rules(a) if p not in waiting)

    def _expand(self, rule: str, kind: str) -> Iterator[list[Part]]:
        for names in self.expansions[rule]:
            if "TIMES" in names:
                times = names.index("TIMES")
                left = kind if kind == "unfed" else "any"
                if kind != "none":
                    yield [(name, left if i < times else "some") for i, name in enumerate(names)]
            elif kind == "some":
                for at, carrier in enumerate(names):
                    if carrier in self.expansions or carrier in TEXTS:
                        kinds = ["none"] * at + ["some"] + ["any"] * (len(names) - at - 1)
                        yield list(zip(names, kinds, strict=True))
            else:
                yield [(name, kind) for name in names]

    def _find_rules(self, alternative: list[Part]) -> list[Part]:
        return [(name, kind) for name, kind in alternative if name in self.expansions]

    def _find_productive(self) -> set[Part]:
        """What derives a text at all: with a `*` in it, a part without a placeholder does not."""
        every = [(rule, kind) for rule in self.expansions for kind in ("unfed", "any", "some", "none")]
        found: set[Part] = set()
        while True:
            more = {part for part in every if any(found.issuperset(self._find_rules(a)) for a in self._expand(*part))}
            if more == found:
                return found
            found = more

    def _spell(self, name: str, kind: str) -> str:
        if name in self.expansions:
            return f"{name.strip('_')}_{kind}"
        return f"{name}_{'NONE' if kind == 'unfed' else kind.upper()}" if name in TEXTS else self.terminals[name]


def _spell_terminal(name: str, pattern: Pattern) -> str:
    """A space before an operator is a lexeme of its own, the one that stands between words: a lexer that never goes
    back can then tell ` + ` from a word that begins with its character."""
    if isinstance(pattern, PatternRE) and name not in CANONICAL:
        return f"/{pattern.value}/"
    value = CANONICAL.get(name, pattern.value)
    return " ".join(json.dumps(piece) for piece in ([" ", value[1:]] if value[0] == " " < value else [value]))


@cache
def make_logic_grammar() -> Grammar:
    """The grammar of logical queries.

    Of what `logic.check` reports the grammar keeps out terms without a word. Too many terms, and that nothing or
    everything matches (`"a" AND NOT "a"`), show in the whole alone. A term may begin with a space, as it is learnt
    (`render_spaced`).
    """
    file = re.sub(r"\bstart\b", "query", read_grammar_file("logic.lark"))
    lines = [line.partition("->")[0] for line in file.splitlines()]
    rules = re.findall(r"^(\w+): *(.*(?:\n +\|.*)*)", "\n".join(lines), re.MULTILINE)
    structure = [(name, " ".join(ways.split("\n"))) for name, ways in rules if name != "TERM"]
    space, letter = character_class(r"\s"), character_class(r"[^\W_]")
    texts = [
        ("TERM", f'{QUOTE} " "? VISIBLE* LETTER CHARACTER* {QUOTE}'),
        ("VISIBLE", rf'/[^{space}"\\{CONTROLS}]/'),
        ("LETTER", rf"/[{letter}]/"),
        ("CHARACTER", rf'/[^"\\{CONTROLS}]/ | {ESCAPE}'),
    ]
    return Grammar((*structure, *texts))
