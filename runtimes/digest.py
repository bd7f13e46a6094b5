"""The digest of a model's folder.

Owns the one definition that fetch, build and registration share; leaves downloading to others. One idea: a model is
its files, so its name in the platform is a hash over their hashes and relative paths.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

# Written by MLflow's client into a download, with the registry's name and version in it: not part of the model.
EXCLUDED = frozenset({"registered_model_meta"})
_CHUNK_BYTES = 1 << 20


class UnhashableTreeError(ValueError):
    """The folder is missing, empty, or holds a path that the digest cannot name."""


def file_sha256(path: Path) -> str:
    """The sha256 of one file, in lower-case hex."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def model_files(root: Path) -> list[Path]:
    """Every file that belongs to the model, sorted by its relative posix path."""
    files = [path for path in root.rglob("*") if path.is_file() and path.name not in EXCLUDED]
    return sorted(files, key=lambda path: path.relative_to(root).as_posix())


def tree_digest(root: Path) -> str:
    """sha256 (hex) over the lines ``<sha256 of file>  <relative posix path>`` sorted by path."""
    files = model_files(root) if root.is_dir() else []
    if not files:
        raise UnhashableTreeError(f"{root} holds no files")
    digest = hashlib.sha256()
    for path in files:
        name = path.relative_to(root).as_posix()
        if "\n" in name:
            raise UnhashableTreeError("a file name holds a line break")
        digest.update(f"{file_sha256(path)}  {name}\n".encode())
    return digest.hexdigest()
