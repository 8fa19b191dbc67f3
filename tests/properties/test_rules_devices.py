"""Claimed devices, NUMA zones and volumes against brute force over complete assignments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from kai_cp_models.check import violations
from kai_cp_models.plan import Plan
from kai_cp_models.snapshot import Snapshot
from tests.support.brute import Places, agrees, named, worlds
from tests.support.devices import (
    DRIVER,
    STATIC,
    aligned,
    allocation,
    capacity,
    claim,
    claims,
    csi_driver,
    csi_node,
    device,
    device_class,
    exact,
    kind_is,
    on_nodes,
    slice_of,
    storage_class,
    taint_rule,
    volume,
    volume_claim,
    volumes,
    zones,
)
from tests.support.devices import given as given_devices
from tests.support.objects import Object
from tests.support.plans import ALL_RULES, placed, solved
from tests.support.tiny import node, pod, world

# --- claimed devices -------------------------------------------------------------------------------

MEMORY = 3
"""The capacity of the counter of every pool."""


@dataclass(frozen=True)
class Device:
    """``draws``: what it takes of the counter of its pool. ``ill``: tainted by its driver; ``ruled``:
    tainted by a rule.
    """

    pool: str
    name: str
    kind: str
    draws: int = 0
    ill: bool = False
    ruled: bool = False

    def made(self) -> Object:
        draws = (
            [{"counterSet": "card", "counters": {"mem": {"value": str(self.draws)}}}] if self.draws else []
        )
        taints = [{"key": "ill", "effect": "NoSchedule"}] if self.ill else []
        return device(self.name, kind=self.kind, consumesCounters=draws, taints=taints)


@dataclass(frozen=True)
class Want:
    """One way to serve a request: ``count`` devices of one of ``kinds``; 0 means all of them."""

    count: int
    kinds: str = "ab"
    admin: bool = False
    tolerates: bool = False

    def fields(self) -> Object:
        mode = {"count": self.count} if self.count else {"allocationMode": "All"}
        tolerations = [{"key": "ill", "operator": "Exists"}] if self.tolerates else []
        more: Object = {"selectors": kind_is(*self.kinds), "tolerations": tolerations}
        return {"deviceClassName": "nic", **mode, **more} | ({"adminAccess": True} if self.admin else {})

    def suits(self, one: Device) -> bool:
        return one.kind in self.kinds and (self.tolerates or not (one.ill or one.ruled))


@dataclass(frozen=True)
class Claim:
    """``requests``: each request with its alternatives. ``alike``: all devices are of one kind."""

    requests: tuple[tuple[Want, ...], ...]
    alike: bool = False

    def made(self, name: str, **held: Object) -> Object:
        requests: list[Object] = []
        for i, (first, *others) in enumerate(self.requests):
            if others:
                ways = [{"name": f"w{k}", **way.fields()} for k, way in enumerate((first, *others))]
                requests.append({"name": f"r{i}", "firstAvailable": ways})
            else:
                requests.append({"name": f"r{i}", "exactly": first.fields()})
        constraint = {"requests": [], "matchAttribute": f"{DRIVER}/kind"}
        return claim(name, *requests, constraints=(constraint,) if self.alike else ())

    def choices(
        self, reachable: Sequence[Device], seen_from: Sequence[Device]
    ) -> Iterator[tuple[tuple[Device, ...], tuple[Device, ...]]]:
        """Devices for each request, whatever other claims have: (its own devices, those that it only
        looks at). ``reachable``: by all users; ``seen_from``: by the user for which all of them are
        counted.
        """
        ways = []
        for request in self.requests:
            found = []
            for want in request:
                suiting = [one for one in reachable if want.suits(one)]
                meant = tuple(one for one in seen_from if one.kind in want.kinds)
                for chosen in combinations(suiting, want.count) if want.count else (meant,):
                    if chosen and set(chosen) <= set(suiting):
                        found.append(((), chosen) if want.admin else (chosen, ()))
            ways.append(found)
        for picked in product(*ways):
            own = tuple(one for mine, _ in picked for one in mine)
            seen = tuple(one for _, looked in picked for one in looked)
            if len(set(own)) == len(own) and (not self.alike or len({one.kind for one in own + seen}) <= 1):
                yield own, seen


def served(wanted: Sequence[tuple[Claim, Sequence[Sequence[Device]]]], held: Sequence[Device]) -> bool:
    """Whether all claims get devices that no other claim has, within the counters of their pools. Each
    claim comes with the devices that each of its users reaches.
    """
    drawn = {one.pool: sum(d.draws for d in held if d.pool == one.pool) for one in held}
    if any(amount > MEMORY for amount in drawn.values()):
        return False
    if not wanted:
        return True
    (first, views), rest = wanted[0], wanted[1:]
    reachable = [one for one in views[0] if all(one in view for view in views)]
    return any(
        not set(own) & set(held) and served(rest, [*held, *own])
        for view in views
        for own, _ in first.choices(reachable, view)
    )


def slices(devices: Sequence[Device], selectors: Mapping[str, Object]) -> list[Object]:
    """One slice for every pool; ``selectors`` say which nodes reach the pools that are not nodes."""
    pools = sorted({one.pool for one in devices})
    counters = [{"name": "card", "counters": {"mem": {"value": str(MEMORY)}}}]
    return [
        slice_of(
            pool,
            *(one.made() for one in devices if one.pool == pool),
            sharedCounters=counters,
            **selectors.get(pool, {}),
        )
        for pool in pools
    ]


KINDS = st.sampled_from(("a", "b"))
RARELY = st.sampled_from((False, False, False, True))
LOCAL = st.lists(st.tuples(KINDS, st.sampled_from((0, 1, 2)), RARELY, RARELY), max_size=3)
MANY = st.lists(st.tuples(KINDS, st.sampled_from((0, 0, 1)), RARELY, RARELY), min_size=3, max_size=6)
COUNTS = st.builds(Want, st.integers(1, 2), st.sampled_from(("a", "ab")), st.just(False), st.booleans())
REQUESTS = st.one_of(
    st.tuples(COUNTS),
    st.tuples(st.builds(Want, st.just(0), st.sampled_from(("a", "ab")), st.just(False), st.booleans())),
    st.tuples(st.builds(Want, st.just(1), st.sampled_from(("a", "b")), st.just(True))),
    st.tuples(st.builds(Want, st.just(2), KINDS), st.builds(Want, st.just(1))),
)
CLAIMS = st.builds(Claim, st.lists(REQUESTS, min_size=1, max_size=2).map(tuple), st.booleans())
FAR: Mapping[str, Mapping[str, Object]] = {
    "nobody": {},
    "all": {"far": {"allNodes": True}},
    "one": {"far": {"nodeSelector": on_nodes("kubernetes.io/hostname", "n0")}},
}


@worlds(80)
@given(
    st.tuples(LOCAL, LOCAL),
    st.sampled_from(list(FAR)),
    st.lists(CLAIMS, min_size=1, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_claimed_devices(
    local: tuple[list[tuple[str, int, bool, bool]], ...],
    far: str,
    wanted: list[Claim],
    shared: bool,
    held: bool,
) -> None:
    """Two nodes. The last pod shares the first claim, and a running pod holds the first device of n0."""
    devices = [Device(f"n{i}", f"d{k}", *each) for i, mine in enumerate(local) for k, each in enumerate(mine)]
    devices += [Device("far", "d0", "a")] if FAR[far] else []
    own = {f"x{i}": f"c{i}" for i in range(len(wanted))} | ({"z": "c0"} if shared else {})
    runs = held and bool(local[0])
    made = [pod(name, resourceClaims=claims(key)) for name, key in own.items()]
    asked = [each.made(f"c{i}") for i, each in enumerate(wanted)]
    if runs:
        made.append(pod("r", "n0", resourceClaims=claims("cr")))
        asked.append(claim("cr", exact(), users=("r",), held=allocation("n0", "d0")))
    found = world(
        [node("n0"), node("n1")], made, resourceClaims=asked,
        resourceSlices=slices(devices, FAR[far]), deviceClasses=[device_class()],
        deviceTaintRules=[taint_rule(pool=one.pool, device=one.name) for one in devices if one.ruled],
    )  # fmt: skip

    def reach(at: str) -> list[Device]:
        return [
            one for one in devices if one.pool == at or (one.pool == "far" and (far == "all" or at == "n0"))
        ]

    def legal(places: Places) -> bool:
        users: dict[str, set[str]] = {}
        for name, at in places.items():
            if name != "r":
                users.setdefault(own[name], set()).add(at)
        asking = [(wanted[int(key[1:])], [reach(at) for at in hosts]) for key, hosts in users.items()]
        return served(asking, devices[:1] if runs else [])

    # No pod has to use another alternative because of a later pod.
    sure = far == "nobody" and all(len(request) == 1 for each in wanted for request in each.requests)
    agrees(found, list(own), {"r": "n0"} if runs else {}, legal, sure=sure, check=False)


@dataclass(frozen=True)
class Answer:
    """What a plan gives to one request: ``way`` of its alternatives, ``devices``, with ``admin`` access."""

    way: int
    devices: tuple[Device, ...]
    admin: bool

    def results(self, claim: Claim, number: int) -> list[Object]:
        name = f"r{number}" + (f"/w{self.way}" if len(claim.requests[number]) > 1 else "")
        access = {"adminAccess": True} if self.admin else {}
        return [
            {"request": name, "driver": DRIVER, "pool": one.pool, "device": one.name, **access}
            for one in self.devices
        ]


def answers(
    claim: Claim, given: Sequence[Answer], reachable: Sequence[Device], views: Sequence[Sequence[Device]]
) -> bool:
    """Whether these are answers to the claim's requests, whatever other claims have."""
    wants = [request[one.way] for request, one in zip(claim.requests, given, strict=True)]
    pairs = list(zip(wants, given, strict=True))
    whole = any(
        all(
            want.count or set(one.devices) == {d for d in view if d.kind in want.kinds} for want, one in pairs
        )
        for view in views
    )
    return (
        whole
        and all(
            one.devices
            and len(set(one.devices)) == len(one.devices)
            and want.count in (0, len(one.devices))
            and want.admin == one.admin
            and all(device in reachable and want.suits(device) for device in one.devices)
            for want, one in pairs
        )
        and (not claim.alike or len({device.kind for one in given for device in one.devices}) == 1)
    )


