"""The first configuration: from an API server that may not be there yet, or from a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from controllers.gateway import first
from controllers.gateway.__main__ import main
from controllers.gateway.settings import QueueClass, Settings
from controllers.kube import ENDPOINT_SLICES, MODEL_ENDPOINTS, SECRETS, Gvr
from tests.gateway_lab.cluster import Cluster, endpoint_object, keys_object, revision, slices
from tests.gateway_lab.pods import Pod, takes

REV = revision("iris")
POD = Pod(f"{REV}-a", takes(0), port=8080)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(run=tmp_path, queue_classes=(QueueClass(5000, 2),))


@pytest.fixture
def logging_restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def filled() -> Cluster:
    cluster = Cluster()
    cluster.put(MODEL_ENDPOINTS, endpoint_object())
    cluster.put(ENDPOINT_SLICES, *slices("iris", REV, [POD]))
    cluster.put(SECRETS, keys_object({"key": "alpha"}))
    return cluster


async def test_everything_that_the_api_server_lists_is_in_the_first_configuration(settings: Settings) -> None:
    first.write(await first.from_api(filled(), wait_s=1), settings)
    assert f"server {REV}-a 127.0.0.1:8080 maxconn 4\n" in settings.config.read_text()
    assert (settings.run / "routes.map").read_text() == "iris b00000/100/10000\n"
    assert (settings.run / "keys.map").read_text().endswith(" alpha\n")


async def test_an_api_server_that_stays_away_is_one_sentence_after_the_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first, "_RETRY_S", 0.001)
    cluster = filled()
    cluster.away = True
    with pytest.raises(first.StartError, match=r"within 0\.02 s: the API server is away"):
        await first.from_api(cluster, wait_s=0.02)
    assert len(caplog.records) == 1


async def test_an_api_server_that_comes_late_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(first, "_RETRY_S", 0.0)
    cluster = filled()
    cluster.away = True
    listing = cluster.list

    async def comes(gvr: Gvr, *place: object, **selectors: object) -> list[dict[str, object]]:
        try:
            return await listing(gvr)
        finally:
            cluster.away = False

    monkeypatch.setattr(cluster, "list", comes)
    assert [each.name for each in (await first.from_api(cluster, wait_s=5)).endpoints] == ["iris"]


async def test_a_second_rendering_keeps_the_back_ends_of_the_first(settings: Settings) -> None:
    cluster = filled()
    first.write(await first.from_api(cluster, 1), settings)
    cluster.put(MODEL_ENDPOINTS, endpoint_object("aster"))
    first.write(await first.from_api(cluster, 1), settings)
    assert (settings.run / "routes.map").read_text() == "aster b00001/100/10000\niris b00000/100/10000\n"


@pytest.mark.usefixtures("logging_restored")
def test_objects_in_a_file_do_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, run = tmp_path / "objects.json", tmp_path / "run"
    objects = {"endpoints": [endpoint_object()], "slices": slices("iris", REV, [POD]), "keys": keys_object({})}
    source.write_text(json.dumps(objects))
    monkeypatch.setenv("KNOBLESS_GATEWAY_RUN", str(run))
    monkeypatch.setenv("PATH", "")  # without HAProxy nothing can be checked
    assert main(["render", "--from-file", str(source)]) == 0
    assert f"server {REV}-a " in (run / "haproxy.cfg").read_text()


@pytest.mark.usefixtures("logging_restored")
def test_a_setting_that_cannot_be_used_ends_it_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KNOBLESS_GATEWAY_HTTPS_PORT", "none")
    assert main(["serve"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "KNOBLESS_GATEWAY_HTTPS_PORT is 'none'" in json.loads(line)["message"]
