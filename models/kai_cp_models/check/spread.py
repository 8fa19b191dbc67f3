"""Topology spread, when the option is on: placed pods keep the skew of their DoNotSchedule constraints."""

from __future__ import annotations

from collections.abc import Iterator

from kai_cp_models.check.planned_cluster import PlannedCluster, Violation
from kai_cp_models.check.selectors import selects
from kai_cp_models.pods import Pod, SpreadConstraint, Toleration
from kai_cp_models.rules.static import selector
from kai_cp_models.snapshot import Node, Taint


def broken(world: PlannedCluster) -> Iterator[Violation]:
    """Placed pods in a domain that has too many more matching pods than another one."""
    if not world.options.topology_spread:
        return
    for key in sorted(world.placed):
        pod, node = world.pod(key), world.node(world.placed[key].node)
        for constraint in pod.spec.spread:
            fault = _skew(world, pod, node, constraint)
            if fault:
                yield Violation("spread", f"pod {key} on node {node.name}: {fault}", pods=(key,))


def _skew(world: PlannedCluster, pod: Pod, node: Node, constraint: SpreadConstraint) -> str:
    label = constraint.topology_key
    home = node.labels.get(label)
    if home is None:
        return f"the node has no {label}"
    included = [host for host in world.snapshot.nodes if _counts(world, pod, host, constraint)]
    counts = dict.fromkeys((host.labels[label] for host in included), 0)
    enough = len(counts) >= constraint.least_domains
    counts.setdefault(home, 0)
    action = world.placed[pod.key].action
    for host in included:
        domain = host.labels[label]
        there = list(world.end(host.name))
        if domain != home:
            # Pods that a later action evicts were still there when the pod was placed.
            gone = ((r, world.evictions.get(r.pod.key)) for r in world.before(host.name))
            there += [r for r, eviction in gone if eviction and world.earlier(action, eviction.action)]
        for resident in there:
            same = resident.pod.key.namespace == pod.key.namespace
            if same and selects(constraint.selector, resident.pod.labels):
                counts[domain] += (
                    domain != home
                    or not resident.placed
                    or world.earlier(world.placed[resident.pod.key].action, action)
                    or _before(pod, resident.pod, constraint)
                )
    least = min(counts, key=lambda d: (counts[d], d))
    if counts[home] - (counts[least] if enough else 0) <= constraint.max_skew:
        return ""
    if not enough:
        return f"{counts[home]} pods in {home}, which has too few others, skew at most {constraint.max_skew}"
    return f"{counts[home]} pods in {home}, {counts[least]} in {least}, skew at most {constraint.max_skew}"


def _counts(world: PlannedCluster, pod: Pod, host: Node, constraint: SpreadConstraint) -> bool:
    """Whether a node, and what is there, counts for a constraint of the pod."""
    if any(c.topology_key not in host.labels for c in pod.spec.spread):
        return False
    if constraint.honors_affinity and selector.broken(world.snapshot, pod, host) is not None:
        return False
    if not constraint.honors_taints or not world.snapshot.policy.plugin("predicates"):
        return True
    keeping = (taint for taint in host.taints if taint.effect in ("NoSchedule", "NoExecute"))
    return all(any(_tolerates(one, taint) for one in pod.spec.tolerations) for taint in keeping)


def _tolerates(one: Toleration, taint: Taint) -> bool:
    """Whether key, effect and value are those of the taint; what is empty, and any value that exists, is."""
    same = one.key in ("", taint.key) and one.effect in ("", taint.effect)
    return same and (one.operator == "Exists" or (one.operator in ("", "Equal") and one.value == taint.value))


def _before(pod: Pod, other: Pod, constraint: SpreadConstraint) -> bool:
    """Whether a pod that the same action or a later one placed must have come before ``pod`` to meet a
    constraint of its own that is as strict.

    One without such a constraint may enter any domain, also after this one.
    """
    spec = other.spec
    same = (spec.node_selector, spec.node_affinity) == (pod.spec.node_selector, pod.spec.node_affinity)
    return same and any(
        (c.topology_key, c.selector) == (constraint.topology_key, constraint.selector)
        and c.max_skew <= constraint.max_skew
        for c in spec.spread
    )
