"""Specs with a mark. Classes are made by spec, so a mark puts pods with equal objects into different
classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kai_cp_models.pods import Pod, PodSpec


def marked(pods: Iterable[Pod], mark_of: Callable[[Pod], str | None]) -> tuple[Pod, ...]:
    """The pods; those with a mark share specs only with pods of the same mark. None: the pod has no mark."""
    made: dict[tuple[PodSpec, str], PodSpec] = {}
    found: list[Pod] = []
    for pod in pods:
        mark = mark_of(pod)
        if mark is None:
            found.append(pod)
            continue
        spec = made.get((pod.spec, mark))
        if spec is None:
            key = f"{pod.spec.scheduling_key}|{mark}"
            spec = made[pod.spec, mark] = replace(pod.spec, scheduling_key=key)
        found.append(replace(pod, spec=spec))
    return tuple(found)
