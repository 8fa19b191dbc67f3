"""A changed copy of a raw snapshot; it shares unchanged parts with the original, which never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from difflib import SequenceMatcher
from typing import Any, Final

import orjson

from kai_cp.explain.raw import alive, group_of, key_of, name_of, objects_of
from kai_cp.json_types import Object

_ALIKE: Final = 0.5
"""Names count as near from this similarity on (1: equal)."""


class BadOperation(ValueError):
    """An operation that cannot be carried out; the text names it and what is nearest."""


class Draft:
    """A snapshot that is being changed. ``now``: seconds since the epoch, which an operation may move.

    ``frees_devices``: whether pods that end give the devices of their claims back.
    """

    def __init__(self, raw: Mapping[str, Any], now: float, *, frees_devices: bool = True) -> None:
        self.raw: Object = {**raw, "rawObjects": dict(raw["rawObjects"])}
        self.now = now
        self.frees_devices = frees_devices
        self._own: set[int] = set()
        """Objects that are already copies, by identity; they live in ``raw``."""
        self._lists: set[str] = set()

    def objects(self, kind: str) -> list[Object]:
        """The objects of a kind, to be read only."""
        return objects_of(self.raw, kind)

    def list_of(self, kind: str) -> list[Object]:
        """The list of a kind, to be changed."""
        if kind not in self._lists:
            self.raw["rawObjects"][kind] = self.objects(kind)
            self._lists.add(kind)
        found: list[Object] = self.raw["rawObjects"][kind]
        return found

    def keep(self, kind: str, wanted: Callable[[Object], bool]) -> None:
        """Keep only the wanted objects of a kind."""
        self.raw["rawObjects"][kind] = [item for item in self.objects(kind) if wanted(item)]
        self._lists.add(kind)

    def position(self, kind: str, title: str, name: str) -> int:
        """Position of an object in its list: by ``namespace/name``, or by name if its kind has no namespaces.

        Raises ``BadOperation`` if there is no such object.
        """
        read = key_of if "/" in name else name_of
        names = [read(item) for item in self.objects(kind)]
        if name in names:
            return names.index(name)
        raise BadOperation(f"there is no {title} {name}{nearest(name, names)}")

    def find(self, kind: str, title: str, name: str) -> Object:
        """An object, to be read only."""
        return self.objects(kind)[self.position(kind, title, name)]

    def edit(self, kind: str, title: str, name: str) -> Object:
        """An object of its own, to be changed."""
        return self.own(kind, self.position(kind, title, name))

    def own(self, kind: str, position: int) -> Object:
        """The object at a position as a copy that may be changed."""
        items = self.list_of(kind)
        if id(items[position]) not in self._own:
            items[position] = clone(items[position])
            # An object without a version is read every time, as it may change once more.
            items[position].get("metadata", {}).pop("resourceVersion", None)
            self._own.add(id(items[position]))
        return items[position]

    def edit_all(self, kind: str, wanted: Callable[[Object], bool]) -> Iterator[Object]:
        """Every object of a kind that matches, each a copy that may be changed."""
        for position, item in enumerate(self.list_of(kind)):
            if wanted(item):
                yield self.own(kind, position)

    def section(self, name: str) -> Object:
        """``config`` or ``schedulerParams``, to be changed."""
        found: Object = clone(self.raw.get(name) or {})
        self.raw[name] = found
        return found

    def drop_pods(self, gone: Set[str]) -> None:
        """Take pods out, and pod groups that lose their last pod."""
        touched = {group_of(pod) for pod in self.objects("pods") if key_of(pod) in gone}
        self.keep("pods", lambda pod: key_of(pod) not in gone)
        left = {group_of(pod) for pod in self.objects("pods")}
        self.keep("podGroups", lambda group: key_of(group) not in touched or key_of(group) in left)

    def waiting_pods(self, group: str) -> Iterator[Object]:
        """The pods of a group that have no node, each a copy that may be changed.

        Raises ``BadOperation`` if no pod of the group waits.
        """
        found = False
        for pod in self.edit_all(
            "pods",
            lambda pod: group_of(pod) == group and alive(pod) and not (pod.get("spec") or {}).get("nodeName"),
        ):
            found = True
            yield pod
        if not found:
            raise BadOperation(f"podgroup {group} has no pods that wait")


def clone(item: Any) -> Any:
    """A deep copy of JSON."""
    found: Any = orjson.loads(orjson.dumps(item))
    return found


def nearest(name: str, names: list[str]) -> str:
    """``; the nearest: …`` with the most similar names; if none is similar, ``; there are …`` with some
    names."""
    matcher = SequenceMatcher(b=name)

    def likeness(other: str) -> float:
        matcher.set_seq1(other)
        return matcher.ratio() if matcher.quick_ratio() >= _ALIKE else 0.0

    if close := sorted((-like, other) for other in names if (like := likeness(other)) >= _ALIKE)[:3]:
        return f"; the nearest: {', '.join(other for _, other in close)}"
    some = sorted(names)[:3]
    more = f" and {len(names) - len(some)} more" if len(names) > len(some) else ""
    return f"; there {'is' if len(names) == 1 else 'are'} {', '.join(some)}{more}" if some else ""
