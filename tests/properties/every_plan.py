"""Every plan of a tiny world, beside what the engine calls impossible (``test_every_plan.py``).

A world has two nodes, a few running pods and one or two waiting pods, with anything that rules and rights
read: budgets, ports, terms between pods, volumes, spread, minimum and maximum run times, limits and quotas of
GPUs, CPUs and memory, queues below queues, gangs, subgroups, required and preferred domains, taints, shares
of GPUs of two sizes, MIG instances, few pod slots, pods that are leaving or stuck in it, kinds of GPUs,
rollouts, nodes that are closed or offer less than runs there, pods of other schedulers, weights of queues,
promised places, stale gangs, gated and finished pods, surplus pods, delays, groups that cannot be preempted,
and any order of actions, left-out plugins and other parameters. Each pod that runs may stay, be lost or move,
by any action; each that waits may be bound, nominated or left. The checker alone says which of these plans
are permitted. None may serve a group whose refusal is proved beside all groups that the engine serves and
that come before it, and none that serves the same pods may better a stage that is called optimal.

``python -m tests.properties.every_plan --first 0 --count 200`` does this for many fresh worlds; exit status 1
when a proof is refuted. A finding is reproduced with ``drawn(seed)``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from copy import deepcopy
from itertools import islice, product
from random import Random
from typing import Any, Final, Literal

from kai_cp_models.check import SnapshotFacts, violations
from kai_cp_models.plan import Decision, Plan
from kai_cp_models.pods import ACTIVE_ALLOCATED, Pod, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.reservations.prepare import prepare
from kai_cp_models.settings import Settings
from kai_cp_models.snapshot import Snapshot
from tests.properties.comparing import bettered
from tests.properties.oracle import Placement
from tests.properties.reasking import Audit, gained, places_of
from tests.support.devices import STATIC, csi_node, on_nodes, storage_class, volume, volume_claim, volumes
from tests.support.objects import Object, ago
from tests.support.tiny import cluster, node, pod, queue

SETTINGS: Final = Settings.model_validate(
    {
        "solver": {"budget_seconds": 20, "patience": 50},
        "rules": dict.fromkeys(("pod_disruption_budgets", "topology_spread", "gpu_kinds", "rollouts"), True),
        "max_runtime": {"enforce": True},
    }
)
Kind = Literal["Bind", "Nominate"]
EVICTING: Final[tuple[ActionName, ...]] = ("consolidation", "reclaim", "preempt")
KINDS: Final = (
    *("budgets", "terms", "ports", "spread", "volumes", "nodes", "times", "limits", "gangs"),
    *("subgroups", "domains", "taints", "shares", "mig", "cpus", "tree", "slots", "leaving"),
    *("kinds", "rollouts", "lacking", "closed", "others", "weights", "memory", "promised", "stuck", "stale"),
    *("gated", "done", "surplus", "delays", "firm", "order", "runtimes", "left out", "parameters"),
)
LEFT_OUT: Final = (
    *("elastic", "minruntime", "nominatednode", "predicates", "priority", "proportion", "subgrouporder"),
    *("taskorder", "topology"),
)
MOST_PLANS: Final = 30_000
"""The most plans of one world that are looked at."""
MOST_COMPARED: Final = 2_000
"""The most plans of one world that are compared with what is called optimal."""
ZONE: Final = "zone"
MIG: Final = "nvidia.com/mig-1g.5gb"
HOST: Final = "kubernetes.io/hostname"


def _terms(random: Random) -> Object:
    """Terms between pods, for about half of all pods."""
    term = {
        "labelSelector": {"matchLabels": {"side": random.choice("lr")}},
        "topologyKey": random.choice((ZONE, HOST)),
    }
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return random.choice(({}, {}, {"podAffinity": required}, {"podAntiAffinity": required}))


class _World:
    """What is drawn for one world."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.drawn = frozenset(random.sample(KINDS, random.choice((1, 2, 3, 4))))
        self.claims = {f"c{i}": random.random() < 0.4 for i in range(3)}
        """The volume claims, and whether each has its volume."""
        self.groups: dict[str, Object] = {}
        """What the pod groups say beside the usual."""

    def some(self, kind: str, share: float) -> bool:
        """Whether a pod has what the world has drawn."""
        return kind in self.drawn and self.random.random() < share

    def pod(self, name: str, on: str, claims: list[str], **more: Any) -> Object:
        """A pod with some of what the world has drawn."""
        random = self.random
        if "terms" in self.drawn and (terms := _terms(random)):
            more["affinity"] = terms
        if self.some("spread", 0.5):
            selector = {"matchLabels": {"side": random.choice("lr")}}
            skew = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            more["topologySpreadConstraints"] = [skew | {"labelSelector": selector}]
        if claims and self.some("volumes", 0.6):
            more["volumes"] = volumes(*random.sample(claims, min(len(claims), random.choice((1, 1, 2)))))
        if self.some("nodes", 0.4):
            more["nodeSelector"] = {ZONE: random.choice("ab")}
        if self.some("taints", 0.5):
            more["tolerations"] = [{"key": "kept", "operator": "Exists"}]
        amounts = {"cpu": random.choice(("1", "3", "5")) if "cpus" in self.drawn else "1", "memory": "1Gi"}
        if not more.get("gpus") and self.some("mig", 0.7):
            amounts[MIG] = random.choice("112")
        labels = {"side": random.choice("lr")}
        if self.some("subgroups", 0.9):
            labels["kai.scheduler/subgroup-name"] = random.choice("ab")
        made = pod(name, on, requests=amounts, labels=labels, **more)
        if self.some("ports", 0.5):
            port = {"hostPort": 80, "containerPort": 80, "protocol": "TCP"}
            made["spec"]["containers"][0]["ports"] = [port]
        return made

    def running(self, gpus: Sequence[int]) -> list[Object]:
        """Up to three pods that run; some are a gang."""
        random, left, pods = self.random, list(gpus), list[Object]()
        bound = [name for name, has in self.claims.items() if has]
        more: Object = {}
        for i in range(random.choice((1, 2, 2, 3))):
            at = random.randrange(2)
            if not left[at]:
                continue
            left[at] -= 1
            if not more or not self._joins(more["group"]):
                priority = random.choice(("train", "train", "low", "build"))
                more = {"queue": random.choice("qr"), "priority": priority, "group": f"r{i}"}
            state = {"state": "Releasing"} if self.some("leaving", 0.4) else {}
            if self.some("shares", 0.7):
                devices = [f"g{at}{left[at]}"]
                if left[at] and random.random() < 0.4:
                    left[at] -= 1
                    devices.append(f"g{at}{left[at]}")
                state |= {"notes": self.share(len(devices)), "shares": devices}
            else:
                state["gpus"] = 1
            pods.append(self.pod(f"r{i}", f"n{at}", bound, **more, **state))
        for i in range(3) if "times" in self.drawn else ():
            notes = {"kai.scheduler/last-start-timestamp": ago(random.choice((10, 7_200)))}
            over = {"kai-cp/max-runtime": "1h"} if random.random() < 0.4 else {}
            self.groups.setdefault(f"r{i}", {})["annotations"] = notes | over
        return pods

    def waiting(self) -> list[Object]:
        """One or two pods that wait."""
        random, pods = self.random, list[Object]()
        more: Object = {}
        for i in range(random.choice((1, 2, 2))):
            if not more or not self._joins(more["group"]):
                priority = random.choice(("train", "build", "low"))
                # Some are of a group that runs.
                group = f"{'r' if self.some('gangs', 0.3) else 'w'}{i}"
                more = {"queue": random.choice("qr"), "priority": priority, "group": group}
                if random.random() < 0.2:
                    self.groups.setdefault(group, {})["preemptionDelay"] = "9h"
            asked: Object = {"gpus": random.choice((0, 1, 1, 2))}
            if self.some("shares", 0.6):
                asked = {"notes": self.share(random.choice((1, 1, 2)))}
            pods.append(self.pod(f"w{i}", "", list(self.claims), **asked, **more))
        return pods

    def share(self, devices: int) -> Object:
        """The annotations of a share of each of some GPUs, by portion or by memory."""
        by_memory = {"gpu-memory": self.random.choice(("10000", "25000"))}
        one = self.random.choice(({"gpu-fraction": "0.5"}, {"gpu-fraction": "0.3"}, by_memory))
        return one | ({"gpu-fraction-num-devices": str(devices)} if devices > 1 else {})

    def _joins(self, group: str) -> bool:
        """Whether the next pod is of the group, too."""
        if not (self.some("gangs", 0.5) or self.some("subgroups", 0.8) or self.some("domains", 0.5)):
            return False
        least = self.groups.setdefault(group, {})
        least["minMember"] = self.random.choice((0, 1, 1, 2))
        return True

    def constrained(self, groups: Iterable[str]) -> None:
        """Give some pod groups subgroups and domains."""
        random = self.random
        for name in sorted(groups):
            made = self.groups.setdefault(name, {})
            if "subgroups" in self.drawn:
                least = made.pop("minMember", None)
                made["subGroups"] = [{"name": one, "minMember": random.choice((0, 1, 1, 2))} for one in "ab"]
                made |= {"minMember": None} | ({"minSubGroup": 1} if least == 1 else {})
            if self.some("domains", 0.6):
                level = random.choice(("requiredTopologyLevel", "preferredTopologyLevel"))
                made["topologyConstraint"] = {"topology": "t", level: random.choice((ZONE, HOST))}

    def node(self, number: int, gpus: int) -> Object:
        """One of the nodes; the second may have larger GPUs, and a taint."""
        random, name = self.random, f"n{number}"
        labels = {ZONE: random.choice("ab") if self.some("domains", 0.5) else "ab"[number], HOST: name}
        if number and "shares" in self.drawn:
            labels["nvidia.com/gpu.memory"] = "80000"
        offers = {"pods": random.choice("234")} if "slots" in self.drawn else {}
        if "mig" in self.drawn:
            offers[MIG] = "2"
            labels["nvidia.com/mig.strategy"] = "mixed"
        taints = [{"key": "kept", "effect": "NoSchedule"}] if number and "taints" in self.drawn else []
        return node(name, offers, gpus=0 if MIG in offers else gpus, labels=labels, taints=taints)

    def objects(self) -> dict[str, list[Object]]:
        """The objects that are no pods."""
        random, found = self.random, dict[str, list[Object]]()
        for side in "lr" if "budgets" in self.drawn else ():
            found.setdefault("podDisruptionBudgets", []).append(
                {
                    "metadata": {"name": side, "namespace": "default"},
                    "spec": {"selector": {"matchLabels": {"side": side}}},
                    "status": {"disruptionsAllowed": random.choice((0, 1, 1))},
                }
            )
        if "domains" in self.drawn:
            levels = [{"nodeLabel": label} for label in (ZONE, HOST)]
            found["topologies"] = [{"metadata": {"name": "t"}, "spec": {"levels": levels}}]
        if "volumes" in self.drawn:
            one, both = ("ReadWriteOnce",), ("ReadWriteOnce", "ReadWriteMany")
            found["storageClasses"] = [storage_class("local", STATIC)]
            found["csiNodes"] = [csi_node("n0", random.choice((1, 2)))]
            for i in range(4):
                held = f"c{i}" if self.claims.get(f"c{i}") else ""
                where = random.choice((None, on_nodes(ZONE, random.choice("ab"))))
                sized = random.choice(("6Gi", "9Gi")), random.choice((one, both))
                made = volume(f"v{i}", sized[0], claim=held, nodes=where, modes=sized[1])
                found.setdefault("persistentVolumes", []).append(made)
            for i, (name, has) in enumerate(self.claims.items()):
                modes = random.choice((one, one, ("ReadWriteMany",)))
                size, held = random.choice(("5Gi", "8Gi")), f"v{i}" if has else ""
                asked = volume_claim(name, size, volume=held, modes=modes)
                found.setdefault("persistentVolumeClaims", []).append(asked)
        return found


