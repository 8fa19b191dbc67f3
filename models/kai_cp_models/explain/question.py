"""A question about one waiting pod group: everything that its models share, computed once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kai_cp_models.explain.ask import AskClass, classes_of, device_families
from kai_cp_models.explain.cells import Cells, partition
from kai_cp_models.explain.families import Families, Family
from kai_cp_models.explain.holders import Holders, VictimUnit
from kai_cp_models.explain.own import own_faults
from kai_cp_models.explain.parts import part_of, sums_of
from kai_cp_models.explain.situation import Situation
from kai_cp_models.ledger import Ledger
from kai_cp_models.pods import UNLIMITED
from kai_cp_models.snapshot import PodGroup
from kai_cp_models.units import Batch


@dataclass(frozen=True)
class Question:
    """Whether the next batch of ``group`` has a place, in the situation that a cycle left."""

    situation: Situation
    group: PodGroup

    @cached_property
    def batch(self) -> Batch | None:
        """The next batch."""
        return self.situation.batch(self.group.key)

    @cached_property
    def given(self) -> Families:
        """Families that are taken as given when they are relaxed, and that the group breaks."""
        return own_faults(self.situation, self.group)

    @property
    def ledger(self) -> Ledger:
        """The state when the plan is carried out."""
        return self.situation.after

    @cached_property
    def classes(self) -> list[AskClass]:
        """The classes of the batch."""
        return classes_of(self.ledger, self.situation.gang(self.group.key), self.batch)

    @cached_property
    def who(self) -> Holders:
        """The pods and units that compete with the group."""
        return Holders(self.situation, self.group, self.batch)

    @cached_property
    def holders(self) -> list[VictimUnit]:
        """The eviction units that hold capacity."""
        return self.who.all()

    @cached_property
    def rules(self) -> list[tuple[Family, int]]:
        """The stateful rules that concern the ask, see ``device_families``."""
        return device_families(self.ledger, self.classes)

    @cached_property
    def cells(self) -> Cells:
        """All cells."""
        shares = any(item.example.spec.gpu.shares for item in self.classes)
        return partition(
            self.ledger,
            self.classes,
            self.holders,
            queue=self.group.queue,
            bounded=self._bounded(),
            apart=bool(self.rules) or shares,
        )

    def part(self, most: int) -> Cells:
        """The ``most`` cells that are most promising."""
        return part_of(self.ledger, self.classes, self.cells, most)

    def sums(self, *, domains: bool) -> Cells:
        """Sums over cells, see ``sums_of``."""
        return sums_of(self.ledger, self.classes, self.cells, domains=domains)

    @cached_property
    def together(self) -> bool:
        """Whether some pods of the batch must be in one domain, or in a topology at all."""
        table = self.ledger.fixed.table
        found = (table.domains_of(scope) for item in self.classes for scope in item.scopes)
        return any(domain is not None or not inside.all() for inside, domain in found)

    def _bounded(self) -> list[str]:
        """Queues on the group's path with a limit, or a quota that counts for it."""
        book = self.ledger.book
        if self.group.queue not in self.ledger.snapshot.queue_by_name:
            return []
        found = []
        for i in book.line(self.group.queue):
            limited = any(limit != UNLIMITED for limit in book.limit[i])
            if limited or (not self.group.preemptible and any(q != UNLIMITED for q in book.firm_quota[i])):
                found.append(book.name(i))
        return found
