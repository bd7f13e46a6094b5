"""`python -m controllers.gateway render` lets HAProxy itself judge what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway_lab.cluster import endpoint_object, keys_object, revision, slices
from tests.gateway_lab.gateway import HAPROXY
from tests.gateway_lab.pods import Pod, takes

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]


def render(tmp_path: Path, certificate: str) -> subprocess.CompletedProcess[str]:
    rev = revision("iris")
    objects = {
        "endpoints": [endpoint_object()],
        "slices": slices("iris", rev, [Pod(f"{rev}-a", takes(0), port=8080)]),
        "keys": keys_object({"key": "alpha"}),
    }
    source = tmp_path / "objects.json"
    source.write_text(json.dumps(objects))
    environment = os.environ | {
        "PATH": f"{HAPROXY.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "KNOBLESS_GATEWAY_RUN": str(tmp_path / "run"),
        "KNOBLESS_GATEWAY_CERTIFICATE": certificate,
    }
    command = [sys.executable, "-m", "controllers.gateway", "render", "--from-file", str(source)]
    return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)


def test_the_whole_configuration_with_its_defaults_is_valid_to_haproxy(tmp_path: Path) -> None:
    done = render(tmp_path, certificate="")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run" / "haproxy.cfg").read_text().count("\nbackend ") == 259  # 256 and none, retries, openai


def test_a_configuration_that_haproxy_refuses_ends_the_start_with_its_reason(tmp_path: Path) -> None:
    done = render(tmp_path, certificate=str(tmp_path / "missing.crt"))
    assert done.returncode == 1
    assert "missing.crt" in json.loads(done.stderr.splitlines()[-1])["message"]
