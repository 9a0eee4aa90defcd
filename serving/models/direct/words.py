"""What can be told of the spelling of a word or the words of a phrase: counts, places, the reverse."""

from __future__ import annotations

import re

_THE_WORD = r"(?:(?:the )?(?:word |name ))?(?!(?:the|an?|my|your|our|this|that|his|her|its|their) )['\"“‘]?"
_END = r"['\"”’]?"
_PLACES = {
    word: place
    for place, words in enumerate(
        (
            "first 1st",
            "second 2nd",
            "third 3rd",
            "fourth 4th",
            "fifth 5th",
            "sixth 6th",
            "seventh 7th",
            "eighth 8th",
            "ninth 9th",
            "tenth 10th",
        )
    )
    for word in words.split()
} | {"last": -1, "final": -1, "penultimate": -2, "second to last": -2, "second last": -2, "initial": 0}
_PLACE = "|".join(sorted(_PLACES, key=len, reverse=True))

_ONE_LETTER = re.compile(
    rf"(?:how (?:many times|often) (?:does|do|is|can) (?:the )?(?:letter )?['\"“]?(?P<often>\w)['\"”]?"
    rf"(?: letter)?(?: occur| appear| stand| used| be found| found| show up)*|"
    rf"how many (?:times does the letter )?(?:letters? )?['\"“]?(?P<many>\w)['\"”]?(?:['’]?s)?(?: letters?)?"
    rf"(?: are(?: there)?| occurs?| appears?)?|count the (?:letters? )?['\"“]?(?P<count>\w)['\"”]?(?:['’]?s)?)"
    rf" in {_THE_WORD}(?P<word>[^'\"”]+?){_END}",
    re.IGNORECASE,
)
_ALL_LETTERS = re.compile(
    rf"how many letters (?:are (?:there )?in|does|has) {_THE_WORD}(.+?){_END}(?: have| contain)?", re.IGNORECASE
)
_ALL_WORDS = re.compile(
    r"how many words (?:are (?:there )?in|does) (?:the )?(?:sentence |phrase |title )?"
    r"['\"“](.+?)['\"”](?: have| contain)?",
    re.IGNORECASE,
)
_LETTER_AT = re.compile(
    rf"(?:(?:what|which) (?:letter )?is|name|give|tell me) (?:the )?(?P<place>{_PLACE}) letter (?:of|in)"
    rf" {_THE_WORD}(?P<word>[^'\"” ]+){_END}",
    re.IGNORECASE,
)
_LETTER_EDGE = re.compile(
    rf"(?:with )?(?:what|which) letter does {_THE_WORD}(?P<word>[^'\"” ]+){_END} (?P<edge>begin|start|end|finish)"
    rf"(?: with| in| on)?",
    re.IGNORECASE,
)
_WORD_AT = re.compile(
    rf"(?:(?:what|which) (?:word )?is|name|give) (?:the )?(?P<place>{_PLACE}) word (?:of|in)"
    r" (?:the )?(?:sentence |phrase |title )?['\"“‘](?P<words>.+?)['\"”’]",
    re.IGNORECASE,
)
_BACKWARDS = (
    r"(?:backwards?|in reverse(?: order)?|from (?:the )?back to (?:the )?front|back to front|from right to left)"
)
_REVERSED = (
    re.compile(
        rf"(?:(?:what|how) (?:is|does|do you|would you|would|reads?)|how is|write|spell|read|give)"
        rf" (?:spell |write )?{_THE_WORD}(?P<word>[^'\"” ]+){_END} (?:read |look |like |when |if )*"
        rf"(?:spell(?:ed|ed out|t)? |written |read )?{_BACKWARDS}",
        re.IGNORECASE,
    ),
    re.compile(rf"(?:reverse|what is the reverse of) (?:the letters of )?{_THE_WORD}(?P<word>[^'\"” ]+){_END}", re.I),
)


def counted(text: str) -> tuple[str, str] | None:
    """How often a letter stands in a word, how many letters or words there are."""
    if one := _ONE_LETTER.fullmatch(text):
        letter = one["often"] or one["many"] or one["count"]
        return str(one["word"].lower().count(letter.lower())), "count of letters"
    if every := _ALL_LETTERS.fullmatch(text):
        return str(sum(c.isalpha() for c in every[1])), "count of letters"
    words = _ALL_WORDS.fullmatch(text)
    return (str(len(words[1].split())), "count of words") if words else None


def lettered(text: str) -> tuple[str, str] | None:
    """The letter at a place of a word, in upper case."""
    if match := _LETTER_AT.fullmatch(text):
        place = _PLACES[match["place"].lower()]
    elif match := _LETTER_EDGE.fullmatch(text):
        place = 0 if match["edge"].lower() in ("begin", "start") else -1
    else:
        return None
    letters = [c for c in match["word"] if c.isalpha()]
    return (letters[place].upper(), "letter of a word") if -len(letters) <= place < len(letters) else None


def placed(text: str) -> tuple[str, str] | None:
    """The word at a place of a quoted phrase."""
    match = _WORD_AT.fullmatch(text)
    if not match:
        return None
    words, place = match["words"].split(), _PLACES[match["place"].lower()]
    return (words[place].strip(",.;:!?"), "word of a phrase") if -len(words) <= place < len(words) else None


def reversed_word(text: str) -> tuple[str, str] | None:
    """A word from its last letter to its first, in lower case."""
    for form in _REVERSED:
        if match := form.fullmatch(text):
            return match["word"].lower()[::-1], "reversed word"
    return None
