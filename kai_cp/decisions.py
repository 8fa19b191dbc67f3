"""``decisions/1``: a plan as the JSON document that ``solve`` writes, and back (format page, section 3)."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeVar, get_args

from kai_cp.files import MOST_BYTES
from kai_cp.instants import from_rfc3339 as from_rfc3339
from kai_cp.instants import rfc3339 as rfc3339
from kai_cp.json_types import plain_number
from kai_cp.reader.notes import IGNORED
from kai_cp.starts import estimate_document, read_reservation, reservation_document, rollout_document
from kai_cp_models.plan import CUT, Decision, Plan, QueueReport, Reservation, Stage, StageKind, Unscheduled
from kai_cp_models.pods import GPU, MILLI, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.policy import ActionName
from kai_cp_models.snapshot import Shares, Snapshot
from kai_cp_topology.records import Locality

Option = TypeVar("Option")

SCHEMA: Final = "decisions/1"
RECORD: Final = "decisions.json"
"""Its name beside the snapshot in the zip of a cycle."""
ENGINE: Final = "kai_cp"

_DECISION_KEYS: Final = frozenset(
    {"kind", "namespace", "pod", "podGroup", "queue", "gpus", "node", "gpuGroups", "action", "for", "message"}
)
_KINDS: Final[tuple[Literal["Bind", "Nominate", "Evict"], ...]] = ("Bind", "Nominate", "Evict")
_ACTIONS: Final[tuple[ActionName, ...]] = get_args(ActionName)
_STATUSES: Final[tuple[Literal["OPTIMAL", "FEASIBLE", "GREEDY"], ...]] = ("OPTIMAL", "FEASIBLE", "GREEDY")
_LARGEST: Final = 2**63
_PHASES: Final = ("read", "prepare", "solve", "check", "write")


class BadDecisions(ValueError):
    """A document that is not ``decisions/1``; the text names the field."""


def recorded(file: Path | str | IO[bytes]) -> bytes:
    """The ``RECORD`` beside the snapshot in a zip, as ``/debug/cycles`` serves a cycle.

    Raises ``BadDecisions`` if there is none or it cannot be read.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            size = archive.getinfo(RECORD).file_size
            if size > MOST_BYTES:
                raise BadDecisions(f"its {RECORD} has {size} bytes, more than {MOST_BYTES}")
            return archive.read(RECORD)
    except (zipfile.BadZipFile, KeyError):
        raise BadDecisions(f"holds no {RECORD}") from None


def cut_during(stages: Iterable[Stage], kind: StageKind = CUT) -> str | None:
    """The actions whose stages the deadline cut short, or which ended in another ``kind`` of way; None: no
    action."""
    return " and ".join(dict.fromkeys(stage.action for stage in stages if stage.kind == kind)) or None


def named_stages(entries: Iterable[Mapping[str, Any]]) -> Iterator[Stage]:
    """The stages of a document, without their numbers."""
    return (Stage.named(entry["name"], entry["status"]) for entry in entries)


@cache
def version() -> str:
    """The version of the installed package."""
    from importlib.metadata import version as installed

    return installed("kai-cp")