def _changed(random: Random, found: Object, on: Set[str]) -> None:
    """What is drawn once the world is there."""
    objects = found["rawObjects"]
    for i, one in enumerate(objects["nodes"]):
        if "kinds" in on:
            one["metadata"]["labels"]["nvidia.com/gpu.product"] = "AB"[i]
        if "lacking" in on and random.random() < 0.6:
            less = random.choice((("cpu", "1"), ("cpu", "0"), ("pods", "1"), ("nvidia.com/gpu", "0")))
            one["status"]["allocatable"][less[0]] = less[1]
        if "closed" in on and random.random() < 0.5:
            one["spec"]["unschedulable"] = True
    for one in objects["queues"]:
        notes = one["metadata"].setdefault("annotations", {})
        if "kinds" in on and random.random() < 0.7:
            bounds = {
                kind: {"limit": random.choice((-1, 0, 1, 2)), "quota": random.choice((-1, 0, 1))}
                for kind in "AB"
            }
            notes["kai-cp/gpu-kinds"] = json.dumps(bounds)
        if "rollouts" in on:
            notes["kai-cp/rollout"] = "2h"
        if "weights" in on and "gpu" in one["spec"].get("resources", {}):
            one["spec"]["resources"]["gpu"]["overQuotaWeight"] = random.choice((0, 1, 3))
            one["spec"]["priority"] = random.choice((100, 100, 50))
    for one in objects["pods"]:
        meta, waits = one["metadata"], not one["spec"].get("nodeName")
        if "rollouts" in on:
            new = waits or random.random() < 0.2
            revision, owner = ("r2", 60) if new else ("r1", 90_000), random.choice(("web", "web", "api"))
            meta["labels"]["pod-template-hash"], meta["creationTimestamp"] = revision[0], ago(revision[1])
            meta["ownerReferences"] = [
                {"kind": "ReplicaSet", "name": f"{owner}-{revision[0]}", "controller": True}
            ]
        if "others" in on and not waits and random.random() < 0.4:
            one["spec"]["schedulerName"] = "default-scheduler"
            meta["annotations"].pop("pod-group-name", None)


