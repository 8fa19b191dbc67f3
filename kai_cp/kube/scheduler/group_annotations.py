"""Annotations of pod groups that the scheduler sets: they show once decided and are written in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.store import Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.unwritten import with_unwritten
from kai_cp_models.pods import GroupKey

LOG = logging.getLogger(__name__)


class GroupAnnotations:
    """The annotations of all pod groups as they will soon be.

    They are written in the background, namespaces in turn, and the latest value wins. Nothing waits for a
    write, because snapshots show decided values at once (12.7). Values that a process has not written when it
    ends were never shown to users.
    """

    def __init__(self, transport: Transport, groups: Store, writer: BackgroundWriter) -> None:
        self._transport = transport
        self._groups = groups
        self._writer = writer
        self._decided: dict[GroupKey, Mapping[str, str | None]] = {}
        """Annotations (None: removed) that are decided and not written yet."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def of(self, key: GroupKey) -> Mapping[str, str | None]:
        """The annotations of a pod group; none where there is no such group."""
        group = self._groups.get(key)
        return {
            **(api_objects.annotations_of(group) if group is not None else {}),
            **self._decided.get(key, {}),
        }

    def set(self, key: GroupKey, annotations: Mapping[str, str | None]) -> None:
        """Have annotations of a pod group set (None: removed); nothing is written if nothing changes."""
        with self._lock:
            present = self.of(key)
            known = key in self._decided
            if not known and all(present.get(name) == value for name, value in annotations.items()):
                return
            self._decided[key] = {**self._decided.get(key, {}), **annotations}
        self._submit(key)

    def submit_again(self) -> None:
        """Have everything written that is not written yet: the writer may have dropped it.

        Raises :class:`LeaseLost` if a write found that the lease is lost.
        """
        for key in list(self._decided):
            self._submit(key)

    def shown(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The snapshot with the annotations that are not written yet."""
        decided = dict(self._decided)
        if not decided:
            return raw
        return with_unwritten(raw, "podGroups", lambda key: decided.get(GroupKey(*key)), with_annotations)

    def _submit(self, key: GroupKey) -> None:
        self._writer.submit(("notes", *key), partial(self._write, key), namespace=key.namespace)

    def _write(self, key: GroupKey) -> None:
        with self._writing:  # an older state must not arrive last
            decided, group = self._decided.get(key), self._groups.get(key)
            if decided is not None and group is not None and not _has(group, decided):
                self._patch(key, {"metadata": {"annotations": dict(decided)}})
            with self._lock:
                if self._decided.get(key) is decided:
                    self._decided.pop(key, None)

    def _patch(self, key: GroupKey, body: Object) -> None:
        """Write; refused writes are given up, and writes that do not reach the server are repeated."""
        try:
            changed = self._transport.patch(resources.POD_GROUPS, *key, body)
        except ApiError as error:
            LOG.warning(
                "the annotation of a pod group was refused, and is given up",
                extra={"podGroup": str(key), "error": str(error)},
            )
            return
        if changed is not None:
            self._groups.put(changed, ours=True)


def _has(item: Object, annotations: Mapping[str, str | None]) -> bool:
    present = api_objects.annotations_of(item)
    return all(present.get(name) == value for name, value in annotations.items())


def with_annotations(item: Object, annotations: Mapping[str, str | None]) -> Object:
    """The object with annotations (None: without them) that it will soon have."""
    if _has(item, annotations):
        return item
    merged = {**api_objects.annotations_of(item), **annotations}
    kept = {name: value for name, value in merged.items() if value is not None}
    # What is read of an object is kept by its version.
    version = f"{item['metadata'].get('resourceVersion', '')}-{sorted(annotations.items())}"
    return {**item, "metadata": {**item["metadata"], "annotations": kept, "resourceVersion": version}}
