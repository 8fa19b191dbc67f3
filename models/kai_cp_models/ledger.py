"""The ledger: what every node and queue holds at one moment of a cycle (2.6, 3.1).

It starts from the snapshot and follows the virtual operations of the cycle: place (now or pipelined),
evict, and their exact reversals. A trial works between ``mark`` and ``close``, or on a ``copy``
where two states are needed at once. Amounts are integers in the units of ``Snapshot.dimensions``.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from kai_cp_models.arrays import Floats, Ints, Mask
from kai_cp_models.domains.locality import Fabric, fabric_of
from kai_cp_models.extras import CLAIM_MILLI_GPUS
from kai_cp_models.fairness.amounts import NOTHING, Amounts, accepted
from kai_cp_models.fairness.book import QueueBook
from kai_cp_models.fairness.quota_checks import over_bounds
from kai_cp_models.fitting import NOWHERE, NodeView
from kai_cp_models.free_capacity import FreeCapacity, NodeAmounts
from kai_cp_models.loading import Homes, loaded, taken
from kai_cp_models.pods import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    ALLOCATED,
    GPU,
    MILLI,
    PODS,
    GpuKind,
    GroupKey,
    Pod,
    PodKey,
    PodSpec,
    PodStatus,
)
from kai_cp_models.rules.stateful import open_rules
from kai_cp_models.rules.stateful.protocol import Lent, RuleState
from kai_cp_models.rules.static.table import NodeTable
from kai_cp_models.running import Running
from kai_cp_models.settings import OptionalRules
from kai_cp_models.shapes import Shapes
from kai_cp_models.sharing import ACTIVE, PIPELINED, RELEASING, SharedDevice, SharedFree, share_mib
from kai_cp_models.snapshot import PodGroup, Snapshot, Subgroup
from kai_cp_models.units import Gang, Gangs, GangState, GangTally

if TYPE_CHECKING:
    from kai_cp_models.actions.asking import AtFirst

_NAMESPACE: Final = uuid.UUID("6f3c9b0e-5a41-5d0e-9d5c-7b1f0f5b3a11")

_NO_NODES: Final = np.zeros(0, dtype=np.int64)
_NEW_DEVICE: Final = SharedDevice(new=1)


class Held(NamedTuple):
    """A place that a pod holds in the cycle: node index, GPU groups, status."""

    node: int
    gpu_groups: tuple[str, ...]
    status: PodStatus


class Fixed:
    """What does not change in a cycle, shared by all copies of a ledger. ``rules``: as they are at its start.
    ``close``: whether gangs prefer close places."""

    def __init__(self, snapshot: Snapshot, rules: tuple[RuleState, ...], *, close: bool) -> None:
        self.snapshot, self._rules = snapshot, rules
        self.table = NodeTable(snapshot)
        self.gangs, self.shapes, self.homes = Gangs(snapshot), Shapes(snapshot), Homes(snapshot)
        self.mib_on: list[int] = self.table.gpu_memory_mib.tolist()
        """By node, memory of one GPU."""
        self.advertised: list[tuple[bool, ...]] = list(map(tuple, (self.table.allocatable > 0).tolist()))
        """By node: dimensions it has at all; others are never charged (2.1)."""
        self._whole = list(map(all, self.advertised))
        self.waiting: AtFirst | None = None
        """How groups wait in the snapshot, once that is known."""
        self._close = close
        self._claiming = snapshot.extras[CLAIM_MILLI_GPUS]
        self._charges: dict[tuple[object, ...], Amounts] = {}
        self._taken: dict[tuple[NodeAmounts, tuple[bool, ...]], NodeAmounts] = {}

    @cached_property
    def fabric(self) -> Fabric | None:
        """The places that nodes share; None: nothing is known of them."""
        one, records = self.snapshot, (self.snapshot.nodes, self.snapshot.topologies)
        found: Fabric | None = one.derived.of_records("fabric", records, lambda: fabric_of(one))
        return found

    @property
    def close_fabric(self) -> Fabric | None:
        """The places by which gangs are kept close; None: they need not be."""
        return self.fabric if self._close else None

    @cached_property
    def relying(self) -> frozenset[PodKey]:
        """Pods that a rule may allow only beside others, which their specs tell."""
        pods = self.snapshot.pods if self._rules else ()
        examples = {pod.spec: pod for pod in pods}.items()
        opened = {spec for spec, pod in examples if any(rule.opened_by(pod) for rule in self._rules)}
        return frozenset(pod.key for pod in pods if pod.spec in opened)

    @cached_property
    def running(self) -> Running:
        """What runs in the snapshot, and what it could give up."""
        derived = self.snapshot.derived
        derived.running = Running(self.snapshot, self.gangs, self.homes, derived.running)
        return derived.running

    def charge(self, pod: Pod, node: int) -> Amounts:
        """What the pod is charged in its queue when it is on ``node`` (2.3); computed once for equal pods."""
        by_node = self.mib_on[node] if pod.spec.gpu.kind is GpuKind.MEMORY else None
        kind = (pod.spec, by_node, pod.key if pod.key in self._claiming else None)
        found = self._charges.get(kind)
        if found is None:
            found = self._charges[kind] = accepted(self.snapshot, pod, self.snapshot.nodes[node])
        return found

    def taken_on(self, pod: Pod, node: int) -> NodeAmounts:
        """What the pod takes of the node, shared devices apart; computed once for equal pods and nodes."""
        if self._whole[node]:
            return taken(pod)
        kind = taken(pod), self.advertised[node]
        found = self._taken.get(kind)
        if found is None:
            found = tuple(amount if there else 0 for amount, there in zip(*kind, strict=True))
            self._taken[kind] = found
        return found


@dataclass(eq=False)
class Ledger:
    """Mutable accounting of one virtual state; see the module's docstring."""

    fixed: Fixed
    room: FreeCapacity
    devices: dict[int, Mapping[str, SharedDevice]]
    """Shared devices by node, and by the names of their GPU groups, in order."""
    book: QueueBook
    rules: tuple[RuleState, ...]
    evicted: dict[PodKey, Pod] = field(default_factory=dict)
    """Pods that leave their place of the snapshot."""
    held: dict[PodKey, Held] = field(default_factory=dict)
    """Places given in this cycle (pending pods placed, evicted pods placed again)."""
    touched: dict[GroupKey, int] = field(default_factory=dict)
    """Pod groups with such pods, and how many entries of ``evicted`` and ``held`` are theirs."""
    come: dict[int, int] = field(default_factory=dict)
    """Places of ``held`` by node."""
    _views: dict[PodSpec, NodeView] = field(default_factory=dict)
    """The nodes as pods of each spec see them, as far as they have followed."""
    _changed: list[int] = field(default_factory=list)
    """The node of every change of free capacity, devices or slots."""
    _tallies: dict[GroupKey, GangTally] = field(default_factory=dict)
    """Of changed pod groups, from when they were first asked for."""
    _nodes: dict[GroupKey, dict[str, Mapping[int, int]]] = field(default_factory=dict)
    """How many active-allocated pods each pod set of a group has on a node, from when that was first asked
    for."""
    _states: dict[GroupKey, GangState] = field(default_factory=dict)
    """Of changed pod groups; one holds as long as its tally is that of the group."""
    _shared: tuple[int, SharedFree] | None = None
    """The shared devices, and the number of changes after which they were computed."""
    _log: list[tuple[Pod, Held | None, int]] = field(default_factory=list, init=False)
    """Operations since the oldest mark, see ``_apply``."""
    _marks: list[tuple[int, tuple[RuleState, ...]]] = field(default_factory=list, init=False)
    """The marks that are open: the length of the log there, and the rules."""

    @classmethod
    def of(
        cls, snapshot: Snapshot, options: OptionalRules | None = None, *, close_gangs: bool = True
    ) -> Ledger:
        """The ledger of the snapshot as it is. ``options``: rules that KAI lacks, by default none.
        ``close_gangs``: the setting of that name."""
        rules = open_rules(snapshot, options)
        fixed = Fixed(snapshot, rules, close=close_gangs)
        room, devices = loaded(snapshot, fixed.homes, fixed.table.allocatable)
        return cls(fixed, room, devices, QueueBook.of(snapshot), rules)

    def copy(self) -> Ledger:
        """An independent ledger in the same state, without marks."""
        own = ("room", "devices", "book", "evicted", "held", "touched", "come")
        names = (*own, "_changed", "_tallies", "_nodes", "_states")
        copies: dict[str, Any] = {name: getattr(self, name).copy() for name in names}
        views = {spec: view.shared_copy() for spec, view in self._views.items()}
        return replace(self, **copies, rules=tuple(rule.copy() for rule in self.rules), _views=views)

    # --- taking back -----------------------------------------------------------------------------

    def mark(self) -> None:
        """From here on operations can be taken back, until this mark is closed."""
        self._marks.append((len(self._log), self.rules))

    def close(self, *, kept: bool) -> bool:
        """Close the last mark. Every operation since then stays if it is ``kept``, which is the answer, or is
        taken back, in reverse order."""
        length, rules = self._marks.pop()
        if not kept:
            # Rules may have answered differently since, so their old state is restored instead of reversed.
            self.rules = rules
            for pod, held, sign in reversed(self._log[length:]):
                self._apply(pod, held, -sign)
            del self._log[length:]
        if not self._marks:
            self._log.clear()
        return kept

    def _concerned(self, pod: Pod) -> list[RuleState]:
        """The rules that an operation on the pod concerns; those that a mark remembers stay as they are."""
        concerned = [rule for rule in self.rules if rule.concerns(pod)]
        if concerned and self._marks and self._marks[-1][1] is self.rules:
            self.rules = tuple(rule.copy() for rule in self.rules)
            concerned = [rule for rule in self.rules if rule.concerns(pod)]
        return concerned

    # --- questions -------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot the ledger started from."""
        return self.fixed.snapshot

    @property
    def idle(self) -> Ints:
        """[N, D] what is idle now; read-only."""
        return self.room.columns()[0]

    @property
    def free(self) -> Ints:
        """[N, D] what is free once everything releasing is gone; read-only."""
        return self.room.columns()[1]

    def status(self, pod: Pod) -> PodStatus:
        """Status of the pod at this moment of the cycle."""
        held = self.held.get(pod.key)
        if held is not None:
            return held.status
        return PodStatus.RELEASING if pod.key in self.evicted else pod.status

    def state(self, gang: Gang) -> GangState:
        """The state of the gang at this moment; computed again only once its pods have changed."""
        key = gang.group.key
        if key not in self.touched:
            return gang.at_first
        state, tally = self._states.get(key), self.tally(gang)
        if state is None or state.tally is not tally:
            state = self._states[key] = gang.state(self.status, tally)
        return state

    def served(self, gang: Gang) -> bool:
        """Whether all pods of the gang waited in the snapshot and have places now."""
        return self.touched.get(gang.group.key, -1) == gang.waiting

    def serves(self, gang: Gang) -> bool:
        """Whether a pod of the gang that waited in the snapshot has a place now."""
        return any(pod.key in self.held for pod in gang.pods if pod.status is PodStatus.PENDING)

    def tally(self, gang: Gang) -> GangTally:
        """The pods of a gang by pod set and status; all are looked at once, then those that change."""
        if (key := gang.group.key) not in self._tallies:
            self._tallies[key] = gang.tally(self.status)
        return self._tallies[key]

    def active_nodes(self, gang: Gang, subgroup: Subgroup) -> Ints:
        """[M] nodes of active-allocated pods below a subgroup; all are looked at once, then what changes."""
        if gang.waiting and gang.group.key not in self.touched:
            return _NO_NODES
        if (known := self._nodes.get(gang.group.key)) is None:
            known = self._nodes[gang.group.key] = {}
            for name, pods in gang.by_leaf.items():
                places = [self.place_of(pod) for pod in pods if self.status(pod) in ACTIVE_ALLOCATED]
                known[name] = Counter([place[0] for place in places if place is not None])
        there = {node for leaf in subgroup.leaves() for node, pods in known[leaf.name].items() if pods}
        return np.array(sorted(there), dtype=np.int64)

    def place_of(self, pod: Pod) -> tuple[int, tuple[str, ...]] | None:
        """(node index, GPU groups) where the pod is, as long as it leaves, or will be; or None."""
        held = self.held.get(pod.key)
        if held is not None:
            return held.node, held.gpu_groups
        node = self.fixed.snapshot.node_index.get(pod.node or "") if pod.status in ACTIVE_USED else None
        return None if node is None else (node, pod.gpu_groups)

    def nodes_of(self, pods: Iterable[Pod]) -> set[int]:
        """Indices of the nodes where the pods are, see ``place_of``."""
        return {place[0] for place in map(self.place_of, pods) if place is not None}

    def home(self, pod: Pod) -> int:
        """Index of the node where a pod runs in the snapshot."""
        return self.fixed.snapshot.node_index[pod.node or ""]

    def share_mib_on(self, pod: Pod, node: int) -> int:
        """MiB that one device of a share takes on ``node`` (2.3)."""
        return share_mib(pod, self.fixed.mib_on[node])

    def view(self, pod: Pod) -> NodeView:
        """The nodes as pods of this spec see them now; nothing but the spec of a pod matters here."""
        view, changes = self._views.get(pod.spec), len(self._changed)
        if view is None:
            view = self._views[pod.spec] = NodeView(self, pod)
        elif view.seen != changes:
            view.follow(self, self._changed[view.seen :])
        view.seen = changes
        return view

    def fits(self, pod: Pod, *, now: bool) -> Mask:
        """[N] nodes that the pod fits: now, or once everything releasing is gone (2.6). Static node rules and
        stateful rules are included."""
        view, rules = self.view(pod), [rule for rule in self.rules if rule.concerns(pod)]
        mask: Mask = (view.now if now else view.later).copy()
        for rule in rules:
            if mask.any():
                allowed = rule.mask(pod, now=now)
                if allowed is not None:
                    mask &= allowed
        if rules and pod.key in self.evicted and not self.own_devices_free(pod):
            mask[self.home(pod)] = False
        return mask

    def fits_on(self, pod: Pod, node: int, *, now: bool) -> bool:
        """The same for one node."""
        if self.rules:
            return bool(self.fits(pod, now=now)[node])
        return (self._views.get(pod.spec) or self.view(pod)).takes(self, node, now=now)

    def own_devices_free(self, pod: Pod) -> bool:
        """Whether an evicted share fits its devices: those that all others leave count as whole GPUs."""
        return not pod.spec.gpu.shares or self.devices_free(pod, self.home(pod), pod.gpu_groups, now=False)

    def stays(self, pod: Pod) -> bool:
        """Whether the pod is as the snapshot has it, or has a place of this cycle: it is not lost."""
        return pod.key in self.held or pod.key not in self.evicted

    def promised(self, pods: Sequence[Pod]) -> bool:
        """Whether all these pods wait, and the nodes that they are nominated to still take them together."""
        nodes = [self.nominated_to(pod) if pod.status is PodStatus.PENDING else -1 for pod in pods]
        named = min(nodes, default=0) >= 0
        return named and any(self._take_all(pods, nodes, evenly=evenly) for evenly in (False, True))

    def _take_all(self, pods: Sequence[Pod], nodes: Sequence[int], *, evenly: bool) -> bool:
        """Whether the nodes take all these pods, one after the other; ``evenly``: see ``choose_groups``."""
        taken = True
        self.mark()
        for pod, node in zip(pods, nodes, strict=True):
            taken = taken and self.fits_on(pod, node, now=False)
            if taken and pod is not pods[-1]:
                self.place(pod, node, pipelined=True, evenly=evenly)
        self.close(kept=False)
        return taken

    def as_promised(self, pod: Pod) -> bool:
        """Whether the pod has a place of this cycle on the node that it was nominated to."""
        return pod.key in self.held and self.held[pod.key].node == self.nominated_to(pod)

    def nominated_to(self, pod: Pod) -> int:
        """The node that the pod's status names; -1: none of the snapshot."""
        if pod.nominated_node is None or not self.snapshot.policy.plugin("nominatednode"):
            return -1
        return self.snapshot.node_index.get(pod.nominated_node, -1)

    def has_room(self, pod: Pod) -> bool:
        """Whether the pod fits a node once everything releasing is gone, without stateful rules."""
        later = self.view(pod).later
        # Four times as fast as ``any``.
        return len(later) > 0 and bool(later[later.argmax()])

    def slots(self, pod: Pod, *, now: bool) -> Ints:
        """[N] how many pods like this one each node takes by its free capacity; 0 where ``fits`` is False.
        Read-only."""
        slots = self.view(pod).slots_of(self, self._changed, now=now)
        concerned = any(rule.concerns(pod) for rule in self.rules)
        return np.where(self.fits(pod, now=now), slots, 0) if concerned else slots

    def best(self, pod: Pod, within: Mask | None) -> tuple[int, bool] | None:
        """The node that scores best for the pod, and whether it fits what is idle there; -1: it fits no node.

        The same answer as ``fits`` and ``scores`` give ``within`` these nodes (None: all), without scoring
        every node; None where that takes more than ranks: stateful rules, and see ``NodeView.exact``.
        """
        if self.rules and any(rule.concerns(pod) for rule in self.rules):
            return None
        view = self.view(pod)
        if not view.exact or not len(view.ranks):
            return None
        node = -1 if pod.nominated_node is None else self.nominated_to(pod)
        if node >= 0 and view.later[node] and (within is None or within[node]):
            return node, bool(view.now[node])
        # A place is mostly a few nodes of all.
        nodes = None if within is None else within.nonzero()[0]
        ranks = view.ranks if nodes is None else view.ranks[nodes]
        at = int(ranks.argmax()) if len(ranks) else -1
        if at < 0 or ranks[at] == NOWHERE:
            return -1, False
        node = at if nodes is None else int(nodes[at])
        return node, bool(view.now[node])

    def choose_groups(self, pod: Pod, node: int, *, evenly: bool = False) -> tuple[str, ...]:
        """GPU groups for a share on ``node``, one per device (2.6). ``evenly``: those that are free most, so
        that as many equal shares as possible fit, each on devices of its own."""
        need, total, devices = self.share_mib_on(pod, node), self.fixed.mib_on[node], pod.spec.gpu.devices
        spread = evenly or self.snapshot.policy.plugin("gpuspread")
        options = [
            (device.used_mib() / total * (1 if spread else -1), name)
            for name, device in self.devices.get(node, {}).items()
            if device.free_mib(total, now=False) >= need
        ]
        free = self.room.free_on[node]
        # Where a share is promised its place, a new device may be what another pod is promised.
        opens = evenly or (spread and self.nominated_to(pod) != node)
        fresh = min(max(free[GPU], 0) // MILLI, devices, max(free[PODS] - 1, 0)) if opens else 0
        chosen = [name for _, name in sorted(options)][: devices - fresh]
        while len(chosen) < devices:
            chosen.append(self.fresh_group(pod, node, taken=chosen))
        return tuple(chosen)

    def fresh_group(self, pod: Pod, node: int, taken: Sequence[str] = ()) -> str:
        """Name of a new GPU group: a function of pod and node, so equal inputs give equal answers."""
        seed = f"{self.snapshot.nodes[node].name}/{pod.uid}"
        names = (str(uuid.uuid5(_NAMESPACE, f"{seed}/{salt}")) for salt in count())
        return next(name for name in names if name not in self.devices.get(node, ()) and name not in taken)

    def devices_free(self, pod: Pod, node: int, names: Sequence[str], *, now: bool) -> bool:
        """Whether a share fits the named devices; those that no pod holds then are whole GPUs, each
        with its reservation pod."""
        need, left = self.share_mib_on(pod, node), (self.room.idle_on if now else self.room.free_on)[node]
        known = self.devices.get(node, {})
        there = [one for name in names if (one := known.get(name)) is not None]
        held = [one for one in there if one.active or (one.releasing if now else one.pipelined)]
        if any(one.free_mib(self.fixed.mib_on[node], now=now) < need for one in held):
            return False
        fresh = len(names) - len(held)
        return not fresh or (fresh * MILLI <= left[GPU] and left[PODS] >= 1 + fresh)

    def shared(self, nodes: Collection[int] | None = None) -> SharedFree:
        """The shared devices of these nodes at this moment; None: of all, kept while nothing changes."""
        if nodes is not None:
            there = {node: self.devices[node] for node in nodes if node in self.devices}
            return SharedFree.of(there, self.fixed.mib_on)
        if self._shared is None or self._shared[0] != len(self._changed):
            self._shared = len(self._changed), SharedFree.of(self.devices, self.fixed.mib_on)
        return self._shared[1]

    def shared_free(self) -> Floats:
        """[N] free portions of joinable shared devices, in devices (8.3 step 2)."""
        found, count = self.shared(), len(self.fixed.mib_on)
        mib = np.bincount(found.node, np.maximum(found.later, 0), count)
        return mib / np.maximum(self.fixed.table.gpu_memory_mib, 1)

    def lent(self, pods: Sequence[Pod], asked: Amounts, *, beside: Amounts = NOTHING) -> Lent | None:
        """What quotas lend to a batch (3.8); None if no rule lends anything."""
        answers = (rule.lent(pods, asked, beside=beside) for rule in self.rules)
        return next((lent for lent in answers if lent is not None), None)

    def over_quota(
        self, group: PodGroup, pods: Sequence[Pod], asked: Amounts, *, lending: bool = True, now: bool = False
    ) -> tuple[str, str] | None:
        """(reason token, message) when limits or non-preemptible quota refuse the pods (3.7), else None.

        ``asked``: what they are charged, one on a node exactly, a batch at least. ``lending``: quotas lend to
        rollouts (3.8). ``now``: what leaves counts until it is gone, and a promised place not yet.
        """
        book, queue, words = self.book, group.queue, ""
        if not (bounded := [i for i, _ in book.bounds(queue, group.preemptible)]):
            return None
        held = book.bound_by(bounded, now=now)
        firm = None if group.preemptible else book.bound_by(bounded, firm=True, now=now)
        check = partial(over_bounds, book, queue, asked, held=held, firm=firm)
        over = check(preemptible=group.preemptible)
        if lending and over is not None and over.bound == "quota" and (lent := self.lent(pods, asked)):
            over, words = check(preemptible=False, lent=lent.by_queue), lent.words
        return None if over is None else (over.reason, over.message + words)

    def relied_on(self, pods: Collection[Pod]) -> bool:
        """Whether places that others got in this cycle may rest on those of ``pods``, which then stay."""
        if self.devices and any(map(self._keeps_device, pods)):
            return True
        if not self.rules or not any(rule.concerns(pod) for rule in self.rules for pod in pods):
            return False
        return bool((self.fixed.relying & self.held.keys()) - {pod.key for pod in pods})

    def _keeps_device(self, pod: Pod) -> bool:
        """Whether others join a device beside the pod that all pods of the snapshot leave."""
        held = self.held.get(pod.key)
        devices = (self.devices[held.node][name] for name in held.gpu_groups) if held is not None else ()
        return any(one.releasing and not one.active and one.pipelined > 1 for one in devices)

    def upheld(self) -> bool:
        """Whether the places of this cycle still have what the rules asked for beside them."""
        return all(rule.upheld() for rule in self.rules)

    def details_of(self, pod: Pod) -> Mapping[str, Any]:
        """What the binder needs beyond node and groups, for a place of this cycle."""
        node, found = self.held[pod.key].node, dict[str, Any]()
        for rule in self.rules:
            if rule.concerns(pod):
                found |= rule.details(pod, node)
        return found

    # --- operations ------------------------------------------------------------------------------

    def place(
        self,
        pod: Pod,
        node: int,
        gpu_groups: tuple[str, ...] | None = None,
        *,
        pipelined: bool,
        evenly: bool = False,
    ) -> None:
        """Give the pod a place: bound this cycle, or pipelined (bound when something frees up, be it only a
        device or the limit or quota of its queue). ``gpu_groups``: of a share; None: as KAI chooses them,
        or ``evenly``, or its own where it runs on by them alone."""
        names, rules = gpu_groups or (), self._concerned(pod)
        if pod.spec.gpu.shares:
            # Rules do not ask again for what it needs at home, if it has its devices again.
            home = bool(rules) and not names and pod.key in self.evicted and node == self.home(pod)
            returns = home and self.own_devices_free(pod)
            names = pod.gpu_groups if returns else names or self.choose_groups(pod, node, evenly=evenly)
            pipelined = pipelined or not self.devices_free(pod, node, names, now=True)
        pipelined = pipelined or (bool(self.book.unsettled) and self._queue_waits(pod, node))
        status = PodStatus.PIPELINED if pipelined else PodStatus.ALLOCATED
        for rule in rules:
            rule.place(pod, node, pipelined=pipelined)
        self._do(pod, Held(node, names, status), 1)

    def unplace(self, pod: Pod) -> None:
        """Take back a place given in this cycle; an evicted pod stays evicted."""
        held = self.held[pod.key]
        for rule in self._concerned(pod):
            rule.remove(pod, held.node)
        self._do(pod, held, -1)

    def pipeline(self, pod: Pod) -> None:
        """Turn a place given now into a pipelined one (an incomplete gang starts together, 4.2)."""
        held = self.held[pod.key]
        if held.status is not PodStatus.PIPELINED:
            self.unplace(pod)
            self.place(pod, held.node, held.gpu_groups, pipelined=True)

    def evict(self, pod: Pod) -> None:
        """A pod that runs in the snapshot starts releasing."""
        for rule in self._concerned(pod):
            rule.evict(pod)
        self._do(pod, None, -1)

    def unevict(self, pod: Pod) -> None:
        """Take back an eviction of this cycle; the pod must hold no other place."""
        for rule in self._concerned(pod):
            rule.unevict(pod)
        self._do(pod, None, 1)

    def leave(self, pod: Pod) -> None:
        """Take the pod's place away: it is evicted if it runs, only withdrawn if this cycle placed it."""
        if pod.key in self.held:
            self.unplace(pod)
        elif pod.status in ACTIVE_USED:
            self.evict(pod)

    def let_go(self, pods: Iterable[Pod]) -> bool:
        """Take the places of all the pods away; False: a rule keeps one of them (budgets, affinity), and
        nothing changed."""
        self.mark()
        # Places of this cycle go first.
        for pod in sorted(pods, key=lambda pod: pod.key not in self.held):
            runs = pod.key not in self.held and pod.status in ACTIVE_USED
            if runs and not all(rule.evictable(pod) for rule in self.rules if rule.concerns(pod)):
                return self.close(kept=False)
            self.leave(pod)
        return self.close(kept=True)

    def simple(self, pod: Pod) -> bool:
        """Whether nothing but amounts changes when the pod leaves, see ``evict_all``."""
        usual = pod.key not in self.held and pod.status in ALLOCATED and not pod.spec.gpu.shares
        counted = pod.group in self._tallies or pod.group in self._nodes
        return usual and not counted and not (self.rules and any(one.concerns(pod) for one in self.rules))

    def evict_all(self, pods: Sequence[Pod]) -> None:
        """Evict ``simple`` pods of pod groups; nodes and queues get back sums. It cannot be taken back."""
        homes, table = self.fixed.homes, self.fixed.table
        at = [homes.position[pod.key] for pod in pods]
        nodes, queues = homes.nodes[at], dict[tuple[str, bool], list[int]]()
        amounts = np.where(table.allocatable[nodes] > 0, homes.requests[at], 0)
        for i, pod in enumerate(pods):
            self.evicted[pod.key] = pod
            if pod.group is not None:
                self.touched[pod.group] = self.touched.pop(pod.group, 0) + 1
            if (group := self._in_queue(pod)) is not None:
                queues.setdefault((group.queue, group.preemptible), []).append(i)
        self._changed += nodes.tolist()
        here, which = np.unique(nodes, return_inverse=True)
        sums = np.zeros((len(here), amounts.shape[1]), dtype=np.int64)
        np.add.at(sums, which, amounts)
        for node, more in zip(here.tolist(), sums.tolist(), strict=True):
            self.room.give(node, more, later=True)
        charges = homes.charges[at]
        for (queue, preemptible), some in queues.items():
            cpu, memory, gpu = charges[some].sum(axis=0).tolist()
            self.book.charge(queue, (cpu, memory, gpu), preemptible, -1)
            self.book.settles_later(queue, (cpu, memory, gpu), preemptible, -1)

    def without(self, pods: Iterable[Pod]) -> Ledger:
        """A copy from which the pods have left."""
        emptied = self.copy()
        for pod in pods:
            emptied.leave(pod)
        return emptied

    # --- bookkeeping -----------------------------------------------------------------------------

    def _do(self, pod: Pod, held: Held | None, sign: int) -> None:
        if self._marks:
            self._log.append((pod, held, sign))
        self._apply(pod, held, sign)

    def _apply(self, pod: Pod, held: Held | None, sign: int) -> None:
        """The pod gets (1) or loses (-1) a place; None: that of the snapshot, which it leaves releasing."""
        key = pod.group
        before = self.status(pod) if key in self._tallies or key in self._nodes else None
        if held is None:
            node, names = self.home(pod), pod.gpu_groups
            promised, charged = True, pod.status in ALLOCATED
            # In this order a device is never empty.
            members = ((ACTIVE, sign), (RELEASING, -sign))[::sign]
        else:
            node, names, charged = held.node, held.gpu_groups, True
            promised = held.status is PodStatus.PIPELINED
            members = ((PIPELINED if promised else ACTIVE, sign),)
            self.come[node] = self.come.get(node, 0) + sign
        if held is not None and sign > 0:
            self.held[pod.key] = held
        elif held is None and sign < 0:
            self.evicted[pod.key] = pod
        else:
            del (self.evicted if held is None else self.held)[pod.key]
        self._changed.append(node)
        # What leaves a place of the snapshot is promised from then on.
        amounts = self.fixed.taken_on(pod, node)
        given = amounts if sign < 0 else [-amount for amount in amounts]
        self.room.give(node, given, later=promised)
        if names and pod.spec.gpu.shares:
            for role, step in members:
                self._share(pod, node, names, role, step)
        if charged and (group := self._in_queue(pod)) is not None:
            charge, new = self.fixed.charge(pod, node), held is not None and pod.key not in self.evicted
            self.book.charge(group.queue, charge, group.preemptible, sign, pods=sign * new)
            if promised:
                self.book.settles_later(group.queue, charge, group.preemptible, sign)
        if key is not None:
            if changes := self.touched.pop(key, 0) + (-sign if held is None else sign):
                self.touched[key] = changes
            if before is not None:
                self._recount(pod, key, before, node)

    def _recount(self, pod: Pod, group: GroupKey, before: PodStatus, node: int) -> None:
        """The pod had the status ``before``; ``node``: that of the place which it got or lost."""
        after, name = self.status(pod), pod.subgroup or "default"
        if (tally := self._tallies.get(group)) is not None:
            self._tallies[group] = self.fixed.gangs[group].moved(tally, name, before, after)
        step = (after in ACTIVE_ALLOCATED) - (before in ACTIVE_ALLOCATED)
        if step and (on := (known := self._nodes.get(group, {})).get(name)) is not None:
            self._nodes[group] = {**known, name: {**on, node: on.get(node, 0) + step}}

    def _share(self, pod: Pod, node: int, names: tuple[str, ...], role: int, sign: int) -> None:
        need = self.share_mib_on(pod, node)
        for name in names:
            there = dict(self.devices.pop(node, {}))
            before = there.pop(name, _NEW_DEVICE)
            after = before.plus(role, need, sign)
            was, now = before.whole_gpu, after.whole_gpu
            for devices, promised in ((now[0] - was[0], False), (now[1] - was[1], True)):
                if devices:
                    # A new device comes with the pod slot of its reservation pod (2.6).
                    row = [0] * len(self.snapshot.dimensions)
                    row[GPU], row[PODS] = devices * MILLI, devices * before.new
                    self.room.give(node, row, later=promised)
            if not after.empty:
                there[name] = after
            if there:
                self.devices[node] = dict(sorted(there.items()))

    def _in_queue(self, pod: Pod) -> PodGroup | None:
        """The group of the pod, if its queue exists."""
        group = self.snapshot.group_by_key.get(pod.group) if pod.group else None
        return group if group is not None and group.queue in self.snapshot.queue_by_name else None

    def _queue_waits(self, pod: Pod, node: int) -> bool:
        """Whether limit or quota allow the pod only once others have left its queue (3.7)."""
        group, charge = self._in_queue(pod), self.fixed.charge(pod, node)
        return group is not None and self.over_quota(group, (pod,), charge, now=True) is not None