def _of_pods(random: Random, lists: dict[str, list[Object]], on: Set[str]) -> None:
    """What is drawn for pods and groups once the world is there."""
    for one in list(lists["pods"]):
        runs, meta = bool(one["spec"].get("nodeName")), one["metadata"]
        if "memory" in on:
            amount = random.choice(("1Gi", "10Gi", "30Gi"))
            one["spec"]["containers"][0]["resources"]["requests"]["memory"] = amount
        if "promised" in on and not runs and random.random() < 0.6:
            one["status"]["nominatedNodeName"] = random.choice(("n0", "n1"))
        if "gated" in on and not runs and random.random() < 0.4:
            one["spec"]["schedulingGates"] = [{"name": "gate"}]
        if "stuck" in on and runs and random.random() < 0.4:
            meta |= {"deletionTimestamp": ago(600), "deletionGracePeriodSeconds": 30}
        if "done" in on and runs and random.random() < 0.4:
            over = deepcopy(one)
            over["metadata"] |= {key: f"{meta[key]}-over" for key in ("name", "uid")}
            over["status"] = {"phase": random.choice(("Succeeded", "Failed"))}
            lists["pods"].append(over)
    for group in lists["podGroups"]:
        spec, notes = group["spec"], group["metadata"].setdefault("annotations", {})
        if "stale" in on and random.random() < 0.7:
            notes["kai.scheduler/stale-podgroup-timestamp"] = ago(random.choice((10, 900)))
            spec |= {"minMember": 2} if spec.get("minMember") is not None else {}
        if "surplus" in on and spec.get("minMember") is not None:
            spec["minMember"] = random.choice((0, 1))
        if "delays" in on and random.random() < 0.4:
            spec["preemptionDelay"] = "1h"
            notes["kai.scheduler/last-eviction-timestamp"] = ago(random.choice((60, 7_200)))
        if "firm" in on and random.random() < 0.6:
            spec["preemptibility"] = random.choice(("preemptible", "non-preemptible"))
        if "runtimes" in on or ("surplus" in on and random.random() < 0.5):
            notes["kai.scheduler/last-start-timestamp"] = ago(random.choice((10, 600, 7_200)))


