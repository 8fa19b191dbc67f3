"""The certificates that admission makes for itself: an authority, and the serving certificates it signs.

Everything is a pure function of the Secret and the time, so replicas that read the same Secret agree. A new
authority is published before it signs anything, so no client sees a certificate that it cannot verify.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY: Final = 86_400.0
AUTHORITY_LIVES: Final = 20.0
"""How many times as long an authority lives as what it signs."""
RENEW_AT: Final = 2 / 3
"""Part of a life after which a successor is made."""
TRUST_PART: Final = 0.05
LONGEST_TRUST_SECONDS: Final = 600.0
"""An authority signs once it has been known for this part of a certificate's life, at most ten minutes."""
SKEW_PART: Final = 0.05
LONGEST_SKEW_SECONDS: Final = 300.0
"""Certificates are valid since a little before now: clocks differ."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """The Secret's content as PEM: ``authorities`` newest first, the newest one's key, and what we serve."""

    authorities: bytes
    authority_key: bytes
    certificate: bytes
    key: bytes


class BadCertificate(ValueError):
    """PEM data that cannot be used; the text names the fault."""


def renewed(bundle: Bundle | None, names: Sequence[str], lifetime: float, now: float) -> Bundle:
    """The bundle with what is due at ``now`` renewed; the same value when nothing is due.

    ``names`` are the DNS names or IP addresses that callers use. ``lifetime`` is that of a certificate in
    seconds.
    """
    if bundle is None:
        authority, authority_key = make_authority(lifetime * AUTHORITY_LIVES, now)
        certificate, key = sign(authority, authority_key, names, lifetime, now)
        return Bundle(authority, authority_key, certificate, key)
    authorities = [one for one in parse(bundle.authorities) if _end(one) > now]
    if not authorities:
        return renewed(None, names, lifetime, now)
    result = bundle
    if _due(authorities[0], now):
        fresh, fresh_key = make_authority(lifetime * AUTHORITY_LIVES, now)
        published = fresh + b"".join(map(_pem, authorities))
        result = Bundle(published, fresh_key, bundle.certificate, bundle.key)
        authorities = parse(published)
    elif len(authorities) < len(parse(bundle.authorities)):
        kept = b"".join(map(_pem, authorities))
        result = Bundle(kept, bundle.authority_key, bundle.certificate, bundle.key)
    newest = authorities[0]
    trusted = _made(newest) + min(LONGEST_TRUST_SECONDS, TRUST_PART * lifetime) <= now
    shown = parse(bundle.certificate)[0]
    stale = _due(shown, now) or _names(shown) != _written(names) or shown.issuer != newest.subject
    if stale and (trusted or len(authorities) == 1):
        certificate, key = sign(_pem(newest), result.authority_key, names, lifetime, now)
        result = Bundle(result.authorities, result.authority_key, certificate, key)
    return result


def make_authority(lifetime: float, now: float) -> tuple[bytes, bytes]:
    """A new certificate authority and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    # The creation time in the name distinguishes two authorities.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"kai-cp admission {now:.6f}")])
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        _builder(name, name, lifetime, now)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def sign(
    authority: bytes, authority_key: bytes, names: Sequence[str], lifetime: float, now: float
) -> tuple[bytes, bytes]:
    """A new serving certificate for ``names`` and its key, as PEM."""
    issuer = parse(authority)[0]
    issuer_key = _private(authority_key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    certificate = (
        _builder(subject, issuer.subject, lifetime, now)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return _pem(certificate), _key_pem(key)


def parse(pem: bytes) -> list[x509.Certificate]:
    """The certificates in PEM data. Raises ``BadCertificate`` if there is none."""
    try:
        return list(x509.load_pem_x509_certificates(pem))
    except ValueError as problem:
        raise BadCertificate(f"not a PEM certificate: {problem}") from None


def ends_at(certificate: bytes) -> float:
    """When the first certificate of PEM data expires, in seconds since the epoch."""
    return _end(parse(certificate)[0])


def _builder(subject: x509.Name, issuer: x509.Name, lifetime: float, now: float) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - _skew(lifetime), UTC))
        .not_valid_after(datetime.fromtimestamp(now, UTC) + timedelta(seconds=lifetime))
    )


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as problem:
        raise BadCertificate(f"not a PEM key: {problem}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise BadCertificate("not an elliptic curve key, so not one that was made here")
    return key


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    found: list[x509.GeneralName] = []
    for name in names:
        try:
            found.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            found.append(x509.DNSName(name))
    return found


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in extension.value}


def _written(names: Sequence[str]) -> set[str]:
    return {str(name.value) for name in _alternatives(names)}


def _pem(certificate: x509.Certificate) -> bytes:
    return bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def _begin(certificate: x509.Certificate) -> float:
    return float(certificate.not_valid_before_utc.timestamp())


def _end(certificate: x509.Certificate) -> float:
    return float(certificate.not_valid_after_utc.timestamp())


def _skew(lifetime: float) -> float:
    return min(LONGEST_SKEW_SECONDS, SKEW_PART * lifetime)


def _made(certificate: x509.Certificate) -> float:
    """When one of our certificates was made, which is a little after it became valid."""
    total = _end(certificate) - _begin(certificate)
    return _begin(certificate) + min(LONGEST_SKEW_SECONDS, total - total / (1 + SKEW_PART))


def _due(certificate: x509.Certificate, now: float) -> bool:
    begin, end = _made(certificate), _end(certificate)
    return now >= begin + RENEW_AT * (end - begin)
