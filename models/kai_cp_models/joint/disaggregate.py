"""From the counts of a solved model to places in a ledger, pod by pod."""

from __future__ import annotations

from itertools import chain

from kai_cp_models.joint.problem import Answer
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, over_quota
from kai_cp_models.pods import GpuKind, Pod


def disaggregate(ledger: Ledger, answer: Answer, *, pipeline_only: bool) -> Ledger | None:
    """A ledger with the answer's evictions and places, or None where a place does not fit.

    That happens only where the model holds a relaxation of a rule; the caller then keeps its earlier ledger.
    """
    result = ledger.without(answer.gone)
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