def _of_policy(random: Random, found: Object, on: Set[str]) -> None:
    """What is drawn for queues and the policy once the world is there."""
    config, params, queues = found["config"], found["schedulerParams"], found["rawObjects"]["queues"]
    plugins = {one["name"]: one for one in config["tiers"][0]["plugins"]}
    for one in queues:
        rows = one["spec"].get("resources", {})
        if "memory" in on and one["metadata"]["name"] in "qr" and random.random() < 0.6:
            rows.setdefault("memory", {})[random.choice(("limit", "quota"))] = random.choice((20_000, 40_000))
        for name in ("preemptMinRuntime", "reclaimMinRuntime") if "runtimes" in on else ():
            one["spec"] |= {name: random.choice(("0s", "5m", "9h"))} if random.random() < 0.5 else {}
    actions = config["actions"].split(", ")
    if "stale" in on:
        actions.append("stalegangeviction")
    if "order" in on:
        random.shuffle(actions)
    config["actions"] = ", ".join(actions)
    if "runtimes" in on:
        method = {"reclaimResolveMethod": random.choice(("lca", "queue"))}
        plugins["minruntime"].setdefault("arguments", {}).update(method)
    if "parameters" in on:
        plugins["proportion"]["arguments"] = {
            "relcaimerSaturationMultiplier": random.choice(("1", "1.5", "3"))
        }
        params["allowConsolidatingReclaim"] = random.random() < 0.5
        params["maxNumberConsolidationPreemptees"] = random.choice((0, 1, 16, -1))
        params["fullHierarchyFairness"] = random.random() < 0.5
    if "left out" in on:
        plugins.pop(random.choice(LEFT_OUT))
        config["tiers"][0]["plugins"] = list(plugins.values())


