"""Annotations of pod groups that the scheduler sets: they show once decided and are written in time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects, resources
from kai_cp.kube.api.background import BackgroundWriter
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.store import Store
from kai_cp.kube.api.transport import Transport
from kai_cp.kube.scheduler.unwritten import with_unwritten
from kai_cp_models.pods import GroupKey

LOG = logging.getLogger(__name__)


class _Decided(NamedTuple):
    """Annotations (None: removed) of the pod group with this uid."""

    uid: str
    annotations: Mapping[str, str | None]


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
        self._decided: dict[GroupKey, _Decided] = {}
        """What is decided and not written yet."""
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def of(self, key: GroupKey) -> Mapping[str, str | None]:
        """The annotations of a pod group; none where there is no such group."""
        group = self._groups.get(key)
        if group is None:
            return {}
        return {**api_objects.annotations_of(group), **_meant_for(group, self._decided.get(key))}

    def set(self, key: GroupKey, annotations: Mapping[str, str | None], *, uid: str = "") -> None:
        """Have annotations of a pod group set (None: removed); nothing is written if nothing changes.

        ``uid``: of the group that is meant, if that may be an earlier one of its name.
        """
        with self._lock:
            group = self._groups.get(key)
            if group is None or uid not in ("", group["metadata"].get("uid")):
                return
            present, decided = self.of(key), _meant_for(group, self._decided.get(key))
            if not decided and all(present.get(name) == value for name, value in annotations.items()):
                return
            self._decided[key] = _Decided(group["metadata"].get("uid", ""), {**decided, **annotations})
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
        return with_unwritten(raw, "podGroups", lambda key: decided.get(GroupKey(*key)), _with_decided)

    def _submit(self, key: GroupKey) -> None:
        self._writer.submit(("notes", *key), partial(self._write, key), namespace=key.namespace)

    def _write(self, key: GroupKey) -> None:
        with self._writing:  # an older state must not arrive last
            decided, group = self._decided.get(key), self._groups.get(key)
            wanted = {} if group is None else dict(_meant_for(group, decided))
            if group is not None and decided is not None and not _has(group, wanted):
                self._patch(key, {"metadata": {"uid": decided.uid, "annotations": wanted}})
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


def _meant_for(group: Object, decided: _Decided | None) -> Mapping[str, str | None]:
    """The annotations that are decided, if they are about this group and about no earlier one of its name."""
    return decided.annotations if decided and decided.uid == group["metadata"].get("uid", "") else {}


def _with_decided(group: Object, decided: _Decided) -> Object:
    return with_annotations(group, _meant_for(group, decided))


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
