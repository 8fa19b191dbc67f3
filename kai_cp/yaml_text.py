"""YAML from unknown authors, whose errors all have one type; and YAML for readers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import yaml

LONGEST: Final = 4 * 1024**2
"""Characters. Settings, usage and search spaces are some kilobytes."""
MOST_VALUES: Final = 200_000
"""Keys and values with aliases written out; an alias to itself never ends."""
_LONGEST_NUMBER: Final = 400

Value = TypeVar("Value")


class _Loader(yaml.SafeLoader):
    """Ends at the first value beyond the limit: counting bounds the time, on every thread."""

    values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.values += 1
        if self.values > MOST_VALUES:
            raise _too_many()
        found: yaml.Node | None = super().compose_node(parent, index)
        return found

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        return int(super().construct_yaml_int(_short(node)))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        return float(super().construct_yaml_float(_short(node)))


def _short(node: yaml.ScalarNode) -> yaml.ScalarNode:
    """The number, unless it is too long: to YAML, 1:59:59… is a number of any length, and reading it takes
    the square of that."""
    if len(node.value) > _LONGEST_NUMBER:
        raise yaml.YAMLError(f"a number has more than {_LONGEST_NUMBER} characters")
    return node


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)


def load(text: str) -> Any:
    """The document of a YAML text; raises ``yaml.YAMLError`` for everything that is none."""
    return _read(text, lambda loader: _value(loader, loader.get_single_node()))


def load_all(text: str) -> list[Any]:
    """Every document of a YAML text; errors as of :func:`load`."""

    def documents(loader: _Loader) -> list[Any]:
        found = []
        while loader.check_node():
            found.append(_value(loader, loader.get_node()))
        return found

    return _read(text, documents)


def compose(text: str) -> yaml.Node | None:
    """The document with the places of its keys; errors as of :func:`load`."""
    return _read(text, lambda loader: _counted(loader.get_single_node()))


_Fast: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Plain(_Fast):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def written(*documents: Any, width: int = 80) -> str:
    """YAML documents as kubectl writes them: repeated values are written out again."""
    return str(yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=width))


def why(error: OSError | yaml.YAMLError) -> str:
    """What is wrong with a file or its text, in one line; with the line number if the error has one."""
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    mark = getattr(error, "problem_mark", None)
    at = "" if mark is None else f"line {mark.line + 1}: "
    return f"not YAML: {at}{getattr(error, 'problem', None) or str(error).splitlines()[0]}"


def _value(loader: _Loader, root: yaml.Node | None) -> Any:
    return None if _counted(root) is None else loader.construct_document(root)


def _counted(root: yaml.Node | None) -> yaml.Node | None:
    """The document itself, if it is small enough with aliases written out."""
    waiting = [root] if root is not None else []
    values = 0
    while waiting:
        node = waiting.pop()
        values += 1
        if values > MOST_VALUES:
            raise _too_many()
        if isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
    return root


def _too_many() -> yaml.YAMLError:
    return yaml.YAMLError(f"it has more than {MOST_VALUES} values, or an alias refers to itself")


def _read(text: str, parse: Callable[[_Loader], Value]) -> Value:
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"it is longer than {LONGEST} characters")
    loader = None
    try:
        loader = _Loader(text)
        return parse(loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None
    except ValueError as error:
        # Text that looks like a date or number but is not one: 2026-13-45.
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()
