"""Builders of the stateful rules: small nodes without GPUs, raw objects, and a pod group for each pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kai_cp_models.pods import (
    BASE_DIMENSIONS,
    GpuRequest,
    LabelSelector,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Requirement,
)
from kai_cp_models.policy import Policy
from kai_cp_models.rules.stateful.protocol import RuleState
from kai_cp_models.snapshot import Node, Snapshot
from tests.support import worlds
from tests.support.rule_objects import read

PLUGINS = frozenset({"predicates", "podaffinity", "dynamicresources"})


def spec(requests: Sequence[int] = (1000, 0, 0, 1), **fields: Any) -> PodSpec:
    """A pod spec of one CPU."""
    return worlds.spec(0, requests=tuple(requests), **fields)


def pod(name: str, node: str | None = None, *, wants: PodSpec | None = None, **fields: Any) -> Pod:
    """A pod in namespace ``ns``; running when it has a node."""
    wants = wants or spec(gpu=GpuRequest(devices=fields.pop("gpu", 0)))
    return worlds.pod(name, node, name, spec=wants, uid=f"uid-{name}", **fields)


def snapshot(
    pods: Sequence[Pod],
    nodes: Sequence[Node | str] = ("n0", "n1", "n2"),
    *,
    raw: Mapping[str, Any] | None = None,
    gone: Sequence[str] = (),
    plugins: frozenset[str] = PLUGINS,
    dimensions: tuple[str, ...] = BASE_DIMENSIONS,
    **policy: Any,
) -> Snapshot:
    """A snapshot with one group per pod, all in queue ``q``. ``gone``: UIDs of pods that are not there."""
    made = [node if isinstance(node, Node) else worlds.node(node, gpus=0) for node in nodes]
    extras, aside = read(raw or {}, [node.name for node in made], Policy(plugins=plugins, **policy), gone)
    return worlds.cluster(
        pods, (), made, dimensions=dimensions, extras=extras, set_aside=aside, plugins=plugins, **policy
    )


def term(key: str = "zone", weight: int = 0, **labels: str) -> PodAffinityTerm:
    """An affinity term for pods of namespace ``ns`` with the given labels."""
    needs = tuple(Requirement(name, "In", (value,)) for name, value in sorted(labels.items()))
    return PodAffinityTerm(LabelSelector(needs), key, ("ns",), weight)


def placed(state: RuleState, one: Pod, node: int, *, pipelined: bool) -> dict[str, Any]:
    """Place the pod, and what its decision then says for the rule."""
    state.place(one, node, pipelined=pipelined)
    return dict(state.details(one, node))
