"""Workloads on the real API server: definitions, and the parts that their own controllers play."""

from __future__ import annotations

import subprocess
from typing import Any

from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.api.resources import Resource
from tests.e2e.world import JOBS, KINDS, Program, World
from tests.kubetest.build import find
from tests.support.definitions import definition

Object = dict[str, Any]
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
QUEUE = "kai.scheduler/queue"


def install(world: World, *kinds: Resource) -> None:
    """Define kinds that do not exist yet, and wait until they are served."""
    for resource in kinds:
        try:
            world.api.create(r.CRDS, "", definition(resource))
        except ApiError as error:
            if error.status != 409:
                raise
    for resource in kinds:
        world.until(lambda resource=resource: _listed(world, resource), f"{resource.plural} are served")  # type: ignore[misc]


def _listed(world: World, resource: Resource) -> bool:
    return world.api.raw(resource.path()) is not None


def kubectl(world: World, *arguments: str) -> str:
    """What kubectl prints; it must succeed."""
    command = [str(find()), "kubectl", f"--kubeconfig={world.plane.kubeconfig()}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def remove(world: World, resource: Resource, name: str) -> None:
    """Delete as people do, together with everything that it owns."""
    kind = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    kubectl(world, "delete", kind, name, "-n", world.namespace, "--wait=false")


def grant(world: World, *kinds: Resource, user: str = "controllers") -> None:
    """The rights that an administrator grants for kinds that our roles do not name."""
    for resource in kinds:
        name = f"{world.name}-{resource.plural}"
        rule = {
            "apiGroups": [resource.group],
            "resources": [resource.plural],
            "verbs": ["get", "list", "watch"],
        }
        world.api.create(KINDS["ClusterRole"], "", {"metadata": {"name": name}, "rules": [rule]})
        api = "rbac.authorization.k8s.io"
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": user, "apiGroup": api}],
        }
        world.api.create(KINDS["ClusterRoleBinding"], "", body)


class Workloads:
    """What a test makes in its world: owners and the pods below them."""

    def __init__(self, world: World, queue: str) -> None:
        self.world = world
        self.queue = queue

    def start(self, *flags: str, user: str = "controllers", url: str = "") -> Program:
        """Our controllers, for the pool of this world."""
        return self.world.controllers(
            f"--nodepool-label-key={self.world.pool_key}", *flags, user=user, url=url
        )

    def own(
        self, resource: Resource, name: str, owner: tuple[Resource, Object] | None = None, **fields: Any
    ) -> tuple[Resource, Object]:
        """An owner; the topmost one carries the queue."""
        labels = {**fields.pop("labels", {}), **({} if owner else {QUEUE: self.queue})}
        meta: Object = {"name": name, "namespace": self.world.namespace, "labels": labels}
        meta["annotations"] = fields.pop("annotations", {})
        if owner is not None:
            meta["ownerReferences"] = [reference(*owner)]
        return resource, self.world.api.create(resource, self.world.namespace, {"metadata": meta, **fields})

    def template(self, restart: str = "Always", **labels: str) -> Object:
        """A pod template that the built-in controllers can use."""
        spec = {**self._spec(1), "restartPolicy": restart}
        return {"metadata": {"labels": {**self.world.labels, **labels}}, "spec": spec}

    def pod(
        self,
        name: str,
        owner: tuple[Resource, Object] | None = None,
        *,
        gpus: int = 1,
        annotations: Object | None = None,
        **labels: str,
    ) -> Object:
        """A pod."""
        meta: Object = {
            "name": name,
            "namespace": self.world.namespace,
            "labels": {**self.world.labels, **labels},
            "annotations": annotations or {},
        }
        if owner is not None:
            meta["ownerReferences"] = [reference(*owner)]
        else:
            meta["labels"][QUEUE] = self.queue
        return self.world.api.create(
            r.PODS, self.world.namespace, {"metadata": meta, "spec": self._spec(gpus)}
        )

    def job(
        self, name: str, owner: tuple[Resource, Object] | None = None, *, pods: int = 2, **fields: Any
    ) -> None:
        """A Job, whose pods the real controller makes."""
        spec = {"parallelism": pods, "completions": pods, "template": self.template("Never")}
        self.own(JOBS, name, owner, spec=spec, **fields)

    def groups(self) -> dict[str, Object]:
        """Pod groups of this world by name without the uid."""
        items = self.world.api.raw(r.POD_GROUPS.path(self.world.namespace))["items"]
        return {short(item): item for item in items}

    def _spec(self, gpus: int) -> Object:
        limits = {"cpu": "100m", "memory": "100Mi"}
        if gpus:
            limits["nvidia.com/gpu"] = str(gpus)
        return {
            "schedulerName": "kai-scheduler",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}],
        }


def reference(resource: Resource, item: Object) -> Object:
    """An owner reference as controllers write it."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": item["metadata"]["name"],
        "uid": item["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def short(group: Object) -> str:
    """A pod group's name without the uid."""
    owner = group["metadata"]["ownerReferences"][0]
    return str(group["metadata"]["name"].replace(f"-{owner['uid']}", ""))


def shape(group: Object) -> Object:
    """Minimum and subgroups of a pod group: what the gang needs."""
    spec = group["spec"]
    found = {key: spec[key] for key in ("minMember", "minSubGroup") if key in spec}
    for subgroup in spec.get("subGroups") or ():
        found[subgroup["name"]] = subgroup.get("minMember", subgroup.get("minSubGroup"))
    return found
