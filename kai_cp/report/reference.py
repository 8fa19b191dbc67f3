"""The generated reference pages: command line and documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai_cp import documents

_MADE: Final = "<!-- Made by `make docs`; do not edit. -->"


def documents_page() -> str:
    """docs/reference-json.md."""
    lines = [
        "# Documents",
        "",
        _MADE,
        "",
        *(" ".join(part.split()) + "\n" for part in (documents.__doc__ or "").strip().split("\n\n")),
        "`kai-cp schema NAME` prints the JSON Schema of each.",
    ]
    for name in documents.NAMES:
        schema = documents.schema(name)
        lines += ["", f"## {name}", ""]
        if "properties" in schema:
            lines += [str(schema.get("description", "")), "", *_table(schema)]
        else:
            kinds = ", ".join(_type(option) for option in schema["oneOf"])
            lines += [f"One line of `kai-cp bench --out`, by `kind`: {kinds}."]
        for title, part in schema.get("$defs", {}).items():
            lines += ["", f"### {title} ({name})", "", str(part.get("description", "")), "", *_table(part)]
    return "\n".join(lines).rstrip() + "\n"


def _table(schema: Mapping[str, Any]) -> Iterator[str]:
    yield "| key | type | required | meaning |"
    yield "|---|---|:-:|---|"
    required = set(schema.get("required", ()))
    for key, part in schema.get("properties", {}).items():
        meaning = str(part.get("description", "")).replace("|", "\\|")
        yield f"| `{key}` | {_type(part)} | {'yes' if key in required else ''} | {meaning} |"


def _type(part: Mapping[str, Any]) -> str:
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "const" in part:
        return f'`"{part["const"]}"`'
    if "enum" in part:
        return ", ".join(f'`"{value}"`' for value in part["enum"])
    if "anyOf" in part:
        return " or ".join(dict.fromkeys(_type(option) for option in part["anyOf"]))
    if part.get("type") == "array":
        return f"list of {_type(part.get('items', {}))}"
    if isinstance(part.get("additionalProperties"), Mapping):
        return f"object of {_type(part['additionalProperties'])}"
    return str(part.get("type", "any"))


def commands_page() -> str:
    """docs/reference-cli.md: what every command shows with ``--help``."""
    import typer

    from kai_cp.cli.app import Commands, command

    lines = [
        "# Command line",
        "",
        _MADE,
        "",
        "Exit statuses: [troubleshooting](troubleshooting.md#exit-statuses).",
        "",
    ]
    context = typer.Context(command, info_name="kai-cp", **_WIDTH)
    lines += ["```text", command.get_help(context), "```", ""]
    group: Any = command
    for name in Commands.table:
        lines += _pages(group.load(name), context, name)
    return "\n".join(lines).rstrip() + "\n"


_WIDTH: Final[dict[str, Any]] = {
    "terminal_width": 80,
    "max_content_width": 80,
    "help_option_names": ["-h", "--help"],
}


def _pages(command: Any, parent: Any, name: str) -> Iterator[str]:
    import typer

    context = typer.Context(command, parent=parent, info_name=name)
    yield f"## {context.command_path}\n"
    yield "```text"
    yield command.get_help(context).rstrip()
    yield "```\n"
    for below, found in getattr(command, "commands", {}).items():
        yield from _pages(found, context, below)
