"""Keeps the serving certificate current: reads or makes it, reloads it, and publishes its authority."""

from __future__ import annotations

import base64
import binascii
import contextlib
import logging
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kai_cp.json_types import Object
from kai_cp.kube.admission.certificates import BadCertificate, Bundle, ends_at, parse, renewed
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError, KubeError
from kai_cp.kube.api.resources import Resource
from kai_cp.kube.api.transport import Transport

LOG = logging.getLogger(__name__)
LONGEST_POLL_SECONDS: Final = 30.0
FILE_POLL_SECONDS: Final = 5.0
LABEL: Final = ("app.kubernetes.io/name", "kai-cp")
"""Configurations with another label belong to another program, and are left alone."""
KEYS: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")


class Material(NamedTuple):
    """What a server needs, as PEM. ``authorities`` may be empty if callers get them elsewhere."""

    certificate: bytes
    key: bytes
    authorities: bytes


class CertificateSource(Protocol):
    """A source of certificates."""

    poll_seconds: float

    def current(self, now: float) -> Material:
        """The material at ``now``. Raises ``BadCertificate`` or ``KubeError`` if none can be used."""


class FileSource:
    """A directory where cert-manager's Secret is mounted."""

    poll_seconds = FILE_POLL_SECONDS

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def current(self, now: float) -> Material:
        """The certificate that the files hold now. Raises ``BadCertificate`` if they cannot be used."""
        try:
            certificate = (self._directory / "tls.crt").read_bytes()
            key = (self._directory / "tls.key").read_bytes()
            authority = self._directory / "ca.crt"
            authorities = authority.read_bytes() if authority.exists() else b""
        except OSError as problem:
            raise BadCertificate(str(problem)) from None
        parse(certificate)
        if authorities:
            parse(authorities)
        return Material(certificate, key, authorities)


class SecretSource:
    """One Secret that every replica reads, and that the first to notice renews."""

    def __init__(
        self, transport: Transport, namespace: str, name: str, names: Sequence[str], lifetime: float
    ) -> None:
        self.poll_seconds = min(LONGEST_POLL_SECONDS, lifetime / 50)
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._names = names
        self._lifetime = lifetime
        self._known: Bundle | None = None

    def current(self, now: float) -> Material:
        """The stored certificate, renewed first if that is due.

        Raises ``BadCertificate`` if there is no such Secret.
        """
        stored = self._transport.get(r.SECRETS, self._namespace, self._name)
        if stored is None:
            raise BadCertificate(
                f"there is no Secret {self._namespace}/{self._name}; the chart makes it (admission.enabled)"
            )
        bundle = _bundle(stored)
        # An emptied Secret changes nothing: callers still trust the bundle that was there.
        wanted = renewed(bundle or self._known, self._names, self._lifetime, now)
        if wanted != bundle:
            wanted = self._store(stored, wanted)
        self._known = wanted
        return Material(wanted.certificate, wanted.key, wanted.authorities)

    def _store(self, stored: Object, wanted: Bundle) -> Bundle:
        values = (wanted.authorities, wanted.authority_key, wanted.certificate, wanted.key)
        data = {key: base64.b64encode(value).decode() for key, value in zip(KEYS, values, strict=True)}
        body = {**stored, "data": {**(stored.get("data") or {}), **data}}
        try:
            self._transport.update(r.SECRETS, self._namespace, self._name, body)
        except ApiError as error:
            if error.status != 409:
                raise
            theirs = _bundle(self._transport.get(r.SECRETS, self._namespace, self._name) or {})
            if theirs is None:
                raise
            return theirs
        LOG.info("certificate renewed", extra={"until": round(ends_at(wanted.certificate))})
        return wanted


def _bundle(secret: Object) -> Bundle | None:
    """The bundle in a Secret; None if it holds no readable one."""
    data = secret.get("data") or {}
    if not all(data.get(key) for key in KEYS):
        return None
    try:
        bundle = Bundle(*(base64.b64decode(data[key], validate=True) for key in KEYS))
        parse(bundle.authorities)
        parse(bundle.certificate)
    except (binascii.Error, BadCertificate) as problem:
        name = "/".join(secret["metadata"].get(key, "") for key in ("namespace", "name"))
        LOG.warning(
            "the content of a Secret cannot be used, and is replaced",
            extra={"secret": name, "error": str(problem)},
        )
        return None
    return bundle