@worlds(250)
@given(st.tuples(MANY, LOCAL), st.lists(CLAIMS, min_size=1, max_size=2), st.booleans(), st.data())
def test_the_checker_allows_exactly_what_claims_ask_for(
    local: tuple[list[tuple[str, int, bool, bool]], ...], wanted: list[Claim], held: bool, data: st.DataObject
) -> None:
    """Two nodes, two pods for each claim. A plan gives them any devices, most of them such as are asked for.

    Its pods of one claim now and then get different ones.
    """
    devices = [Device(f"n{i}", f"d{k}", *each) for i, mine in enumerate(local) for k, each in enumerate(mine)]
    runs = held and bool(local[0])
    asked = [each.made(f"c{i}") for i, each in enumerate(wanted)]
    made = [pod(f"x{i}{u}", resourceClaims=claims(f"c{i}")) for i in range(len(wanted)) for u in "ab"]
    if runs:
        made.append(pod("r", "n0", resourceClaims=claims("cr")))
        asked.append(claim("cr", exact(), users=("r",), held=allocation("n0", "d0")))
    found = world(
        [node("n0"), node("n1")], made, resourceClaims=asked,
        resourceSlices=slices(devices, {}), deviceClasses=[device_class()],
        deviceTaintRules=[taint_rule(pool=one.pool, device=one.name) for one in devices if one.ruled],
    )  # fmt: skip
    honest = data.draw(st.sampled_from((True, True, False)))
    taken, legal, decisions = devices[:1] if runs else [], True, []
    for i, each in enumerate(wanted):
        at = data.draw(st.sampled_from((("n0",), ("n1",), ("n0", "n0"), ("n0", "n1"))))
        views = [[one for one in devices if one.pool == host] for host in at]
        reachable = [one for one in views[0] if all(one in view for view in views)]
        free = [one for one in reachable if one not in taken] if honest else reachable
        written = [_answers(data, each, devices, free, honest=honest)]
        written += (
            written
            if honest or data.draw(st.booleans())
            else [_answers(data, each, devices, free, honest=False)]
        )
        written = written[: len(at)]
        same = all(set(_flat(one)) == set(_flat(written[0])) for one in written)
        legal &= same and all(answers(each, one, reachable, views) for one in written)
        taken = [*taken, *(d for answer in written[0] if not answer.admin for d in answer.devices)]
        for user, host, one in zip("ab", at, written, strict=False):
            results = [row for k, answer in enumerate(one) for row in answer.results(each, k)]
            nodes = on_nodes("kubernetes.io/hostname", *sorted({row["pool"] for row in results}))
            details = given_devices({"devices": {"results": results}, "nodeSelector": nodes})
            decisions.append(named(found, "Bind", f"x{i}{user}", host, details=details))
    legal &= len(set(taken)) == len(taken) and served([], taken)
    faults = violations(found, Plan(tuple(decisions)), ALL_RULES.rules)
    assert (not faults) is legal, faults


