"""A command group that imports a command's module only when that command runs.

``kai-cp --help`` must answer at once, while the solver, the Kubernetes client and the plotting
library take seconds to import.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar, NamedTuple

from typer.core import TyperCommand, TyperGroup


class LazyCommand(NamedTuple):
    """The location of a command: ``module`` has a Typer ``app``; ``help`` is its line in the overview.

    An app with several commands either has one of the wanted name or becomes a group of that name.
    """

    module: str
    help: str
    panel: str


class LazyGroup(TyperGroup):
    """A group whose commands come from a table."""

    table: ClassVar[Mapping[str, LazyCommand]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for (
            name,
            entry,
        ) in self.table.items():  # Stand-ins serve overview, completion and typing errors.
            self.commands[name] = TyperCommand(name, help=entry.help)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The overview, one section per panel."""
        width = max(map(len, self.table))
        for panel in dict.fromkeys(entry.panel for entry in self.table.values()):
            with formatter.section(panel):
                formatter.write_dl(
                    [(name.ljust(width), e.help) for name, e in self.table.items() if e.panel == panel]
                )

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The real command, imported now."""
        name, stand_in, rest = super().resolve_command(ctx, args)
        return name, (None if stand_in is None else self.load(str(name))), rest

    def load(self, name: str) -> Any:
        """Import the command ``name``."""
        from kai_cp.cli.help import helpful

        found: Any = helpful(import_module(self.table[name].module).app)
        found = getattr(found, "commands", {}).get(name, found)
        found.name = name
        return found
