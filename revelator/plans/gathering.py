"""Whether a question takes all values of a placeholder at once, or is asked for each one.

`{2*}` and `{2}` say it themselves. Of a name the wording of the question does, in English.
"""

from __future__ import annotations

import re
from functools import lru_cache

from revelator.plans.bnf import list_placeholders, read_reference
from revelator.plans.operators import Filter, read_call

_GATHERS = re.compile(
    r"\b(?:(?<!each )(?<!one )of|between|among|amongst|compare)\s+(?:the\s+|these\s+|all\s+)*(?=\{)", re.IGNORECASE
)
_AGGREGATES = re.compile(
    r"\b(how many|in common|both|same|total|sum|count|average|altogether|combined"
    r"|most|least|first|last|earli(?:er|est)|lat(?:er|est)|old(?:er|est)|young(?:er|est)|new(?:er|est)"
    r"|(?:long|short|large?|small|bigg?|high|low|tall|great|heavi)(?:er|est))\b",
    re.IGNORECASE,
)
LOOK_BACK = 40  # characters before "of" in which a word stands that takes a list
_SEPARATOR = re.compile(r"[_\W]")
_ASKS_OF = re.compile(r"\b(which|who|what|how many|any|all|both|none|number|one)\s*$", re.IGNORECASE)


def wants_all(text: str, name: str) -> bool:
    """Whether a question takes the whole list for a placeholder: `{2*}`, "which of {films}", "between {a}", or an
    aggregate over a placeholder named in the plural ("how many … {films}"); otherwise it is asked for each value."""
    gathered, aggregates = _read_wording(text)
    if name in gathered:
        return True
    if reference := read_reference(name):
        return reference.is_all
    return aggregates and is_plural(name)


@lru_cache(maxsize=128)  # a leaf may have many placeholders
def _read_wording(text: str) -> tuple[frozenset[str], bool]:
    """The placeholders that stand behind a word that takes a whole list, or among the entities of a `Filter`, and
    whether the question is an aggregate."""
    if call := read_call(text):
        listed = call.entities if isinstance(call, Filter) else ()
        return frozenset(name for entity in listed for name in list_placeholders(entity)), False
    gathered = set()
    for match in _GATHERS.finditer(text):
        before = text[max(0, match.start() - LOOK_BACK) : match.start()]
        name = text[match.end() + 1 : text.find("}", match.end())]
        if not read_reference(name) and (not match[0].lower().startswith("of") or _ASKS_OF.search(before)):
            gathered.add(name)
    return frozenset(gathered), _AGGREGATES.search(text) is not None


def is_plural(name: str) -> bool:
    """Whether the last word of a name is a plural; a number or letter after it is ignored ("films_b", "films2")."""
    words = [word for word in _SEPARATOR.split(name.lower().rstrip("0123456789_")) if len(word) > 1]
    last = words[-1] if words else ""
    irregular = last in ("people", "children", "men", "women")
    return irregular or (len(last) > 3 and last.endswith("s") and not last.endswith(("ss", "us", "is", "series")))
