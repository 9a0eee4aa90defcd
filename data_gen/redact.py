"""Personal data and secrets in collected questions: two libraries find them, and rules say what becomes of them.

Presidio's patterns find what has a form (an address, or a number with a check digit), detect-secrets the forms of keys
and tokens. Both run here, without a model and without a network. Names of people stay: questions are about them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from data_gen.questions import AnnotatedQuestion, DroppedError
from revelator.config import Strict
from revelator.plans.language import LANGUAGES

if TYPE_CHECKING:
    from presidio_analyzer import EntityRecognizer

LEAST = 0.4  # of Presidio's scores: a telephone number without further words has 0.4
Action = Literal["keep", "replace", "drop"]
TEXTS = ("question", "expression", "parts", "steps", "answers", "passages", "entities", "query", "tree")


class RedactRules(Strict):
    """What becomes of a question in which this is found, in whichever of its texts: it stays as it is (`keep`), the
    kind in capitals takes the place of what was found (`replace`), or the question is left out (`drop`). Of a secret
    only its beginning may be known, so that it cannot be replaced."""

    email: Action
    phone: Action
    card: Action
    iban: Action
    ip: Action
    secret: Literal["keep", "drop"]
    phone_regions: tuple[str, ...]  # ISO 3166 codes; numbers that begin with + are found whatever stands here


def redact(question: AnnotatedQuestion, rules: RedactRules) -> AnnotatedQuestion:
    """The question under the rules. Raises DroppedError with the reason why it is left out, which quotes nothing that
    was found."""
    row = question.to_json()
    texts = list(_list_texts([row[name] for name in TEXTS]))
    if rules.secret == "drop" and any(map(_holds_secret, texts)):
        raise DroppedError("holds a secret")
    for kind, recognizer in _open_recognizers(rules.phone_regions).items():
        action: Action = getattr(rules, kind)
        if action == "drop" and any(_find(recognizer, text) for text in texts):
            raise DroppedError(f"holds personal data ({kind})")
        if action == "replace":
            row |= {name: _rewrite_texts(row[name], partial(_replace, kind, recognizer)) for name in TEXTS}
    redacted = AnnotatedQuestion.from_json(row)
    if redacted != question and not _can_be_run(redacted):
        raise DroppedError("its plan cannot be run without personal data")
    return redacted


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(part)


def _rewrite_texts(value: Any, rewrite: Callable[[str], str]) -> Any:
    """The value with every text in it rewritten."""
    if isinstance(value, str):
        return rewrite(value)
    if isinstance(value, dict):
        return {name: _rewrite_texts(part, rewrite) for name, part in value.items()}
    return [_rewrite_texts(part, rewrite) for part in value] if isinstance(value, list) else value


def _can_be_run(question: AnnotatedQuestion) -> bool:
    """Whether its plans, in each language that it has one in, are valid, and still written as their language writes."""
    texts = {language: question.plan_text(language) for language in LANGUAGES.values()}
    verdicts = [language.diagnose(text) for language, text in texts.items() if text]
    return all(said["valid"] and said["canonical"] == said["expression"] for said in verdicts)


@cache
def _open_recognizers(phone_regions: tuple[str, ...]) -> dict[str, EntityRecognizer]:
    """By the names of the rules. The pattern of e-mail addresses is used alone: Presidio's own recogniser also looks up
    their domains in a list that it fetches."""
    from presidio_analyzer import PatternRecognizer
    from presidio_analyzer.predefined_recognizers import (
        CreditCardRecognizer,
        EmailRecognizer,
        IbanRecognizer,
        IpRecognizer,
        PhoneRecognizer,
    )

    return {
        "email": PatternRecognizer("EMAIL_ADDRESS", patterns=EmailRecognizer.PATTERNS),
        "card": CreditCardRecognizer(),
        "iban": IbanRecognizer(),
        "ip": IpRecognizer(),
        "phone": PhoneRecognizer(supported_regions=phone_regions),
    }


def _find(recognizer: EntityRecognizer, text: str) -> list[tuple[int, int]]:
    """Where the recogniser finds something: start and end, in order."""
    found = recognizer.analyze(text, recognizer.supported_entities, None)  # type: ignore[arg-type]  # no model reads it
    return sorted((one.start, one.end) for one in found if one.score >= LEAST)


def _replace(kind: str, recognizer: EntityRecognizer, text: str) -> str:
    for start, end in reversed(_find(recognizer, text)):
        text = text[:start] + kind.upper() + text[end:]
    return text


@cache
def _open_secret_detectors() -> list[Any]:
    """Those that know a form, or an assignment to a name such as `api_key`. Others measure entropy, which names have
    too. Public IP addresses count as secrets there; here they have a rule of their own."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.base import RegexBasedDetector
    from detect_secrets.plugins.ip_public import IPPublicDetector
    from detect_secrets.plugins.keyword import KeywordDetector

    known: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    forms = [kind for kind in known if issubclass(kind, RegexBasedDetector | KeywordDetector)]
    return [kind() for kind in forms if kind is not IPPublicDetector]


def _holds_secret(text: str) -> bool:
    return any(next(iter(detector.analyze_string(text)), None) for detector in _open_secret_detectors())
