"""The gateway's certificate: whom it is for, who signed it, when it is made again."""

import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

from stacks.cli import tls

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTS = ["198.18.31.254", "localhost"]


def secret(ca: tls.Authority, hosts: list[str], now: datetime) -> dict[str, dict[str, str]]:
    certificate, key = tls.issue(ca, hosts, now)
    return {"data": {"tls.crt": base64.b64encode(certificate).decode(), "tls.key": base64.b64encode(key).decode()}}


def test_the_authority_is_made_once_and_its_key_is_private(tmp_path: Path) -> None:
    first, again = tls.authority(tmp_path, NOW), tls.authority(tmp_path, NOW)
    assert first.certificate == again.certificate
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


def test_a_certificate_of_this_authority_for_these_hosts_is_kept(tmp_path: Path) -> None:
    ca = tls.authority(tmp_path, NOW)
    assert tls.still_good(secret(ca, HOSTS, NOW), ca, HOSTS, NOW)


def test_a_certificate_is_made_again_for_a_new_host_before_it_ends_or_under_another_authority(tmp_path: Path) -> None:
    ca, other = tls.authority(tmp_path / "a", NOW), tls.authority(tmp_path / "b", NOW)
    mine = secret(ca, HOSTS, NOW)
    assert not tls.still_good(mine, ca, [*HOSTS, "gateway.example"], NOW)
    assert not tls.still_good(mine, ca, HOSTS, NOW + timedelta(days=tls.LEAF_DAYS - tls.RENEW_BEFORE_DAYS + 1))
    assert not tls.still_good(mine, other, HOSTS, NOW)


def test_a_secret_that_somebody_broke_is_made_again(tmp_path: Path) -> None:
    ca = tls.authority(tmp_path, NOW)
    for broken in ({}, {"data": {}}, {"data": {"tls.crt": "!"}}, {"data": {"tls.crt": "aGVsbG8="}}):
        assert not tls.still_good(broken, ca, HOSTS, NOW)
