"""The digest of a model's folder: what it covers, and what it must not notice."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from runtimes.digest import UnhashableTreeError, tree_digest


def model(root: Path) -> Path:
    (root / "data").mkdir(parents=True)
    (root / "MLmodel").write_text("flavors: {}\n")
    (root / "data" / "model.pkl").write_bytes(b"\x00\x01")
    return root


def test_the_digest_is_the_sha256_of_sorted_lines_of_hash_and_path(tmp_path: Path) -> None:
    lines = [
        f"{hashlib.sha256(b'flavors: {}' + bytes([10])).hexdigest()}  MLmodel\n",
        f"{hashlib.sha256(bytes([0, 1])).hexdigest()}  data/model.pkl\n",
    ]
    assert tree_digest(model(tmp_path)) == hashlib.sha256("".join(lines).encode()).hexdigest()


def test_what_the_registry_adds_to_a_download_changes_nothing(tmp_path: Path) -> None:
    before = tree_digest(model(tmp_path))
    (tmp_path / "registered_model_meta").write_text("model_name: iris\n")
    assert tree_digest(tmp_path) == before


def test_an_empty_folder_inside_changes_nothing(tmp_path: Path) -> None:
    before = tree_digest(model(tmp_path))
    (tmp_path / "empty").mkdir()
    assert tree_digest(tmp_path) == before


@pytest.mark.parametrize("change", ["content", "name", "place", "extra"])
def test_every_change_of_a_file_changes_the_digest(tmp_path: Path, change: str) -> None:
    before = tree_digest(model(tmp_path))
    file = tmp_path / "data" / "model.pkl"
    if change == "content":
        file.write_bytes(b"\x00\x02")
    elif change == "name":
        file.rename(tmp_path / "data" / "model.bin")
    elif change == "place":
        file.rename(tmp_path / "model.pkl")
    else:
        (tmp_path / "data" / "more").write_bytes(b"")
    assert tree_digest(tmp_path) != before


def test_paths_sort_as_posix_text_and_not_by_folder(tmp_path: Path) -> None:
    # "a-b" sorts before "a/b" as text ("-" < "/") although a folder walk would give a/b first.
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"1")
    (tmp_path / "a-b").write_bytes(b"2")
    lines = f"{hashlib.sha256(b'2').hexdigest()}  a-b\n{hashlib.sha256(b'1').hexdigest()}  a/b\n"
    assert tree_digest(tmp_path) == hashlib.sha256(lines.encode()).hexdigest()


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_without_files_has_no_digest(tmp_path: Path, there: bool) -> None:
    with pytest.raises(UnhashableTreeError, match="holds no files"):
        tree_digest(tmp_path if there else tmp_path / "nowhere")


def test_a_name_with_a_line_break_is_refused_because_it_could_pose_as_two_lines(tmp_path: Path) -> None:
    (tmp_path / "a\nb").write_bytes(b"")
    with pytest.raises(UnhashableTreeError, match="line break"):
        tree_digest(tmp_path)
