"""A cluster as it is: its hardware, the greedy plan, kinds of GPUs, MIG advice, every fault of a plan."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kai_cp_models.check import Violation, audit
from kai_cp_models.ledger import Ledger
from kai_cp_models.plan import Plan, RolloutHolding
from kai_cp_models.pods import ACTIVE_USED, GPU, MILLI
from kai_cp_models.records.devices import DEVICES, DeviceId
from kai_cp_models.rules.stateful import gpu_kinds as kinds
from kai_cp_models.rules.stateful import rollouts
from kai_cp_models.rules.stateful.dra.hardware import gpus_by_node, shared_attributes
from kai_cp_models.settings import OptionalRules, Settings
from kai_cp_models.snapshot import SetAside, Snapshot
from kai_cp_topology.records import NodeFacts

if TYPE_CHECKING:
    from kai_cp_models.cycle import Cycle
    from kai_cp_models.mig_advice import MigReport


def hardware(snapshot: Snapshot) -> Iterator[NodeFacts]:
    """The GPUs of every node, and those that no pod and no claim holds, in the order of the nodes."""
    dra = gpus_by_node(snapshot) if any(node.dra_gpus for node in snapshot.nodes) else {}
    held = _held_devices(snapshot) if dra else frozenset()
    for node, free in zip(snapshot.nodes, idle_gpus(snapshot), strict=True):
        gpus = node.allocatable[GPU] // MILLI
        devices = dra.get(node.name, ())
        given = sum(device.id in held for device in devices)
        left = min(max(free - given, 0), gpus)
        yield NodeFacts(node.name, node.labels, gpus, left, shared_attributes(devices))


def _held_devices(snapshot: Snapshot) -> frozenset[DeviceId]:
    """The devices that claims and running pods hold."""
    objects = snapshot.extras[DEVICES]
    allocations = [claim.allocation for claim in objects.claims.values()] if objects is not None else []
    for pod in snapshot.pods:
        if pod.status in ACTIVE_USED:
            allocations += pod.claim_allocations.values()
    return frozenset(row.device for found in allocations if found is not None for row in found.results)


def idle_gpus(snapshot: Snapshot) -> list[int]:
    """Whole GPUs of every node that are free now, in the order of ``Snapshot.nodes``."""
    idle: list[int] = (Ledger.of(snapshot).idle[:, GPU] // MILLI).tolist()
    return idle


def kind_holdings(snapshot: Snapshot) -> Sequence[kinds.KindUse]:
    """What queues hold of kinds of GPUs, with the bounds that they declare for them."""
    return kinds.holdings(snapshot)


def unread_notes(snapshot: Snapshot, options: OptionalRules) -> list[SetAside]:
    """Queue annotations that cannot be read although their option is on: kinds of GPUs and rollouts."""
    by_kind = kinds.set_aside(snapshot) if options.gpu_kinds else ()
    return [*by_kind, *rollouts.problems(snapshot, options)]


def rollouts_now(snapshot: Snapshot, options: OptionalRules) -> tuple[RolloutHolding, ...]:
    """Workloads in rollout, and what they hold; nothing where the option is off."""
    if not rollouts.active(snapshot, options):
        return ()
    return rollouts.holdings((rollouts.open(snapshot),))


def mig_advice(snapshot: Snapshot) -> MigReport | None:
    """Would another MIG partition of the nodes admit more pods? None where nothing waits for instances."""
    from kai_cp_models.mig_advice import mig_report

    return mig_report(snapshot)


def greedy_plan(snapshot: Snapshot, settings: Settings) -> Plan:
    """The plan of allocate's greedy pass alone: no solver, no evictions, no check."""
    from kai_cp_models.actions.allocate import allocate

    cycle = begun(snapshot, settings)
    cycle.budget.begin(1.0)
    allocate(cycle)
    return Plan(decisions=cycle.decisions(), stages=tuple(cycle.stages))


def faults(snapshot: Snapshot, plan: Plan, settings: Settings) -> list[Violation]:
    """Every rule that a plan made with ``settings`` breaks.

    This is ``check.audit`` for the snapshot as a cycle with these settings sees it: with aging and run times.
    """
    from kai_cp_models.reservations.prepare import prepare

    return audit(prepare(snapshot, settings)[0], plan, settings.rules)


def load_solver() -> None:
    """Load the solver now, so that no cycle pays for it."""
    from kai_cp_models.solver import load

    load()


def solver_seconds() -> float:
    """Wall seconds that this process has spent inside the solver so far."""
    from kai_cp_models.joint.search import SOLVING

    return SOLVING.seconds


def begun(snapshot: Snapshot, settings: Settings) -> Cycle:
    """A cycle before its first action, without a deadline; for the other queries."""
    from kai_cp_models.cycle import Cycle

    return Cycle(snapshot, settings, Ledger.of(snapshot, settings.rules), math.inf)
