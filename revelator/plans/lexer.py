"""Text → tokens of the language bnf: which `+`, `*`, `=>`, parentheses and quotes are syntax, and which are text.

A parenthesis is a group only if a whole operand stands in it, which shows at its far end. One scan with one regular
expression finds every mark that could be syntax, one walk over these marks decides, both in linear time. All words of
an operand become one token, so the parser sees a handful of tokens.
"""

from __future__ import annotations

import re
from itertools import takewhile

from revelator.errors import ExpressionError
from revelator.plans.faults import fault
from revelator.plans.grammar import read_string
from revelator.plans.operations import CHOOSING, CONDITIONAL, OPERATIONS, REFERENCE, SIGNS, Condition
from revelator.plans.parsing import Token
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
LIST = re.compile(r'\s*+(?:\[\s*+)*+\{\s*+"')  # how a list of steps begins, which is no text of a plan
ODD = re.compile(r"\( | \)|(?<![^\s(])(?:\(\)|=>)")  # what the grammar's canonical spelling has no place for
SPACES = re.compile(r"\s*")
OPERATORS = {"+": "LOOSE", "*": "TIGHT", "×": "TIGHT", "=>": "ARROW"}
WORDS = re.compile(r"\S+")
OPERATOR = re.compile(r"(?:[+*×]|=>)(?=[\s)]|\Z)")
ARROWS = ("⇒", "→", ">")
_NAMED = r"(?:\s+\{\d+\})*"
FOREIGN_ARROW = re.compile(  # where => would end a part of the plan
    r"(?P<arrow>⇒|→|->|＝>|(?<=[^\s)])=>|=>(?!\s))\s*"
    rf"(?P<operation>(?:{'|'.join(name for name in OPERATIONS if name not in CONDITIONAL)}){_NAMED}"
    rf"|(?:{'|'.join(CONDITIONAL)}){_NAMED}\s+(?:{'|'.join(SIGNS)})\s[^()+*×]{{0,100}}+)\s*(?=\)|\Z)"
)
WRITTEN = {"≥": ">=", "≤": "<=", "≠": "!="}  # signs as people write them


def split_plan_text(text: str) -> list[Token]:
    """Splits `text` into tokens. Raises ExpressionError."""
    return _Reader(text).read()


def reads_as_itself(text: str) -> bool:
    """Whether `text`, as an operand, parses as exactly this text."""
    if PLAIN.fullmatch(text):
        return True
    if LIST.match(text) or ODD.search(text) or ('"' in text and "\\" in text):
        return False
    if any(m[0] in OPERATORS for m in MARK.finditer(text)):
        return False
    try:
        found = split_plan_text(text)
    except ExpressionError:
        return False
    return len(found) == 1 and found[0].kind == "TEXT" and found[0].value == text


class _Reader:
    """One reading of one text: `operand` is where the current operand begins, `groups` the ends of the open groups."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.partner: dict[int, int] = {}
        self.found: list[Token] = []
        self.operand = 0
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
        if self._after_spaces(self.operand) != start:
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
        self.found.append(Token(kind, mark, start, self.operand))

    def _close_operand(self, end: int) -> None:
        raw = self.text[self.operand : end].rstrip()
        words = raw.split()
        if not words:
            return
        start = self.operand + len(raw) - len(raw.lstrip())
        stop = self.operand + len(raw)
        if self.found and self.found[-1].kind == "ARROW":
            self.found.append(Token("OPERATION", self._read_operation(start, stop), start, stop))
        else:
            self.found.append(Token("TEXT", self._read_text(words, start, stop, "a quoted text"), start, stop))

    def _read_text(self, words: list[str], start: int, stop: int, what: str) -> str:
        """The words that stand from `start` to `stop`: their text, or what they quote as a whole."""
        if words[0][0] == '"' and MARK.match(self.text, start).end() == stop:  # type: ignore[union-attr]
            return read_string(self.text, start, stop, what)
        return " ".join(words)

    def _read_operation(self, start: int, stop: int) -> tuple[str, tuple[int, ...], Condition | None]:
        """The name of an operation, the numbers of the steps that it names, and its condition."""
        first, *more = WORDS.finditer(self.text, start, stop)
        name = first[0]
        if name not in OPERATIONS:
            hint = f"one of {', '.join(OPERATIONS)}; quote a => that is text"
            raise fault(self.text, "unknown-operation", f"there is no operation {name[:40]!r}", *first.span(), hint)
        named = [*takewhile(lambda word: name in CHOOSING and REFERENCE.fullmatch(word[0]), more)]
        rest = more[len(named) :]
        if rest and name not in CONDITIONAL:
            hint = f"{', '.join(CHOOSING)} alone name steps, by number: => argmin {{1}} {{3}}"
            message = f"nothing else may stand behind {name}"
            raise fault(self.text, "operation-reference", message, *rest[0].span(), hint)
        condition = self._read_condition(rest, stop) if name in CONDITIONAL else None
        return name, tuple(int(word[0][1:-1]) for word in named), condition

    def _read_condition(self, words: list[re.Match[str]], stop: int) -> Condition:
        """The sign and the value behind `where` and its references."""
        sign, *value = [word[0] for word in words] or [""]
        text = self._read_text(value, words[1].start(), stop, "the value of a condition") if value else ""
        try:
            return Condition(WRITTEN.get(sign, sign), text)
        except ValueError:
            start = words[0].start() if words else stop - 1
            hint = (
                f"write => where > 1980 or => where {{1}} > 1980, with spaces around the sign ({', '.join(SIGNS)}); "
                'a value with + or * in it stands in quotes: = "R + D"'
            )
            message = "where needs a sign and a value, and may name steps in front of these, as {1}"
            raise fault(self.text, "no-condition", message, start, stop, hint) from None

    def _refuse_operator(self, operator: str, start: int) -> None:
        """In a parenthesis that is text, the operator in `(+)` and `(x +)` is text, but ` + ` reads as one."""
        end = start + len(operator)
        if self.text[start - 1].isspace() and self.text[end].isspace():
            message = f"this {operator} stands in a parenthesis that is not a whole operand"
            hint = f'put an operator before or after that parenthesis, or quote the text: "f (a {operator} b)"'
            raise fault(self.text, "operator-in-text", message, start, end, hint)
