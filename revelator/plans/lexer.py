"""Text → tokens of the language bnf: which `+`, `*`, `=>`, parentheses and quotes are syntax, and which are text.

A parenthesis is a group only if a whole operand stands in it, which shows at its far end; none of Lark's own lexers
looks that far. One scan with one regular expression finds every mark that could be syntax, one walk over these marks
decides, both in linear time. All words of an operand become one token, so the parser sees a handful of tokens.
"""

from __future__ import annotations

import re

from lark import Token

from revelator.errors import ExpressionError
from revelator.plans.faults import fault
from revelator.plans.grammar import read_string
from revelator.plans.operations import CHOOSING, CONDITIONAL, OPERATIONS, SIGNS
from revelator.plans.trees import MAX_DEPTH

# A parenthesis; an operator between spaces, parentheses or ends; at the start of a word a quotation, or (group 1) one
# that is never closed. The first character alone decides where the scan stops; possessive repeats never go back.
MARK = re.compile(
    r"""["()+*×=](?:(?<=[()])
        | (?<==)(?<![^\s(].)>(?![^\s)])
        | (?<=[+*×])(?<![^\s(].)(?![^\s)])
        | (?<=")(?<![^\s(].)(?:[^"\\]*+(?:\\.[^"\\]*+)*+"|(.*+)))""",
    re.DOTALL | re.VERBOSE,
)
PLAIN = re.compile(r'[^\s"()+*×=⇒→>]+(?: [^\s"()+*×=⇒→>]+)*')
ODD = re.compile(r"\( | \)|(?<![^\s(])(?:\(\)|=>)")  # what the grammar's canonical spelling has no place for
SPACES = re.compile(r"\s*")
OPERATORS = {"+": "PLUS", "*": "TIMES", "×": "TIMES", "=>": "ARROW"}
OPERATOR = re.compile(r"(?:[+*×]|=>)(?=[\s)]|\Z)")
ARROWS = ("⇒", "→", ">")
_NAMED = r"(?:\s+\{\d+\})*"
FOREIGN_ARROW = re.compile(  # where => would end a part of the plan
    r"(?P<arrow>⇒|→|->|＝>|(?<=[^\s)])=>|=>(?!\s))\s*"
    rf"(?P<operation>(?:{'|'.join(name for name in OPERATIONS if name not in CONDITIONAL)}){_NAMED}"
    rf"|(?:{'|'.join(CONDITIONAL)}){_NAMED}\s+(?:{'|'.join(SIGNS)})\s[^()+*×]{{0,100}}+)\s*(?=\)|\Z)"
)
WRITTEN = {"≥": ">=", "≤": "<=", "≠": "!="}  # signs as people write them
REFERENCE = re.compile(r"\{[1-9]\d*\}", re.ASCII)


def split_plan_text(text: str) -> list[Token]:
    """Splits `text` into tokens. Raises ExpressionError."""
    return _Reader(text).read()


def reads_as_itself(text: str) -> bool:
    """Whether `text`, as an operand, parses as exactly this text."""
    if PLAIN.fullmatch(text):
        return True
    if ODD.search(text) or ('"' in text and "\\" in text) or any(m[0] in OPERATORS for m in MARK.finditer(text)):
        return False
    try:
        found = split_plan_text(text)
    except ExpressionError:
        return False
    return len(found) == 1 and found[0].type == "WORD" and found[0].value == text


