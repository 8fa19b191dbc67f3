"""Flags of ``kai-cp admission`` and ``kai-cp webhooks``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from typer import Option

from kai_cp.admission.request import AdmissionSettings
from kai_cp.kube.serving.address import Address
from kai_cp.kube.serving.flags import Seconds

DAY: Final = 86_400.0


class FailurePolicy(Enum):
    """What the API server does when admission does not answer."""

    FAIL = "Fail"
    """Refuse: no pod of ours is created unwired, and none while admission is away."""
    IGNORE = "Ignore"
    """Let it pass: pods are always created; those that share a GPU are not wired while admission is away."""


@dataclass(frozen=True, slots=True)
class RegistrationOptions:
    """The options of the webhook configurations."""

    failure_policy: Annotated[
        FailurePolicy, Option(help="If no replica answers, Fail refuses the request and Ignore allows it.")
    ] = FailurePolicy.FAIL
    scheduler_name: Annotated[str, Option(help="schedulerName of the pods that are sent.")] = "kai-scheduler"
    block_nvidia_visible_devices: Annotated[
        bool, Option(help="Send pods that share no GPU, too; set the same flag of admission.")
    ] = False
    service_namespace: Annotated[str, Option(help="Namespace of the Service.")] = "kai-scheduler"
    service_name: Annotated[str, Option(help="Service of admission.")] = "admission"
    url: Annotated[str, Option(help="https://host:port in place of the Service.")] = ""


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """KAI's flags of admission (9.5), and our flags of the certificate; times in seconds."""

    scheduler_name: Annotated[str, Option(help="schedulerName of the pods that are checked.")] = (
        "kai-scheduler"
    )
    gpu_sharing_enabled: Annotated[bool, Option(help="Pods may ask for a part of a GPU.")] = False
    hami_core_enabled: Annotated[bool, Option(help="Tell containers their share of GPU memory.")] = False
    block_nvidia_visible_devices: Annotated[bool, Option(help="Containers that ask for no GPU see none.")] = (
        False
    )
    gpu_fraction_runtime_class_name: Annotated[
        str, Option(help="Runtime class of pods with a part of a GPU; empty: left alone.")
    ] = "nvidia"
    gpu_pod_runtime_class_name: Annotated[
        str, Option(help="KAI's old name of --gpu-fraction-runtime-class-name.")
    ] = ""
    enable_quota_validation: Annotated[bool, Option(help="Warn of quotas above the parent's.")] = False
    webhook_addr: Annotated[int, Option(help="Port of the webhooks.", min=0, max=65535)] = 9443
    listen_address: Annotated[str, Address("Address of /metrics, /healthz and /readyz; empty: none.")] = (
        ":8080"
    )
    namespace: Annotated[str, Option(help="Namespace of Service and Secret.")] = "kai-scheduler"
    service_name: Annotated[str, Option(help="Service that the certificate is for.")] = "admission"
    certificate_names: Annotated[
        str, Option(help="Names or addresses of the certificate in place of the Service's, joined by commas.")
    ] = ""
    certificate_directory: Annotated[
        str,
        Option(
            help="Directory with tls.crt, tls.key and ca.crt as cert-manager writes them; empty: made here."
        ),
    ] = ""
    certificate_lifetime: Annotated[float, Seconds("Lifetime of a certificate made here.")] = 90 * DAY
    publish_ca_bundle: Annotated[
        bool,
        Option(
            "--publish-ca-bundle/--leave-ca-bundle",
            help="Write caBundle; leave it where cert-manager injects it.",
        ),
    ] = True
    drain_seconds: Annotated[
        float, Seconds("Continue to serve for this time after SIGTERM, until no caller sends requests here.")
    ] = 8.0

    @property
    def settings(self) -> AdmissionSettings:
        """The settings of the pure functions."""
        default = AdmissionSettings().gpu_fraction_runtime_class_name
        runtime_class = self.gpu_fraction_runtime_class_name
        if self.gpu_pod_runtime_class_name and runtime_class == default:
            runtime_class = self.gpu_pod_runtime_class_name
        return AdmissionSettings(
            scheduler_name=self.scheduler_name,
            gpu_sharing=self.gpu_sharing_enabled,
            hami_core=self.hami_core_enabled,
            block_nvidia_visible_devices=self.block_nvidia_visible_devices,
            gpu_fraction_runtime_class_name=runtime_class,
            quota_validation=self.enable_quota_validation,
        )
