"""Page: an answer on the terminal, as a headline, a line about it, and the sections that have rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from kai_cp.report.section import ROWS_SHOWN, WHOLE, Section, Shortening
from kai_cp.report.terminal import is_whole, show


@dataclass(frozen=True, slots=True)
class Page:
    """A report.

    ``shorten``: the common parts of its names, which a terminal shows once. ``everything``: long tables in
    full.
    """

    headline: Text
    line: str
    sections: Iterable[Section]
    shorten: Shortening = WHOLE
    everything: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.headline
        said = "" if is_whole(options.max_width) else self.shorten.said()
        if words := " ".join(filter(None, (self.line, said))):
            yield Text(words, style="dim")
        for section in self.sections:
            if section.rows:
                yield section.render(None if self.everything else ROWS_SHOWN, self.shorten)


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
    show(Page(Text(headline, style="bold"), line, sections, shorten, everything), wide=wide)
