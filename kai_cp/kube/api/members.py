"""Which pods belong to which pod group, kept up to date with the pods."""

from __future__ import annotations

import threading
from collections import defaultdict

from kai_cp.kube.api import names
from kai_cp.kube.api.orders import annotations_of
from kai_cp.kube.api.store import Key, Object, Store, key_of


class Members:
    """An index of pods by namespace and pod group name."""

    def __init__(self, pods: Store) -> None:
        self._groups: dict[Key, dict[Key, Object]] = defaultdict(dict)
        self._lock = threading.Lock()
        pods.listen(self._changed)

    def of(self, group: Key) -> list[Object]:
        """Pods of a group, in no order that means anything."""
        with self._lock:
            return list(self._groups.get(group, {}).values())

    def _changed(self, old: Object | None, new: Object | None) -> None:
        before, after = _group(old), _group(new)
        with self._lock:
            if old is not None and before is not None and before != after:
                self._drop(before, key_of(old))
            if new is not None and after is not None:
                self._groups[after][key_of(new)] = new

    def _drop(self, group: Key, pod: Key) -> None:
        pods = self._groups.get(group)
        if pods is not None:
            pods.pop(pod, None)
            if not pods:
                del self._groups[group]


def _group(pod: Object | None) -> Key | None:
    if pod is None:
        return None
    name = annotations_of(pod).get(names.GROUP)
    return (pod["metadata"].get("namespace") or "", name) if name else None
