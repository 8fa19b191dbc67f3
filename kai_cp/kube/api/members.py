"""Which pods belong to which pod group, kept up to date with the pods."""

from __future__ import annotations

import threading
from collections import defaultdict

from kai_cp import keys
from kai_cp.json_types import Object
from kai_cp.kube.api.api_objects import annotations_of
from kai_cp.kube.api.store import ObjectKey, Store, key_of


class Members:
    """An index of pods by namespace and pod group name."""

    def __init__(self, pods: Store) -> None:
        self._groups: dict[ObjectKey, dict[ObjectKey, Object]] = defaultdict(dict)
        self._lock = threading.Lock()
        pods.listen(self._changed)

    def of(self, group: ObjectKey) -> list[Object]:
        """Pods of a group, in no particular order."""
        return list(self.keyed(group).values())

    def keyed(self, group: ObjectKey) -> dict[ObjectKey, Object]:
        """The same by their keys."""
        with self._lock:
            return self._groups.get(group, {}).copy()

    def _changed(self, old: Object | None, new: Object | None) -> None:
        before, after = groups_of(old), groups_of(new)
        with self._lock:
            if old is not None and before != after:
                for group in before:
                    self._drop(group, key_of(old))
            if new is not None:
                for group in after:
                    self._groups[group][key_of(new)] = new

    def _drop(self, group: ObjectKey, pod: ObjectKey) -> None:
        pods = self._groups.get(group)
        if pods is not None:
            pods.pop(pod, None)
            if not pods:
                del self._groups[group]


def groups_of(item: Object | None) -> tuple[ObjectKey, ...]:
    """The key of the pod group that an object names, () when it names none."""
    if item is None:
        return ()
    name = annotations_of(item).get(keys.POD_GROUP)
    return ((item["metadata"].get("namespace") or "", name),) if name else ()
