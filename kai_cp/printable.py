"""Text of any author, as a terminal or a log may have it."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with what would move a terminal or begin another line escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
