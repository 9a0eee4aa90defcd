"""Dates and numbers as people write them in answers, read into values that can be compared.

A reader's answer is text: "12 May 1957", "May 1957", "c. 44 BC", "1,204 km", "6 ft 2 in", "3.5 million", "twenty-one".
`parse_date` and `parse_quantity` return None for what they cannot read, and comparisons return None for what cannot be
told apart ("1957" and "May 1957") or does not belong together (metres and kilograms).
"""

from serving.values.dates import Date, parse_date
from serving.values.quantities import NUMBER_WORDS, Quantity, number_text, parse_quantity, unit
from serving.values.text import country, normalise
from serving.values.whole import is_value

__all__ = [
    "NUMBER_WORDS",
    "Date",
    "Quantity",
    "country",
    "is_value",
    "normalise",
    "number_text",
    "parse_date",
    "parse_quantity",
    "unit",
]
