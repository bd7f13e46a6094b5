"""The cluster's certificates: who gets which, and that a half-written set is never used."""

from __future__ import annotations

import datetime
import stat
from pathlib import Path

import pytest
from cryptography import x509

from embedded import certificates
from embedded.instance import Instance

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pki")
    certificates.write(path, certificates.subjects(Instance("dev", index=2)), NOW)
    return path


def read(folder: Path, name: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes())


@pytest.mark.parametrize(
    ("name", "subject"),
    [
        ("admin", "O=system:masters,CN=knobless:admin"),
        ("kubelet", "O=system:nodes,CN=system:node:knobless-dev"),
        ("kube-proxy", "CN=system:kube-proxy"),
        ("coredns", "CN=knobless:coredns"),
    ],
)
def test_a_client_is_who_kubernetes_expects(folder: Path, name: str, subject: str) -> None:
    assert read(folder, name).subject.rfc4514_string() == subject


def test_only_the_administrator_is_in_the_group_that_may_do_everything() -> None:
    masters = [who.file for who in certificates.subjects(Instance()) if who.group == "system:masters"]
    assert masters == ["admin"]


def test_the_api_server_is_known_by_node_service_and_local_address(folder: Path) -> None:
    names = read(folder, "kube-apiserver").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"198.18.95.254", "198.18.80.1", "127.0.0.1"}
    assert "kubernetes.default.svc" in names.get_values_for_type(x509.DNSName)


def test_every_certificate_is_signed_by_its_authority(folder: Path) -> None:
    for subject in certificates.subjects(Instance("dev", index=2)):
        read(folder, subject.file).verify_directly_issued_by(read(folder, subject.authority))


def test_keys_are_the_owners_alone(folder: Path) -> None:
    assert {stat.S_IMODE(key.stat().st_mode) for key in folder.glob("*.key")} == {0o600}


def test_a_set_is_made_once_and_kept(tmp_path: Path) -> None:
    instance = Instance("dev", tmp_path, 2)
    certificates.ensure(instance)
    before = (instance.pki / "ca.crt").read_bytes()
    certificates.ensure(instance)
    assert (instance.pki / "ca.crt").read_bytes() == before


def test_a_set_for_other_addresses_is_made_anew(tmp_path: Path) -> None:
    certificates.ensure(Instance("dev", tmp_path, 2))
    before = (Instance("dev", tmp_path).pki / "ca.crt").read_bytes()
    certificates.ensure(Instance("dev", tmp_path, 3))
    assert (Instance("dev", tmp_path).pki / "ca.crt").read_bytes() != before


def test_an_interrupted_set_is_replaced(tmp_path: Path) -> None:
    instance = Instance("dev", tmp_path, 2)
    torn = instance.pki.with_suffix(".unfinished")
    torn.mkdir(parents=True)
    (torn / "ca.key").write_text("torn")
    certificates.ensure(instance)
    assert "BEGIN PRIVATE KEY" in (instance.pki / "ca.key").read_text()
