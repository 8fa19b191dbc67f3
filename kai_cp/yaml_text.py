"""YAML from unknown authors: whatever is wrong with it, the error is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import yaml

LONGEST: Final = 4 * 1024**2
"""Characters. Settings, usage and search spaces are some kilobytes."""
MOST_VALUES: Final = 200_000
"""Keys and values with aliases written out; an alias to itself never ends."""

Value = TypeVar("Value")


def load(text: str) -> Any:
    """The document of a YAML text; raises ``yaml.YAMLError`` for everything that is none."""
    compose(text)
    return _read(text, yaml.safe_load)


def load_all(text: str) -> list[Any]:
    """Every document of a YAML text; errors as of :func:`load`."""
    return _read(text, lambda whole: list(yaml.safe_load_all(whole)))


def compose(text: str) -> yaml.Node | None:
    """The document with the places of its keys; raises ``yaml.YAMLError`` as :func:`load` does."""
    root: yaml.Node | None = _read(text, lambda whole: yaml.compose(whole, Loader=yaml.SafeLoader))
    waiting = [root] if root is not None else []
    values = 0
    while waiting:
        node = waiting.pop()
        values += 1
        if values > MOST_VALUES:
            raise yaml.YAMLError(f"it has more than {MOST_VALUES} values, or an alias refers to itself")
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return root


def _read(text: str, parse: Callable[[str], Value]) -> Value:
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"it is longer than {LONGEST} characters")
    try:
        return parse(text)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except ValueError as error:
        # Text that looks like a date or number but is not one: 2026-13-45.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