def _flat(given: Sequence[Answer]) -> list[tuple[Device, bool]]:
    return [(device, one.admin) for one in given for device in one.devices]


def _answers(
    data: st.DataObject, claim: Claim, devices: Sequence[Device], free: Sequence[Device], *, honest: bool
) -> list[Answer]:
    """Answers to all requests of a claim, as right as can be where they are ``honest``."""
    found = []
    left = list(free)
    for request in claim.requests:
        way = data.draw(st.integers(0, len(request) - 1))
        want = request[way]
        wild = not honest and data.draw(st.booleans())
        pool = list(devices if wild else [one for one in left if want.suits(one)])
        count = data.draw(st.integers(0, 2)) if wild else want.count or len(pool)
        picked = data.draw(st.permutations(pool))[:count]
        left = [one for one in left if want.admin or one not in picked]
        found.append(Answer(way, tuple(picked), want.admin is not (wild and data.draw(st.booleans()))))
    return found


# --- NUMA zones ------------------------------------------------------------------------------------

CPUS = st.integers(1, 4)


@worlds(60)
@given(
    st.lists(st.tuples(CPUS, CPUS), min_size=1, max_size=2),
    st.lists(st.tuples(CPUS, st.booleans()), min_size=1, max_size=4),
    st.one_of(st.none(), CPUS),
)
def test_numa_zones(sizes: list[tuple[int, int]], asks: list[tuple[int, bool]], held: int | None) -> None:
    """Policy single-numa-node: the kubelet gives every Guaranteed pod the first zone that has all it
    needs. ``held``: CPUs of the second zone of n0 that a running pod has.
    """
    nodes = {f"n{i}": zoned for i, zoned in enumerate(sizes)}
    pods = {f"x{i}": ask for i, ask in enumerate(asks)}
    runs = held if held and held <= sizes[0][1] else 0
    made = [
        pod(name, **(aligned(n) if firm else {"requests": {"cpu": str(n)}}))
        for name, (n, firm) in pods.items()
    ]
    if runs:
        note = f'[{{"zone":"zone-1","amount":{{"cpu":"{runs}"}}}}]'
        made.append(pod("r", "n0", notes={"kai.scheduler/numa-placement-observed": note}, **aligned(runs)))
    found = world(
        [node(name, {"cpu": str(sum(zoned))}) for name, zoned in nodes.items()],
        made,
        plugins=["numa"],
        nodeResourceTopologies=[zones(name, *zoned) for name, zoned in nodes.items()],
    )

    def legal(places: Places) -> bool:
        left = {name: list(zoned) for name, zoned in nodes.items()}
        whole = {name: sum(zoned) for name, zoned in nodes.items()}
        left["n0"][1] -= runs
        whole["n0"] -= runs
        for name, at in places.items():
            if name == "r":
                continue
            cpus, firm = pods[name]
            whole[at] -= cpus
            fits = [zone for zone in (0, 1) if left[at][zone] >= cpus]
            if whole[at] < 0 or (firm and not fits):
                return False
            if firm:
                left[at][fits[0]] -= cpus
        return True

    agrees(found, list(pods), {"r": "n0"} if runs else {}, legal, sure=False, check=False)