def drawn(seed: int) -> Object:
    """The world of a seed."""
    random = Random(seed)
    made = _World(random)
    gpus = [random.choice((1, 2)) for _ in range(2)]
    pods = [*made.running(gpus), *made.waiting()]
    random.shuffle(pods)
    made.constrained({one["metadata"]["annotations"]["pod-group-name"] for one in pods})
    limit = {"gpu": random.choice((1, 2))} if "limits" in made.drawn else {}
    quota: list[Object] = [{"gpu": random.choice((0, 1, 2))} for _ in range(2)]
    if "cpus" in made.drawn:
        quota = [one | {"cpu": random.choice((2_000, 4_000))} for one in quota]
        limit |= {"cpu": random.choice((4_000, 8_000))} if random.random() < 0.5 else {}
    queues = [queue("q", quota=quota[0], limit=limit), queue("r", quota=quota[1])]
    if "tree" in made.drawn:
        mids = [f"m{i}" for i in range(random.choice((1, 2)))]
        for one in queues:
            one["spec"]["parentQueue"] = random.choice(("top", *mids))
        for name in mids:
            more = {"quota": {"gpu": random.choice((0, 1, 2))}, "limit": random.choice(({}, {"gpu": 2}))}
            queues.append(queue(name, **more, reclaimMinRuntime=random.choice(("0s", "5m", "9h"))))
    least = dict.fromkeys(("defaultPreemptMinRuntime", "defaultReclaimMinRuntime"), "5m")
    found = cluster(
        [made.node(i, n) for i, n in enumerate(gpus)],
        pods,
        groups=made.groups,
        queues=queues,
        actions=", ".join(("allocate", *(name for name in EVICTING if random.random() < 0.7))),
        minruntime=least if "times" in made.drawn else {},
        **made.objects(),
    )
    _changed(random, found, made.drawn)
    _of_pods(random, found["rawObjects"], made.drawn)
    _of_policy(random, found, made.drawn)
    # What some actions are kept from is refused, and other plans serve it.
    found["config"]["queueDepthPerAction"] = {name: 0 for name in EVICTING if random.random() < 0.5}
    return found


def _ways(snapshot: Snapshot, one: Pod) -> Iterator[tuple[ActionName | None, Placement | None]]:
    """What may become of a running pod: by which action it goes, and to which other node, or to none."""
    yield None, None
    yield "maxruntime", None
    for action in EVICTING:
        if action in snapshot.policy.actions:
            yield action, None
            yield from ((action, at) for at in places_of(snapshot, one) if at.node != one.node)


def _served(snapshot: Snapshot, one: Pod) -> Iterator[tuple[Kind, ActionName, Placement]]:
    """How a waiting pod may get a place: kind, action, place."""
    for at in places_of(snapshot, one):
        yield "Bind", "allocate", at
        yield from (("Nominate", action, at) for action in snapshot.policy.actions)


