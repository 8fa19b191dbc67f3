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


def _keys() -> list[str]:
    """Sections and settings, for completion of the shell."""
    from kai_cp.settings import describe

    paths = [one.path for one in describe()]
    return [*dict.fromkeys(path.partition(".")[0] for path in paths), *paths]


@app.command(short_help="Show every setting and what it means.")
def explain(
    key: Annotated[
        str | None,
        typer.Argument(
            metavar="[KEY]",
            help="One setting, or a section such as solver. Default: all.",
            autocompletion=_keys,
        ),
    ] = None,
    format: Annotated[
        ExplainFormat, typer.Option("--format", "-o", help="Text, or the page docs/settings.md.")
    ] = ExplainFormat.TEXT,
) -> None:
    """Show every setting, or those below KEY, with meaning, unit, allowed values and default.

    Exit status: 0 shown, 2 there is no such setting.

    Examples:
    kai-cp config explain solver
    kai-cp config explain solver.patience
    """
    from kai_cp.cli.common import WRONG_USAGE, fail
    from kai_cp.explain.draft import nearest
    from kai_cp.report.settings import as_markdown, as_text
    from kai_cp.report.terminal import show
    from kai_cp.settings import describe

    known = describe()
    found = [one for one in known if key is None or _is_of(one.path, key)]
    if not found:
        paths = [one.path for one in known]
        names = paths if "." in str(key) else [*dict.fromkeys(path.partition(".")[0] for path in paths)]
        fail(f"there is no setting {key}{nearest(str(key), names)}", WRONG_USAGE)
    if format is ExplainFormat.MARKDOWN:
        typer.echo(as_markdown(found), nl=False)
    else:
        show(as_text(found))


def _is_of(path: str, key: str) -> bool:
    """Whether a setting has this path or this last word, or lies below it."""
    return f"{path}.".startswith(f"{key}.") or path.endswith(f".{key}")


@app.command(short_help="Show the settings in force.")
def show(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML); defaults without one.")] = None,
) -> None:
    """Show the settings in force as a complete settings file, with the hash by which results name them.

    Exit status: 0 shown, 2 the file is bad.
    """
    from kai_cp.cli.common import settings_or_exit
    from kai_cp.settings import as_yaml, digest

    settings = settings_or_exit(config, {})
    typer.echo(f"# configuration {digest(settings)}")
    typer.echo(as_yaml(settings), nl=False)
