"""The distance between allocations and a fair division, computed without the measured scheduler."""

from __future__ import annotations

from collections.abc import Mapping


def fair_division(
    capacity: float, quota: Mapping[str, float], demand: Mapping[str, float]
) -> dict[str, float]:
    """GPUs per queue: the quota, or the request if less; the rest in equal parts to queues that request
    more.
    """
    share = {queue: min(quota[queue], demand.get(queue, 0.0)) for queue in quota}
    room = capacity - sum(share.values())
    if room < 0:
        factor = capacity / sum(share.values())
        return {queue: amount * factor for queue, amount in share.items()}
    hungry = {queue for queue in quota if demand.get(queue, 0.0) > share[queue]}
    while hungry and room > 1e-9:
        part = room / len(hungry)
        for queue in sorted(hungry):
            more = min(part, demand[queue] - share[queue])
            share[queue] += more
            room -= more
        hungry = {queue for queue in hungry if demand[queue] - share[queue] > 1e-9}
    return share


def share_error(
    capacity: float, quota: Mapping[str, float], demand: Mapping[str, float], held: Mapping[str, float]
) -> float:
    """Sum of |held - fair| over the queues, as a part of the cluster."""
    fair = fair_division(capacity, quota, demand)
    return sum(abs(held.get(queue, 0.0) - fair[queue]) for queue in quota) / capacity
