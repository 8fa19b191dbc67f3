"""Coming back: evicted pods keep running where they ran, if their places are still free, or get others."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from operator import attrgetter, lt

from kai_cp_models.fairness.quota_checks import over_limit
from kai_cp_models.joint.problem import Ask, ask_of
from kai_cp_models.ledger import Ledger
from kai_cp_models.placement import Placer, nominated
from kai_cp_models.pods import ACTIVE_ALLOCATED, ACTIVE_USED, GroupKey, Pod, PodKey, PodStatus
from kai_cp_models.snapshot import PodGroup, Subgroup
from kai_cp_models.units import Gang, StatusOf, giving, satisfied


def come_home(ledger: Ledger, pods: Sequence[Pod]) -> bool:
    """Bring all the pods back to where they ran. False: one has no room there, or others rely on its new
    place; then nothing has changed."""
    moved = [pod for pod in pods if pod.key in ledger.held]
    if moved and ledger.relied_on(moved):
        return False
    ledger.mark()
    for pod in moved:
        ledger.unplace(pod)
    for pod in pods:
        if not has_room_at_home(ledger, pod):
            return ledger.close(kept=False)
        ledger.unevict(pod)
    return ledger.close(kept=True)


def has_room_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether its queue, its node and every rule have room for an evicted pod, which has no other place,
    where it ran. Only what has come in this cycle can be in its way.
    """
    if pod.status not in ACTIVE_USED or not capacity_at_home(ledger, pod):
        return False
    node = ledger.home(pod)
    alone = not ledger.come.get(node)
    if not alone and not ledger.own_devices_free(pod):
        return False
    group = ledger.snapshot.group_by_key.get(pod.group) if pod.group else None
    if group is not None:
        charge, book = ledger.fixed.charge(pod, node), ledger.book
        over = over_limit(book, group.queue, charge, among=book.entered) is not None
        if over or _apart(ledger, group, pod, node):
            return False
    asked = (rule for rule in ledger.rules if rule.concerns(pod) and not (alone and rule.of_one_node))
    masks = (rule.mask(pod, now=False) for rule in asked)
    return all(mask is None or mask[node] for mask in masks)


def capacity_at_home(ledger: Ledger, pod: Pod) -> bool:
    """Whether the node where an evicted pod ran has as much free as the pod takes, or no pod has come there:
    a pod that never left needs no free capacity, however overfull the node is."""
    node = ledger.home(pod)
    short = any(map(lt, ledger.room.free_on[node], ledger.fixed.taken_on(pod, node)))
    return not (short and ledger.come.get(node))


def _apart(ledger: Ledger, group: PodGroup, pod: Pod, node: int) -> bool:
    """Whether pods that one topology level must hold together with this one got places apart from ``node``
    (8.3)."""
    for scope in group.root.scopes_of(pod.subgroup or "default"):
        inside, leaves = ledger.fixed.table.inside((scope,), node), scope.scopes
        members = (one for one in ledger.fixed.gangs[group.key].pods if (one.subgroup or "default") in leaves)
        if any(one.key in ledger.held and not inside[ledger.held[one.key].node] for one in members):
            return True
    return False


