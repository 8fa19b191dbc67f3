"""A cluster whose objects come, go and change, as a scheduler that follows it sees it."""

from __future__ import annotations

import copy
import random
from typing import Any

from tests.support.clusters import random_cluster

Raw = dict[str, Any]


class Changing:
    """A cluster whose objects come, go and change, each change with a new resourceVersion.

    An object without one is a draft, which changes in place.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.raw = random_cluster(seed)
        self.gone: list[tuple[str, Raw]] = []
        self.drafts: list[Raw] = []
        self.versions = 0
        for objects in self.raw["rawObjects"].values():
            for obj in objects or ():
                obj["metadata"].setdefault("uid", obj["metadata"]["name"])
                self.stamp(obj)

    def stamp(self, obj: Raw) -> None:
        self.versions += 1
        obj["metadata"]["resourceVersion"] = str(self.versions)

    def step(self) -> None:
        """One change. The objects themselves never change, because a watch replaces them."""
        names = ("pods", "pods", "pods", "nodes", "podGroups", "queues", "bindRequests", "priorityClasses")
        name = self.random.choice(names)
        objects = self.raw["rawObjects"].get(name) or []
        rare = ("leave", "return", "return", "settings", "promise", "empty", "twice", "draft", "edit")
        how = self.random.choice(("change", "change", "change", *rare))
        if how == "settings":
            params = dict(self.raw.get("schedulerParams") or {})
            params["schedulerName"] = self.random.choice(("kai-scheduler", "other"))
            self.raw = {**self.raw, "schedulerParams": params}
        elif how == "return" and self.gone:
            name, obj = self.gone.pop(self.random.randrange(len(self.gone)))
            self.put(name, [*(self.raw["rawObjects"].get(name) or []), obj])
        elif how == "edit" and self.drafts:
            metadata = self.random.choice(self.drafts)["metadata"]
            metadata.setdefault("annotations", {})["gpu-fraction"] = self.random.choice(("0.3", "odd"))
        elif how == "promise":
            self.promise()
        elif how == "empty" and name != "nodes":
            self.gone += [(name, obj) for obj in objects]
            self.put(name, [])
        elif objects:
            at = self.random.randrange(len(objects))
            rest = [*objects[:at], *objects[at + 1 :]]
            if how == "leave":
                self.gone.append((name, objects[at]))
            elif how == "twice":
                rest += [objects[at], copy.deepcopy(objects[at])]
            elif how == "draft":
                draft = copy.deepcopy(objects[at])
                draft["metadata"].pop("resourceVersion", None)
                if name == "pods":
                    self.drafts.append(draft)
                rest.append(draft)
            else:
                obj = copy.deepcopy(objects[at])
                self.change(name, obj)
                self.stamp(obj)
                rest.append(obj)
            self.put(name, rest)

    def promise(self) -> None:
        """A pod is promised to a node."""
        objects = self.raw["rawObjects"]
        if objects["pods"] and objects["nodes"]:
            pod = self.random.choice(objects["pods"])["metadata"]
            node = self.random.choice(objects["nodes"])["metadata"]["name"]
            spec = {"podName": pod["name"], "selectedNode": node}
            place = {"name": f"{pod['name']}-{self.versions}", "namespace": pod.get("namespace")}
            request: Raw = {"metadata": place, "spec": spec}
            self.stamp(request)
            self.put("bindRequests", [*(objects.get("bindRequests") or []), request])

    def put(self, name: str, objects: list[Raw]) -> None:
        self.raw = {**self.raw, "rawObjects": {**self.raw["rawObjects"], name: objects}}

    def change(self, name: str, obj: Raw) -> None:
        nodes = [node["metadata"]["name"] for node in self.raw["rawObjects"]["nodes"]]
        metadata = obj["metadata"]
        if name == "pods":
            what = self.random.randrange(6)
            if what == 0 and nodes:
                obj["spec"]["nodeName"] = self.random.choice(nodes)
                obj["status"]["phase"] = "Running"
            elif what == 1:
                metadata["deletionTimestamp"] = "2026-11-20T11:59:00Z"
            elif what == 2:
                metadata.setdefault("annotations", {})["gpu-fraction"] = self.random.choice(("0.5", "odd"))
            elif what == 3:
                metadata.setdefault("annotations", {})["pod-group-name"] = "run1"
            elif what == 4:
                metadata.setdefault("annotations", {})["kai.scheduler/numa-placement-observed"] = "odd"
            else:
                part = f"example.com/part{self.random.choice(('', '2', '3'))}"
                obj["spec"]["containers"][0]["resources"] = {"requests": {part: "1"}}
        elif name == "nodes":
            metadata.setdefault("labels", {})["nvidia.com/gpu.memory"] = self.random.choice(("40000", "odd"))
            if self.random.random() < 0.5:
                obj["status"]["allocatable"]["example.com/part"] = "2"
        elif name == "podGroups":
            obj["spec"]["minMember"] = self.random.choice((1, 2, "odd"))
        elif name == "priorityClasses":
            obj["value"] = self.random.choice((40, 120, "odd"))
        elif name == "queues":
            obj["spec"]["priority"] = self.random.choice((1, "odd"))
