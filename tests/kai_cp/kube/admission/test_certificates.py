"""Certificates of our own: what OpenSSL accepts, and that callers always trust what they get."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import pytest

from kai_cp.kube.admission.certificates import BadCertificate, Bundle, ends_at, parse, renewed
from kai_cp.kube.admission.keeper import Material, tls_context

NOW = 1_800_000_000.0
DAY = 86_400.0
LIFE = 90 * DAY
NAMES = ["admission.kai-scheduler.svc", "127.0.0.1"]


def trusts(authorities: bytes, bundle: Bundle, host: str) -> bool:
    """Whether a client with these authorities accepts the certificate for ``host`` now."""
    client = ssl.create_default_context(cadata=authorities.decode())
    server = tls_context(Material(bundle.certificate, bundle.key, bundle.authorities))
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=_accept, args=(server, theirs))
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=host):
            return True
    except ssl.SSLCertVerificationError:
        return False
    finally:
        ours.close()
        thread.join()


def _accept(server: ssl.SSLContext, sock: socket.socket) -> None:
    try:
        with server.wrap_socket(sock, server_side=True) as tls:
            tls.recv(1)
    except OSError:
        sock.close()


def test_openssl_accepts_what_is_made_here_for_its_names_only() -> None:
    bundle = renewed(None, NAMES, LIFE, time.time())
    other = renewed(None, NAMES, LIFE, time.time())
    assert trusts(bundle.authorities, bundle, "admission.kai-scheduler.svc")
    assert trusts(bundle.authorities, bundle, "127.0.0.1")
    assert not trusts(bundle.authorities, bundle, "other.kai-scheduler.svc")
    assert not trusts(other.authorities, bundle, "127.0.0.1")


def test_nothing_is_due_means_the_same_value() -> None:
    bundle = renewed(None, NAMES, LIFE, NOW)
    assert renewed(bundle, NAMES, LIFE, NOW + LIFE / 2) is bundle
    assert ends_at(bundle.certificate) == NOW + LIFE


def test_a_certificate_is_renewed_by_the_same_authority_before_it_ends() -> None:
    first = renewed(None, NAMES, LIFE, NOW)
    second = renewed(first, NAMES, LIFE, NOW + 0.7 * LIFE)
    assert second.authorities == first.authorities
    assert second.certificate != first.certificate
    assert ends_at(second.certificate) == NOW + 1.7 * LIFE


def test_new_names_are_signed_at_once() -> None:
    first = renewed(None, NAMES, LIFE, NOW)
    second = renewed(first, ["other.svc"], LIFE, NOW + DAY)
    assert second.certificate != first.certificate
    assert renewed(second, ["other.svc"], LIFE, NOW + DAY) is second


def issuer_is_in(bundle: Bundle, authorities: bytes) -> bool:
    """Whether one of these authorities signed the certificate."""
    shown = parse(bundle.certificate)[0]
    for authority in parse(authorities):
        try:
            shown.verify_directly_issued_by(authority)
        except (ValueError, TypeError):
            continue
        except Exception as error:
            if type(error).__name__ != "InvalidSignature":
                raise
            continue
        return True
    return False


def test_a_client_that_looked_recently_trusts_the_present_certificate() -> None:
    """Through many lives of certificates and two of authorities, in steps of one poll."""
    life, poll = 3600.0, 3600.0 / 50
    bundle = renewed(None, NAMES, life, NOW)
    seen = [bundle.authorities] * 2
    authorities = set()
    at = NOW
    while at < NOW + 45 * life:
        at += poll
        bundle = renewed(bundle, NAMES, life, at)
        assert issuer_is_in(bundle, seen[-2]), "known two looks ago"
        assert ends_at(bundle.certificate) > at + poll
        assert 1 <= len(parse(bundle.authorities)) <= 3
        seen.append(bundle.authorities)
        authorities.add(parse(bundle.authorities)[0].serial_number)
    assert len(authorities) >= 3


def test_a_process_that_slept_for_years_starts_anew() -> None:
    first = renewed(None, NAMES, LIFE, NOW)
    later = NOW + 30 * LIFE
    second = renewed(first, NAMES, LIFE, later)
    assert ends_at(second.certificate) > later
    assert issuer_is_in(second, second.authorities)


BROKEN = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@pytest.mark.parametrize("pem", [b"", b"x", BROKEN])
def test_nonsense_is_a_clear_error(pem: bytes) -> None:
    with pytest.raises(BadCertificate):
        parse(pem)
