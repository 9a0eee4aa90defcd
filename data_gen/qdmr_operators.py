"""The operators of QDMR that compute: one question for each, and the forms in which their steps are written."""

from __future__ import annotations

import re
from collections.abc import Callable

from data_gen.annotation import UnplannableError
from data_gen.nouns import is_plural, plural, singular
from data_gen.qdmr_phrases import AUXILIARY, head, statement
from data_gen.qdmr_things import EXTREME, R, Said, Sayer, adjective, filtered
from data_gen.wording import tidy


def _count(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    counted = sayer.said[int(match[1])]
    unit = f" {match[2]}" if match[2] else ""
    question = tidy(f"how many {sayer.all(match[1])} are there{unit}")
    return Said("number", question, attribute=f"number of {plural(counted.noun)}")


def _group(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    aggregate, what, each = match[1].casefold(), match[2], match[3]
    number = re.fullmatch(R, what)
    one = sayer.said[int(number[1])] if number else None
    phrase = one.phrase if one else sayer.spelt(what)
    if each not in phrase and one and not one.folded:
        said = f"how many {what}s are there" if aggregate == "number" else f"what is the {aggregate} of {what}s"
        question = tidy(f"{said} for each of {sayer.spelt(each, True)}")
        return Said("number", question, attribute=f"{aggregate} of {plural(one.noun)}")
    if each not in phrase:
        phrase = f"{phrase} for {sayer.spelt(each)}"
    if aggregate == "number":
        said = f"how many {phrase.removeprefix('the ')} are there"
        return Said("number", tidy(said), attribute=f"number of {plural(one.noun if one else head(what))}")
    article = "" if phrase.startswith("the ") else "the "
    question = tidy(f"what is the {aggregate} of {article}{phrase}")
    return Said(head(phrase), question, attribute=f"{aggregate} {head(phrase)}")


def _aggregate(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    word, number = match[1].casefold(), match[2]
    one = sayer.said[int(number)]
    if word in ("sum", "average", "total", "mean"):
        return Said(word, tidy(f"what is the {word} of {sayer.all(number)}"), attribute=f"{word} {one.attribute}")
    several = word.startswith(("two", "three")) or word[0].isdigit()
    question = tidy(f"which of {sayer.all(number)} {'are' if several else 'is'} the {word}")
    noun = f"{word.split()[-1]}_{one.noun.split('_')[-1]}"
    return Said(noun, question, many=several, attribute=f"{word} {one.attribute}")


def _superlative(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, by = sayer.said[int(match[1])], sayer.said[int(match[2])]
    word, by_what = match[3].casefold(), _one_of(by.attribute)
    if head(by_what) in ("size", "area"):
        word = {"highest": "largest", "lowest": "smallest"}.get(word, word)
    question = tidy(f"{sayer.which(k, match[1], False)} has the {word} {by_what}")
    return Said(base.noun, question, attribute=base.attribute, after=_looked_at(sayer, match[2]))


def _one_of(attribute: str) -> str:
    """ "lengths" → length."""
    noun = head(attribute)
    return re.sub(rf"\b{re.escape(noun)}\b", singular(noun), attribute.removeprefix("the "), count=1, flags=re.I)


def _comparative(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, by = sayer.said[int(match[1])], sayer.said[int(match[2])]
    told, said = by.attribute, sayer.spelt(match[3])
    if told in ("date", "year", "day"):
        said = said.replace("higher than", "later than").replace("lower than", "earlier than")
    verb = "are" if is_plural(head(told)) else "is"
    question = tidy(f"for {sayer.which(k, match[1])} {verb} the {told.removeprefix('the ')} {said}")
    return Said(base.noun, question, many=True, attribute=base.attribute, after=_looked_at(sayer, match[2]))


def _looked_at(sayer: Sayer, number: str) -> tuple[int, ...]:
    by = sayer.said[int(number)]
    if by.folded or by.attribute in ("", "answer"):
        raise UnplannableError("a comparison of something that has no name")
    return (int(number),)


def _arithmetic(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    word, before, operands, after = match[1].casefold(), match[2], sayer.spelt(match[3]), match[4]
    unit = f" in {before or after}" if before or after else ""
    values = [part.strip() for part in re.split(r",|\band\b", operands)]
    values = sorted(values, key=_place) if word in ("difference", "sum") else values
    if len(values) < 2:
        raise UnplannableError("arithmetic of one value")
    listed = f"{', '.join(values[:-1])} and {values[-1]}"
    said = {
        "difference": f"what is the difference between {listed}{unit}",
        "sum": f"what is the sum of {listed}{unit}",
        "division": f"what is {' divided by '.join(values)}",
        "multiplication": f"what is {' times '.join(values)}",
    }[word]
    return Said("number", tidy(said), attribute=word)


def _place(value: str) -> int:
    """Operands stand as their steps do: a difference is one either way."""
    return int(re.sub(r"\D", "", value) or 0) if value.startswith("#") else 0


def _discard(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base, rest = sayer.said[int(match[1])], sayer.spelt(match[2], many=True)
    among = "among " if re.fullmatch(R, match[2]) and sayer.said[int(match[2][1:])].many else ""
    question = tidy(f"{sayer.which(k, match[1])} are not {among}{rest}")
    return Said(base.noun, question, many=True, attribute=base.attribute)


def _intersection(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    what, first, second = match[1], sayer.said[int(match[2])], sayer.said[int(match[3])]
    if re.fullmatch(rf"{R}|(?:who|what|where)(?: (?:is|are|was|were))?", what) and not (first.folded or second.folded):
        chosen = f"which {plural(first.noun)} among" if sayer.users(k) else "which of"
        return Said(first.noun, tidy(f"{chosen} {sayer.all(match[2])} are also among {sayer.all(match[3])}"), many=True)
    if REFERRED.search(what) or not re.fullmatch(r"(?:the )?[^#]+", what):
        raise UnplannableError("what two things share is not named")
    noun = what.removeprefix("the ")
    question = tidy(f"which {noun} do {sayer.spelt('#' + match[2])} and {sayer.spelt('#' + match[3])} have in common")
    return Said(singular(head(noun)), question, many=is_plural(head(noun)), attribute=noun)


REFERRED = re.compile(r"^(?:who|what|where|when|how)\b")


def _sort(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    base = sayer.said[int(match[1])]
    by = re.sub(R, lambda number: f"the {sayer.said[int(number[1])].attribute}", match[2])
    after = tuple(int(number) for number in re.findall(R, match[2]) if not sayer.said[int(number)].folded)
    return Said(base.noun, tidy(f"what is the order of {sayer.all(match[1])} by {by}"), many=True, after=after)


def _boolean(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    text = re.sub(r"^if\s+", "", match[0])
    many = re.match(rf"(?:are|were|have|do) |{R} (?:are|were|have)\b|(?:is|are) there any", text, re.I) is not None
    if there := re.fullmatch(r"there\s+(is|are|was|were)\s+(.+)", text):
        return Said("claim", tidy(f"{there[1]} there {sayer.spelt(there[2], many)}"))
    if stated := re.fullmatch(rf"((?:both )?{R}(?: (?:and|or) {R})*) ({AUXILIARY}) (.+)", text):
        subject, verb, rest = sayer.spelt(stated[1], many), stated[4], sayer.spelt(stated[5])
        if verb in ("has", "have", "had"):
            verb, rest = {"has": "does", "have": "do", "had": "did"}[verb], f"have {rest}"
        return Said("claim", tidy(f"{verb} {subject} {rest}"))
    spelt = sayer.spelt(text, many)
    return Said("claim", tidy(spelt) if re.match(rf"{AUXILIARY}\b", text, re.I) else statement(spelt))


def _union(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    """Several steps that a later one speaks of together."""
    numbers = re.findall(R, match[0])
    one = sayer.said[int(numbers[0])]
    phrase = " and ".join(sayer.all(number) for number in numbers)
    return Said(one.noun, "", phrase, True, True, one.attribute)


def _inner_comparison(sayer: Sayer, k: int, match: re.Match[str]) -> Said:
    raise UnplannableError("a comparison that is not the last step")


Rule = tuple[str, Callable[[Sayer, int, re.Match[str]], Said]]
RULES: list[Rule] = [
    (rf"{R}(?:\s*(?:,|and|or)\s*{R})+", _union),
    (rf"which\b[^#]* {R}(?:\s*(?:,|and|or)\s*{R})+", _inner_comparison),
    (r"(?:the )?(number|average|sum|maximum|minimum|highest|lowest) of (.+?) for each (?:of )?(.+)", _group),
    (rf"(?:the )?number of (?:of )?{R}(?: (in \w+))?", _count),
    (rf"(?:the )?(sum|average|total|mean|{EXTREME}) (?:of )?{R}", _aggregate),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(?:the )?({EXTREME})", _superlative),
    (rf"{R} where {R} (?:(?:is|are|was|were) )?(.+)", _comparative),
    (
        r"(?:the )?(difference|sum|division|multiplication)(?: in (\w+))?(?: of)? "
        r"(#?[\d.]+(?:\s*(?:,|and)\s*#?[\d.]+)+)(?: in (\w+))?",
        _arithmetic,
    ),
    (rf"{R} besides (.+)", _discard),
    (rf"(.+?)(?: (?:in|of|between|for))? both (?:of )?{R} and {R}", _intersection),
    (rf"{R} (?:that can be )?sorted by (.+)", _sort),
    (r"(?:if\s|(?:is|are|was|were|do|does|did|has|have|can)\s).+", _boolean),
    (rf"{R} (.+)", filtered),
    (rf"(?:the )?((?!(?:explain|describe|define|list|who|what|when|where|how)\b)[a-z-]+) {R}", adjective),
]
