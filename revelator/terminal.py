"""Prepares text of users, models and documents for a terminal, which must show it and never obey it."""

from __future__ import annotations


def mask_controls(text: str) -> str:
    """Replaces each control, format or bidirectional character by a dot; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def to_markup(text: str) -> str:
    """Masks controls and escapes brackets, so that rich does not read the text as markup."""
    from rich.markup import escape

    return escape(mask_controls(text))
