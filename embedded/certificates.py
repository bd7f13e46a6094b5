"""Owns the cluster's certificates: one authority, and a certificate each for a server or client of the node.

Leaves to `services` who uses which. One idea: who gets what is a table, and signing it is the only code.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from embedded import monitoring
from embedded.instance import Instance

LIFETIME: Final = datetime.timedelta(days=3650)
CLOCK_SKEW: Final = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Subject:
    """Who a certificate is for: `user` and `group` to Kubernetes, `names` and `addresses` to TLS clients."""

    file: str
    user: str
    group: str | None = None
    names: tuple[str, ...] = ()
    addresses: tuple[IPv4Address, ...] = ()
    authority: str = "ca"


def subjects(instance: Instance) -> tuple[Subject, ...]:
    local = IPv4Address("127.0.0.1")
    api_names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    api_addresses = (instance.node_address, instance.kubernetes_service_address, local)
    node = f"system:node:{instance.node_name}"
    return (
        Subject(
            "kube-apiserver",
            "kube-apiserver",
            names=(*api_names, "kubernetes.default.svc.cluster.local"),
            addresses=api_addresses,
        ),
        Subject("etcd", "etcd", names=("localhost",), addresses=(local,)),
        Subject("etcd-client", "kube-apiserver-etcd-client"),
        Subject(
            "kubelet-server", node, "system:nodes", names=(instance.node_name,), addresses=(instance.node_address,)
        ),
        Subject("kubelet-client", "kube-apiserver-kubelet-client"),
        Subject("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
        Subject("kubelet", node, "system:nodes"),
        Subject("kube-controller-manager", "system:kube-controller-manager"),
        Subject("kube-scheduler", "system:kube-scheduler"),
        Subject("kube-proxy", "system:kube-proxy"),
        Subject("coredns", "knobless:coredns"),
        Subject(monitoring.CERTIFICATE, monitoring.USER),
        Subject("admin", "knobless:admin", "system:masters"),
    )


AUTHORITIES: Final = ("ca", "front-proxy-ca")


def ensure(instance: Instance) -> None:
    """Write `pki/` whole, or leave one for the same subjects: it is renamed into place when complete."""
    wanted = subjects(instance)
    record = instance.pki / "subjects"
    if record.exists() and record.read_text() == repr(wanted):
        return
    unfinished = instance.pki.with_suffix(".unfinished")
    for folder in (unfinished, instance.pki):
        shutil.rmtree(folder, ignore_errors=True)
    unfinished.mkdir(parents=True, mode=0o700)
    write(unfinished, wanted, datetime.datetime.now(datetime.UTC))
    (unfinished / "subjects").write_text(repr(wanted))
    unfinished.rename(instance.pki)


def write(folder: Path, wanted: Sequence[Subject], now: datetime.datetime) -> None:
    """`<file>.crt` and `<file>.key` for each authority and subject, and `service-accounts.key`."""
    authorities = {name: _authority(name, now) for name in AUTHORITIES}
    for name, (key, certificate) in authorities.items():
        _write_pair(folder, name, key, certificate)
    for subject in wanted:
        key = ec.generate_private_key(ec.SECP256R1())
        _write_pair(folder, subject.file, key, _signed(subject, key, *authorities[subject.authority], now))
    _write_private(folder / "service-accounts.key", _private_pem(rsa.generate_private_key(65537, 2048)))


Authority = tuple[ec.EllipticCurvePrivateKey, x509.Certificate]


def _authority(name: str, now: datetime.datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"knobless-{name}")])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(own, own, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return key, builder.sign(key, hashes.SHA256())


def _signed(
    subject: Subject,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    now: datetime.datetime,
) -> x509.Certificate:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject.user)]
    if subject.group is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, subject.group))
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = (
        _builder(x509.Name(attributes), authority.subject, key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usages, critical=False)
        .add_extension(issuer, critical=False)
    )
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in subject.names]
    names += [x509.IPAddress(address) for address in subject.addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _write_pair(folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    _write_private(folder / f"{name}.key", _private_pem(key))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _private_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
