"""Text from unknown authors, made safe for a terminal, a log or a plot."""

from __future__ import annotations


def one_line(text: str) -> str:
    """The text with control characters and line breaks escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def in_plot(text: str) -> str:
    """The text escaped for a plot. Plots read text between two dollars as a formula, and an invalid formula
    is an error."""
    return text.replace("$", r"\$")
