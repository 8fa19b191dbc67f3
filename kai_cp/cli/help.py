"""The page that ``--help`` and ``-h`` show: readable at 80 columns, options in groups, examples at the end.

Every command gets it from ``LazyGroup``; a command's function only says

- what it does: the first paragraphs of its docstring;
- how it is called: the lines below ``Examples:`` in its docstring;
- which options belong together: ``rich_help_panel`` of an option (a constant of ``kai_cp.cli.options``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

_WIDEST_NAME: Final = 28
"""Longer names of options stand on a line of their own, with their text below."""
_EXAMPLES: Final = "Examples:"
_METAVARS: Final = {
    "str": "TEXT",
    "int": "N",
    "int range": "N",
    "float": "NUMBER",
    "float range": "NUMBER",
    "Path": "FILE",
    "path": "FILE",
}
_TYPE: Final = re.compile(r"<(?:list\[)?([^<>\[\]]*)\]?>")
_EXTRA: Final = re.compile(r"\s*\[(?P<inside>[^\[\]]*)\]$")
_EXAMPLE: Final = re.compile(r"\bkai-cp( \S+) \S+")
"""A call in an example: the command, and its first argument."""
_HYPHEN: Final = "\0"
"""Replaces a hyphen while a page is laid out, so that no line ends inside a name; no text has it."""


_INPUT: Final = {
    "should be a valid integer": "expected a whole number",
    "should be a valid number": "expected a number",
    "should be": "expected a number",
}
"""The words of pydantic and ours; *should be* is followed by a bound."""


def _plain(message: str) -> str:
    """What is wrong with a value, without the library's own name in it."""
    message = message.removeprefix("Value error, ")
    for theirs, ours in _INPUT.items():
        if message.startswith(f"Input {theirs}"):
            bound = message.removeprefix(f"Input {theirs}") if theirs == "should be" else ""
            return ours + bound
    return message


@dataclass(frozen=True, slots=True)
class Caller:
    """Another program that runs a command, as the ``obj`` of its context. It gives the first argument itself,
    so the page of help is without it. ``before`` runs once the words are known to be right.
    """

    before: Callable[[], None]
    help: str
    """The command that shows the program's own options."""


class _Page:
    """Help as plain text of at most 80 columns; for commands and for groups of them."""

    help: str | None
    epilog: str | None
    params: list[Any]
    format_usage: Any
    get_params: Any

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words; errors are stated in plain words."""
        try:
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except typer.BadParameter as error:
            error.message = _plain(error.message)
            raise
        return rest

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Usage, what it does, its options by group, examples."""
        text, _, examples = (self.help or "").partition(_EXAMPLES)
        self.format_usage(ctx, formatter)
        for paragraph in text.strip().split("\n\n"):
            formatter.write_paragraph()
            formatter.write_text(" ".join(paragraph.split()).replace("-", _HYPHEN))
        self.format_options(ctx, formatter)
        if ctx.obj is not None:
            formatter.write_paragraph()
            formatter.write_text(f"`{ctx.obj.help}` has the options of all commands.")
            examples = _EXAMPLE.sub(lambda found: ctx.find_root().command_path + found[1], examples)
        if examples.strip():
            formatter.write_paragraph()
            formatter.write(_EXAMPLES + "\n")
            formatter.write("".join(f"  {line.strip()}\n" for line in examples.strip().splitlines()))
        for line in (self.epilog or "").splitlines():
            formatter.write_text(line)
        formatter.buffer = [part.replace(_HYPHEN, "-") for part in formatter.buffer]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name: ``[OPTIONS] SNAPSHOT [DECISIONS]``."""
        pieces = ["[OPTIONS]", *(["[COMMAND]"] if getattr(self, "commands", None) else [])]
        for parameter in _asked(self.params, ctx):
            if parameter.param_type_name == "argument":
                name = (parameter.metavar or str(parameter.name).upper()).strip("[]")
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, then one section for every group of options; general ones last."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        for parameter in _asked(self.get_params(ctx), ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            panel = getattr(parameter, "rich_help_panel", None) or kind
            if parameter.name == "help":
                record = (record[0], "Show this page and exit.")
            sections.setdefault(panel, []).append(_readable(*record, switch=kind == "Options"))
        general = sections.pop("Options", [])
        for panel, rows in (
            *sections.items(),
            ("General options" if len(sections) > 1 else "Options", general),
        ):
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows, col_max=_WIDEST_NAME)


class HelpfulCommand(_Page, TyperCommand):
    """A command with this help."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **{**attributes, "rich_markup_mode": None})

    def invoke(self, ctx: Any) -> Any:
        """Run the command, after what its caller does before it."""
        if ctx.obj is not None:
            ctx.obj.before()
        return super().invoke(ctx)


class HelpfulGroup(_Page, TyperGroup):
    """A command that does something itself and has further ones below it, with this help."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **{**attributes, "rich_markup_mode": None})

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options as for any command, then the commands below."""
        super().format_options(ctx, formatter)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, command.get_short_help_str(60)) for name, command in self.commands.items()]
            )


def _asked(parameters: list[Any], ctx: Any) -> list[Any]:
    """The parameters without the argument that the caller gives."""
    given = next((p for p in parameters if ctx.obj is not None and p.param_type_name == "argument"), None)
    return [parameter for parameter in parameters if parameter is not given]


def _readable(name: str, text: str, *, switch: bool) -> tuple[str, str]:
    """A row without Python's types, its default as a sentence: ``--nodes N``, ``… Default: 3.``"""

    def plain(found: re.Match[str]) -> str:
        return _METAVARS.get(found[1], found[1]) if switch else ""

    text = " ".join(text.split())
    extra = _EXTRA.search(text)
    if extra is not None:
        text = text[: extra.start()]
        for part in extra["inside"].split("; "):
            key, _, value = part.partition(": ")
            if key == "default" and value not in ("None", "", "[]"):
                if "/ --no-" in name:
                    value = "off" if value.startswith("no-") else "on"
                elif "/" in name and f"--{value}" in name:
                    value = f"--{value}"
                elif re.fullmatch(r"\d+\.\d+", value):
                    value = f"{float(value):.10g}{'s' * ('DURATION' in name)}"
                text += f" Default: {value}."
            elif key == "env var":
                text += f" From the environment: {value}."
    return _TYPE.sub(plain, name).strip(), text.replace("-", _HYPHEN)


def helpful(app: typer.Typer) -> Any:
    """The commands of ``app`` with this help; a single one is not made a group."""
    for info in app.registered_commands:
        if info.cls is None or info.cls is TyperCommand:
            info.cls = HelpfulCommand
    app.rich_markup_mode = None
    return typer.main.get_command(app)
