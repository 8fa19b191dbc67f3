"""Why a pod group waits: one reason token, a message with names and numbers, and whether it is proved."""

from __future__ import annotations

from kai_cp_models.cycle import Cycle, Waiting
from kai_cp_models.ledger import Ledger
from kai_cp_models.rules.table import refusals
from kai_cp_models.snapshot import GPU, MILLI, Pod, PodStatus, Unscheduled


def unscheduled(cycle: Cycle) -> tuple[Unscheduled, ...]:
    """One entry for every pod group with pending pods that got no place in this cycle."""
    found: list[Unscheduled] = []
    for group in cycle.snapshot.groups:
        gang = cycle.ledger.fixed.gangs[group.key]
        pending = [
            pod for pod in (*gang.pods, *gang.strangers) if cycle.ledger.status(pod) is PodStatus.PENDING
        ]
        if not pending:
            continue
        why = cycle.waiting.get(group.key)
        if why is None and not gang.strangers:
            why = Waiting("NotDecidedInTime", "the cycle ended before this pod group was considered")
        if why is None:
            names = ", ".join(sorted({pod.subgroup or "default" for pod in gang.strangers}))
            why = Waiting("UnknownSubgroup", f"pods name subgroups that the pod group lacks: {names}", True)
        message = why.message
        if why.pod is not None:
            message = explain_pod(cycle.ledger, why.pod)
        found.append(Unscheduled(group.key, why.reason, message, why.proved, why.details))
    return tuple(found)


def explain_pod(ledger: Ledger, pod: Pod) -> str:
    """Why no node takes the pod in the ledger's state: static refusals by count, then the missing room."""
    parts = [
        f"{count} of {len(ledger.idle)} nodes: {why}"
        for why, count in sorted(
            refusals(ledger.fixed.table, pod).items(), key=lambda item: (-item[1], item[0])
        )
    ]
    for rule in ledger.rules:
        if rule.concerns(pod) and (words := rule.refusals(pod)):
            parts.append(words)
    free = ledger.idle + ledger.releasing
    if pod.spec.needs_gpu and len(free):
        gpus = free[:, GPU].clip(min=0) // MILLI
        parts.append(
            f"{pod.key} needs {pod.spec.gpu.devices} GPU; {int(gpus.sum())} free in all, "
            f"at most {int(gpus.max())} on one node"
        )
    elif len(free):
        parts.append(
            f"{pod.key} needs {pod.spec.requests[0]} milli-CPUs; largest free {int(free[:, 0].max())}"
        )
    return "; ".join(parts)
