"""``python -m runtimes.fetch``: bring a model to a pod, and prove that it is the one that was asked for.

Owns the download with MLflow's own client, the check of the digest and the move into place; runs in the model's
environment. Leaves loading to the server. One idea: the folder holds the whole model or no ``MLmodel``, and a restart
that finds the right files downloads nothing.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from runtimes import jsonlog
from runtimes.digest import UnhashableTreeError, tree_digest
from runtimes.termination import EXIT_FAILED, end_when_told, one_line, reason_of, write_reason

ATTEMPTS = 5
MARKER = "MLmodel"
_TEMPORARY = ".fetch-"
_MOST_WAIT_S = 15.0
# What asking again can't change.
_FINAL = frozenset({"RESOURCE_DOES_NOT_EXIST", "NOT_FOUND", "INVALID_PARAMETER_VALUE", "PERMISSION_DENIED"})
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+@")
_log = logging.getLogger("runtimes.fetch")

Download = Callable[[str, Path], Path]
"""A model's URI and an empty folder to the folder that then has the model's files."""


class FetchError(Exception):
    """The model can't be brought here; the text is one line for whoever runs the endpoint."""


def fetch(uri: str, sha256: str, to: Path, download: Download, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Make ``to`` hold exactly the model; false where it already did. Raises FetchError."""
    _remove_leftovers(to)
    if (to / MARKER).is_file() and tree_digest(to) == sha256:
        return False
    temporary = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=to))
    try:
        source = _patiently(uri, temporary, download, sleep)
        _verify(uri, sha256, source)
        _move(source, to)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return True


def mlflow_download(uri: str, folder: Path) -> Path:
    """Download with the client of the model's own MLflow, whichever version that is."""
    import mlflow

    return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(folder)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m runtimes.fetch", description="Download one model and verify it.")
    parser.add_argument("--uri", required=True, help="models:/NAME/VERSION or models:/m-ID")
    parser.add_argument("--sha256", required=True, help="the tree digest of the model, in hex")
    parser.add_argument("--to", type=Path, required=True, help="the folder to fill")
    options = parser.parse_args(arguments)
    jsonlog.configure()
    _bound_the_client(os.environ)
    try:
        new = fetch(options.uri, options.sha256.removeprefix("sha256:"), options.to, mlflow_download)
    except FetchError as error:
        return _failed(str(error))
    except (ImportError, OSError) as error:
        return _failed(f"{options.uri} can't be fetched: {reason_of(error)}")
    _log.info("the model is in place", extra={"uri": options.uri, "downloaded": new})
    return 0


def _failed(reason: str) -> int:
    safe = _CREDENTIALS.sub("", reason)
    _log.error("the model can't be fetched", extra={"reason": safe})
    write_reason(safe)
    return EXIT_FAILED


def _bound_the_client(environ: os._Environ[str]) -> None:
    # The client's own patience is minutes; ours is bounded and says what it waits for.
    environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "30")
    environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    environ["MLFLOW_DISABLE_TELEMETRY"] = environ["DO_NOT_TRACK"] = "true"
    environ["MLFLOW_CONFIGURE_LOGGING"] = "false"


def _patiently(uri: str, temporary: Path, download: Download, sleep: Callable[[float], None]) -> Path:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return download(uri, Path(tempfile.mkdtemp(dir=temporary)))
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            reason = _CREDENTIALS.sub("", one_line(str(error), 300)) or type(error).__name__
            if getattr(error, "error_code", None) in _FINAL:
                raise FetchError(f"{uri} is not in the model registry {_registry()}: {reason}") from None
            if attempt == ATTEMPTS:
                where = f"the model registry {_registry()}"
                raise FetchError(f"{where} did not give {uri} in {ATTEMPTS} attempts: {reason}") from None
            _log.warning("the download failed and is tried again", extra={"reason": reason, "attempt": attempt})
            sleep(min(2.0 ** (attempt - 1), _MOST_WAIT_S))
    raise AssertionError("unreachable")


def _verify(uri: str, sha256: str, source: Path) -> None:
    if not (source / MARKER).is_file():
        raise FetchError(f"{uri} is not a model: it has no {MARKER} file")
    try:
        found = tree_digest(source)
    except UnhashableTreeError as error:
        raise FetchError(f"{uri}: {error}") from None
    if found != sha256:
        raise FetchError(f"{uri} has changed: its files have the digest {found}, the endpoint asks for {sha256}")


def _move(source: Path, to: Path) -> None:
    """Rename child by child, the marker last: the folder itself is a mount and can't be renamed."""
    for old in sorted(to.iterdir(), key=lambda path: path.name != MARKER):
        if not old.name.startswith(_TEMPORARY):
            _remove(old)
    for new in sorted(source.iterdir(), key=lambda path: path.name == MARKER):
        new.rename(to / new.name)


def _remove_leftovers(to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for path in to.glob(f"{_TEMPORARY}*"):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _registry() -> str:
    return _CREDENTIALS.sub("", os.environ.get("MLFLOW_TRACKING_URI", "(MLFLOW_TRACKING_URI is not set)"))


if __name__ == "__main__":
    end_when_told()
    sys.exit(main())
