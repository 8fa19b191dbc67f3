"""Text of any author, as a terminal or a log may have it."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with what would move a terminal or begin another line escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_plot(text: str) -> str:
    """The text as it is, in a plot: between two dollars it would be a formula, and an odd one an error."""
    return text.replace("$", r"\$")