# --- volumes ---------------------------------------------------------------------------------------

ZONES = {"n0": "a", "n1": "a", "n2": "b"}
ANYWHERE = ""
VOLUMES = st.lists(
    st.tuples(
        st.sampled_from((5, 10)), st.sampled_from(("a", "b", ANYWHERE)), st.sampled_from(("local", "net"))
    ),
    min_size=1,
    max_size=3,
)
"""Size in GiB, zone and class of volumes that no claim has yet."""
CLAIMED = st.tuples(
    st.sampled_from((8, 4)),
    st.sampled_from(("local", "local", "local", "net", "bound a", "bound b", "alone a")),
)
"""Size and kind of the claim: local takes an existing volume, net also a new one; bound and alone (one
pod only) have one.
"""


def reaches(zone: str, at: Sequence[str]) -> bool:
    return all(zone in (ANYWHERE, ZONES[host]) for host in at)


@dataclass(frozen=True)
class VolumeWorld:
    """Nodes in zones, volumes without a claim yet, and pods with the claims they mount.

    ``standing``: size in GiB, zone and class; ``claimed``: size and kind by claim; ``pods``: the claims of
    each; ``room``: GiB for new volumes by zone; ``more``: GiB for other new ones on n1; ``most``: volumes
    of n0.
    """

    standing: list[tuple[int, str, str]]
    claimed: list[tuple[int, str]]
    pods: dict[str, list[int]]
    room: tuple[int, int]
    more: int
    most: int

    def snapshot(self) -> Snapshot:
        pvs = [volume(f"v{i}", f"{size}Gi", storage_class=kind, nodes=on_nodes("zone", at) if at else None)
               for i, (size, at, kind) in enumerate(self.standing)]  # fmt: skip
        pvcs = []
        for i, (size, kind) in enumerate(self.claimed):
            bound = f"b{i}" if kind[-2:] in (" a", " b") else ""
            if bound:
                pvs.append(volume(bound, claim=f"c{i}", nodes=on_nodes("zone", kind[-1])))
            storage = "local" if bound else kind
            modes = ("ReadWriteOncePod",) if kind == "alone a" else ("ReadWriteOnce",)
            pvcs.append(volume_claim(f"c{i}", f"{size}Gi", volume=bound, storage_class=storage, modes=modes))
        return world(
            [node(name, labels={"zone": zone}) for name, zone in ZONES.items()],
            [pod(name, volumes=volumes(*(f"c{i}" for i in mine))) for name, mine in self.pods.items()],
            persistentVolumes=pvs,
            persistentVolumeClaims=pvcs,
            storageClasses=[storage_class("local", STATIC), storage_class("net")],
            csiDrivers=[csi_driver()],
            csiStorageCapacities=[
                *(capacity(z, f"{gib}Gi", "zone", z) for z, gib in zip("ab", self.room, strict=True)),
                capacity("more", f"{self.more}Gi", "kubernetes.io/hostname", "n1"),
            ],
            csiNodes=[csi_node("n0", self.most)],
        )

    def users(self, places: Places) -> dict[int, list[str]]:
        used: dict[int, list[str]] = {}
        for name, at in places.items():
            for number in self.pods[name]:
                used.setdefault(number, []).append(at)
        return used

    def allowed(self, places: Places, taken: Mapping[int, int]) -> bool:
        """Whether each claim that has not ``taken`` an existing volume has, or gets, one within reach."""
        made = []
        used = self.users(places)
        for number, at in used.items():
            size, kind = self.claimed[number]
            if number in taken:
                if not reaches(self.standing[taken[number]][1], at):
                    return False
            elif kind == "net" and len(set(at)) == 1:
                made.append((size, at[0]))
            elif kind in ("net", "local") or not reaches(kind[-1], at) or (kind == "alone a" and len(at) > 1):
                return False
        attached = sum(self.claimed[number][1] != "local" and "n0" in at for number, at in used.items())
        return attached <= self.most and self.holds(
            made, {**dict(zip("ab", self.room, strict=True)), "n1": self.more}
        )

    def holds(self, made: Sequence[tuple[int, str]], room: Mapping[str, int]) -> bool:
        """Whether some choice of capacities has room for new volumes, each with its size and node."""
        if not made:
            return True
        size, at = made[0]
        return any(
            room[name] >= size and self.holds(made[1:], {**room, name: room[name] - size})
            for name in (ZONES[at], at)
            if name in room
        )

    def legal(self, places: Places) -> bool:
        """Kubernetes chooses the smallest volume that fits, pod by pod and the smallest claim first."""
        taken: dict[int, int] = {}
        new: set[int] = set()
        for name, at in places.items():
            for number in sorted(self.pods[name], key=lambda n: (self.claimed[n][0], n)):
                size, kind = self.claimed[number]
                if kind in ("local", "net") and number not in taken and number not in new:
                    free = [i for i, (gib, zone, other) in enumerate(self.standing)
                            if gib >= size and kind == other and i not in taken.values()
                            and reaches(zone, [at])]  # fmt: skip
                    if free:
                        taken[number] = min(free, key=lambda i: (self.standing[i][0], i))
                    elif kind == "local":
                        return False
                    else:
                        new.add(number)
        return self.allowed(places, taken)

    def somehow(self, places: Places) -> bool:
        """Whether some choice of existing volumes fits."""
        used = [n for n in self.users(places) if self.claimed[n][1] in ("local", "net")]
        choices = [
            [None, *(i for i, (gib, _, kind) in enumerate(self.standing)
                     if gib >= self.claimed[n][0] and kind == self.claimed[n][1])]
            for n in used
        ]  # fmt: skip
        for chosen in product(*choices):
            taken = {n: i for n, i in zip(used, chosen, strict=True) if i is not None}
            if len(set(taken.values())) == len(taken) and self.allowed(places, taken):
                return True
        return False


