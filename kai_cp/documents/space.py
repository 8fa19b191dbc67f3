"""Where the free GPUs are: ``topology/1`` and ``defrag/1``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, Group, Proof, Time


@with_config(CLOSED)
class Speed(TypedDict):
    """GB/s between two GPUs, by what connects them."""

    nvlink: int
    pcie: int
    network: int


@with_config(CLOSED)
class System(TypedDict):
    """A kind of machine."""

    name: str
    nodes: int
    gpus: int
    islandGpus: Annotated[int, Field(description="GPUs of a node that reach each other fastest.")]
    nvlinkDomainGpus: Annotated[int, Field(description="GPUs that NVLink connects, over nodes.")]
    gbytesPerSecond: Speed


@with_config(CLOSED)
class DomainOfNodes(TypedDict):
    """A place of a topology."""

    level: Annotated[str, Field(description="Node label; empty: the whole topology.")]
    path: Annotated[list[str], Field(description="Values of the labels from the top.")]
    nodes: list[str]
    gpus: int
    freeGpus: int


@with_config(CLOSED)
class LargestGang(TypedDict):
    """The largest gang of equal pods that fits into one place of a level now."""

    level: str
    podGpus: Annotated[int, Field(description="GPUs of each pod.")]
    pods: int
    domain: Annotated[list[str], Field(description="Where.")]
    hops: Annotated[int, Field(description="Between its farthest nodes.")]


@with_config(CLOSED)
class Tree(TypedDict):
    """A topology."""

    name: str
    levels: list[str]
    domains: list[DomainOfNodes]
    outside: Annotated[list[str], Field(description="Nodes that lack the label of a level.")]
    largestGangs: list[LargestGang]


@with_config(CLOSED)
class Topology(TypedDict):
    """The fabric and what is free in it: ``kai-cp topology -o json``."""

    schema: Literal["topology/1"]
    systems: list[System]
    topologies: list[Tree]


@with_config(CLOSED)
class WantedGang(TypedDict):
    """A gang for which there shall be free GPUs."""

    pods: int
    gpus: int
    level: str | None


@with_config(CLOSED)
class FrontierQuestion(TypedDict):
    """What shall be free: one of the two."""

    free: NotRequired[Annotated[str, Field(description="nodes, or the label of a level.")]]
    gang: NotRequired[WantedGang]


Move = TypedDict(
    "Move",
    {
        "step": Annotated[int, Field(description="Moves of one step may go together.")],
        "podGroup": Group,
        "pod": Annotated[str, Field(description="NAMESPACE/NAME.")],
        "from": str,
        "to": str,
    },
)
"""``from`` is no name that a class can have."""


@with_config(CLOSED)
class FrontierPoint(TypedDict):
    """A plan that no other beats in both gain and moves."""

    value: Annotated[int, Field(description="What is free then, in units of the question.")]
    moves: Annotated[int, Field(description="Pods that restart elsewhere.")]
    groups: Annotated[int, Field(description="Pod groups they belong to.")]
    lostGpuHours: float
    status: Annotated[Literal["OPTIMAL", "FEASIBLE"], Field(description="OPTIMAL: no fewer moves do it.")]
    bound: Annotated[int | None, Field(description="At least so many moves.")]
    frees: list[str]
    plan: list[Move]


@with_config(CLOSED)
class Most(TypedDict):
    """The most that any moves could free."""

    value: int
    proof: Proof
    because: str


@with_config(CLOSED)
class ExcludedGroup(TypedDict):
    """A pod group that may not be moved."""

    podGroup: Group
    reason: str


@with_config(CLOSED)
class Defrag(TypedDict):
    """What moving pods would free: ``kai-cp defrag -o json``."""

    schema: Literal["defrag/1"]
    now: Time
    question: FrontierQuestion
    already: Annotated[int, Field(description="What is free without any move.")]
    points: list[FrontierPoint]
    most: Most
    excluded: list[ExcludedGroup]
    seconds: float