def to_json(
    snapshot: Snapshot,
    plan: Plan,
    *,
    sha256: str = "",
    timings: Mapping[str, float] | None = None,
    asks: Asks | None = None,
) -> dict[str, Any]:
    """The document of a plan for ``snapshot``.

    ``sha256``: of the snapshot as it was read; ``timings``: seconds of the phases the engine does not know;
    ``asks``: of the snapshot, where several documents are made of it.
    Beyond the format, and left out when there are none: ``localities``, how close the gangs are that got
    places, and ``ignoredFields``, how often the reader met what it did not know.
    """
    seconds = {**plan.timings, **(timings or {})}
    ignored = snapshot.extras[IGNORED]
    asks = Asks(snapshot) if asks is None else asks
    document = {
        "schema": SCHEMA,
        "engine": ENGINE,
        "version": version(),
        "snapshotSha256": sha256,
        "now": rfc3339(snapshot.now),
        "cluster": {
            "nodes": len(snapshot.nodes),
            "gpus": _number(sum(node.allocatable[GPU] for node in snapshot.nodes) / MILLI),
            "pods": len(snapshot.pods),
            "podGroups": len(snapshot.groups),
            "waitingPodGroups": len(asks.positions),
        },
        "decisions": [_decision(snapshot, decision) for decision in plan.decisions],
        "unscheduled": [_unscheduled(entry, asks) for entry in plan.unscheduled],
        "setAside": [
            {"object": entry.item, **({"field": entry.field} if entry.field else {}), "reason": entry.reason}
            for entry in (*snapshot.set_aside, *plan.set_aside)
        ],
        "stages": [stage_document(stage) for stage in plan.stages],
        "timings": {
            name: round(seconds.get(name, 0.0), 6)
            for name in (*_PHASES, *sorted(seconds.keys() - set(_PHASES)))
        },
        "queues": {
            name: {
                **_parent(snapshot, name),
                "fairShare": by_resource(report.fair_share),
                "allocatedBefore": by_resource(report.allocated_before),
                "allocatedAfter": by_resource(report.allocated_after),
            }
            for name, report in sorted(plan.queues.items())
        },
    }
    if plan.localities:
        document["localities"] = [_locality(*item) for item in sorted(plan.localities.items())]
    if plan.reservations is not None:
        held = [(entry.state, reservation_document(entry)) for entry in plan.reservations]
        document["reservations"] = [one for state, one in held if state != "draining"]
        if closed := [one for state, one in held if state == "draining"]:
            document["draining"] = closed
    if plan.rollouts:
        document["rollouts"] = [rollout_document(entry) for entry in plan.rollouts]
    if plan.defrag is not None:
        document["defrag"] = {
            "goal": plan.defrag.goal,
            "value": plan.defrag.value,
            "wanted": plan.defrag.wanted,
            "state": plan.defrag.state,
            "message": plan.defrag.message,
        }
    if ignored:
        document["ignoredFields"] = dict(ignored)
    return document


def _unscheduled(entry: Unscheduled, asks: Asks) -> dict[str, Any]:
    return {
        "podGroup": str(entry.group),
        "reason": entry.reason,
        "message": entry.message,
        "proof": "proved" if entry.proved else "not proved",
        **asks.of(entry.group),
        "details": dict(entry.details),
        **({} if entry.estimate is None else {"estimate": estimate_document(entry.estimate)}),
    }


def stage_document(stage: Stage) -> dict[str, Any]:
    """A stage as ``decisions/1`` has it."""
    return {
        "name": stage.name,
        "status": stage.status,
        "objective": _number(stage.objective),
        "bound": _number(stage.bound),
        "gap": round(stage.gap, 6),
        "variables": stage.variables,
        "constraints": stage.constraints,
        "seconds": round(stage.seconds, 6),
    }


def _locality(group: GroupKey, found: Locality) -> dict[str, Any]:
    return {
        "podGroup": str(group),
        "level": found.level,
        "hops": found.hops,
        "worstPairGBytesPerSecond": found.worst_gbytes_per_second,
        "nvlinkDomains": found.nvlink_domains,
        "segmentGpus": found.segment,
    }


