"""Whole and shared GPUs, and MIG instances, against brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.brute import Places, agrees, gives_way, worlds
from tests.support.objects import Object
from tests.support.plans import solved
from tests.support.tiny import node, pod, world


@dataclass(frozen=True)
class Host:
    """``mib``: memory of each GPU."""

    gpus: int
    mib: int
    slots: int

    def made(self, name: str) -> Object:
        return node(
            name, {"pods": str(self.slots)}, gpus=self.gpus, labels={"nvidia.com/gpu.memory": str(self.mib)}
        )


@dataclass(frozen=True)
class Ask:
    """Whole GPUs, or a part (percent, or MiB) of each of ``devices`` GPUs."""

    whole: int = 0
    percent: int = 0
    mib: int = 0
    devices: int = 1

    def made(self, name: str, on: str = "", shares: Sequence[str] = (), **more: Any) -> Object:
        notes = {}
        if self.percent:
            notes["gpu-fraction"] = str(self.percent / 100)
        if self.mib:
            notes["gpu-memory"] = str(self.mib)
        if notes and self.devices > 1:
            notes["gpu-fraction-num-devices"] = str(self.devices)
        return pod(name, on, gpus=self.whole, notes=notes, shares=shares, **more)

    def on(self, host: Host) -> int:
        """MiB that it takes of each of its GPUs."""
        return self.mib or host.mib * self.percent // 100


def packings(parts: Sequence[tuple[int, int]], left: list[int], full: int) -> Iterator[int]:
    """Numbers of GPUs that shares (MiB, devices) may use in the end. ``left``: MiB left on the GPUs in
    use; ``full``: MiB of an empty GPU.
    """
    if not parts:
        yield len(left)
        return
    (size, devices), rest = parts[0], parts[1:]
    for joined in range(devices + 1):
        for chosen in combinations([i for i, room in enumerate(left) if room >= size], joined):
            filled = [room - size * (i in chosen) for i, room in enumerate(left)]
            yield from packings(rest, filled + [full - size] * (devices - joined), full)


def holds(host: Host, asks: Sequence[Ask], left: Sequence[int] = ()) -> bool:
    """Whether a node takes all pods; ``left``: MiB left on the GPUs of running shares, each of one pod.
    A GPU that becomes shared costs one more slot, for the pod that reserves it.
    """
    parts = [(ask.on(host), ask.devices) for ask in asks if not ask.whole]
    whole = sum(ask.whole for ask in asks)
    return all(size <= host.mib for size, _ in parts) and any(
        whole + used <= host.gpus and len(asks) + used <= host.slots
        for used in packings(parts, list(left), host.mib)
    )


HOSTS = st.builds(Host, st.integers(0, 2), st.sampled_from((40_000, 20_000)), st.sampled_from((2, 4, 9)))
ASKS = st.one_of(
    st.builds(Ask, whole=st.integers(1, 2)),
    st.builds(Ask, percent=st.sampled_from((30, 50, 60)), devices=st.sampled_from((1, 1, 2))),
    st.builds(Ask, mib=st.sampled_from((10_000, 16_000, 30_000))),
)


@worlds(80)
@given(
    st.lists(HOSTS, min_size=1, max_size=2),
    st.sampled_from((0, 40, 60)),
    st.lists(ASKS, min_size=1, max_size=4),
)
def test_whole_and_shared_gpus(hosts: list[Host], held: int, asks: list[Ask]) -> None:
    """A share of ``held`` percent runs on the first GPU."""
    nodes = {f"n{i}": host for i, host in enumerate(hosts)}
    waiting = {f"x{i}": ask for i, ask in enumerate(asks)}
    runs = Ask(percent=held) if held and hosts[0].gpus else None
    made = [runs.made("r", "n0", ["g"])] if runs else []

    def legal(places: Places) -> bool:
        return all(
            holds(
                host,
                [waiting[name] for name in places if places[name] == at and name != "r"],
                [host.mib - runs.on(host)] if runs and at == "n0" else [],
            )
            for at, host in nodes.items()
        )

    found = world(
        [host.made(name) for name, host in nodes.items()],
        [*made, *(ask.made(name) for name, ask in waiting.items())],
    )
    agrees(found, list(waiting), {"r": "n0"} if runs else {}, legal, check=False)


@worlds(60)
@given(HOSTS, st.lists(ASKS, min_size=1, max_size=3), ASKS)
def test_gpus_of_pods_that_leave(host: Host, standing: list[Ask], wanted: Ask) -> None:
    """Every running share has its GPUs alone."""
    running: dict[str, Ask] = {}
    made = []
    for i, ask in enumerate(standing):
        used = sum(other.whole or other.devices for other in (*running.values(), ask))
        slots = len(running) + 1
        if used <= host.gpus and slots <= host.slots and ask.on(host) <= host.mib:
            shares = [f"g{i}-{k}" for k in range(0 if ask.whole else ask.devices)]
            running[f"v{i}"] = ask
            made.append(ask.made(f"v{i}", "n0", shares, priority="low"))
    found = world([host.made("n0")], [*made, wanted.made("x")], actions="allocate, preempt")

    def legal(places: Places) -> bool:
        stay = [running[name] for name in places if name != "x"]
        left = [host.mib - ask.on(host) for ask in stay if not ask.whole for _ in range(ask.devices)]
        return holds_beside(host, wanted, stay, left)

    gives_way(found, "x", dict.fromkeys(running, "n0"), legal)


@worlds(60)
@given(
    st.integers(2, 3),
    st.lists(st.tuples(ASKS, st.integers(1, 3), st.booleans()), min_size=1, max_size=3),
    st.sampled_from(("consolidation, allocate", "preempt, allocate", "allocate, consolidation")),
)
def test_a_place_is_given_at_once_where_no_pod_leaves(
    gpus: int, gangs: list[tuple[Ask, int, bool]], actions: str
) -> None:
    """Also to shares that open an idle GPU together; some gangs were promised the node."""
    pods = [pod("r", "n0", gpus=1, priority="low")]
    for number, (ask, count, promised) in enumerate(gangs):
        status = {"nominatedNodeName": "n0"} if promised else {}
        pods += [ask.made(f"x{number}-{i}", group=f"x{number}", status=status) for i in range(count)]
    least = {f"x{number}": {"minMember": count} for number, (_, count, _) in enumerate(gangs)}
    plan = solved(world([Host(gpus, 40_000, 9).made("n0")], pods, groups=least, actions=actions))
    kinds = {decision.kind for decision in plan.decisions}
    assert "Evict" in kinds or "Nominate" not in kinds


def holds_beside(host: Host, ask: Ask, stay: Sequence[Ask], left: Sequence[int]) -> bool:
    """Whether one more pod fits beside those that stay; ``left``: MiB on each shared GPU."""
    size, whole = ask.on(host), sum(other.whole for other in stay)
    if ask.whole:
        return whole + len(left) + ask.whole <= host.gpus and len(stay) + 1 <= host.slots
    joined = min(sum(room >= size for room in left), ask.devices)
    return size <= host.mib and any(
        whole + len(left) + ask.devices - joins <= host.gpus
        and len(stay) + 1 + ask.devices - joins <= host.slots
        for joins in range(joined + 1)
    )


# --- MIG -------------------------------------------------------------------------------------------

PROFILES = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb")
CUTS = st.tuples(
    st.sampled_from(("mixed", "single", "")), st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)
)
"""Strategy, whole GPUs, instances of each profile (under strategy mixed)."""


@worlds(60)
@given(st.lists(CUTS, min_size=1, max_size=2), st.lists(st.sampled_from((0, 1, 2)), min_size=1, max_size=4))
def test_mig(cuts: list[tuple[str, int, int, int]], asks: list[int]) -> None:
    """An ask is a whole GPU (0), a small or a large instance."""
    nodes = {f"n{i}": cut for i, cut in enumerate(cuts)}
    hosts = []
    for name, (strategy, gpus, *instances) in nodes.items():
        labels = {"nvidia.com/mig.strategy": strategy, "node-role.kubernetes.io/mig-enabled": "true"}
        offers = {p: str(n) for p, n in zip(PROFILES, instances, strict=True) if n and strategy == "mixed"}
        hosts.append(node(name, offers, gpus=gpus, labels=labels if strategy else {}))
    waiting = {f"x{i}": ask for i, ask in enumerate(asks)}
    found = world(
        hosts,
        [
            pod(name, gpus=1) if not ask else pod(name, requests={"cpu": "1", PROFILES[ask - 1]: "1"})
            for name, ask in waiting.items()
        ],
    )

    def legal(places: Places) -> bool:
        for at, (strategy, gpus, *instances) in nodes.items():
            here = [waiting[name] for name in places if places[name] == at]
            if any((ask > 0) is not (strategy == "mixed") for ask in here):
                return False
            if here.count(0) > gpus or any(here.count(k + 1) > n for k, n in enumerate(instances)):
                return False
        return True

    agrees(found, list(waiting), {}, legal)
