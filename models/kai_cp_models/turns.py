"""Which waiting pod groups a cycle looks at when all of them would take too long: expensive ones wait.

The work for a pod group is estimated from its requests, in steps of about ten microseconds. It is a count, so
a busy machine changes nothing. While all groups fit into the cycle, all are looked at. Otherwise the
namespaces divide the cycle, as evenly as they need it (deficit round robin): a namespace that needs more than
its part saves the rest of earlier cycles. A group that needs more than a whole part has its turn when no new
group waits in another namespace.

Even if all fit, new and cheap groups come first where other namespaces are expensive: they are decided and
sent, and the others are looked at soon after. Groups that were refused lose nothing by that: capacity that
became free since the last look, or that is promised, is offered to all at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import ACTIVE_USED, GroupKey, Pod, PodKey, PodSpec, PodStatus
from kai_cp_models.records.devices import DEVICES
from kai_cp_models.records.storage import STORAGE
from kai_cp_models.rules.stateful.dra.refs import refs_of
from kai_cp_models.snapshot import Node, PodGroup, Snapshot, Subgroup

STEPS_PER_SECOND: Final = 100_000
QUICK: Final = 10_000
"""Steps that all groups with few steps may take together when they are looked at first."""
QUIET_SECONDS: Final = 0.3
"""Costly groups are looked at when nothing new has come for this time, because the pods of a gang come one by
one."""
GIVES_WAY: Final = 4
"""How many times in succession costly groups wait for new ones."""

_POD: Final = 12
_GROUP: Final = 20
_SUBGROUP: Final = 30
_KIND: Final = 30
"""Of pods that ask for the same; for a thousand nodes, as are the following."""
_TERM: Final = 20
_PORT: Final = 4
_VALUE: Final = 1
"""Of a node selector, and a toleration."""
_NODES: Final = 1000
_DEVICES: Final = 8_000
"""Of pods whose claims a search must answer, because they make several requests; for a thousand nodes. Pods
of a namespace that ask for the same are counted once, here and below."""
_DEVICE: Final = 200
"""Of pods with one request for devices."""
_VOLUMES: Final = 2
"""Volumes that are looked at in a step for a claim that has none yet."""


class Turn(NamedTuple):
    """What a cycle looks at: a snapshot without the pending pods of the others, and why those wait.

    ``again_at``: when what gave way to the new is looked at, if something did.
    """

    snapshot: Snapshot
    waiting: tuple[Unscheduled, ...] = ()
    again_at: float | None = None
    dear: frozenset[str] = frozenset()
    """Costly namespaces; the others are looked at first."""


class Turns:
    """Remembers from cycle to cycle what waits for a turn."""

    def __init__(self) -> None:
        self._credit: dict[str, int] = {}
        self._seen: dict[GroupKey, int] = {}
        """Cycle in which a waiting pod group was last looked at; 0: it waits and never was."""
        self._cycle = 0
        self._way = _Way()

    def take(self, snapshot: Snapshot, seconds: float) -> Turn:
        """Which groups have their turn in a cycle that may take this time."""
        allowance = int(seconds * STEPS_PER_SECOND)
        costs = costs_of(snapshot)
        namespaces: dict[str, dict[GroupKey, int]] = defaultdict(dict)
        for key, cost in costs.items():
            namespaces[key.namespace][key] = cost
        needs = {name: sum(found.values()) for name, found in namespaces.items()}
        quick = _parts(needs, QUICK)
        dear = frozenset(name for name, need in needs.items() if need > quick[name])
        again_at = self._way.until(snapshot, costs, dear)
        self._cycle += 1
        late: dict[GroupKey, int] = {}
        why = {}
        if again_at is not None:
            late = {key: cost for key, cost in costs.items() if key.namespace in dear}
            why = dict.fromkeys(dear, "what is new elsewhere and takes less is looked at first")
        elif sum(costs.values()) <= allowance or len(namespaces) < 2:
            self._credit.clear()
        else:
            parts = _parts(needs, allowance)
            new = {key.namespace for key in costs if key not in self._seen}
            for name, found in namespaces.items():
                others_new = bool(new - {name})
                late |= self._late(snapshot, name, found, parts[name], others_new=others_new)
                why[name] = f"its namespace has {parts[name]} of this cycle's {allowance} while others wait"
        self._seen = {key: self._seen.get(key, 0) if key in late else self._cycle for key in costs}
        if not late:
            return Turn(snapshot, dear=dear)
        waiting = tuple(
            Unscheduled(key, "WaitsForItsTurn", _message(cost, why[key.namespace]), False)
            for key, cost in sorted(late.items())
        )
        kept = tuple(p for p in snapshot.pods if p.group not in late or p.status is not PodStatus.PENDING)
        return Turn(replace(snapshot, pods=kept), waiting, again_at, dear)

    def _late(
        self, snapshot: Snapshot, name: str, found: Mapping[GroupKey, int], part: int, *, others_new: bool
    ) -> dict[GroupKey, int]:
        """Groups of a namespace that are not looked at now."""
        if sum(found.values()) <= part:
            self._credit.pop(name, None)
            return {}
        dearest = max(found.values())
        credit = min(self._credit.get(name, 0) + part, max(part, dearest))
        groups = snapshot.group_by_key
        order = sorted(found, key=lambda key: (self._seen.get(key, 0), -groups[key].priority, key))
        late: dict[GroupKey, int] = {}
        for key in order:
            cost = found[key]
            if cost > credit or (cost > part and others_new):
                late[key] = cost
            else:
                credit -= cost
        self._credit[name] = credit
        return late


class _Way:
    """When costly namespaces wait for new groups of the others."""

    def __init__(self) -> None:
        self._costs: Mapping[GroupKey, int] = {}
        self._nodes: tuple[Node, ...] = ()
        self._occupied: frozenset[PodKey] = frozenset()
        """Pods that held capacity at the last look, while some namespace is costly."""
        self._again_at = 0.0
        self._times = 0

    def until(self, snapshot: Snapshot, costs: Mapping[GroupKey, int], dear: frozenset[str]) -> float | None:
        """Until when the namespaces ``dear`` wait for others; None: all are looked at now."""
        before, self._costs = self._costs, costs
        left, self._again_at = self._again_at - snapshot.now, 0.0
        if not dear or self._room_to_offer(snapshot, dear):
            self._times = 0
            return None
        new = any(cost > before.get(key, 0) and key.namespace not in dear for key, cost in costs.items())
        if new and self._times < GIVES_WAY:
            self._times += 1
            left = QUIET_SECONDS
        if not 0.0 < left <= QUIET_SECONDS:
            self._times = 0
            return None
        self._again_at = snapshot.now + left
        return self._again_at

    def _room_to_offer(self, snapshot: Snapshot, dear: frozenset[str]) -> bool:
        """Whether capacity became free since the last look, or a costly namespace holds some."""
        occupied = frozenset(pod.key for pod in snapshot.pods if pod.status in ACTIVE_USED)
        left, self._occupied = self._occupied - occupied, occupied
        nodes, self._nodes = self._nodes, snapshot.nodes
        return (
            bool(left)
            or bool(nodes and nodes != snapshot.nodes)
            or any(group.notes.reserved for group in snapshot.groups if group.key.namespace in dear)
        )


def costs_of(snapshot: Snapshot) -> dict[GroupKey, int]:
    """Steps that the pending pods of every pod group cost."""
    pending: dict[GroupKey, list[Pod]] = defaultdict(list)
    for pod in snapshot.pods:
        if pod.group is not None and pod.status is PodStatus.PENDING and pod.ours:
            pending[pod.group].append(pod)
    scale = max(1.0, len(snapshot.nodes) / _NODES)
    kinds: dict[PodSpec, int] = {}
    counted: set[tuple[str, PodSpec]] = set()
    groups, costs = snapshot.group_by_key, dict[GroupKey, int]()
    for key, pods in pending.items():
        if key in groups:
            costs[key] = _cost(groups[key], pods, kinds, scale)
            for pod in pods:
                if (pod.spec.claims or pod.spec.volume_claims) and (key.namespace, pod.spec) not in counted:
                    counted.add((key.namespace, pod.spec))
                    costs[key] += _searched(snapshot, pod, scale)
    return costs


def _searched(snapshot: Snapshot, pod: Pod, scale: float) -> int:
    """Steps for the claims of pods that ask for the same."""
    devices, storage = snapshot.extras[DEVICES], snapshot.extras[STORAGE]
    known = {} if devices is None else devices.claims
    claims = (known.get((pod.key.namespace, ref.claim)) for ref in refs_of(snapshot, pod))
    opened = (one for one in claims if one is not None and one.allocation is None)
    asked = sum(len(one.requests) + len(one.constraints) for one in opened)
    volumes = (storage.claims.get(PodKey(pod.key.namespace, name)) for name in pod.spec.volume_claims)
    new = sum(one is not None and not one.volume for one in volumes)
    per_nodes = 0 if not asked else _DEVICE if asked == 1 else _DEVICES
    return int(scale * per_nodes) + new * len(storage.volumes) // _VOLUMES


def _cost(group: PodGroup, pods: Sequence[Pod], kinds: dict[PodSpec, int], scale: float) -> int:
    found = {pod.spec for pod in pods}
    for spec in found:
        if spec not in kinds:
            kinds[spec] = _kind(spec)
    own = _GROUP + _SUBGROUP * _size(group.root) + _POD * len(pods)
    return own + int(scale * sum(kinds[each] for each in found))


def _kind(spec: PodSpec) -> int:
    """Steps for pods that ask for the same, on a thousand nodes."""
    terms = len(spec.pod_affinity) + len(spec.pod_anti_affinity) + len(spec.spread)
    needs = [need for term in spec.node_affinity or () for need in term]
    values = len(spec.tolerations) + len(spec.node_selector) + sum(1 + len(need.values) for need in needs)
    return _KIND + _TERM * terms + _PORT * len(spec.host_ports) + _VALUE * values


def _size(subgroup: Subgroup) -> int:
    return 1 + sum(_size(child) for child in subgroup.children)


def _parts(needs: Mapping[str, int], allowance: int) -> dict[str, int]:
    """The cycle divided: none gets more than it needs, and what is left over goes to the others."""
    parts: dict[str, int] = {}
    left = allowance
    for i, name in enumerate(sorted(needs, key=lambda name: (needs[name], name))):
        parts[name] = min(needs[name], left // (len(needs) - i))
        left -= parts[name]
    return parts


def _message(cost: int, why: str) -> str:
    return f"looking at this pod group takes about {cost} steps, and {why}; it has its turn in a later cycle"
