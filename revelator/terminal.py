"""Text from users, models and documents on a terminal: shown, never obeyed."""

from __future__ import annotations


def mask_controls(text: str) -> str:
    """`text` with a dot for each control, format or bidirectional character; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else "·" for c in text)


def to_markup(text: str) -> str:
    """`text`, printable, within rich's markup: its own brackets are no markup."""
    from rich.markup import escape

    return escape(mask_controls(text))
