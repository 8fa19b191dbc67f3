"""Short builders for the tests of the stateful rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kai_cp_models.snapshot import (
    BASE_DIMENSIONS,
    GpuRequest,
    GroupKey,
    LabelSelector,
    Node,
    Pod,
    PodAffinityTerm,
    PodGroup,
    PodKey,
    PodSpec,
    PodStatus,
    Policy,
    Requirement,
    Snapshot,
    Subgroup,
)
from tests.support.rule_objects import read

PLUGINS = frozenset({"predicates", "podaffinity", "dynamicresources"})


def spec(requests: Sequence[int] = (1000, 0, 0, 1), **fields: Any) -> PodSpec:
    """A pod spec of one CPU."""
    return PodSpec(requests=tuple(requests), **fields)


def pod(name: str, node: str | None = None, *, wants: PodSpec | None = None, **fields: Any) -> Pod:
    """A pod in namespace ``ns``; running when it has a node."""
    status = fields.pop("status", PodStatus.PENDING if node is None else PodStatus.RUNNING)
    gpu = fields.pop("gpu", 0)
    wants = wants or spec(gpu=GpuRequest(devices=gpu))
    return Pod(
        PodKey("ns", name), f"uid-{name}", wants, status, 0.0, GroupKey("ns", name), node=node, **fields
    )


def snapshot(
    pods: Sequence[Pod],
    nodes: Sequence[Node | str] = ("n0", "n1", "n2"),
    *,
    raw: Mapping[str, Any] | None = None,
    plugins: frozenset[str] = PLUGINS,
    dimensions: tuple[str, ...] = BASE_DIMENSIONS,
    **policy: Any,
) -> Snapshot:
    """A snapshot with one group per pod, all in queue ``q``."""
    made = [node if isinstance(node, Node) else Node(node, (64_000, 2**40, 0, 110)) for node in nodes]
    chosen = Policy(plugins=plugins, **policy)
    extras, aside = read(raw or {}, [node.name for node in made], chosen)
    root = Subgroup("", 1, (Subgroup("default", 1),), leaf=False)
    groups = [PodGroup(p.group, str(p.group), "q", 50, True, root, 0.0) for p in pods if p.group]
    return Snapshot(
        now=0.0,
        dimensions=dimensions,
        nodes=tuple(made),
        queues=(),
        groups=tuple(groups),
        pods=tuple(pods),
        policy=chosen,
        set_aside=aside,
        extras=extras,
    )


def term(key: str = "zone", weight: int = 0, **labels: str) -> PodAffinityTerm:
    """An affinity term for pods of namespace ``ns`` with the given labels."""
    needs = tuple(Requirement(name, "In", (value,)) for name, value in sorted(labels.items()))
    return PodAffinityTerm(LabelSelector(needs), key, ("ns",), weight)
