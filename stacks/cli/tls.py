"""Certificates of what serves on the embedded cluster: one local CA a state folder, kept over `down`.

Where the cluster is a person's own, the Secret `gateway-tls` is theirs (cert-manager or by hand) and nothing here runs.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controllers.kube import SECRETS, KubeClient, NotFound, Object
from spec import names

CA_DAYS = 3650
LEAF_DAYS = 397
RENEW_BEFORE_DAYS = 30
BACKDATE = timedelta(minutes=5)


@dataclass(frozen=True)
class Authority:
    """The local CA, as PEM on disk and parsed."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ca_file(folder: Path) -> Path:
    """What a client is told to trust."""
    return folder / "ca.crt"


def authority(folder: Path, now: datetime) -> Authority:
    """The CA of this folder, made where there is none yet."""
    key_path = folder / "ca.key"
    if key_path.exists() and ca_file(folder).exists():
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return Authority(x509.load_pem_x509_certificate(ca_file(folder).read_bytes()), key)
    made = _make_authority(now)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_private(key_path, _key_pem(made.key))
    ca_file(folder).write_bytes(made.certificate.public_bytes(serialization.Encoding.PEM))
    return made


def _make_authority(now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "knobless local CA")])
    builder = _builder(name, name, key, now, CA_DAYS).add_extension(x509.BasicConstraints(True, 0), critical=True)
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    return Authority(builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)


def issue(ca: Authority, hosts: list[str], now: datetime) -> tuple[bytes, bytes]:
    """A server certificate for these host names and addresses; returns (certificate PEM, key PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "knobless gateway")])
    builder = _builder(subject, ca.certificate.subject, key, now, LEAF_DAYS)
    builder = builder.add_extension(x509.SubjectAlternativeName([_san(host) for host in hosts]), critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    certificate = builder.sign(ca.key, hashes.SHA256())
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATE)
        .not_valid_after(now + timedelta(days=days))
    )


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as sink:
        sink.write(content)


def still_good(secret: Object, ca: Authority, hosts: list[str], now: datetime) -> bool:
    """Whether the Secret's certificate is this CA's, for all these hosts, and lives a month longer."""
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(secret["data"]["tls.crt"]))
        certificate.verify_directly_issued_by(ca.certificate)
        names_in = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:  # a Secret that a person edited may hold anything; it is replaced
        return False
    lives = certificate.not_valid_after_utc - now > timedelta(days=RENEW_BEFORE_DAYS)
    return lives and all(_san(host) in names_in for host in hosts)


async def ensure_secret(
    kube: KubeClient,
    folder: Path,
    hosts: list[str],
    now: datetime,
    secret: str = names.SECRET_GATEWAY_TLS,
    component: str = names.COMPONENT_GATEWAY,
) -> bool:
    """Make or renew a server's TLS Secret; says whether it was written. `now` is aware, UTC."""
    ca = authority(folder, now)
    try:
        present: Object = await kube.get(SECRETS, names.SYSTEM_NAMESPACE, secret)
    except NotFound:
        present = {}
    if still_good(present, ca, hosts, now):
        return False
    certificate, key = issue(ca, hosts, now)
    data = {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}
    body: Object = {
        "metadata": {"labels": names.managed_labels(component)},
        "type": "kubernetes.io/tls",
        "data": data,
    }
    await kube.apply(SECRETS, names.SYSTEM_NAMESPACE, secret, "knobless-tls", body)
    return True
