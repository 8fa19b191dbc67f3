"""The rules that explanations name, in words. Texts of the scheduler need these without the solver, which
``sentences`` loads."""

from __future__ import annotations

from typing import Final

RULES: Final = {
    "queue": "its queue",
    "readiness": "its readiness",
    "backoff": "its pause",
    "dependency": "what its pods refer to",
    "selector": "node selectors",
    "taint": "taints",
    "node-condition": "node conditions",
    "gpu-kind": "its kind of GPU",
    "worker": "the labels of GPU and CPU workers",
    "room": "free {}",
    "fragmentation": "each pod on one node",
    "topology": "its topology level",
    "affinity": "pod affinity",
    "ports": "host ports",
    "volumes": "volumes",
    "dra": "resource claims",
    "numa": "NUMA nodes",
    "spread": "topology spread",
    "limit": "the limit of {}",
    "kind-limit": "the queue's limit of its kinds of GPU",
    "quota": "the quota of {}",
    "priority": "priority",
    "non-preemptible": "pods that cannot be preempted",
    "fair-share": "fair shares",
    "min-runtime": "minimum runtimes",
    "pdb": "PodDisruptionBudgets",
    "delay": "its wait before it may evict",
    "action": "{} off",
    "consolidation": "the most pod groups that may move",
    "order": "the groups ahead of it",
}
"""The rules that explanations name, in words; ``{}`` is the rule's subject."""
_SHOWN_AS: Final = {"gpu": "GPUs", "cpu": "CPUs", "pods": "pod slots"}


def rule_words(family: str) -> str:
    """A rule in words, from its name in documents."""
    kind, _, subject = family.partition(":")
    return RULES[kind].format(_SHOWN_AS.get(subject, subject))
