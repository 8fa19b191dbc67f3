"""The shard controller keeps one scheduler Deployment for every SchedulingShard (6).

The garbage collector removes the Deployment, which only its shard owns: deleting a Config ends no scheduler.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final

from kai_cp.json_types import Object
from kai_cp.kube.api import api_objects
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, Want, changed
from kai_cp.kube.controllers.shard_objects import conditions, contained, deployment_name, owned, plan
from kai_cp.reader.fields import Malformed

CONFIG: Final = ("", "kai-config")
WAITING_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 300.0
"""Deployments are not watched, for that would need the right to see all of them: they are looked at again."""


class ShardController:
    """Keeps one Deployment for every shard."""

    workers = 1
    settle_seconds = 0.2

    def __init__(self, context: Context) -> None:
        self._context = context
        self._shards = context.informers.store(r.SHARDS, optional=True)
        self._configs = context.informers.store(r.CONFIGS, optional=True)

    def wants(self) -> Sequence[Want]:
        """Shards, and the Config that all of them use."""
        return (
            Want(r.SHARDS, changed(lambda shard: (key_of(shard),), _other_spec), optional=True),
            Want(r.CONFIGS, changed(self._all, _other_spec), optional=True),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Create or update the Deployment of one shard, and write the shard's conditions."""
        shard = self._shards.get(key)
        if shard is None or "deletionTimestamp" in shard["metadata"]:
            return None
        config = (self._configs.get(CONFIG) or {}).get("spec") or {}
        generation = int(shard["metadata"].get("generation") or 0)
        try:
            wanted = plan(shard, config, self._context.options)
        except Malformed as problem:
            self._tell(shard, conditions(None, None, str(problem), generation))
            return None
        try:
            stored = self._keep(shard, wanted.deployment)
        except ApiError as error:
            self._tell(shard, conditions(wanted, None, error.message, generation))
            raise
        if stored is None:
            taken = f"Deployment {deployment_name(key[1])} is there already, and is not this shard's"
            self._tell(shard, conditions(wanted, None, taken, generation))
            return WAITING_SECONDS
        told = conditions(wanted, stored, "", generation)
        self._tell(shard, told)
        return LOOK_SECONDS if told[-1]["status"] == "True" else WAITING_SECONDS

    def _keep(self, shard: Object, wanted: Object) -> Object | None:
        """The Deployment as it is now; None where another program's Deployment has that name."""
        namespace, name = wanted["metadata"]["namespace"], wanted["metadata"]["name"]
        transport = self._context.transport
        stored = transport.get(r.DEPLOYMENTS, namespace, name)
        if stored is None:
            return transport.create(r.DEPLOYMENTS, namespace, wanted)
        if not owned(stored, shard):
            return None
        meta = {key: wanted["metadata"][key] for key in ("annotations", "labels", "ownerReferences")}
        if contained({"metadata": meta, "spec": wanted["spec"]}, stored):
            return stored
        meta["annotations"] = {**api_objects.annotations_of(stored), **meta["annotations"]}
        body = {**stored, "metadata": {**stored["metadata"], **meta}, "spec": wanted["spec"]}
        return transport.update(r.DEPLOYMENTS, namespace, name, body)

    def _tell(self, shard: Object, wanted: list[Object]) -> None:
        before = {c.get("type"): c for c in (shard.get("status") or {}).get("conditions") or ()}
        if all(contained(condition, before.get(condition["type"])) for condition in wanted):
            return
        now = api_objects.rfc3339(time.time())
        for condition in wanted:
            old = before.get(condition["type"]) or {}
            same = old.get("status") == condition["status"]
            condition["lastTransitionTime"] = old.get("lastTransitionTime", now) if same else now
        kept = [c for kind, c in before.items() if kind not in {w["type"] for w in wanted}]
        body = {"status": {"conditions": kept + wanted}}
        answer = self._context.transport.patch(
            r.SHARDS, "", shard["metadata"]["name"], body, subresource="status"
        )
        if answer is not None:
            self._shards.put(answer, ours=True)

    def _all(self, _config: Object) -> Iterable[ObjectKey]:
        return [key_of(shard) for shard in self._shards.all()]


def _other_spec(old: Object, new: Object) -> bool:
    return old.get("spec") != new.get("spec") or "deletionTimestamp" in new["metadata"]
