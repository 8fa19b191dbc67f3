"""One sentence with numbers and names: why a pod group waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kai_cp.explain.rule_names import rule_words
from kai_cp_models.plan import Unscheduled
from kai_cp_models.pods import ACTIVE_USED, GpuRequest, PodStatus
from kai_cp_models.queries.why import (
    DEVICE_RULES,
    VICTIM_RULES,
    Blocking,
    Families,
    Situation,
    asked_classes,
    free_after,
    kind_of,
    lasting,
    ordered,
    refused_by_others,
    refused_nodes,
    subject_of,
)
from kai_cp_models.shown import amount, quantity, share
from kai_cp_models.snapshot import PodGroup, Snapshot

_NOTHING: Final[Mapping[str, str]] = {}
_KEPT: Final = {
    "priority": "nothing that runs in its queue has a lower priority",
    "non-preemptible": "what runs there cannot be preempted",
    "fair-share": "fair shares let its queue take too little from others",
    "min-runtime": "a minimum runtime protects what could be evicted",
    "pdb": "a PodDisruptionBudget protects what could be evicted",
    "delay": "it may not evict others yet (preemption delay, or its pods failed to start)",
    "consolidation": "more pod groups would have to move than is allowed",
    "order": "the free capacity of this cycle goes to groups ahead of it",
}


_OF_ROOM: Final = frozenset(("NotPossible", "NoVictims", "NodeFragmented", "NoRoomInSum"))
"""Reasons about capacity that is free or may be freed by evictions."""
_OF_QUEUE: Final = frozenset(("OverLimit", "NonPreemptibleOverQuota"))
"""Reasons about a queue, which hold in a full cluster too."""
_MORE_EXACT: Final = {
    "OverFairShare": "fair-share",
    "PreemptionDelayNotElapsed": "delay",
    "InVain": "delay",
}
"""The rule about victims whose numbers the message has, by reason of the cycle."""
_HARDWARE: Final = frozenset(("room", "fragmentation", "topology", "numa", "dra"))
"""Rules of blocking sets that are about the hardware alone."""


_LEVELS: Final = {"kubernetes.io/hostname": "node"}
"""Levels that have a word."""
_OTHERS: Final = (
    "the rest is held by pods that are being deleted or belong to no pod group; neither can be evicted"
)


def words(families: Families) -> str:
    """A blocking set in words; without nodes it is empty."""
    return ", ".join(map(rule_words, ordered(families))) or "the lack of nodes"


def sentence(situation: Situation, group: PodGroup, why: Unscheduled | None, found: Blocking) -> str:
    """Why the group waits; the sentence of the cycle if nothing is proved about capacity."""
    engine = why.message if why is not None else ""
    if not found.sure:
        note = "there was no time to find out which rules block it"
        return f"{engine}; {note}" if engine else note
    if not found.proved:
        return engine or "no plan was found"
    first = found.sets[0]
    kinds = {kind_of(family) for family in first}
    stays = bool(lasting(situation, group, [first]))
    told = not first or (why is not None and why.reason in _OF_QUEUE)
    if told or kinds & {"queue", "readiness", "backoff", "dependency", "limit", "kind-limit", "quota"}:
        return engine or words(first)
    of_devices = not _disturbs(first) and bool(kinds & DEVICE_RULES)
    if "room" not in kinds or of_devices:
        if engine and (not stays or why is None or why.reason not in _OF_ROOM):
            stay = why is not None and why.reason == "NodeFragmented" and _disturbs(first)
            return f"{engine}; {_victims(first)}" if stay else engine
        batch = situation.batch(group.key)
        pods = len(batch.all_pods) if batch is not None else 0
        what = f"its {pods} pods" if pods > 1 else "its next pod"
        return f"no placement of {what} is possible with: {words(first)}; {_victims(first)}"
    more = "" if found.complete else "other sets of rules may block it, too"
    kept = _OTHERS if stays and _beside_others(situation, group, first) else ""
    exact = {}
    if why is not None and (rule := _MORE_EXACT.get(why.reason)) is not None:
        # The part after the numbers of shares is about capacity, like the other parts.
        exact = {rule: engine if rule == "delay" else engine.partition("; ")[0]}
    others = _victims(first, kept, exact) if stays or _disturbs(first) else ""
    parts = (_room(situation, group, first), others, more)
    return "; ".join(part for part in parts if part)


def _room(situation: Situation, group: PodGroup, families: Families) -> str:
    """The request, the free amount in all, and the free amount on one node."""
    snapshot = situation.snapshot
    classes = asked_classes(situation, group)
    free = np.maximum(free_after(situation), 0)
    scope = next((s for item in classes for s in item.scopes if s.constraint and s.constraint.required), None)
    level = str(scope.constraint.required) if scope and scope.constraint and "topology" in families else ""
    within, at = _together(situation, group, level, whole=scope is group.root)
    parts = []
    for family in ordered(families):
        if kind_of(family) != "room":
            continue
        d = snapshot.dimensions.index(subject_of(family))
        each = max((item.example.spec.requests[d] for item in classes), default=0)
        asked = sum(item.example.spec.requests[d] * item.count for item in classes)
        pods = sum(item.count for item in classes)
        name = snapshot.dimensions[d]
        if not each:
            parts += [_share(item.example.spec.gpu) for item in classes if item.example.spec.gpu.shares][:1]
            continue
        usable = at.copy()
        for item in classes:
            refused = [mask for rule, mask in item.refused.items() if rule in families]
            told = refused_nodes(situation, item) if refused else []
            if _disturbs(families):
                # Without a rule about running pods the set is about empty nodes.
                others, why = refused_by_others(situation, item, families)
                refused, told = [*refused, others], [*told, *why]
            usable &= ~np.logical_or.reduce(refused) if refused else True
            parts += [why for why in told if why not in parts]
        total, most = int(free[usable, d].sum()), int(free[usable, d].max(initial=0))
        alike = each * pods == asked
        wants = quantity(name, each if alike else asked)
        wants += f" for {'each of ' if alike else ''}{pods} pods" if pods > 1 else ""
        wants += f", {within}" if within else ""
        where = "" if usable.all() else " there" if (usable == at).all() else " on nodes that accept it"
        has = amount(name, total)
        parts.append(f"needs {wants}; {has} {'is' if has == '1' else 'are'} free{where}")
        if total >= asked:
            parts[-1] += f", at most {amount(name, most)} on one node"
        if not _disturbs(families):
            parts.append(_at_most(snapshot, d, usable, families, level))
    return "; ".join(parts)


def _together(
    situation: Situation, group: PodGroup, level: str, *, whole: bool
) -> tuple[str, NDArray[np.bool_]]:
    """The place in which a required topology level wants the pods together, in words ("" without one), and
    the nodes of that place, [N]: all nodes, unless running pods settle it. ``whole``: the whole group
    requires the level."""
    nodes = situation.snapshot.nodes
    place = _LEVELS.get(level, level)
    pods = situation.gang(group.key).pods if level and whole else ()
    held = next((at for pod in pods if (at := situation.after.place_of(pod)) is not None), None)
    label = nodes[held[0]].labels.get(level) if held is not None else None
    there = np.array([label is None or node.labels.get(level) == label for node in nodes], dtype=np.bool_)
    if label is not None:
        return f"in the {place} of its pods that run", there
    return f"all {'on' if place == 'node' else 'in'} one {place}" if level else "", there


def _share(gpu: GpuRequest) -> str:
    """A request for parts of GPUs that no node has."""
    has = "no node has that free" if gpu.devices > 1 else "no GPU has that much free"
    return f"needs {share(gpu)}; {has}"


def _at_most(snapshot: Snapshot, d: int, usable: NDArray[np.bool_], families: Families, level: str) -> str:
    """The amount of one resource on usable nodes if nothing ran, in one place or in all."""
    has: Counter[str] = Counter()
    for node, yes in zip(snapshot.nodes, usable, strict=True):
        place = node.labels.get(level, "") if level else node.name if "fragmentation" in families else "all"
        if yes and place:
            has[place] += node.allocatable[d]
    most = amount(snapshot.dimensions[d], max(has.values(), default=0))
    if level or "fragmentation" in families:
        return f"the largest {_LEVELS.get(level, level) or 'node'} has {most}"
    return f"{'all nodes' if usable.all() else 'these nodes'} together have {most}"


def _disturbs(families: Families) -> bool:
    """Whether a rule about other pods is among them; otherwise the set is about the hardware."""
    return any(kind_of(family) in VICTIM_RULES for family in families)


def _beside_others(situation: Situation, group: PodGroup, families: Families) -> bool:
    """Whether pods that this scheduler cannot stop hold the capacity that a set about the hardware lacks:
    empty nodes would have enough of each resource."""
    classes = asked_classes(situation, group)
    pods = sum(item.count for item in classes)
    refused = [mask for item in classes for rule, mask in item.refused.items() if rule in families]
    usable = ~np.logical_or.reduce(refused) if refused else np.ones(len(situation.snapshot.nodes), dtype=bool)
    nodes = [node for node, yes in zip(situation.snapshot.nodes, usable, strict=True) if yes]
    for d in (situation.snapshot.dimensions.index(subject_of(f)) for f in families if kind_of(f) == "room"):
        each = max(item.example.spec.requests[d] for item in classes)
        asked = sum(item.example.spec.requests[d] * item.count for item in classes)
        whole = "fragmentation" in families
        has = sum(node.allocatable[d] // max(1, each) if whole else node.allocatable[d] for node in nodes)
        if not each or "topology" in families or has < (pods if whole else asked):
            return False
    names = {node.name for node in nodes}
    return any(
        pod.node in names and (pod.group is None or pod.status is PodStatus.STUCK_IN_RELEASING)
        for pod in situation.snapshot.pods
        if pod.status in ACTIVE_USED
    )


def _victims(families: Families, kept: str = "", exact: Mapping[str, str] = _NOTHING) -> str:
    """The rules that keep other pods where they are. ``kept``: what stays, of sets about the hardware;
    ``exact``: what the cycle says, by kind of rule.
    """
    if not _disturbs(families):
        alone = {kind_of(family) for family in families} <= _HARDWARE
        return (
            kept
            or f"impossible on {'this hardware' if alone else 'these nodes'}, whatever ends or is stopped"
        )
    said = [
        f"action {subject_of(family)} is off"
        if kind_of(family) == "action"
        else exact.get(kind_of(family), _KEPT[kind_of(family)])
        for family in ordered(families)
        if kind_of(family) in VICTIM_RULES
    ]
    return "; ".join(said)