def return_home(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> list[Pod]:
    """Let the evicted pods of a group run again where they ran, if they have room there, and return these:
    first pods that have another place now, one by one; of the others as many as the gang allows.
    """
    found = [pod for pod in pods if pod.key in ledger.held and come_home(ledger, [pod])]
    lost = (pod for pod in pods if not ledger.stays(pod))
    left: dict[PodKey, Pod] = {}
    away: set[tuple[str, str | None]] = set()
    for pod in sorted(lost, key=attrgetter("sort_key")):
        # The last pod leaves first (5.4), so once one of these stays away, all later ones do.
        if _place(pod) in away or not has_room_at_home(ledger, pod):
            away.add(_place(pod))
        else:
            left[pod.key] = pod
    if not left:
        return found
    # Most victims stay away, and a gang is made when it is asked for.
    gang, status_of = ledger.fixed.gangs[key], as_pending(ledger, left)
    tally = gang.tally(status_of)

    def settle(pods: Iterable[Pod]) -> None:
        """Ask for these no more: they are home, or stay away."""
        nonlocal tally
        for pod in pods:
            del left[pod.key]
            tally = gang.moved(tally, pod.subgroup or "default", PodStatus.PENDING, status_of(pod))

    while left:
        batch = gang.state(status_of, tally).batch
        together = _of_one_set(ledger, gang, list(left.values())) if batch is None else batch.all_pods
        if not together:
            break
        ledger.mark()
        home = come_home(ledger, together)
        torn = gang.at_first.satisfied and not ledger.state(gang).satisfied
        # The other pods of the gang have no place, or a member that leaves after these has none.
        in_vain = home and (torn or _out_of_turn(ledger, gang))
        if not ledger.close(kept=not in_vain):
            break
        if home:
            found += together
            settle(together)
        else:
            # Where they do not fit together, the others may without the last of them.
            last = together[-1]
            place, turn = _place(last), last.sort_key
            settle([pod for pod in left.values() if _place(pod) == place and pod.sort_key >= turn])
    return found


def _of_one_set(ledger: Ledger, gang: Gang, pods: Sequence[Pod]) -> Sequence[Pod]:
    """The next pods to come home of those in no batch. Of a pod set that had its minimum, all that it lacks,
    or one of its surplus; of another, one; of a subgroup, those of as many children as it lacks.
    """
    before, now = gang.at_first.tally.met, ledger.tally(gang).met

    def next_of(part: Subgroup) -> Sequence[Pod]:
        if part.leaf:
            mine = [pod for pod in pods if (pod.subgroup or "default") == part.name]
            count = max(part.minimum - now[part.name], 1) if satisfied(part, before) else 1
            return mine[:count] if len(mine) >= count else ()
        away = [child for child in part.children if not satisfied(child, now)]
        lacks = part.minimum - len(part.children) + len(away)
        if lacks <= 0 or not satisfied(part, before):
            return next(filter(None, map(next_of, part.children)), ())
        found = [some for child in away if satisfied(child, before) and (some := next_of(child))][:lacks]
        return [pod for some in found for pod in some] if len(found) == lacks else ()

    return next_of(gang.top)


def _place(pod: Pod) -> tuple[str, str | None]:
    """Pod set and node of a running pod: of pods that share both, the last in task order leaves first."""
    return pod.subgroup or "default", pod.node


def _out_of_turn(ledger: Ledger, gang: Gang) -> bool:
    """Whether a pod set has lost its minimum while another keeps surplus pods, which leave first (5.4)."""
    before, after = gang.at_first.tally.met, ledger.tally(gang).met
    dropped = any(before[one.name] >= one.minimum > after[one.name] for one in gang.top.leaves())
    return dropped and any(after[one.name] > one.minimum for one in giving(gang.top, after))


def put_back(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Give as many of a group's evicted pods places again as fit, at home if they can; False: none."""
    home = bool(return_home(ledger, key, pods))
    return put_elsewhere(ledger, key, pods) or home


def put_elsewhere(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Give a group's evicted pods new places, batch by batch, and let others come home after each; False:
    none has a place."""
    moved = False
    if not any(map(ledger.has_room, pods)):
        return moved
    # A gang that ran below its minimum does not start below it again elsewhere.
    while (ask := missing(ledger, key, pods)) is not None and nominated(ledger, ask):
        moved = True
        return_home(ledger, key, pods)
    return moved


def missing(ledger: Ledger, key: GroupKey, pods: Sequence[Pod], *, promises: bool = True) -> Ask | None:
    """The ask with which a group gets evicted pods back in the fair order; ``promises``: see ``ask_of``."""
    gang = ledger.fixed.gangs[key]
    # Most victims have got no place when this is needed.
    whole = all_left(ledger, key, pods)
    state = gang.stopped if whole else gang.state(as_pending(ledger, {pod.key for pod in pods}))
    return None if state.batch is None else ask_of(ledger, gang, state.batch, state, promises=promises)


def all_left(ledger: Ledger, key: GroupKey, pods: Sequence[Pod]) -> bool:
    """Whether these evicted pods are all of the group that ran, and nothing else of it has changed."""
    running = sum(pod.status in ACTIVE_ALLOCATED for pod in ledger.snapshot.members[key])
    return len(pods) == ledger.touched.get(key) == running and all(p.key in ledger.evicted for p in pods)


def as_pending(ledger: Ledger, evicted: Container[PodKey]) -> StatusOf:
    """Pod statuses in which the group's evicted pods, and no others, wait."""

    def status_of(pod: Pod) -> PodStatus:
        status = ledger.status(pod)
        if pod.key in evicted:
            return status if ledger.stays(pod) else PodStatus.PENDING
        return PodStatus.GATED if status is PodStatus.PENDING else status

    return status_of


def settle_moves(ledger: Ledger, gone: Sequence[Pod]) -> None:
    """A victim that returned to its own node and devices counts as never evicted (4.7)."""
    for pod in (pod for pod in gone if pod.status in ACTIVE_USED and pod.key in ledger.held):
        held = ledger.held[pod.key]
        if (held.node, set(held.gpu_groups)) == (ledger.home(pod), set(pod.gpu_groups)):
            ledger.unplace(pod)
            ledger.unevict(pod)
    for key in dict.fromkeys(pod.group for pod in gone if pod.group is not None):
        start_now(ledger, key)


def start_now(ledger: Ledger, key: GroupKey) -> None:
    """Bind the pods of a group whose places of this cycle are idle now. A gang whose needed pods wait, or
    leave, starts together (4.2)."""
    given = [pod for pod in ledger.snapshot.members[key] if pod.key in ledger.held]
    for pod in (pod for pod in given if pod.status is PodStatus.PENDING):
        node, names, _ = ledger.held[pod.key]
        ledger.unplace(pod)
        ledger.place(pod, node, names, pipelined=not ledger.fits_on(pod, node, now=True))
    if given:
        Placer(ledger.fixed.gangs[key]).start_together(ledger, given)
