"""Whether an admission policy keeps users from what the scheduler remembers on pod groups (12.7)."""

from __future__ import annotations

from kai_cp import keys
from kai_cp.kube.api import resources
from kai_cp.kube.api.errors import ApiError, NotReachable
from kai_cp.kube.api.transport import Transport
from kai_cp_models.records.notes import MAXIMUM, RESERVATION
from kai_cp_models.settings import Settings


def unguarded(transport: Transport, settings: Settings) -> str:
    """What users can do because no policy of ours denies it; "": nothing that matters with these settings."""
    gains = []
    if settings.reservations.enabled:
        gains.append(f"come earlier among those that hold reservations ({RESERVATION})")
    if settings.max_runtime.enforce and settings.max_runtime.requeue_delay_seconds > 0:
        gains.append(f"skip the delay after a maximum run time ({keys.ENDED})")
    if settings.reservations.enabled and settings.max_runtime.enforce:
        gains.append(f"run longer than starts were promised by ({MAXIMUM})")
    if not gains or _guarded(transport):
        return ""
    policy = "no ValidatingAdmissionPolicy kai-cp-promises is in force"
    return f"{policy}: the owner of a pod group can {'; and '.join(gains)}"


def _guarded(transport: Transport) -> bool:
    """Whether a policy about these annotations is bound and denies; no server before 1.30 has any."""
    try:
        policies, _ = transport.list_pages(resources.ADMISSION_POLICIES)
        bindings, _ = transport.list_pages(resources.ADMISSION_POLICY_BINDINGS)
    except (ApiError, NotReachable):
        return False
    denied = {
        b["spec"].get("policyName") for b in bindings if "Deny" in b["spec"].get("validationActions", ())
    }
    for policy in policies:
        parts = (policy["spec"].get(part) or () for part in ("variables", "validations"))
        rules = " ".join(rule.get("expression", "") for part in parts for rule in part)
        guarded = all(note in rules for note in (RESERVATION, keys.ENDED, MAXIMUM))
        if guarded and policy["metadata"]["name"] in denied:
            return True
    return False
