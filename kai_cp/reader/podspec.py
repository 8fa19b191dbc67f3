"""What a pod asks of a node, read once for every distinct raw spec."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from kai_cp.json_types import Json
from kai_cp.keys import SHARED_GPU_CONFIG
from kai_cp.reader.affinity import (
    Namespaces,
    read_node_affinity,
    read_pod_terms,
    read_spread,
    read_tolerations,
)
from kai_cp.reader.fields import object_at, strings_at
from kai_cp.reader.needs import read_claims, read_config_maps, read_host_ports, read_volume_claims
from kai_cp.reader.requests import guaranteed, read_requests
from kai_cp.reader.resources import ResourceAmounts, vector
from kai_cp.reader.shares import read_gpu
from kai_cp_models.pods import PodSpec


@dataclass(frozen=True, slots=True, eq=False)
class SpecDraft:
    """A pod's spec before the dimensions of the snapshot are known.

    ``namespaced``: it names objects or pods of its namespace, so pods of two namespaces differ.
    """

    spec: PodSpec
    amounts: ResourceAmounts
    containers: tuple[ResourceAmounts, ...] = ()

    @property
    def namespaced(self) -> bool:
        """Whether the spec means something else in another namespace."""
        spec = self.spec
        return bool(
            spec.claims
            or spec.volume_claims
            or spec.config_maps
            or spec.pod_affinity
            or spec.pod_anti_affinity
            or spec.spread
        )

    def finished(self, dimensions: tuple[str, ...], key: str, *, numa: bool) -> PodSpec:
        """The spec with its vectors and its scheduling key."""
        return replace(
            self.spec,
            requests=vector(self.amounts, dimensions),
            container_requests=tuple(vector(row, dimensions) for row in self.containers) if numa else (),
            scheduling_key=key,
        )


NO_SPEC: Final = SpecDraft(PodSpec(()), {})
"""The spec of a pod that has ended: it asks for nothing."""


def read_spec(source: Json, namespaces: Namespaces) -> SpecDraft:
    """The draft of a pod's spec, from what ``spec_source`` left of the pod and nothing else."""
    spec, status, annotations = source["spec"], source["status"], source["annotations"]
    namespace = source["namespace"]
    amounts, containers = read_requests(spec)
    gpu = read_gpu(annotations, amounts)
    affinity = object_at(spec, "affinity", "spec")
    prefix = annotations.get(SHARED_GPU_CONFIG)
    maps = {found for found in read_config_maps(spec) if not prefix or not found.startswith(prefix)}
    labels = strings_at(source, "labels", "metadata")
    return SpecDraft(
        PodSpec(
            requests=(),
            gpu=gpu,
            node_selector=tuple(sorted(strings_at(spec, "nodeSelector", "spec").items())),
            node_affinity=read_node_affinity(affinity),
            tolerations=tuple(read_tolerations(spec)),
            host_ports=tuple(sorted(set(read_host_ports(spec)))),
            pod_affinity=tuple(read_pod_terms(affinity, "podAffinity", namespace, namespaces)),
            pod_anti_affinity=tuple(read_pod_terms(affinity, "podAntiAffinity", namespace, namespaces)),
            spread=tuple(read_spread(spec, labels)),
            claims=tuple(read_claims(spec, status)),
            volume_claims=tuple(sorted(set(read_volume_claims(spec, source["name"])))),
            config_maps=tuple(sorted(maps)),
            legacy_mig=source["legacyMig"],
            guaranteed=guaranteed(spec, status),
        ),
        amounts,
        containers,
    )
