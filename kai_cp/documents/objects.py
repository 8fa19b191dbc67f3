"""What is made of objects in files: migration, admission, grouping."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, with_config
from typing_extensions import TypedDict

from kai_cp.documents.parts import CLOSED, FORMAT


@with_config(CLOSED)
class Migration(TypedDict):
    """What to install in place of KAI's parts: ``kai-cp migrate -o json``."""

    schema: Annotated[Literal["migration/1"], FORMAT]
    values: Annotated[dict[str, Any], Field(description="Values for our chart.")]
    controllers: Annotated[list[str], Field(description="Command line of the controllers.")]
    admission: Annotated[list[str], Field(description="Command line of admission.")]
    differs: Annotated[list[str], Field(description="Settings that are taken over and mean something else.")]
    notTakenOver: Annotated[list[str], Field(description="Settings that have no equivalent, each with why.")]
    notRead: Annotated[list[str], Field(description="What is wrong with objects that were skipped.")]


@with_config(CLOSED)
class Verdict(TypedDict):
    """What admission makes of an object: ``kai-cp admit``. Without the key ``schema``."""

    kind: Annotated[str, Field(description="Kind of the object.")]
    namespace: NotRequired[Annotated[str, Field(description="Its namespace.")]]
    name: NotRequired[Annotated[str, Field(description="Its name, or generateName.")]]
    allowed: Annotated[bool, Field(description="Whether the request is allowed.")]
    message: Annotated[str, Field(description="Why it is refused; empty: it is not.")]
    warnings: Annotated[list[str], Field(description="Sentences for the user; empty: none.")]
    object: NotRequired[Annotated[dict[str, Any], Field(description="As it would be stored.")]]


@with_config(CLOSED)
class GroupMade(TypedDict):
    """A PodGroup."""

    metadata: Annotated[dict[str, Any], Field(description="As of a Kubernetes object.")]
    spec: Annotated[dict[str, Any], Field(description="As KAI defines it.")]


@with_config(CLOSED)
class PodGrouped(TypedDict):
    """A pod as it is afterwards."""

    namespace: Annotated[str, Field(description="Namespace of the pod.")]
    name: Annotated[str, Field(description="Name of the pod.")]
    labels: Annotated[dict[str, str], Field(description="All its labels.")]
    annotations: Annotated[dict[str, str], Field(description="All its annotations.")]


@with_config(CLOSED)
class NotGrouped(TypedDict):
    """A pod that got no group."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    stage: Annotated[int, Field(description="Stage of the file, from 1.")]
    message: Annotated[str, Field(description="What is wrong, with the field.")]


@with_config(CLOSED)
class Grouping(TypedDict):
    """The pod groups that workloads get: ``kai-cp group``. Without the key ``schema``."""

    podGroups: Annotated[list[GroupMade], Field(description="Pod groups at the end.")]
    pods: Annotated[list[PodGrouped], Field(description="Pods at the end.")]
    errors: Annotated[list[NotGrouped], Field(description="Pods that got no group, each with why.")]
