"""How many processes make up a fleet, whatever the first of them allows."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtimes.interface import metrics as interface
from runtimes.mlflow import twins
from runtimes.mlflow.fleet import Fleet
from runtimes.mlflow.launch import LoadFailedError, launch
from runtimes.mlflow.metrics import Metrics
from runtimes.mlflow.predictor import NoTwinError, Predictor
from runtimes.mlflow.settings import Settings
from runtimes.quota import Cpu


class Made(Fleet):
    """Counts what it makes; its template allows so many copies."""

    def __init__(self, allowed: int) -> None:
        unused = cast(Any, None)
        super().__init__(
            Settings(model=Path("model"), model_python=Path("python")),
            Cpu(3.0, 3, 1),
            Metrics(interface.Metrics("m", "1")),
            unused,
        )
        self.allowed, self.made = allowed, list[str]()

    def _named(self, name: str) -> Predictor:
        self.made.append(name)
        about = SimpleNamespace(result=lambda: SimpleNamespace(head={"twins": self.allowed > 0}))
        return cast(Predictor, SimpleNamespace(name=name, loaded=about))

    async def _load(self) -> Predictor:
        return self._named("load")

    async def _twin(self, template: Predictor) -> Predictor:
        if self.made.count("twin") == self.allowed:
            raise NoTwinError("threads go on")
        return self._named("twin")


@pytest.mark.parametrize(
    ("allowed", "made", "used"),
    [
        (0, ["load"] * 3, ["load"] * 3),
        (1, ["load", "twin", "load"], ["load", "twin", "load"]),
        (2, ["load", "twin", "twin"], ["load", "twin", "twin"]),
        (3, ["load", "twin", "twin", "twin"], ["twin"] * 3),
    ],
)
async def test_every_process_that_was_started_serves_but_the_one_that_all_are_copies_of(
    monkeypatch: pytest.MonkeyPatch, allowed: int, made: list[str], used: list[str]
) -> None:
    monkeypatch.setattr(twins, "might_fork", lambda _: True)
    monkeypatch.setattr(twins, "adopt", lambda: True)
    fleet = Made(allowed)
    found = await fleet._first(3)
    assert [cast(Any, each).name for each in found] == used
    assert fleet.made == made


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_predictor_that_gets_no_socket_is_a_failed_load_with_a_reason() -> None:
    gone = lambda _: None  # noqa: E731
    template = Predictor(gone)
    with no_more_files():
        with pytest.raises(LoadFailedError, match="Too many open files"):
            launch(Settings(model=Path("model"), model_python=Path("python")), {})
        with pytest.raises(LoadFailedError, match="Too many open files"):
            Predictor.twin_of(template, gone)
