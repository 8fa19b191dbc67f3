"""Where the free GPUs are: ``topology/1`` and ``defrag/1``."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, FORMAT, Group, Proof, Time


@with_config(CLOSED)
class Speed(TypedDict):
    """GB/s between two GPUs, by what connects them."""

    nvlink: Annotated[int, Field(description="GB/s inside an island or NVLink domain.")]
    pcie: Annotated[int, Field(description="GB/s between two islands of a node.")]
    network: Annotated[int, Field(description="GB/s between nodes.")]


@with_config(CLOSED)
class System(TypedDict):
    """A kind of machine."""

    name: Annotated[str, Field(description="Name of the machine.")]
    nodes: Annotated[int, Field(description="Nodes of this kind.")]
    gpus: Annotated[int, Field(description="GPUs of all of them together.")]
    islandGpus: Annotated[int, Field(description="GPUs of a node that reach each other fastest.")]
    nvlinkDomainGpus: Annotated[int, Field(description="GPUs that NVLink connects, over nodes.")]
    gbytesPerSecond: Annotated[Speed, Field(description="Speed between two GPUs, in GB/s.")]


@with_config(CLOSED)
class DomainOfNodes(TypedDict):
    """A place of a topology."""

    level: Annotated[str, Field(description="Node label; empty: the whole topology.")]
    path: Annotated[list[str], Field(description="Values of the labels from the top.")]
    nodes: Annotated[list[str], Field(description="Names of its nodes.")]
    gpus: Annotated[int, Field(description="GPUs of its nodes.")]
    freeGpus: Annotated[int, Field(description="Whole GPUs that no pod holds.")]


@with_config(CLOSED)
class LargestGang(TypedDict):
    """The largest gang of equal pods that fits into one place of a level now."""

    level: Annotated[str, Field(description="Node label of the level.")]
    podGpus: Annotated[int, Field(description="GPUs of each pod.")]
    pods: Annotated[int, Field(description="Pods of the gang.")]
    domain: Annotated[
        list[str], Field(description="Place with the most pods: values of the labels from the top.")
    ]
    hops: Annotated[int, Field(description="Between its farthest nodes.")]


@with_config(CLOSED)
class Tree(TypedDict):
    """A topology."""

    name: Annotated[str, Field(description="Name of the Topology.")]
    levels: Annotated[list[str], Field(description="Node labels from the top.")]
    domains: Annotated[list[DomainOfNodes], Field(description="All places, parents before their children.")]
    outside: Annotated[list[str], Field(description="Nodes that lack the label of a level.")]
    largestGangs: Annotated[list[LargestGang], Field(description="By level and size of pod.")]


@with_config(CLOSED)
class Topology(TypedDict):
    """The fabric and what is free in it: ``kai-cp topology -o json``."""

    schema: Annotated[Literal["topology/1"], FORMAT]
    systems: Annotated[list[System], Field(description="Kinds of machines in the cluster.")]
    topologies: Annotated[list[Tree], Field(description="The trees that the nodes form.")]


@with_config(CLOSED)
class WantedGang(TypedDict):
    """A gang for which there shall be free GPUs."""

    pods: Annotated[int, Field(description="Pods of the gang.")]
    gpus: Annotated[int, Field(description="GPUs of each pod.")]
    level: Annotated[str | None, Field(description="Node label of the level that holds it; null: anywhere.")]


@with_config(CLOSED)
class FrontierQuestion(TypedDict):
    """What shall be free: one of the two."""

    free: NotRequired[Annotated[str, Field(description="nodes, or the label of a level.")]]
    gang: NotRequired[Annotated[WantedGang, Field(description="A gang that shall fit.")]]


_Nodes = TypedDict(
    "_Nodes",
    {
        "from": Annotated[str, Field(description="Node where it runs.")],
        "to": Annotated[str, Field(description="Node of its replacement.")],
    },
)
"""``from`` is not a name that a class can have."""


@with_config(CLOSED)
class Move(_Nodes):
    """A pod that restarts on another node."""

    step: Annotated[int, Field(description="Moves of one step may go together.")]
    podGroup: Group
    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]


@with_config(CLOSED)
class FrontierPoint(TypedDict):
    """A plan that no other beats in both gain and moves."""

    value: Annotated[int, Field(description="What is free then, in units of the question.")]
    moves: Annotated[int, Field(description="Pods that restart elsewhere.")]
    groups: Annotated[int, Field(description="Pod groups they belong to.")]
    lostGpuHours: Annotated[float, Field(description="GPU-hours of running work that restarts.")]
    status: Annotated[Literal["OPTIMAL", "FEASIBLE"], Field(description="OPTIMAL: no fewer moves do it.")]
    bound: Annotated[int | None, Field(description="A bound: no plan does it with fewer moves.")]
    frees: Annotated[list[str], Field(description="Names of the nodes that it empties.")]
    plan: Annotated[list[Move], Field(description="The moves, in order.")]


@with_config(CLOSED)
class Most(TypedDict):
    """The most that any moves could free."""

    value: Annotated[int, Field(description="In units of the question.")]
    proof: Annotated[Proof, Field(description="Whether no moves free more.")]
    because: Annotated[str, Field(description="What limits it, in a sentence.")]


@with_config(CLOSED)
class ExcludedGroup(TypedDict):
    """A pod group that may not be moved."""

    podGroup: Group
    reason: Annotated[str, Field(description="Why, in a sentence.")]


@with_config(CLOSED)
class Defrag(TypedDict):
    """What moving pods would free: ``kai-cp defrag -o json``."""

    schema: Annotated[Literal["defrag/1"], FORMAT]
    now: Annotated[Time, Field(description="The time at which the snapshot was read.")]
    question: Annotated[FrontierQuestion, Field(description="What shall be free.")]
    already: Annotated[int, Field(description="What is free without any move.")]
    points: Annotated[list[FrontierPoint], Field(description="Plans, fewest moves first.")]
    most: Annotated[Most, Field(description="What no plan exceeds.")]
    excluded: Annotated[list[ExcludedGroup], Field(description="Pod groups that stay where they are.")]
    seconds: Annotated[float, Field(description="Seconds that the search took.")]
