"""Hostile values, each drawn from a seeded generator: texts, JSON, plans in the three languages, options, traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

STRATEGIES = ["auto", "direct", "single", "compound", "compile", "atomic", "logic", "iterate"]
NUMBERS = ["0", "-0", "1", "-1", "0.5", "2147483648", "9223372036854775808", "1e400", "-1e-400", "NaN", "-Infinity"]
NUMBERS += ["9" * 5_000, "-" + "9" * 5_000, "0." + "0" * 5_000 + "1", "1e99999", "007", "0x10", "1_000", "١٢"]
TEXTS = ["", " ", "\0", "?", "{", "{director}", "{" * 400, "(" * 900, '"', "\\", "%s%n", "../../etc/passwd", "<script>"]
TEXTS += [
    "\u202e",
    "\ud800",
    "\udfff\ud800",
    "e\u0301" * 300,
    "👩‍👩‍👧",
    "\r\nX: y",
    "null",
    "A? + " * 200,
    "9 ^ 64 ^ 64 ^ 64",
]
TEXTS += ["What is " + "9" * 5_000 + " times 3?", "Who is {a} and {b}?", " AND ".join(['"a"'] * 300), "a" * 2_001]
WORDS = ["Who", "directed", "Lantern Row", "Where", "was", "born", "Sarnath", "founded", "{director}", "{film}", "[1]"]
WORDS += [
    "and",
    "not",
    "1402",
    "between 3 and 5",
    "larger than",
    "the first of",
    "Port Velm's",
    "×",
    "*",
    "+",
    "(",
    ")",
]


class Literal(str):
    """Written into JSON as it stands."""


def pick(rnd: Random, *makers: Callable[[Random], Any]) -> Any:
    return rnd.choice(makers)(rnd)


def text(rnd: Random) -> str:
    return pick(rnd, _known_text, _sentence, _sentence, _characters, _long_text)


def _known_text(rnd: Random) -> str:
    return rnd.choice(TEXTS)


def _sentence(rnd: Random) -> str:
    return " ".join(rnd.choices(WORDS, k=rnd.randint(1, 9))) + rnd.choice(["?", "", "."])


def _characters(rnd: Random) -> str:
    ceiling = rnd.choice([0x80, 0x800, 0xD800, 0x110000])
    return "".join(chr(rnd.randrange(ceiling)) for _ in range(rnd.randint(1, 60)))


def _long_text(rnd: Random) -> str:
    return rnd.choice(["x", "é ", "{a} ", "Who? * ", "( ", '"'])[:8] * rnd.choice([100, 3_000, 21_000])


def number(rnd: Random) -> Literal:
    return Literal(rnd.choice(NUMBERS) if rnd.random() < 0.7 else str(rnd.randint(-10_000, 10_000)))


def value(rnd: Random, depth: int = 3) -> Any:
    """Any JSON value."""
    if depth and rnd.random() < 0.4:
        items = [value(rnd, depth - 1) for _ in range(rnd.randint(0, 4))]
        return items if rnd.random() < 0.5 else {text(rnd)[:40]: item for item in items}
    return pick(rnd, text, text, number, lambda r: r.choice([None, True, False]), _nested)


def _nested(rnd: Random) -> Literal:
    depth = rnd.choice([5, 200, 30_000])
    return Literal(rnd.choice(["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, "[" * depth]))


def written(given: Any) -> str:
    """JSON of a value that may hold literals, and of texts with half a surrogate pair."""
    if isinstance(given, Literal):
        return str(given)
    if isinstance(given, dict):
        return "{" + ", ".join(f"{json.dumps(str(k))}: {written(v)}" for k, v in given.items()) + "}"
    if isinstance(given, list):
        return "[" + ", ".join(map(written, given)) + "]"
    return json.dumps(given)


def encoded(given: str) -> bytes:
    """UTF-8, half a surrogate pair included, which no reader of UTF-8 takes."""
    return given.encode(errors="surrogatepass")


def changed(rnd: Random, given: Any, changes: int = 3) -> Any:
    """A copy of a JSON value in which up to so many places are replaced, removed, repeated or renamed."""
    root = [deepcopy(given)]
    for _ in range(rnd.randint(1, changes)):
        if places := _places(root):
            _change(rnd, *rnd.choice(places))
    return root[0] if root else None


def _places(holder: Any) -> list[tuple[Any, Any]]:
    keys = list(holder) if isinstance(holder, dict) else range(len(holder))
    found = [(holder, key) for key in keys]
    for key in keys:
        if isinstance(holder[key], dict | list):
            found += _places(holder[key])
    return found


def _change(rnd: Random, holder: Any, key: Any) -> None:
    how = rnd.randrange(6)
    if how <= 2:
        holder[key] = value(rnd)
    elif how == 3:
        del holder[key]
    elif how == 4 and isinstance(holder, list):
        most = 1_000_000 // (len(str(holder[key])) + 1)
        holder.extend([holder[key]] * min(rnd.choice([1, 20, 2_500]), most))
    elif isinstance(holder, dict):
        holder[text(rnd)[:30]] = holder.pop(key)


def scrambled(rnd: Random, given: bytes) -> bytes:
    """Bytes of which a few were flipped, cut out, doubled or cut off."""
    scratch = bytearray(given)
    for _ in range(rnd.randint(1, 6)):
        at = rnd.randrange(len(scratch) + 1)
        how = rnd.randrange(4)
        if how == 0 and at < len(scratch):
            scratch[at] = rnd.randrange(256)
        elif how == 1:
            del scratch[at : at + rnd.randint(1, 8)]
        elif how == 2:
            scratch[at:at] = scratch[at : at + rnd.randint(1, 64)] or rnd.randbytes(4)
        elif rnd.random() < 0.2:
            del scratch[at:]
    return bytes(scratch)


# --- plans ---


def plan(rnd: Random) -> str:
    """A plan of one of the three languages; half of them are scrambled."""
    found = pick(rnd, _questions, _questions, logic, lambda r: written(tree(r)))
    return found if rnd.random() < 0.5 else scrambled(rnd, encoded(found)).decode(errors="replace")


def _questions(rnd: Random, depth: int = 3) -> str:
    if not depth or rnd.random() < 0.35:
        return rnd.choice([_sentence(rnd), "Who directed Lantern Row?", "Where was {director} born?", '"a + (b"'])
    parts = [_questions(rnd, depth - 1) for _ in range(rnd.choice([2, 2, 2, 3, 12]))]
    joined = rnd.choice([" * ", " + ", " × "]).join(parts)
    return f"({joined})" if rnd.random() < 0.5 else joined


def logic(rnd: Random, depth: int = 3) -> str:
    if not depth or rnd.random() < 0.35:
        return json.dumps(_sentence(rnd))
    parts = [logic(rnd, depth - 1) for _ in range(rnd.choice([1, 2, 2, 3, 20]))]
    joined = rnd.choice([" AND ", " OR "]).join(parts)
    return rnd.choice(["", "NOT "]) + (f"({joined})" if rnd.random() < 0.6 else joined)


def tree(rnd: Random, depth: int = 3) -> dict[str, Any]:
    found: dict[str, Any] = {"question": _sentence(rnd)}
    way = rnd.randrange(5) if depth else rnd.randrange(1, 5)
    if way == 0:
        found["children"] = [tree(rnd, depth - 1) for _ in range(rnd.choice([1, 2, 3, 15]))]
    elif way == 1:
        found["search"] = _sentence(rnd)
    elif way == 2:
        found["relate"] = {"head": rnd.choice(["UHF", "[1]", "[99]"]), "to": "directed by", "inverse": True}
    elif way == 3:
        found["filter"] = {"entities": ["[2]", "Sarnath"], "condition": rnd.choice(["before 2000", _sentence(rnd)])}
    else:
        found["direct"] = True
    return changed(rnd, found, 1) if rnd.random() < 0.1 else found


# --- options ---


def options(rnd: Random, trace: dict[str, Any]) -> bytes:
    """The options of a question: some as they should be, most not. `trace` is an earlier one, to be reused."""
    chosen: dict[str, Any] = {}
    if rnd.random() < 0.6:
        chosen["plan"] = plan(rnd)
    if rnd.random() < 0.6:
        chosen["strategy"] = rnd.choice([*STRATEGIES, text(rnd)])
    if rnd.random() < 0.3:
        names = ["leaves", "depth", "fan_out", "concurrency", "steps", "documents", "kept", "deadline_ms", text(rnd)]
        chosen["limits"] = {name: number(rnd) for name in rnd.sample(names, rnd.randint(1, 3))}
    if rnd.random() < 0.35:
        chosen["reuse"] = trace if rnd.random() < 0.2 else changed(rnd, trace)
    if rnd.random() < 0.25:
        chosen = changed(rnd, chosen)
    found = encoded(written(chosen))
    return scrambled(rnd, found) if rnd.random() < 0.1 else found