class Asks:
    """What the waiting pod groups of a snapshot ask for; each group is computed once.

    ``positions``: the place in the fair order (3.5), from 1, of every pod group that waits; 0: not considered
    at all. None: it is computed.
    """

    def __init__(self, snapshot: Snapshot, positions: Mapping[GroupKey, int] | None = None) -> None:
        self._snapshot = snapshot
        self._known: dict[GroupKey, Mapping[str, Any]] = {}
        self.positions = _positions(snapshot) if positions is None else positions

    def of(self, key: GroupKey) -> Mapping[str, Any]:
        """What a group asks for, how long it has waited, and its place in the fair order."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._look(key)
        return found

    def _look(self, key: GroupKey) -> Mapping[str, Any]:
        snapshot = self._snapshot
        group = snapshot.group_by_key.get(key)
        if group is None:
            return {}
        waiting = [pod for pod in snapshot.members.get(key, ()) if pod.status is PodStatus.PENDING]
        return {
            "queue": group.queue,
            "pods": len(waiting),
            "gpus": _number(sum(gpus_of(snapshot, pod) for pod in waiting)),
            "ageSeconds": int(max(0, snapshot.now - group.created)),
            "position": self.positions.get(key) or None,
        }


def _positions(snapshot: Snapshot) -> Mapping[GroupKey, int]:
    from kai_cp_models.queries.shares import waiting_line

    line = waiting_line(snapshot)
    return {waiter.group.key: i if waiter.ready else 0 for i, waiter in enumerate(line, 1)}


def gpus_of(snapshot: Snapshot, pod: Pod) -> float:
    """GPUs that a pod asks for; for a share, the part of one."""
    from kai_cp_models.queries.shares import gpus_asked

    return gpus_asked(snapshot, (pod,))


def _parent(snapshot: Snapshot, queue: str) -> dict[str, str | None]:
    known = snapshot.queue_by_name.get(queue)
    return {"parent": None if known is None else known.parent}


def _decision(snapshot: Snapshot, decision: Decision) -> dict[str, Any]:
    group = None if decision.group is None else snapshot.group_by_key.get(decision.group)
    pod = snapshot.pod_by_key.get(decision.pod)
    document: dict[str, Any] = {
        "kind": decision.kind,
        "namespace": decision.pod.namespace,
        "pod": decision.pod.name,
        "podGroup": None if decision.group is None else decision.group.name,
        "queue": None if group is None else group.queue,
        "gpus": None if pod is None else _number(gpus_of(snapshot, pod)),
        "node": decision.node,
    }
    if decision.kind == "Evict":
        document |= {"action": decision.action, "for": [str(group) for group in decision.triggers]}
    else:
        document["gpuGroups"] = list(decision.gpu_groups)
        if decision.kind == "Bind":
            document["gpuDevices"] = None
        document["action"] = decision.action
    return {**document, "message": decision.message, **decision.details}


def _number(value: float) -> float | int | None:
    return plain_number(value) if math.isfinite(value) else None


def by_resource(shares: Shares) -> dict[str, float | int | None]:
    """Shares as documents write them; infinite ones are None."""
    return {"gpu": _number(shares.gpu), "cpu": _number(shares.cpu), "memory": _number(shares.memory)}


def from_json(document: Any) -> Plan:
    """The plan of a document; raises ``BadDecisions``. Fields that the document lacks keep their defaults."""
    if not isinstance(document, dict):
        raise BadDecisions(f"this is not {SCHEMA}: it is not a JSON object")
    if "rawObjects" in document:
        raise BadDecisions(
            "this is a snapshot; name the file with the decisions, as `kai-cp solve -o json` writes it"
        )
    schema = document.get("schema", SCHEMA)
    if schema != SCHEMA:
        raise BadDecisions(f"schema is {schema!r}, expected {SCHEMA!r}")
    if not isinstance(document.get("decisions"), list):
        raise BadDecisions(f"this is not {SCHEMA}: decisions is missing or not a list")
    _made_for(document)
    timings = _object(document, "timings")
    return Plan(
        decisions=_all(document, "decisions", _read_decision),
        unscheduled=_all(document, "unscheduled", _read_unscheduled),
        stages=_all(document, "stages", _read_stage),
        queues={
            name: _read_queue(report, f"queues.{name}")
            for name, report in _object(document, "queues").items()
        },
        timings={name: _amount(timings, name, "timings") for name in timings},
        localities=dict(_all(document, "localities", _read_locality)),
        reservations=tuple(
            entry for key in ("reservations", "draining") for entry in _all(document, key, _read_start)
        )
        if "reservations" in document
        else None,
    )


def with_groups(plan: Plan, groups: Mapping[PodKey, GroupKey | None]) -> Plan:
    """The plan with pod groups for decisions that name none, as those of KAI do."""
    return replace(
        plan,
        decisions=tuple(
            replace(decision, group=groups.get(decision.pod)) if decision.group is None else decision
            for decision in plan.decisions
        ),
    )


def _made_for(document: dict[str, Any]) -> None:
    """Raise ``BadDecisions`` if the decisions state a time or snapshot that cannot be read."""
    for key in ("now", "snapshotSha256"):
        if not isinstance(document.get(key, ""), str):
            raise BadDecisions(f"{key} is not a text")
    try:
        from_rfc3339(document.get("now") or rfc3339(0))
    except ValueError:
        said = document["now"]
        raise BadDecisions(f"now is {said!r}, expected a time such as 2026-11-20T12:00:00Z") from None


def _all(document: dict[str, Any], key: str, read: Callable[[Any, str], Option]) -> tuple[Option, ...]:
    entries = document.get(key) or []
    if not isinstance(entries, list):
        raise BadDecisions(f"{key} is not a list")
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise BadDecisions(f"{key}[{i}] is not an object")
    return tuple(read(entry, f"{key}[{i}]") for i, entry in enumerate(entries))


def _object(entry: dict[str, Any], key: str, where: str = "") -> dict[str, Any]:
    found = entry.get(key) or {}
    if not isinstance(found, dict):
        raise BadDecisions(f"{where}{key} is not an object")
    return found


def _amount(entry: Mapping[str, Any], key: str, where: str) -> float:
    value = entry.get(key) or 0
    if not isinstance(value, int | float):
        raise BadDecisions(f"{where}.{key} is not a number")
    return value if abs(value) < _LARGEST else float(value)  # JSON writers take no larger integers.


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise BadDecisions(f"{where}.{key} is missing or not a text")
    return value


def _one_of(options: tuple[Option, ...], entry: Any, key: str, where: str) -> Option:
    value = _text(entry, key, where)
    for option in options:
        if option == value:
            return option
    raise BadDecisions(f"{where}.{key} is {value!r}, expected one of {', '.join(map(str, options))}")


def _group(text: str, namespace: str = "default") -> GroupKey:
    return GroupKey(*text.split("/", 1)) if "/" in text else GroupKey(namespace, text)


def _texts(entry: dict[str, Any], key: str, where: str) -> tuple[str, ...]:
    values = entry.get(key) or ()
    if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
        raise BadDecisions(f"{where}.{key} is not a list of texts")
    return tuple(values)


def _read_decision(entry: Any, where: str) -> Decision:
    namespace = _text(entry, "namespace", where) if entry.get("namespace") else "default"
    group = _text(entry, "podGroup", where) if entry.get("podGroup") else None
    return Decision(
        kind=_one_of(_KINDS, entry, "kind", where),
        pod=PodKey(namespace, _text(entry, "pod", where)),
        group=None if group is None else _group(group, namespace),
        node=_text(entry, "node", where),
        action=_one_of(_ACTIONS, entry, "action", where),
        message=str(entry.get("message") or ""),
        gpu_groups=_texts(entry, "gpuGroups", where),
        triggers=tuple(_group(text, namespace) for text in _texts(entry, "for", where)),
        details={
            key: value
            for key, value in entry.items()
            if key not in _DECISION_KEYS and not (key == "gpuDevices" and value is None)
        },
    )


def _read_unscheduled(entry: Any, where: str) -> Unscheduled:
    return Unscheduled(
        group=_group(_text(entry, "podGroup", where)),
        reason=_text(entry, "reason", where),
        message=str(entry.get("message") or ""),
        proved=entry.get("proof") == "proved",
        details=_object(entry, "details", f"{where}."),
    )


def _read_stage(entry: Any, where: str) -> Stage:
    return replace(
        Stage.named(_text(entry, "name", where), _one_of(_STATUSES, entry, "status", where)),
        objective=_amount(entry, "objective", where),
        bound=_amount(entry, "bound", where),
        gap=_amount(entry, "gap", where),
        variables=int(_amount(entry, "variables", where)),
        constraints=int(_amount(entry, "constraints", where)),
        seconds=_amount(entry, "seconds", where),
    )


def _read_locality(entry: Any, where: str) -> tuple[GroupKey, Locality]:
    worst = entry.get("worstPairGBytesPerSecond")
    return _group(_text(entry, "podGroup", where)), Locality(
        None if worst is None else int(_amount(entry, "worstPairGBytesPerSecond", where)),
        int(_amount(entry, "hops", where)),
        str(entry.get("level") or ""),
        int(_amount(entry, "nvlinkDomains", where)),
        int(_amount(entry, "segmentGpus", where)),
    )


def _read_start(entry: Any, where: str) -> Reservation:
    try:
        return read_reservation(entry, where)
    except ValueError as problem:
        raise BadDecisions(str(problem)) from None


def _read_queue(report: Any, where: str) -> QueueReport:
    def shares(key: str) -> Shares:
        amounts = _object(report, key, f"{where}.")
        return Shares(*(_amount(amounts, name, f"{where}.{key}") for name in ("cpu", "memory", "gpu")))

    if not isinstance(report, dict):
        raise BadDecisions(f"{where} is not an object")
    return QueueReport(shares("fairShare"), shares("allocatedBefore"), shares("allocatedAfter"))
