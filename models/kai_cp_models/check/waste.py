"""Waste: evictions whose freed capacity stays unused. They break no rule, but a better plan exists.

Two kinds are found: a pod group moves although all its old places stay free; or a pod is lost that would
still fit where it was, or on any node if it may come back alone. Capacity and queue limits count. Pods that
share a GPU, claim devices, mount volumes or depend on other pods are left out, because a local argument is
not a proof for them. A place that one victim could have kept is not offered to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kai_cp_models.check import amounts, nodes, tree
from kai_cp_models.check.capacity import used
from kai_cp_models.check.planned_cluster import PlannedCluster
from kai_cp_models.check.queues import held
from kai_cp_models.plan import Plan
from kai_cp_models.pods import UNLIMITED, Pod
from kai_cp_models.policy import STATE_ACTIONS
from kai_cp_models.snapshot import PodGroup, Snapshot

PodPlaces = Sequence[tuple[Pod, str]]
"""Pods and the nodes to try them on."""


def waste(snapshot: Snapshot, plan: Plan) -> list[str]:
    """Evictions of the plan that were not needed."""
    if not any(d.kind == "Evict" for d in plan.decisions):
        return []
    return list(_FreeNow(PlannedCluster(snapshot, plan)).wasted())


class _FreeNow:
    """Free capacity on every node and below every queue limit after the plan."""

    def __init__(self, world: PlannedCluster) -> None:
        self.world = world
        self.free = {
            node.name: [
                room - taken
                for room, taken in zip(node.allocatable, used(world, node, world.end(node.name)), strict=True)
            ]
            for node in world.snapshot.nodes
        }
        active = [p for group in world.snapshot.groups for p in world.active_after(group.key)]
        self.held, _ = held(world, active)

    def wasted(self) -> Iterator[str]:
        for group in self.world.touched_groups:
            evicted = [
                p
                for p in self.world.snapshot.members[group.key]
                if p.key in self.world.evictions and self.world.evictions[p.key].action not in STATE_ACTIONS
            ]
            moved = [p for p in evicted if p.key in self.world.moved]
            if moved and self._plain(moved) and self._fits(_home(moved), leaving=moved):
                first = f"{moved[0].key} on {moved[0].node}"
                yield f"pod group {group.key} is moved, but its old place stays free ({first})"
            lost = [p for p in evicted if p.key in self.world.lost]
            if lost:
                yield from self._lost(group, lost)

    def _lost(self, group: PodGroup, lost: list[Pod]) -> Iterator[str]:
        rest = tree.counts(self.world.active_after(group.key))
        alone = (len(lost) == 1 and not rest.total()) or (rest.total() and tree.satisfied(group.root, rest))
        for unit in [[pod] for pod in lost] if alone else [lost]:
            if not self._plain(unit) or not self._within_limits(group, unit):
                continue
            if self._fits(_home(unit)):
                self._keep(group, _home(unit))
                yield f"pod {unit[0].key} is evicted, but its place on {unit[0].node} stays free"
            elif len(unit) == 1 and not any(
                s.constraint is not None and s.constraint.required for s in tree.walk(group.root)
            ):
                yield from self._elsewhere(group, unit[0])

    def _elsewhere(self, group: PodGroup, pod: Pod) -> Iterator[str]:
        for node in self.world.snapshot.nodes:
            place = [(pod, node.name)]
            if self._fits(place) and not nodes.refusals(self.world.snapshot, pod, node):
                self._keep(group, place)
                yield f"pod {pod.key} is lost, but would fit on {node.name}"
                return

    def _keep(self, group: PodGroup, places: PodPlaces) -> None:
        """Count pods that could have stayed as placed again."""
        for pod, name in places:
            self.free[name] = [
                free - amount for free, amount in zip(self.free[name], pod.spec.requests, strict=True)
            ]
            cost = amounts.charge(self.world.snapshot, pod, self.world.node(name))
            for queue in self.world.snapshot.queue_path.get(group.queue, ()):
                self.held[queue] = amounts.plus(self.held[queue], cost)

    def _plain(self, pods: list[Pod]) -> bool:
        return not any(
            p.spec.gpu.shares
            or p.spec.claims
            or p.spec.volume_claims
            or p.spec.pod_affinity
            or p.spec.pod_anti_affinity
            or p.spec.host_ports
            for p in pods
        )

    def _within_limits(self, group: PodGroup, unit: list[Pod]) -> bool:
        nodes_of = [self.world.node(p.node) for p in unit if p.node is not None]
        asked = (0, 0, 0)
        for pod, node in zip(unit, nodes_of, strict=True):
            asked = amounts.plus(asked, amounts.charge(self.world.snapshot, pod, node))
        for name in self.world.snapshot.queue_path.get(group.queue, ()):
            limit = self.world.snapshot.queue_by_name[name].limit
            bounds = (limit.cpu, limit.memory, limit.gpu if limit.gpu == UNLIMITED else limit.gpu * 1000)
            after = amounts.plus(self.held[name], asked)
            if any(
                x and b != UNLIMITED and a > b + 1e-6 for x, a, b in zip(asked, after, bounds, strict=True)
            ):
                return False
        return True

    def _fits(self, places: PodPlaces, leaving: Sequence[Pod] = ()) -> bool:
        """Whether pods fit on nodes, once ``leaving`` have left their new places."""
        room = {name: list(self.free[name]) for name in {node for _, node in places}}
        for pod in leaving:
            target = room.get(self.world.placed[pod.key].node)
            if target is not None:
                for i, amount in enumerate(pod.spec.requests):
                    target[i] += amount
        for pod, name in places:
            for i, amount in enumerate(pod.spec.requests):
                room[name][i] -= amount
        offered = {name: self.world.node(name).allocatable for name in room}
        return all(
            free >= 0
            or (offered[name][i] == 0 and not any(p.spec.requests[i] for p, n in places if n == name))
            for name, vector in room.items()
            for i, free in enumerate(vector)
        )


def _home(pods: list[Pod]) -> PodPlaces:
    return [(pod, pod.node) for pod in pods if pod.node is not None]