def tls_context(material: Material) -> ssl.SSLContext:
    """A server's TLS context. The files from which it is loaded exist only during this call.

    Raises ``BadCertificate`` if certificate and key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    with tempfile.TemporaryDirectory() as directory:
        certificate, key = Path(directory, "tls.crt"), Path(directory, "tls.key")
        certificate.write_bytes(material.certificate)
        key.touch(mode=0o600)
        key.write_bytes(material.key)
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as problem:
            raise BadCertificate(f"certificate and key do not fit: {problem}") from None
    return context


class Publisher:
    """Keeps ``caBundle`` of our webhook configurations equal to the trusted authorities.

    ``unwanted`` is a match condition that keeps away pods that this process shall judge; it is logged
    once.
    """

    def __init__(
        self, transport: Transport, mutating: Sequence[str], validating: Sequence[str], unwanted: str = ""
    ) -> None:
        self._transport = transport
        self._unwanted = unwanted
        self._named: list[tuple[Resource, str]] = [
            *((r.MUTATING_WEBHOOKS, name) for name in mutating),
            *((r.VALIDATING_WEBHOOKS, name) for name in validating),
        ]

    def publish(self, authorities: bytes) -> None:
        """Write the difference. A configuration that is absent or belongs to another program is left
        alone.
        """
        wanted = base64.b64encode(authorities).decode()
        for resource, name in self._named:
            found = _read(self._transport, resource, name)
            if found is None or (found["metadata"].get("labels") or {}).get(LABEL[0]) != LABEL[1]:
                continue
            hooks = found.get("webhooks") or []
            self._look_for_unwanted(name, hooks)
            if all(hook["clientConfig"].get("caBundle") == wanted for hook in hooks):
                continue
            for hook in hooks:
                hook["clientConfig"]["caBundle"] = wanted
            with contextlib.suppress(Conflict):
                _update(self._transport, resource, name, found)
                LOG.info("caBundle written", extra={"configuration": name})

    def _look_for_unwanted(self, name: str, hooks: Sequence[Object]) -> None:
        conditions = {condition["name"] for hook in hooks for condition in hook.get("matchConditions") or ()}
        if self._unwanted in conditions:
            advice = "make the registrations with `kai-cp webhooks --block-nvidia-visible-devices`"
            extra = {"configuration": name, "error": advice}
            LOG.warning("pods that share no GPU are not sent here, so they are not checked", extra=extra)
            self._unwanted = ""


class Conflict(Exception):
    """Another program wrote first; the next look reads its change."""


def _read(transport: Transport, resource: Resource, name: str) -> Object | None:
    if resource is r.MUTATING_WEBHOOKS:
        return transport.get(r.MUTATING_WEBHOOKS, "", name)
    return transport.get(r.VALIDATING_WEBHOOKS, "", name)


def _update(transport: Transport, resource: Resource, name: str, body: Object) -> None:
    try:
        if resource is r.MUTATING_WEBHOOKS:
            transport.update(r.MUTATING_WEBHOOKS, "", name, body)
        else:
            transport.update(r.VALIDATING_WEBHOOKS, "", name, body)
    except ApiError as error:
        if error.status != 409:
            raise
        raise Conflict from None


class Keeper:
    """Looks at intervals, and gives the server a new context when the certificate has changed.

    It publishes the authorities before it serves the certificate.
    """

    def __init__(
        self,
        source: CertificateSource,
        publisher: Publisher | None,
        use: Callable[[ssl.SSLContext], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._publisher = publisher
        self._use = use
        self._clock = clock
        self._shown: Material | None = None
        self.ends_at = 0.0
        """When the certificate shown ends, in seconds since the epoch."""

    @property
    def shown(self) -> bool:
        """Whether there is a certificate to serve."""
        return self._shown is not None

    @property
    def poll_seconds(self) -> float:
        """Time until the next look."""
        return self._source.poll_seconds if self._shown is not None else 1.0

    def look(self) -> bool:
        """Look once; returns whether all is well. A failure is logged, and the old certificate stays in
        use.
        """
        well = True
        try:
            material = self._source.current(self._clock())
            if self._publisher is not None and material.authorities:
                try:
                    self._publisher.publish(material.authorities)
                except KubeError as problem:
                    # A new authority's certificate is served much later, so the one served now is trusted.
                    LOG.warning(
                        "caBundle was not written, and is tried again: until then the API server cannot call",
                        extra={"error": str(problem)},
                    )
                    well = False
            if material != self._shown:
                self._use(tls_context(material))
                self._shown = material
                self.ends_at = ends_at(material.certificate)
        except (BadCertificate, KubeError) as problem:
            LOG.warning(
                "the certificate could not be checked or renewed, and is tried again",
                extra={"error": str(problem)},
            )
            return False
        return well


def names_of(service: str, namespace: str, given: str) -> list[str]:
    """The names in the certificate: those given (comma separated), or the Service's."""
    listed = [name.strip() for name in given.split(",") if name.strip()]
    return listed or [f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local"]
