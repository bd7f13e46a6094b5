"""API keys: what is kept of them, and who can read what is saved."""

import hashlib
import stat
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stacks.cli import keys


def test_the_cluster_keeps_a_digest_and_never_the_key() -> None:
    key = keys.make_key("alpha", "2026-01-01T00:00:00Z")
    stored = keys.encode({key.key_id: key.entry})
    assert key.secret not in str(keys.decode({"data": stored}))
    assert key.entry.sha256 == hashlib.sha256(key.secret.encode()).hexdigest()


def test_a_key_has_256_random_bits_and_no_two_are_equal() -> None:
    made = {keys.make_key("alpha", "").secret for _ in range(100)}
    assert len(made) == 100
    assert all(len(secret) == len(keys.PREFIX) + 43 for secret in made)


def test_a_saved_key_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    key = keys.make_key("alpha", "")
    path = keys.save(tmp_path / "keys", key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_saved_key_is_found_again_only_while_the_cluster_accepts_it(tmp_path: Path) -> None:
    key = keys.make_key("alpha", "")
    keys.save(tmp_path, key)
    assert keys.saved(tmp_path, "alpha", {key.key_id: key.entry}) == (key.key_id, key.secret)
    assert keys.saved(tmp_path, "alpha", {}) is None
    assert keys.saved(tmp_path, "beta", {key.key_id: key.entry}) is None


def test_a_file_that_no_longer_holds_the_key_is_not_offered(tmp_path: Path) -> None:
    key = keys.make_key("alpha", "")
    keys.save(tmp_path, key).write_text("something else\n")
    assert keys.saved(tmp_path, "alpha", {key.key_id: key.entry}) is None


@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}-[0-9a-f]{8}", fullmatch=True), st.sampled_from(["alpha", "beta"])))
def test_entries_survive_the_secret(teams: dict[str, str]) -> None:
    entries = {key_id: keys.KeyEntry(team, "0" * 64, "2026-01-01T00:00:00Z") for key_id, team in teams.items()}
    assert keys.decode({"data": keys.encode(entries)}) == entries
