"""``kai-cp config``: explains every setting and shows those in force."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Explain and show the settings.",
    pretty_exceptions_enable=False,
)


class ExplainFormat(StrEnum):
    """How ``config explain`` prints."""

    TEXT = "text"
    MARKDOWN = "markdown"


@app.command(short_help="Show every setting and what it means.")
def explain(
    format: Annotated[
        ExplainFormat, typer.Option("--format", "-o", help="Text, or the page docs/settings.md.")
    ] = ExplainFormat.TEXT,
) -> None:
    """Show every setting with its meaning, unit, allowed values and default."""
    from kai_cp.report.settings import as_markdown, as_text
    from kai_cp.settings import describe

    if format is ExplainFormat.MARKDOWN:
        typer.echo(as_markdown(describe()), nl=False)
    else:
        from kai_cp.report.terminal import show

        show(as_text(describe()))


@app.command(short_help="Show the settings in force.")
def show(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML); defaults without one.")] = None,
) -> None:
    """Show the settings in force as a complete settings file, with the hash by which results name them."""
    from kai_cp.cli.common import settings_or_exit
    from kai_cp.settings import as_yaml, digest

    settings = settings_or_exit(config, {})
    typer.echo(f"# configuration {digest(settings)}")
    typer.echo(as_yaml(settings), nl=False)