@worlds(120)
@given(
    VOLUMES,
    st.lists(st.tuples(CLAIMED, st.sampled_from((0, 0, 1))), min_size=1, max_size=3),
    st.tuples(st.sampled_from((4, 8, 12)), st.sampled_from((0, 8))),
    st.sampled_from((0, 0, 4, 8)),
    st.integers(0, 2),
)
def test_volumes(
    standing: list[tuple[int, str, str]],
    asked: list[tuple[tuple[int, str], int]],
    room: tuple[int, int],
    more: int,
    most: int,
) -> None:
    """Every pod mounts a claim of its own, and some pods also that of the next pod."""
    pods = {f"x{i}": sorted({i, (i + more) % len(asked)}) for i, (_, more) in enumerate(asked)}
    judge = VolumeWorld(standing, [each for each, _ in asked], pods, room, more, most)
    agrees(judge.snapshot(), list(pods), {}, judge.legal, sure=False, somehow=judge.somehow)


def test_a_pod_does_not_start_on_a_claim_that_cannot_be_read() -> None:
    """What it says of its volume is unknown; other pods start."""
    bad = {**volume_claim("bad"), "spec": 7}
    found = world(
        [node("n0")],
        [pod("x", volumes=volumes("bad")), pod("y", volumes=volumes("good")), pod("z")],
        persistentVolumeClaims=[bad, volume_claim("good", storage_class="net")],
        storageClasses=[storage_class("net")],
    )
    assert placed(solved(found, ALL_RULES)) == {"y", "z"}
    assert [one.item for one in found.set_aside] == ["PersistentVolumeClaim default/bad"]
