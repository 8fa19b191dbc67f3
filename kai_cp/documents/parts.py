"""What several documents have in common."""

from __future__ import annotations

from typing import Annotated, Final, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

Time = Annotated[str, Field(description="RFC 3339, UTC.")]
Gpus = Annotated[float, Field(description="GPUs; a share counts as its part of one.")]
Group = Annotated[str, Field(description="Pod group: NAMESPACE/NAME.")]
Proved = Literal["proved", "not proved"]
Proof = Annotated[
    Proved,
    Field(description="proved: no plan places it while everything ahead of it is served."),
]
Amount = Annotated[float | None, Field(description="-1: unlimited; null: no number.")]
FORMAT: Final = Field(description="Name and number of this format.")
CutDuring = Annotated[
    str, Field(description="What the deadline has cut short: a larger budget may find more. Absent: nothing.")
]
OPEN: Final = ConfigDict(extra="allow")
CLOSED: Final = ConfigDict(extra="forbid")


@with_config(CLOSED)
class Shares(TypedDict):
    """Amounts of a queue."""

    gpu: Annotated[Amount, Field(description="GPUs; -1: unlimited.")]
    cpu: Annotated[Amount, Field(description="Millicores; -1: unlimited.")]
    memory: Annotated[Amount, Field(description="Bytes; -1: unlimited.")]


@with_config(CLOSED)
class Skipped(TypedDict):
    """An object that was left out of the answer."""

    object: Annotated[str, Field(description="Kind NAMESPACE/NAME.")]
    field: NotRequired[Annotated[str, Field(description="What of it cannot be read.")]]
    reason: Annotated[str, Field(description="What is wrong, with the field.")]


ForWhom = TypedDict(
    "ForWhom",
    {"for": NotRequired[Annotated[list[str], Field(description="Evict: pod groups that it is for.")]]},
)
"""``for`` is not a name that a class can have."""


@with_config(CLOSED)
class KindAmounts(TypedDict):
    """GPUs of one kind in a queue; -1 is unlimited."""

    quota: Annotated[float, Field(description="Deserved GPUs.")]
    limit: Annotated[float, Field(description="Most GPUs that it may hold.")]
    allocated: Annotated[float, Field(description="GPUs that it holds.")]
    nonPreemptible: Annotated[
        float,
        Field(
            description="The part of allocated that the quota bounds: GPUs of pods that are not preemptible."
        ),
    ]
