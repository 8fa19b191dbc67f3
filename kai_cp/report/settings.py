"""The settings explained, on the terminal and as the page ``docs/settings.md``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from kai_cp.settings import Setting

_HEAD = """# Settings

<!-- Made by `kai-cp config explain --format markdown`; do not edit. -->

One YAML file, given with `--config FILE`. Keys that are left out keep their default; unknown keys are
refused, and so are times of more than 100 years, more than 2^50 bytes, and other numbers above 1,000,000,000.
The defaults reproduce KAI's policy. What a snapshot's own `config` and `schedulerParams` say
(actions, plugins, binpack or spread, kValue, minimum runtimes …) is honoured and is not repeated here.
Only preferences can be set: queue limits, gangs and the other contract rules cannot be switched off.
Limits that are not settings, with unit and reason:
[SECURITY.md](../SECURITY.md#limits-that-are-not-settings).

"""


def _default(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(yaml.safe_dump(value)).splitlines()[0]


def as_text(settings: Sequence[Setting]) -> Group:
    """Every setting with its default on one line and its meaning below, which is readable at any width."""
    lines: list[Text | Padding] = []
    for setting in settings:
        head = Text.assemble((setting.path, "bold"), " = ", (_default(setting.default), "cyan"))
        head.append(f" {setting.unit}" if setting.unit else "")
        head.append(f"  ({setting.allowed})", style="dim")
        lines += [head, Padding(Text(setting.meaning), (0, 0, 0, 4), expand=False), Text()]
    return Group(*lines)


def as_markdown(settings: Sequence[Setting]) -> str:
    """The page for the docs, with an example that holds every default."""
    rows = [
        f"| `{s.path}` | {_default(s.default)} | {s.unit} | {s.allowed} | {s.meaning} |" for s in settings
    ]
    table = ["| Setting | Default | Unit | Allowed | Meaning |", "|---|---|---|---|---|", *rows]
    nested: dict[str, Any] = {}
    for setting in settings:
        *parents, last = setting.path.split(".")
        level = nested
        for parent in parents:
            level = level.setdefault(parent, {})
        level[last] = setting.default
    example = [
        "",
        "A file with every default:",
        "",
        "```yaml",
        yaml.safe_dump(nested, sort_keys=False).rstrip(),
        "```",
    ]
    return _HEAD + "\n".join([*table, *example]) + "\n"
