"""The JSON patch (RFC 6902) from one document to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def difference(old: Any, new: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """The operations in order. Members change one by one; a list grows at its end or is replaced as a
    whole.
    """
    if old is new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old.keys() | new.keys():
            where = f"{path}/{_escaped(key)}"
            if key not in new:
                yield {"op": "remove", "path": where}
            elif key not in old:
                yield {"op": "add", "path": where, "value": new[key]}
            else:
                yield from difference(old[key], new[key], where)
    elif isinstance(old, list) and isinstance(new, list) and len(old) <= len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=False)):
            yield from difference(before, after, f"{path}/{i}")
        for added in new[len(old) :]:
            yield {"op": "add", "path": f"{path}/-", "value": added}
    elif type(old) is not type(new) or old != new:
        yield {"op": "replace", "path": path, "value": new}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
