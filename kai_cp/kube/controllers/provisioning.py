"""Asks cluster autoscalers for whole gangs where the API server serves ProvisioningRequests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Final

from kai_cp.json_types import Object
from kai_cp.kube.api import resources as r
from kai_cp.kube.api import transforms as t
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.members import Members, groups_of
from kai_cp.kube.api.store import ObjectKey, key_of
from kai_cp.kube.controllers.base import Context, NotYet, Want, changed
from kai_cp.kube.controllers.served import Served
from kai_cp.workloads.provisioning import Request, Step, step, template_names

VERSIONS: Final = ("v1", "v1beta1")
"""Versions of ProvisioningRequest, alike in what is used here; the first that is served counts."""
LOOK_SECONDS: Final = 60.0
"""How often it is looked whether ProvisioningRequests are served by now, while a gang waits."""
MOST_WRITES: Final = 100
"""Pods that a pass marks, and objects that it deletes; another pass follows. A gang may have thousands."""
_KINDS: Final = tuple(r.PROVISIONING_REQUESTS.at(version) for version in VERSIONS)


class GangProvisioner:
    """Keeps one ProvisioningRequest for every gang that does not fit."""

    workers = 1
    settle_seconds = 1.0

    def __init__(self, context: Context) -> None:
        options = context.options
        self._context = context
        self._class = options.provisioning_class
        self._fields = f"spec.schedulerName={options.scheduler_name}"
        informers = context.informers
        self._pods = informers.store(r.PODS, transform=t.pod, fields=self._fields)
        self._groups = informers.store(r.POD_GROUPS)
        self._requests = [informers.store(kind, optional=True) for kind in _KINDS]
        self._members = Members(self._pods)
        self._made = [Members(store) for store in self._requests]
        self._served = Served(context.transport.raw)

    def wants(self) -> Sequence[Want]:
        """Pod groups, their pods, and the ProvisioningRequests made for them."""
        return (
            Want(r.POD_GROUPS, changed(lambda group: (key_of(group),))),
            Want(r.PODS, changed(groups_of), transform=t.pod, fields=self._fields),
            *(Want(kind, changed(groups_of), optional=True) for kind in _KINDS),
        )

    def reconcile(self, key: ObjectKey, attempt: int) -> float | None:
        """Create the request of one gang, or delete it when it is no longer needed."""
        group = self._groups.get(key)
        if group is None:
            return None  # The garbage collector deletes what the group owns.
        uid = group["metadata"].get("uid")
        # A server with several versions serves every request in each of them.
        there = next((items for made in self._made if (items := made.of(key))), [])
        own = [item for item in there if _owned(item, uid)]
        found = step(group, self._members.of(key), own, self._class, time.time())
        version = self._version() if found.make is not None or found.delete else ""
        if found.make is not None and not version:
            return LOOK_SECONDS
        writes = self._writes(group, own, found, version)
        for write in islice(writes, MOST_WRITES):
            write()
        if next(writes, None) is not None:
            return 0.0
        if found.failed:
            text = f"the cluster autoscaler gave up: {found.failed}"
            self._context.recorder.say(group, r.POD_GROUPS, "Warning", "CapacityNotProvided", text)
        return found.after

    def _writes(
        self, group: Object, own: Sequence[Object], found: Step, version: str
    ) -> Iterator[Callable[[], object]]:
        """What is to be written, in order."""
        over = frozenset(found.delete)
        for item in own:
            if item["metadata"]["name"] in over:
                # Only the request names them.
                for template in template_names(item):
                    yield partial(self._delete_template, group["metadata"]["namespace"], template)
                yield partial(self._delete, item, version)
        if found.make is not None:
            yield partial(self._make, group, found.make, version)
        for name, marks in (found.marks or {}).items():
            yield partial(self._mark, (group["metadata"]["namespace"], name), marks)

    def _version(self) -> str:
        """The version in which requests are written, "" while none is served."""
        for kind in _KINDS:
            if self._served.resource(kind.api_version, kind.kind) is not None:
                return kind.version
        return ""

    def _make(self, group: Object, request: Request, version: str) -> None:
        namespace = group["metadata"]["namespace"]
        transport = self._context.transport
        made = None
        for template in request.templates:
            with _fine_if_there():
                transport.create(r.POD_TEMPLATES, namespace, dict(template))
        with _fine_if_there():
            made = transport.create(r.PROVISIONING_REQUESTS.at(version), namespace, dict(request.body))
        if made is None:
            raise NotYet(f"ProvisioningRequest {namespace}/{request.name}: the one before is still there")
        for store in self._requests:
            store.put(made, ours=True)
        text = f"ProvisioningRequest {request.name} asks for nodes for {len(request.pods)} pods at once"
        self._context.recorder.say(group, r.POD_GROUPS, "Normal", "CapacityRequested", text)

    def _delete_template(self, namespace: str, name: str) -> None:
        self._context.transport.delete(r.POD_TEMPLATES, namespace, name)

    def _delete(self, request: Object, version: str) -> None:
        namespace, name = request["metadata"]["namespace"], request["metadata"]["name"]
        uid, transport = request["metadata"].get("uid", ""), self._context.transport
        transport.delete(r.PROVISIONING_REQUESTS.at(version), namespace, name, uid=uid)
        for store in self._requests:
            store.remove(request, ours=True)

    def _mark(self, key: ObjectKey, marks: Mapping[str, str | None]) -> None:
        pod = self._pods.get(key)
        if pod is None:
            return
        body = {"metadata": {"uid": pod["metadata"].get("uid"), "annotations": dict(marks)}}
        answer = self._context.transport.patch(r.PODS, key[0], key[1], body)
        if answer is not None:
            self._pods.put(answer, ours=True)


@contextmanager
def _fine_if_there() -> Iterator[None]:
    """Accept a conflict: names follow from content, so an object of that name is the wanted one."""
    try:
        yield
    except ApiError as error:
        if error.status != 409:
            raise


def _owned(item: Object, uid: object) -> bool:
    owners = item["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == uid for owner in owners)
