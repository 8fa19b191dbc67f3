"""The kinds of fixes that move or stop other pods, or add nodes; the model proposes candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from kai_cp.explain.choices import all_plain, least_of, move_operation, moves, others_wait, stops
from kai_cp.explain.cycle import DecidedCycle
from kai_cp.explain.raw import metadata, spec_of
from kai_cp.explain.trials import Fix, FixCandidate, Trials
from kai_cp.json_types import Object
from kai_cp_models.pods import Pod, PodKey
from kai_cp_models.queries.hardware import hardware_of
from kai_cp_models.queries.why import FairLine, changes, moves_fit, within_limits

_MOST_TRIES: Final = 24
"""The most candidates of one kind that are solved."""
_MOST_LESS: Final = 64
"""The most smaller candidates that are tried to show that fewer do not help."""
_MOST_NODES: Final = 64
"""The most nodes that are added."""
_MOVES: Final = 32
"""The most pods that are moved."""


def move(trials: Trials) -> Fix | None:
    """Move the fewest pods, each to a node that takes it now; nothing else is disturbed."""
    every = all_plain(trials)
    found, proved = _moved(trials)
    if proved and not others_wait(trials):
        return found if found is None else replace(found, proved=every or found.amount == 1)

    def takes(decided: DecidedCycle) -> bool:
        return not decided.disturbs_for(trials.key)

    return least_of(trials, found, moves, takes, every=every)


def _moved(trials: Trials) -> tuple[Fix | None, bool]:
    """Moves that the model proposes, and whether it has none with fewer pods."""
    complete = True
    for change in _changes(trials, "move"):
        if not change.pods or len(change.pods) > _MOVES:
            continue
        if not moves_fit(trials.here, change.pods, change.nodes):
            complete = False
            continue
        amount = len(change.pods)
        op = move_operation(trials.here.snapshot, change.pods, change.nodes)
        decided = trials.admits([op])
        if decided is not None and not decided.disturbs_for(trials.key):
            proved = amount == 1 or (complete and change.bound >= amount and not others_wait(trials))
            return Fix("move", amount, "pods", (op,), proved, decided), proved
    return None, complete


def stop(trials: Trials) -> Fix | None:
    """Stop the fewest pods, in whole eviction units."""
    best: Fix | None = None
    tried: set[frozenset[PodKey]] = set()
    within = within_limits(trials.situation, trials.group)
    for bent in (False, True):
        for change in _changes(trials, "stop", bent=bent):
            amount = len(change.pods)
            if best is not None and amount >= best.amount:
                break
            chosen = frozenset(pod.key for pod in change.pods)
            if not chosen or chosen in tried or not within(change.pods):
                continue
            tried.add(chosen)
            fix = _stopped(trials, change.pods)
            if fix is not None:
                best = fix
                break
        if best is not None and best.amount == 1:
            return replace(best, proved=True)
    if not others_wait(trials) and (best is None or _none_less(trials, int(best.amount), tried)):
        return replace(best, proved=True) if best is not None else None
    if best is not None:
        return least_of(trials, best, stops, lambda decided: True)
    # A choice that leaves a limit exceeded could help only if others of the queue get less for it.
    return least_of(trials, None, partial(stops, worth=within), lambda decided: True, every=False)


def _stopped(trials: Trials, pods: Sequence[Pod]) -> Fix | None:
    ops = ({"op": "stop", "pods": sorted(str(pod.key) for pod in pods)},)
    return trials.first("stop", "pods", [FixCandidate(ops, len(pods))], complete=False)


def _none_less(trials: Trials, amount: int, tried: set[frozenset[PodKey]]) -> bool:
    """Whether nothing smaller helps: the model has no candidate, or each of them was tried."""
    tries = 0
    for change in _changes(trials, "stop", bent=True, most=_MOST_LESS):
        if change.bound >= amount:
            return True
        tries += 1
        chosen = frozenset(pod.key for pod in change.pods)
        if len(chosen) >= amount:
            continue
        if chosen and chosen not in tried:
            tried.add(chosen)
            if _stopped(trials, change.pods) is not None:
                return False
    return tries < _MOST_LESS


def _changes(trials: Trials, kind: Any, *, bent: bool = False, most: int = _MOST_TRIES) -> Any:
    """Candidates of the model for the situation after the preceding operations."""
    situation = trials.here
    if trials.key not in situation.snapshot.group_by_key:
        return iter(())
    group = situation.snapshot.group_by_key[trials.key]
    return changes(situation, group, kind, bent=bent, work=trials.cycles.work, most=most)


def add_nodes(trials: Trials) -> Fix | None:
    """The fewest copies of one existing node, over all shapes of nodes."""
    line = FairLine(trials.situation)
    batch = trials.situation.batch(trials.key)
    ahead = line.position(trials.key).ahead
    pods = len(batch.all_pods) if batch else 1
    for one in ahead:
        theirs = trials.situation.batch(one.group)
        pods += len(theirs.all_pods) if theirs else 0
    most = min(max(pods, 4), _MOST_NODES)
    best: Fix | None = None
    for like in shapes(trials):
        limit = most if best is None else int(best.amount) - 1
        if limit < 1 or trials.admits([_copies(like, limit)]) is None:
            continue
        candidates = [FixCandidate((_copies(like, count),), count) for count in range(1, limit + 1)]
        best = trials.first("add-nodes", "nodes", candidates) or best
    return best


def _copies(like: str, count: int) -> Object:
    return {"op": "add-nodes", "like": like, "count": count}


def shapes(trials: Trials) -> list[str]:
    """One node of each shape: hardware, labels except its name, taints, daemons, devices."""
    snapshot = trials.snapshot
    raw = trials.raw["rawObjects"]
    daemons: dict[str, list[str]] = {}
    for pod in raw.get("pods") or []:
        owners = (metadata(pod).get("ownerReferences") or []) if isinstance(pod, dict) else []
        if any(isinstance(owner, dict) and owner.get("kind") == "DaemonSet" for owner in owners):
            requests = str(spec_of(pod).get("containers"))
            daemons.setdefault(str(spec_of(pod).get("nodeName")), []).append(requests)
    found: dict[object, str] = {}
    for node, devices in zip(snapshot.nodes, hardware_of(trials.situation, trials.group), strict=True):
        labels = {k: v for k, v in node.labels.items() if k != "kubernetes.io/hostname"}
        shape = (
            node.allocatable,
            tuple(sorted(labels.items())),
            node.taints,
            tuple(sorted(daemons.get(node.name, ()))),
            devices,
        )
        found.setdefault(shape, node.name)
    return list(found.values())
