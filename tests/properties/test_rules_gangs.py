"""Gangs, subgroups, required levels, limits and quotas, and permitted victims, against brute force."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise, product

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.check import violations
from kai_cp_models.plan import Plan
from tests.support.brute import Places, named, worlds
from tests.support.objects import LEVELS, Object, ago
from tests.support.plans import ALL_RULES, evicted, placed, solved
from tests.support.tiny import node, pod, queue, world

# --- gangs and levels ------------------------------------------------------------------------------

RACKS = ("r0", "r0", "r1", "")
"""The rack of every node; the last node is in no rack."""


@dataclass(frozen=True)
class Gang:
    """Subgroups (minimum, pods), or one pod set. Every pod asks for ``gpus``. ``least``: the number of
    subgroups that must be whole; ``rack``: all pods in one rack; ``racks``: each subgroup in one
    rack.
    """

    parts: tuple[tuple[int, int], ...]
    gpus: int
    least: int
    rack: bool
    racks: bool

    @property
    def required(self) -> int:
        """The number of subgroups that the gang needs."""
        return min(self.least, len(self.parts))

    def spec(self) -> Object:
        constraint = {"topology": "fabric", "requiredTopologyLevel": "rack"}
        whole: Object = {"topologyConstraint": constraint} if self.rack else {}
        if len(self.parts) == 1:
            return whole | {"minMember": self.parts[0][0]}
        parts: list[Object] = [
            {"name": f"s{i}", "minMember": least} | ({"topologyConstraint": constraint} if self.racks else {})
            for i, (least, _) in enumerate(self.parts)
        ]
        return whole | {"subGroups": parts, "minSubGroup": self.required}

    def names(self, name: str) -> list[list[str]]:
        return [[f"{name}-{i}-{k}" for k in range(count)] for i, (_, count) in enumerate(self.parts)]

    def made(self, name: str) -> list[Object]:
        found = []
        for i, mine in enumerate(self.names(name)):
            labels = {"kai.scheduler/subgroup-name": f"s{i}"} if len(self.parts) > 1 else {}
            found += [pod(one, gpus=self.gpus, group=name, labels=labels) for one in mine]
        return found

    def may_run(self, name: str, places: Places) -> bool:
        """Whether these places are a legal state of a gang that had no place before."""
        here = [[places[one] for one in mine if one in places] for mine in self.names(name)]
        if not any(here):
            return True
        whole = [len(at) >= least for at, (least, _) in zip(here, self.parts, strict=True)]
        if sum(whole) < self.required or any(at and not w for at, w in zip(here, whole, strict=True)):
            return False
        # Subgroups below their minimum have their turns by name (3.6).
        if any(at and not before for before, at in pairwise(here)):
            return False
        racks = [[RACKS[int(n[1:])] for n in at] for at in here]
        if self.rack and not one_rack([r for at in racks for r in at]):
            return False
        return not (self.racks and len(self.parts) > 1) or all(one_rack(at) for at in racks)


def one_rack(racks: Sequence[str]) -> bool:
    return "" not in racks and len(set(racks)) <= 1


GANGS = st.builds(
    Gang,
    st.one_of(
        st.tuples(st.sampled_from(((1, 1), (1, 2), (2, 2), (2, 3), (3, 3)))),
        st.tuples(st.sampled_from(((1, 1), (2, 2))), st.sampled_from(((1, 1), (1, 2)))),
    ),
    st.integers(1, 2),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
)


WHOLE = GANGS.map(lambda gang: replace(gang, least=len(gang.parts)))
"""Gangs that need all their subgroups."""


def hosts(sizes: Sequence[int]) -> list[Object]:
    return [
        node(f"n{i}", gpus=gpus, labels={LEVELS[0]: "b", LEVELS[1]: rack} if rack else {LEVELS[0]: "b"})
        for i, (gpus, rack) in enumerate(zip(sizes, RACKS, strict=True))
    ]


def fits(sizes: Sequence[int], gangs: Mapping[str, Gang], places: Places) -> bool:
    used = [0] * len(sizes)
    for name, at in places.items():
        used[int(at[1:])] += gangs[name.split("-")[0]].gpus
    return all(u <= size for u, size in zip(used, sizes, strict=True))


def subsets(gang: Gang, name: str, must: set[str]) -> Iterator[list[str]]:
    """Sets of pods of a gang that contain ``must``, without sets that differ only in names."""
    for counts in product(*(range(count + 1) for _, count in gang.parts)):
        chosen = [one for mine, n in zip(gang.names(name), counts, strict=True) for one in mine[:n]]
        if must <= set(chosen):
            yield chosen


@worlds(40)
@given(st.tuples(*([st.integers(0, 3)] * 4)), st.one_of(st.tuples(GANGS), st.tuples(WHOLE, WHOLE)))
def test_gangs_subgroups_and_levels(sizes: tuple[int, ...], asked: tuple[Gang, ...]) -> None:
    """What is placed is legal, and a gang is left out only if the gangs before it leave it no legal
    place. Surplus pods come after all minimums, so the second gang comes after the minimum of the
    first one only.
    """
    gangs = {f"g{i}": gang for i, gang in enumerate(asked)}
    found = world(
        hosts(sizes),
        [one for name, gang in gangs.items() for one in gang.made(name)],
        groups={name: gang.spec() for name, gang in gangs.items()},
    )
    nodes = [f"n{i}" for i in range(len(sizes))]
    plan = solved(found, ALL_RULES)
    places = {d.pod.name: d.node for d in plan.decisions}
    assert fits(sizes, gangs, places)
    assert all(gang.may_run(name, places) for name, gang in gangs.items())
    served: dict[str, Gang] = {}
    for name, gang in gangs.items():
        possible = any(
            fits(sizes, gangs, state) and all(g.may_run(n, state) for n, g in {**served, name: gang}.items())
            for state in states({**served, name: gang}, nodes)
        )
        assert possible is any(one in places for mine in gang.names(name) for one in mine), name
        if possible:
            served[name] = gang


def states(gangs: Mapping[str, Gang], nodes: Sequence[str]) -> Iterator[Places]:
    """Places of what every gang starts with: the minimums of its first subgroups (5.3)."""
    pods = [
        one
        for name, gang in gangs.items()
        for mine, (least, _) in list(zip(gang.names(name), gang.parts, strict=True))[: gang.required]
        for one in mine[:least]
    ]
    for at in product(nodes, repeat=len(pods)):
        yield dict(zip(pods, at, strict=True))


@worlds(25)
@given(st.tuples(*([st.integers(0, 2)] * 4)), GANGS)
def test_the_checker_allows_the_legal_states_of_a_gang(sizes: tuple[int, ...], gang: Gang) -> None:
    found = world(hosts(sizes), gang.made("g"), groups={"g": gang.spec()})
    nodes = [f"n{i}" for i in range(len(sizes))]
    for pods in subsets(gang, "g", set()):
        for at in product(nodes, repeat=len(pods)) if pods else ():
            places = dict(zip(pods, at, strict=True))
            plan = Plan(tuple(named(found, "Nominate", name, where) for name, where in places.items()))
            legal = fits(sizes, {"g": gang}, places) and gang.may_run("g", places)
            assert (not violations(found, plan, ALL_RULES.rules)) is legal, (places, legal)


# --- queues ----------------------------------------------------------------------------------------

BOUNDS = st.sampled_from((-1, 0, 1, 2, 3))


@worlds(60)
@given(
    st.tuples(BOUNDS, BOUNDS),
    st.tuples(BOUNDS, BOUNDS),
    st.lists(st.tuples(st.integers(1, 2), st.booleans(), st.booleans()), min_size=1, max_size=5),
)
def test_limits_and_quotas(
    limits: tuple[int, int], quotas: tuple[int, int], asks: list[tuple[int, bool, bool]]
) -> None:
    """A queue below a department. An ask is a number of GPUs, whether it can be preempted, and whether
    it runs already.
    """
    pods = {f"x{i}": ask for i, ask in enumerate(asks)}
    running: list[str] = []

    def legal(names: Sequence[str], before: Sequence[str]) -> bool:
        """No new pod exceeds a bound at either level."""
        total = sum(pods[name][0] for name in names)
        firm = sum(pods[name][0] for name in names if not pods[name][1])
        fresh = [name for name in names if name not in before]
        return all(
            (limit < 0 or total <= limit or not fresh)
            and (quota < 0 or firm <= quota or all(pods[name][1] for name in fresh))
            for limit, quota in zip(limits, quotas, strict=True)
        )

    for name, (_, _, runs) in pods.items():
        if runs and legal([*running, name], running):
            running.append(name)
    kinds = {True: "preemptible", False: "non-preemptible"}
    found = world(
        [node("n0", gpus=9)],
        [pod(name, "n0" if name in running else "", gpus=gpus) for name, (gpus, _, _) in pods.items()],
        groups={name: {"preemptibility": kinds[soft]} for name, (_, soft, _) in pods.items()},
        queues=[
            queue("dept", quota={"gpu": quotas[0]}, limit={"gpu": limits[0]}),
            queue("q", "dept", quota={"gpu": quotas[1]}, limit={"gpu": limits[1]}),
        ],
    )
    taken = list(running)
    for name in pods:
        if name not in running and legal([*taken, name], taken):
            taken.append(name)
    assert placed(solved(found, ALL_RULES)) == set(taken) - set(running)
    waiting = [name for name in pods if name not in running]
    for size in range(1, len(waiting) + 1):
        for chosen in combinations(waiting, size):
            plan = Plan(tuple(named(found, "Bind", name, "n0") for name in chosen))
            kept = not violations(found, plan, ALL_RULES.rules)
            assert kept is legal([*running, *chosen], running), chosen


# --- permitted victims -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Owner:
    """A pod group that runs on the one node: ``count`` pods of one GPU, of which it needs ``minimum``."""

    count: int
    minimum: int
    priority: str
    soft: bool
    young: bool
    other_queue: bool

    def spec(self) -> Object:
        started = ago(10 if self.young else 5000)
        return {
            "minMember": self.minimum,
            "preemptibility": "preemptible" if self.soft else "non-preemptible",
            "annotations": {"kai.scheduler/last-start-timestamp": started},
        }

    def most_given(self, trigger: str) -> list[int]:
        """The numbers of pods that a preemptor of this priority may stop."""
        order = ("low", "train", "build")
        if not self.soft or self.other_queue or order.index(self.priority) >= order.index(trigger):
            return [0]
        surplus = list(range(self.count - self.minimum + 1))
        return surplus if self.young else [*surplus, self.count]


OWNERS = st.builds(
    lambda count, less, *rest: Owner(count, max(1, count - less), *rest),
    st.integers(1, 3), st.integers(0, 2), st.sampled_from(("low", "train", "build")), st.booleans(),
    st.booleans(),
    st.sampled_from((False, False, True)),
)  # fmt: skip


@worlds(60)
@given(
    st.lists(OWNERS, min_size=1, max_size=3),
    st.integers(0, 2),
    st.integers(1, 4),
    st.sampled_from(("train", "build")),
)
def test_preempt_takes_only_from_permitted_victims(
    owners: list[Owner], free: int, need: int, trigger: str
) -> None:
    """The minimum runtime is one hour. A gang gives up its surplus, or all of itself once it is old
    enough.
    """
    groups = {f"v{i}": owner for i, owner in enumerate(owners)}
    made = [
        pod(
            f"{name}-{k}",
            "n0",
            gpus=1,
            group=name,
            priority=owner.priority,
            queue="p" if owner.other_queue else "q",
        )
        for name, owner in groups.items()
        for k in range(owner.count)
    ]
    found = world(
        [node("n0", {"cpu": "64"}, gpus=len(made) + free)],
        [*made, pod("x", gpus=need, priority=trigger)],
        actions="allocate, preempt",
        groups={name: owner.spec() for name, owner in groups.items()}
        | {"x": {"preemptibility": "preemptible"}},
        queues=[queue("q"), queue("p")],
        minruntime={"defaultPreemptMinRuntime": "1h"},
    )
    plan = solved(found, ALL_RULES)
    most = sum(max(owner.most_given(trigger)) for owner in owners)
    assert placed(plan) == ({"x"} if need <= free + most else set())
    assert bool(evicted(plan)) is (free < need <= free + most)
    for name, owner in groups.items():
        assert sum(one.startswith(f"{name}-") for one in evicted(plan)) in owner.most_given(trigger)
