"""Where this pod stands among those of its replica.

Owns reading what LeaderWorkerSet tells each pod of a group; leaves the connection between them to tie and vLLM's flags
to arguments. Pure. One idea: a replica of one node is a group of one, so nobody else asks whether there are more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from runtimes.vllm.model import UnservableError

SIZE_VARIABLE, INDEX_VARIABLE, LEADER_VARIABLE = "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"


@dataclass(frozen=True, kw_only=True)
class Place:
    """One of ``size`` nodes; the one with ``index`` 0 leads, and all know its ``leader`` address."""

    size: int = 1
    index: int = 0
    leader: str = ""

    @property
    def leads(self) -> bool:
        """Whether this pod answers requests."""
        return self.index == 0

    @property
    def workers(self) -> frozenset[int]:
        """The indices of those that don't."""
        return frozenset(range(1, self.size))


ALONE = Place()


def place(nodes: int, environ: Mapping[str, str]) -> Place:
    """The pod's place in a group of so many nodes; UnservableError names the variable that is missing or differs."""
    if nodes == 1:
        return ALONE
    size, index = _number(environ, SIZE_VARIABLE), _number(environ, INDEX_VARIABLE)
    if size != nodes:
        raise UnservableError(f"--nodes is {nodes} and {SIZE_VARIABLE} is {size}: they must be the same")
    if index >= size:
        raise UnservableError(f"{INDEX_VARIABLE} is {index} in a group of {size}: it must be below")
    leader = environ.get(LEADER_VARIABLE, "")
    if not leader:
        raise UnservableError(_missing(LEADER_VARIABLE))
    return Place(size=size, index=index, leader=leader)


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "")
    if not text:
        raise UnservableError(_missing(name))
    if not (text.isascii() and text.isdigit()):
        raise UnservableError(f"{name} is not a number")
    return int(text)


def _missing(name: str) -> str:
    return f"{name} is not set, which LeaderWorkerSet sets in each pod of a replica of several nodes"