def plans(snapshot: Snapshot, served: Sequence[Pod], others: Sequence[Pod]) -> Iterator[Plan]:
    """Every plan that serves some waiting pods, and any of the others; the least disturbing ones first.

    What an action evicts is for all that it serves, in one of two orders.
    """
    running = [one for one in snapshot.pods if one.status in ACTIVE_ALLOCATED]
    ways = product(*(tuple(_ways(snapshot, one)) for one in running))
    order = {name: i for i, name in enumerate(("maxruntime", *snapshot.policy.actions))}
    places = [tuple(_served(snapshot, one)) for one in served]
    places += [(None, *_served(snapshot, one)) for one in others]
    for way in sorted(ways, key=lambda some: sum(action is not None for action, _ in some)):
        for given in product(*places):
            placed = [(one, at) for one, at in zip((*served, *others), given, strict=True) if at is not None]
            acting = {action for _, (_, action, _) in placed}
            if any(action in EVICTING and action not in acting for action, _ in way):
                continue
            for some in (placed, placed[::-1]) if len(acting) < len(placed) else (placed,):
                found = [_decision(one, kind, act, at) for one, (kind, act, at) in some]
                for one, (action, to) in zip(running, way, strict=True):
                    if action is not None:
                        by = dict.fromkeys(p.group for p, (_, act, _) in some if act == action and p.group)
                        home = one.node or ""
                        found.append(Decision("Evict", one.key, one.group, home, action, triggers=tuple(by)))
                        found += [_decision(one, "Nominate", action, to)] if to else []
                yield Plan(tuple(sorted(found, key=lambda d: (order[d.action], d.kind != "Evict"))))


def _decision(one: Pod, kind: Kind, action: ActionName, at: Placement) -> Decision:
    return Decision(kind, one.key, one.group, at.node, action, gpu_groups=at.gpu_groups)


def _evicting(plan: Plan) -> bool:
    return any(one.kind == "Evict" for one in plan.decisions)


def refuted(seed: int) -> tuple[list[str], int, int]:
    """What refutes what is proved of a world; how many proofs there are; how many plans were looked at."""
    audit = Audit(drawn(seed), SETTINGS)
    found = list(audit.told)
    before, looked = audit.betters(audit.plan), 0
    snapshot, _ = prepare(audit.snapshot, SETTINGS)
    start = SnapshotFacts.of(snapshot)
    members = (one for group in snapshot.waiting_groups for one in snapshot.members[group.key])
    waits = {one.key: one for one in members if one.status is PodStatus.PENDING}
    for group in audit.proved:
        # One of its pods is enough.
        for first in (one for one in waits.values() if one.group == group):
            served = [one for one in waits.values() if one is first or one.key in before[group]]
            others = [one for one in waits.values() if one not in served]
            for plan in islice(plans(snapshot, served, others), MOST_PLANS):
                looked += 1
                if not violations(snapshot, plan, SETTINGS.rules, start=start):
                    found.append(f"{group}: {plan.decisions}")
                    break
    got = gained(audit.plan)
    same = [waits[key] for key in sorted(got)] if got and not audit.told else []
    for plan in islice(plans(snapshot, same, ()), MOST_COMPARED) if _evicting(audit.plan) else ():
        stages = [stage for stage, below in bettered(audit.snapshot, audit.plan, plan, SETTINGS) if below]
        if stages and not violations(snapshot, plan, SETTINGS.rules, start=start):
            found.append(f"{stages} of {audit.plan.decisions}: {plan.decisions}")
            break
    return found, len(audit.proved), looked


def main() -> int:
    """The command of the module's docstring."""
    parser = argparse.ArgumentParser(prog="python -m tests.properties.every_plan")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    proofs = plans_seen = faults = 0
    for seed in range(options.first, options.first + options.count):
        found, proved, looked = refuted(seed)
        proofs, plans_seen, faults = proofs + proved, plans_seen + looked, faults + len(found)
        for line in found:
            print(f"seed {seed}: {line}", flush=True)
    print(f"{options.count} worlds: {proofs} proofs, {plans_seen} plans looked at, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
