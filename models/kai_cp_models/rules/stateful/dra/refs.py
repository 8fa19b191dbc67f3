"""Which claims a pod uses, and one spec for pods that differ only in the names of their own claims.

Every pod of a gang has a claim of its own from one template, so the specs of these pods differ in a name that
carries no meaning. ``classed`` gives such pods one spec, so that they form one class of the model; the names
go to ``Snapshot.extras``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Final

from kai_cp_models.extras import Key
from kai_cp_models.marking import marked
from kai_cp_models.pods import ClaimRef, Pod, PodKey, PodSpec
from kai_cp_models.snapshot import Snapshot

REFS: Final[Key[Mapping[PodKey, tuple[ClaimRef, ...]]]] = Key("claim_refs", {})
"""The pods' claims, where the shared spec does not name them."""


def refs_of(snapshot: Snapshot, pod: Pod) -> tuple[ClaimRef, ...]:
    """The claims of a pod by name."""
    return snapshot.extras[REFS].get(pod.key, pod.spec.claims) if pod.spec.claims else ()


def classed(snapshot: Snapshot, identity: Callable[[Pod], Hashable]) -> Snapshot:
    """The snapshot with one spec for pods whose claims are alike.

    ``identity``: a key of a pod's claims; pods with equal keys are interchangeable.
    """
    numbers: dict[Hashable, int] = {}
    nameless: dict[PodSpec, PodSpec] = {}
    refs: dict[PodKey, tuple[ClaimRef, ...]] = {}
    marks: dict[PodKey, str] = {}
    pods = []
    for pod in snapshot.pods:
        if pod.spec.claims:
            refs[pod.key] = pod.spec.claims
            marks[pod.key] = f"dra{numbers.setdefault(identity(pod), len(numbers))}"
            named = pod.spec.claims
            spec = replace(pod.spec, claims=tuple(ClaimRef(ref.name, "", ref.template) for ref in named))
            pod = replace(pod, spec=nameless.setdefault(spec, spec))
        pods.append(pod)
    if not refs:
        return snapshot
    told_apart = marked(pods, lambda pod: marks.get(pod.key))
    return replace(snapshot, pods=told_apart, extras=snapshot.extras.having(REFS, refs))
