"""Rows of tables as sentences: what an index holds of a table, and what a reader is trained to read.

In a list of columns and values ("town: Sopot, born: 1979") a reader that was trained on sentences takes the name of a
column for a part of its value; where rows stand one after the other, it takes a value of another row.
"""

from __future__ import annotations

from collections.abc import Sequence

SUBJECT = 80  # characters of what a row is about, for its sentences to repeat it


def find_subject(cells: Sequence[str]) -> str:
    """Finds what a row is about: its first cell with a letter, or, without one, its first; "" for an empty row."""
    values = [cell.strip() for cell in cells if cell.strip()]
    return next((value for value in values if any(map(str.isalpha, value))), values[0] if values else "")


def write_row_as_text(columns: Sequence[str], cells: Sequence[str]) -> str:
    """Writes a row of a table as sentences, each of which names what the row is about."""
    subject, said = find_subject(cells), list[str]()
    for column, cell in zip(columns, cells, strict=True):
        value, name = cell.strip().rstrip("."), column.strip().replace("_", " ")
        if not value:
            continue
        if not name:
            said.append(f"{value}.")
        elif cell.strip() == subject or len(subject) > SUBJECT:
            said.append(f"{name[:1].upper()}{name[1:]} is {value}.")
        else:
            said.append(f"For {subject}, the {name} is {value}.")
    return " ".join(said)
