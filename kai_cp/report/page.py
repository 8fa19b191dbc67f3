"""Page: an answer on the terminal, as a headline, a line about it, and the sections that have rows."""

from __future__ import annotations

from collections.abc import Iterable

from rich.text import Text

from kai_cp.report.section import ROWS_SHOWN, WHOLE, Section, Shortening
from kai_cp.report.terminal import is_whole, stdout


def show_page(
    headline: str,
    line: str,
    sections: Iterable[Section],
    *,
    everything: bool,
    wide: bool,
    shorten: Shortening = WHOLE,
) -> None:
    """Print to standard output.

    ``everything``: long tables in full. ``wide``: a row is one line, and no name is shortened, as in a pipe.
    """
    console = stdout(wide=wide)
    said = "" if is_whole(console.width) else shorten.said()
    console.print(Text(headline, style="bold"), crop=False)
    if words := " ".join(filter(None, (line, said))):
        console.print(Text(words, style="dim"), crop=False)
    for section in sections:
        if section.rows:
            console.print(section.render(None if everything else ROWS_SHOWN, shorten), crop=False)
