"""One- and few-step word problems: who has how many of something after what is told.

Holdings by owner are followed through the clauses; a clause whose verb or owner is not understood leaves the whole
without an answer. Verb classes follow Hosseini et al. 2014, "Learning to Solve Arithmetic Word Problems with Verb
Categorization".
"""

from __future__ import annotations

import re
from fractions import Fraction

from serving.models.direct.numbers import NUMBER, number, shown

_HAVE = "has|had|have|owns|owned|holds|held|keeps|kept|possesses"
_GAIN = (
    "gets|got|buys|bought|finds|found|receives|received|picks|picked|collects|collected|earns|earned|wins|won|gains"
    "|gained|makes|made|takes|took|catches|caught|bakes|baked|gathers|gathered"
)
_LOSE = (
    "loses|lost|eats|ate|sells|sold|drops|dropped|spends|spent|uses|used|breaks|broke|throws|threw|donates|donated"
    "|removes|removed|burns|burned|burnt|drinks|drank"
)
_GIVE = "gives|gave|sends|sent|lends|lent|hands|handed|passes|passed"
_VERB = rf"(?P<verb>{_HAVE}|{_GAIN}|{_LOSE}|{_GIVE})"
_WHO = r"[^\W\d_][^\s,.]*(?: [A-Z][^\s,.]*)*"
_COUNT = rf"(?:only |another |exactly )?(?P<count>{NUMBER})(?P<more> more| other| further| extra| additional)?"
_THING = (
    r"(?: (?:of (?:them|these|those|the|his|her|their)))?"
    r"(?: ?(?P<thing>(?!to\b|away\b|from\b|more\b|up\b)[a-z]+(?: [a-z]+)??))?"
)
_CLAUSE = re.compile(
    rf"(?:(?P<who>{_WHO}) )?(?:then |also |later )?{_VERB}(?: away| back| up)?"
    rf"(?: (?P<whom>(?!away|to\b){_WHO}))? {_COUNT}{_THING}(?: more)?"
    rf"(?: (?:away|up|back|now|today|yesterday|later))?(?: (?P<side>to|from) (?P<other>{_WHO}(?: [a-z]+)?))?",
)
_PLACED = re.compile(rf"[Tt]here (?:are|were|is|was) {_COUNT}{_THING}(?: (?:in|on|at) .+)?")
_QUESTION = re.compile(
    rf"(?P<told>.+)[.,;] (?:and |then |so )?[Hh]ow many (?P<thing>[a-z]+(?: [a-z]+)??)"
    rf" (?:(?P<left>(?:are|remain|were|is)(?: there)?(?: still)?(?: left| remaining| over| now| in total)?)"
    rf"|(?:(?:do|does|did|has|have|will) (?P<who>(?:the two of |both of )?{_WHO}(?: and {_WHO})?)(?: (?:still|now))*"
    rf"(?: have| own| hold| keep)?(?: got)?))"
    r"(?P<end>(?: (?:now|left|remaining|over|altogether|together|in total|in all|in the end|still|between them))*)",
)
_PRONOUNS = frozenset("he she they it him her them we i you".split())  # noqa: SIM905
_TOGETHER = re.compile(r"\b(?:altogether|together|in total|in all|between them)\b")


def story(text: str) -> tuple[str, str] | None:
    """The number asked for after the changes that are told; None when a clause is not understood."""
    match = _QUESTION.fullmatch(text)
    if match is None:
        return None
    holdings = _followed(match["told"], match["thing"])
    if not holdings:
        return None
    who, end = match["who"], f"{match['left'] or ''}{match['end']}"
    total = bool(_TOGETHER.search(end)) or (who is not None and (" and " in who or who.lower() in ("they", "we")))
    if total:
        held = sum(holdings.values(), Fraction(0))
    elif who is None:
        held = next(iter(holdings.values()))
        if len(holdings) > 1:
            return None
    else:
        owner = _owner(who, holdings)
        if owner not in holdings:
            return None
        held = holdings[owner]
    return (shown(held), "word problem") if held >= 0 else None


def _followed(told: str, thing: str) -> dict[str, Fraction] | None:
    """Holdings by owner after all clauses."""
    holdings: dict[str, Fraction] = {}
    subject = ""
    for clause in re.split(r"[.;,] (?:and |then |but )*|,? (?:and|but|then) (?:then )?", re.sub(r"^If ", "", told)):
        if placed := _PLACED.fullmatch(clause):
            step, who, verb = placed, "there", "has"
        elif read := _CLAUSE.fullmatch(clause):
            step, verb = read, read["verb"]
            who = subject if not read["who"] else _owner(read["who"], holdings)
        else:
            return None
        if not who or not _same(step["thing"], thing):
            return None
        count = number(step["count"])
        if count is None or not _changed(holdings, who, verb, count, step.groupdict()):
            return None
        subject = who
    return holdings


def _changed(holdings: dict[str, Fraction], who: str, verb: str, count: Fraction, step: dict[str, str | None]) -> bool:
    """Apply one clause; whether it was understood."""
    other = step.get("whom") or step.get("other")
    other = _owner(other, holdings) if other else None
    if verb in _HAVE.split("|"):
        if who in holdings or other or step["more"]:
            return False
        holdings[who] = count
    elif verb in _GIVE.split("|"):
        _add(holdings, who, -count)
        if other:
            _add(holdings, other, count)
    elif verb in _GAIN.split("|"):
        if who not in holdings or step.get("whom") or step.get("side") == "to":
            return False
        holdings[who] += count
        if other:
            _add(holdings, other, -count)
    else:
        if who not in holdings or step.get("whom"):
            return False
        holdings[who] -= count
        if other and step.get("side") == "to":
            _add(holdings, other, count)
    return True


def _add(holdings: dict[str, Fraction], owner: str, count: Fraction) -> None:
    """What an owner of unknown holdings gets or gives away does not count."""
    if owner in holdings:
        holdings[owner] += count


def _owner(name: str, holdings: dict[str, Fraction]) -> str:
    """A pronoun stands for the only owner that is known."""
    if name.lower() in _PRONOUNS:
        return next(iter(holdings)) if len(holdings) == 1 else ""
    return name


def _same(told: str | None, asked: str) -> bool:
    return told is None or told.split()[-1].removesuffix("s") == asked.split()[-1].removesuffix("s")
