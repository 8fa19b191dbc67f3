"""The request and the answer of admission."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kai_cp.json_types import Json
from kai_cp.reader.fields import EMPTY, Malformed, bool_at, object_at, objects_at, shown, text_at

Operation = Literal["CREATE", "UPDATE", "DELETE"]
OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """KAI's flags of admission, with KAI's defaults (9.5)."""

    scheduler_name: str = "kai-scheduler"
    gpu_sharing: bool = False
    hami_core: bool = False
    block_nvidia_visible_devices: bool = False
    gpu_fraction_runtime_class_name: str = "nvidia"
    """Runtime class of fraction pods that name none; empty: left alone."""
    quota_validation: bool = False


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """One request. ``queues`` by name, and ``runtime_classes``: None when they were not looked up."""

    settings: AdmissionSettings
    operation: Operation
    object: Json
    namespace: str = ""
    old: Json | None = None
    queues: Mapping[str, Json] | None = field(default_factory=dict)
    runtime_classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer. ``object`` is the changed pod; None for kinds that are never changed."""

    allowed: bool
    message: str = ""
    warnings: tuple[str, ...] = ()
    object: Json | None = None

    def to_json(self) -> dict[str, Any]:
        """The verdict in the format of the recorded cases."""
        found = {"allowed": self.allowed, "message": self.message, "warnings": list(self.warnings)}
        return found if self.object is None else {**found, "object": self.object}


class Refused(Exception):
    """The request is refused; the text gives the reason and what to write instead."""

    def __init__(self, message: str, warnings: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.warnings = warnings


def read_settings(raw: Json) -> AdmissionSettings:
    """Settings by their recorded names; absent ones have KAI's defaults."""
    default = AdmissionSettings()
    runtime_class = raw.get("gpuFractionRuntimeClassName")
    return AdmissionSettings(
        scheduler_name=text_at(raw, "schedulerName") or default.scheduler_name,
        gpu_sharing=bool_at(raw, "gpuSharing"),
        hami_core=bool_at(raw, "hamiCore"),
        block_nvidia_visible_devices=bool_at(raw, "blockNvidiaVisibleDevices"),
        gpu_fraction_runtime_class_name=default.gpu_fraction_runtime_class_name
        if runtime_class is None
        else text_at(raw, "gpuFractionRuntimeClassName"),
        quota_validation=bool_at(raw, "quotaValidation"),
    )


def read_request(raw: Json) -> AdmissionRequest:
    """A recorded request. Raises ``Malformed`` that names the unreadable field."""
    operation = text_at(raw, "operation") or "CREATE"
    if operation not in OPERATIONS:
        raise Malformed("operation", f"{shown(operation)} is not {', '.join(OPERATIONS)}")
    thing, old = object_at(raw, "object"), object_at(raw, "oldObject")
    if thing is EMPTY:
        raise Malformed("object", "is missing")
    return AdmissionRequest(
        settings=read_settings(object_at(raw, "settings")),
        operation=operation,  # type: ignore[arg-type]
        object=thing,
        namespace=text_at(raw, "namespace"),
        old=None if old is EMPTY else old,
        queues={
            text_at(object_at(queue, "metadata"), "name"): queue
            for queue in objects_at(raw, "existing")
            if queue.get("kind") == "Queue"
        },
    )
