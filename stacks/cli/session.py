"""One command's run: what Git says, where the cluster is, and questions to its API server.

Owns turning failures of these into one clear message each. What a command does is in `bring_up`, `views`, `access`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from controllers.kube import MODEL_ENDPOINTS, KubeClient, KubeError, Object
from controllers.kube.credentials import CredentialsError, from_kubeconfig
from spec.environment import Environment
from spec.platform import PlatformSpec
from spec.problems import SpecError
from stacks import cluster
from stacks.cli import context_cluster, tls
from stacks.cli.console import Console
from stacks.cli.context_cluster import Entrance
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts
from stacks.declared import read_environment, read_platform

T = TypeVar("T")
NOT_RUNNING = "nothing runs here: `knobless up` starts it"


@dataclass
class Session:
    """One command's run in one workspace."""

    workspace: Workspace
    console: Console

    def declared(self) -> Environment:
        """The environment's files, checked whole; raises CliError with every problem."""
        try:
            return read_environment(self.workspace.stacks, self.workspace.environment)
        except SpecError as error:
            raise self._wrong(error) from None

    def platform(self) -> PlatformSpec:
        """What platform.yaml says: an endpoint's broken file is in the way of nobody who looks at what runs."""
        try:
            return read_platform(self.workspace.stacks, self.workspace.environment)
        except SpecError as error:
            raise self._wrong(error) from None

    def _wrong(self, error: SpecError) -> CliError:
        count = len(error.problems)
        title = f"{count} problem{'s' if count > 1 else ''} in stacks/{self.workspace.environment}:"
        return CliError("\n".join([title, *map(str, error.problems)]), code=ExitCode.SPEC)

    def facts(self) -> ClusterFacts:
        """Where the running cluster is; raises CliError where none is known."""
        try:
            told = {**os.environ, cluster.VARIABLE: str(self.workspace.cluster_file)}
            return cluster.cluster_facts(self.platform(), told)
        except cluster.ClusterUnknownError as error:
            raise CliError(NOT_RUNNING, code=ExitCode.NOT_FOUND) from error

    def with_kube(self, facts: ClusterFacts, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        """Run something against the API server; an unreachable one is one clear message."""
        return self.ask(Path(facts.kubeconfig), context_cluster.context_of(self.workspace), work)

    def ask(self, kubeconfig: Path, context: str | None, work: Callable[[KubeClient], Awaitable[T]]) -> T:
        """As `with_kube`, of a cluster that need not be declared."""

        async def inside() -> T:
            chosen = context_cluster.credentials(kubeconfig, context) if context else from_kubeconfig(kubeconfig)
            async with KubeClient(chosen) as kube:
                return await work(kube)

        try:
            return asyncio.run(inside())
        except (KubeError, CredentialsError, OSError) as error:
            hint = f"`kubectl --context {context} get nodes` has to work first" if context else NOT_RUNNING
            raise CliError(f"the cluster does not answer as it should: {error}", hint=hint) from error

    def entrance(self, facts: ClusterFacts) -> Entrance:
        """How clients reach the gateway: known of the embedded cluster, asked of another."""
        ca_dir, platform = self.workspace.ca_dir, self.platform()
        if platform.context is None:
            return Entrance(facts.gateway_url, tls.ca_file(ca_dir))
        return self.with_kube(facts, lambda kube: context_cluster.entrance_of(kube, platform, ca_dir))

    def endpoints(self) -> list[Object]:
        """All endpoint objects of the cluster, by team and name."""
        found = self.with_kube(self.facts(), lambda kube: kube.list(MODEL_ENDPOINTS))
        return sorted(found, key=lambda item: (item["spec"]["team"], item["metadata"]["name"]))

    def endpoint(self, name: str) -> Object:
        for item in self.endpoints():
            if item["metadata"]["name"] == name:
                return item
        raise CliError(f"no endpoint {name!r}", hint="`knobless status` lists them", code=ExitCode.NOT_FOUND)

    def agree(self, question: str, assume_yes: bool, hint: str) -> None:
        """Go on after a yes; CliError otherwise, and where nobody can answer."""
        if assume_yes:
            return
        if not sys.stdin.isatty():
            raise CliError(f"{question} Nobody can answer here, so nothing was applied.", hint=hint)
        if not click.confirm(question, err=True):
            raise CliError("nothing was applied", hint="answer yes, or leave it as it is")
