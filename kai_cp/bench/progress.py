"""A progress bar on terminals, nothing elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self


class ProgressBar:
    """A bar over steps: ``expect`` announces steps, and ``begin`` starts one and ends the one before."""

    def __init__(self) -> None:
        self._progress: Any = None
        self._bar: Any = None
        self._total = 0
        self._open = False

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._bar = self._progress.add_task("", total=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def expect(self, steps: int) -> None:
        """Announce more steps."""
        self._total += steps
        if self._progress is not None:
            self._progress.update(self._bar, total=self._total)

    def begin(self, name: str) -> None:
        """End the step before and begin ``name``."""
        if self._progress is not None:
            self._progress.update(self._bar, description=name, advance=1 if self._open else 0)
        self._open = True
