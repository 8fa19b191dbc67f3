"""What is made of objects in files: migration, admission, grouping."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED


@with_config(CLOSED)
class Migration(TypedDict):
    """What to install in place of KAI's parts: ``kai-cp migrate --json``."""

    schema: Literal["migration/1"]
    values: Annotated[dict[str, Any], Field(description="Of our chart.")]
    controllers: Annotated[list[str], Field(description="Command line.")]
    admission: Annotated[list[str], Field(description="Command line.")]
    differs: Annotated[list[str], Field(description="Settings that are taken over and mean something else.")]
    notTakenOver: list[str]
    notRead: Annotated[list[str], Field(description="What is wrong with objects that were skipped.")]


@with_config(CLOSED)
class Verdict(TypedDict):
    """What admission makes of a request: ``kai-cp admit``. Without the key ``schema``."""

    allowed: bool
    message: Annotated[str, Field(description="Why it is refused; empty: it is not.")]
    warnings: list[str]
    object: NotRequired[Annotated[dict[str, Any], Field(description="As it would be stored.")]]


@with_config(CLOSED)
class GroupMade(TypedDict):
    """A PodGroup."""

    metadata: dict[str, Any]
    spec: dict[str, Any]


@with_config(CLOSED)
class PodGrouped(TypedDict):
    """A pod as it is afterwards."""

    namespace: str
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]


@with_config(CLOSED)
class NotGrouped(TypedDict):
    """A pod that got no group."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    stage: Annotated[int, Field(description="Of the file, from 1.")]
    message: str


@with_config(CLOSED)
class Grouping(TypedDict):
    """The pod groups that workloads get: ``kai-cp group``. Without the key ``schema``."""

    podGroups: list[GroupMade]
    pods: list[PodGrouped]
    errors: list[NotGrouped]