class _Reader:
    """One reading of one text: `operand` is where the current operand begins, `groups` the ends of the open groups."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.partner: dict[int, int] = {}
        self.found: list[Token] = []
        self.operand = 0
        self.fresh = True  # no mark in the current operand yet
        self.groups: list[int] = []

    def read(self) -> list[Token]:
        found = self._marks()
        if any(arrow in self.text for arrow in ARROWS):
            self._refuse_foreign_arrow([m.span() for m in found if m[0][0] == '"'])
        marks = [(m[0], m.start()) for m in found]
        self._match_parentheses(marks)
        text_end = 0  # while inside a parenthesis that is text: where it ends
        for mark, start in marks:
            if start < text_end:
                if mark in OPERATORS:
                    self._refuse_operator(mark, start)
            elif mark in OPERATORS:
                self._close_operand(start)
                self._add(OPERATORS[mark], start, mark)
            elif mark == "(" and self._is_group(start):
                self._open_group(start)
            elif mark == ")" and self.groups and start == self.groups[-1]:
                self._close_operand(start)
                self._add("CLOSE", start, mark)
                self.groups.pop()
            else:
                self.fresh = False
                text_end = self.partner.get(start, 0)
        self._close_operand(len(self.text))
        return self.found

    def _marks(self) -> list[re.Match[str]]:
        marks = list(MARK.finditer(self.text))
        if marks and marks[-1][1] is not None:
            start = marks[-1].start()
            hint = 'close it, or quote the whole text and write its own quotes as \\"'
            raise fault(self.text, "unclosed-quote", "this quote is never closed", start, start + 1, hint)
        return marks

    def _refuse_foreign_arrow(self, quotations: list[tuple[int, int]]) -> None:
        """Another arrow in front of an operation, at the end of the plan or of a group, was to be =>."""
        for arrow in FOREIGN_ARROW.finditer(self.text):
            if not any(start < arrow.start() < end for start, end in quotations):
                message, hint = (
                    "an operation stands behind =>",
                    f"write => {arrow['operation']} between spaces; quote an arrow that is text",
                )
                raise fault(self.text, "foreign-arrow", message, *arrow.span("arrow"), hint)

    def _match_parentheses(self, marks: list[tuple[str, int]]) -> None:
        opened: list[int] = []
        for mark, start in marks:
            if mark == "(":
                opened.append(start)
            elif mark == ")":
                if not opened:
                    raise self._make_balance_error("this parenthesis was never opened", start)
                self.partner[opened.pop()] = start
        if opened:
            raise self._make_balance_error("this parenthesis is never closed", opened[-1])

    def _make_balance_error(self, message: str, start: int) -> ExpressionError:
        hint = 'balance it, or quote the text: "like ) this"'
        return fault(self.text, "unbalanced-parenthesis", message, start, start + 1, hint)

    def _is_group(self, start: int) -> bool:
        """Is `(` at the start of an operand, and does its partner stand at the end of that operand?"""
        if not self.fresh or self._after_spaces(self.operand) != start:
            return False
        after = self._after_spaces(self.partner[start] + 1)
        if OPERATOR.match(self.text, after):
            return self.text[after - 1].isspace()
        return self.text[after : after + 1] in ("", ")")

    def _after_spaces(self, start: int) -> int:
        return SPACES.match(self.text, start).end()  # type: ignore[union-attr]

    def _open_group(self, start: int) -> None:
        self.groups.append(self.partner[start])
        if len(self.groups) > MAX_DEPTH:
            message = f"groups are nested more than {MAX_DEPTH} deep"
            hint = "remove parentheses that hold a single operand"
            raise fault(self.text, "too-deep", message, start, start + 1, hint)
        self._add("OPEN", start, "(")

    def _add(self, kind: str, start: int, mark: str) -> None:
        self.operand = start + len(mark)
        self.fresh = True
        self.found.append(Token(kind, mark, start_pos=start, end_pos=self.operand))

    def _close_operand(self, end: int) -> None:
        raw = self.text[self.operand : end].rstrip()
        words = raw.split()
        if not words:
            return
        start = self.operand + len(raw) - len(raw.lstrip())
        stop = self.operand + len(raw)
        if self.found and self.found[-1].type == "ARROW":
            self._read_operation(start, stop, words)
        elif words[0][0] == '"' and MARK.match(self.text, start).end() == stop:  # type: ignore[union-attr]
            value = read_string(self.text, start, stop, "a quoted text")
            self.found.append(Token("QUOTED", value, start_pos=start, end_pos=stop))
        else:
            self.found.append(Token("WORD", " ".join(words), start_pos=start, end_pos=stop))

    def _read_operation(self, start: int, stop: int, words: list[str]) -> None:
        """The name of an operation, its references and its condition."""
        is_conditional = words[0] in CONDITIONAL
        for place, word in enumerate(words):
            start = self.text.index(word, start)
            end = start + len(word)
            if place and is_conditional and not REFERENCE.fullmatch(word):
                break
            if place == 0 and word not in OPERATIONS:
                hint = f"one of {', '.join(OPERATIONS)}; quote a => that is text"
                raise fault(self.text, "unknown-operation", f"there is no operation {word[:40]!r}", start, end, hint)
            if place and not (REFERENCE.fullmatch(word) and words[0] in CHOOSING):
                hint = f"{', '.join(CHOOSING)} alone name steps, by number: => argmin {{1}} {{3}}"
                message = f"nothing else may stand behind {words[0]}"
                raise fault(self.text, "operation-reference", message, start, end, hint)
            if place:
                self.found.append(Token("SPACE", " ", start_pos=start - 1, end_pos=start))
            named = "FILTER" if is_conditional else "CHOICE" if word in CHOOSING else "OPERATION"
            self.found.append(Token("REFERENCE" if place else named, word, start_pos=start, end_pos=end))
            start = end
        if is_conditional:
            self._read_condition(start, stop)

    def _read_condition(self, start: int, stop: int) -> None:
        """The sign and the value behind `where` and its references."""
        said, *words = self.text[start:stop].split() or [""]
        sign, value = WRITTEN.get(said, said), " ".join(words)
        start = self._after_spaces(start)
        end = min(start + len(said), stop)
        first = self._after_spaces(end)
        if value[:1] == '"' and MARK.match(self.text, first).end() == stop:  # type: ignore[union-attr]
            value = read_string(self.text, first, stop, "the value of a condition")
        if sign not in SIGNS or not value.strip():
            hint = (
                f"write => where > 1980 or => where {{1}} > 1980, with spaces around the sign ({', '.join(SIGNS)}); "
                'a value with + or * in it stands in quotes: = "R + D"'
            )
            message = "where needs a sign and a value, and may name steps in front of these, as {1}"
            raise fault(self.text, "no-condition", message, min(start, stop - 1), stop, hint)
        self.found += [
            Token("SPACE", " ", start_pos=start - 1, end_pos=start),
            Token("COMPARED", sign, start_pos=start, end_pos=end),
            Token("SPACE", " ", start_pos=end, end_pos=first),
            Token("VALUE", value, start_pos=first, end_pos=stop),
        ]

    def _refuse_operator(self, operator: str, start: int) -> None:
        """In a parenthesis that is text, the operator in `(+)` and `(x +)` is text, but ` + ` reads as one."""
        end = start + len(operator)
        if self.text[start - 1].isspace() and self.text[end].isspace():
            message = f"this {operator} stands in a parenthesis that is not a whole operand"
            hint = f'put an operator before or after that parenthesis, or quote the text: "f (a {operator} b)"'
            raise fault(self.text, "operator-in-text", message, start, end, hint)
