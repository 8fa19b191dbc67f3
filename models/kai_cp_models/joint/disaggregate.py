"""From the counts of a solved model to places in a ledger, pod by pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from kai_cp_models.joint.problem import Answer
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, over_quota
from kai_cp_models.pods import ACTIVE_USED, GpuKind, Pod


def leave(ledger: Ledger, pod: Pod) -> None:
    """Take the pod's place away: it is evicted if it runs, only withdrawn if this cycle placed it."""
    if pod.key in ledger.held:
        ledger.unplace(pod)
    elif pod.status in ACTIVE_USED:
        ledger.evict(pod)


def without(ledger: Ledger, pods: Iterable[Pod]) -> Ledger:
    """A copy of the ledger from which the pods have left."""
    emptied = ledger.copy()
    for pod in pods:
        leave(emptied, pod)
    return emptied


def may_leave(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Whether every rule lets all the pods give up their places together (budgets)."""
    running = [pod for pod in pods if pod.key not in ledger.held and pod.status in ACTIVE_USED]
    for rule in ledger.rules:
        concerned = [pod for pod in running if rule.concerns(pod)]
        trial = rule.copy() if len(concerned) > 1 else rule
        for pod in concerned:
            if not trial.evictable(pod):
                return False
            if trial is not rule:
                trial.evict(pod)
    return True


def disaggregate(ledger: Ledger, answer: Answer, *, pipeline_only: bool) -> Ledger | None:
    """A ledger with the answer's evictions and places, or None where a place does not fit.

    That happens only where the model holds a relaxation of a rule; the caller then keeps its earlier ledger.
    """
    result = without(ledger, answer.gone)
    moved = [pod for pod in answer.gone if pod.key in answer.moved]
    fresh: dict[tuple[int, str], str] = {}
    # What memory of a GPU is charged depends on the node, and the model counts with the largest GPUs.
    pods = chain(moved, *(ask.pods for ask in answer.asks))
    by_node = any(pod.spec.gpu.kind is GpuKind.MEMORY for pod in pods)
    for pod in moved:
        if not _put(result, pod, answer, fresh, pipeline_only=True, by_node=by_node):
            return None
    for ask in answer.asks:
        for pod in ask.pods:
            if not _put(result, pod, answer, fresh, pipeline_only=pipeline_only, by_node=by_node):
                return None
        Placer(ask.gang, pipeline_only=pipeline_only).start_together(result, ask.pods)
    return result


def _put(
    ledger: Ledger,
    pod: Pod,
    answer: Answer,
    fresh: dict[tuple[int, str], str],
    *,
    pipeline_only: bool,
    by_node: bool,
) -> bool:
    node, names = answer.nodes_of[pod.key]
    if not ledger.fits_on(pod, node, now=False):
        return False
    if by_node and pod.group:
        group, charge = ledger.snapshot.group_by_key[pod.group], ledger.fixed.charge(pod, node)
        if over_quota(ledger, group, (pod,), charge, lending=not pipeline_only):
            return False
    groups: list[str] = []
    for name in names:
        if name.startswith("new-"):
            if (node, name) not in fresh:
                fresh[node, name] = ledger.fresh_group(pod, node, taken=groups)
            name = fresh[node, name]
        groups.append(name)
    ledger.place(pod, node, tuple(groups), pipelined=pipeline_only or not ledger.fits_on(pod, node, now=True))
    return True
