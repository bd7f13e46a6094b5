"""The embedded cluster as the command line uses it: what it needs on this machine, its start, its end.

Leaves how to `embedded`. Everything here is skipped where an environment names a cluster of its own.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import embedded
from embedded import debian, host, packages, preflight, toolchain
from embedded.images import ImageError
from embedded.instance import FOLDERS, Instance, choose_index, registered
from embedded.startup import NodeError
from spec.platform import PlatformSpec
from stacks.cli import mlflow_env, orphans, side_by_side, tls
from stacks.cli import workspace as workspaces
from stacks.cli.console import Console
from stacks.cli.errors import CliError, ExitCode
from stacks.cli.pulumi_cli import GENERATED
from stacks.cli.workspace import Workspace
from stacks.cluster import ClusterFacts


@dataclass(frozen=True)
class Prepared:
    """Programs that are ready to start."""

    tools: toolchain.Tools


def instance_of(workspace: Workspace, gateway_port: int) -> Instance:
    """The embedded instance of a workspace; its address slice stays the same over its life."""
    try:
        index = choose_index(workspace.instance, registered(workspace.home))
        return Instance(workspace.instance, workspace.home, index, gateway_port=gateway_port)
    except ValueError as error:
        raise CliError(str(error), code=ExitCode.USAGE) from error


def check_owner(workspace: Workspace) -> None:
    """CliError where the instance is another environment's: both would own the same namespaces on one cluster."""
    kubeconfig = workspace.node_dir / "kubeconfig"
    for file in sorted((workspace.home / "clusters").glob("*/cluster.json")):
        try:
            told = json.loads(file.read_bytes())
        except (OSError, ValueError):
            continue  # its environment ends, or was cut off while it began
        if file != workspace.cluster_file and told.get("kubeconfig") == str(kubeconfig) and kubeconfig.exists():
            other = file.parent.name.removeprefix(f"{workspace.instance}.")
            raise CliError(
                f"instance {workspace.instance!r} is the cluster of environment {other!r}",
                hint=f"`knobless -e {other} down` ends it; `knobless --instance NAME up` starts one beside it",
                code=ExitCode.USAGE,
            )


def check_machine(workspace: Workspace, gateway_port: int, console: Console) -> None:
    """Raises CliError with everything that this machine lacks, before anything is changed; says what is to come."""
    instance = instance_of(workspace, gateway_port)
    missing = toolchain.plan(workspace.home, _path()).missing
    needs = preflight.NOTHING_CACHED if missing else preflight.Needs()
    # Go may be missing: the toolchain then fetches one. A running instance already has its memory.
    memory = 0 if embedded.status(instance) is not None else needs.memory_bytes
    needs = dataclasses.replace(needs, go=None, memory_bytes=memory)
    problems = preflight.problems(host.observe(instance), instance, needs)
    if problems:
        lines = "\n".join(f"- {problem}" for problem in problems)
        raise CliError(f"this machine can't run the embedded cluster:\n{lines}", code=ExitCode.MACHINE)
    if announced := to_come(len(missing), workspace.mlflow_python.exists()):
        gib = needs.disk_bytes // preflight.GIB
        went_on = "Ctrl-C stops cleanly; the next run goes on."
        console.note(f"{announced}, up to {gib} GiB below {workspace.home}. {went_on}")


def to_come(missing_tools: int, has_environment: bool) -> str:
    """What a first run makes, and about how long that takes on two cores; nothing where all is there."""
    if missing_tools:
        return f"{missing_tools} tools are built from source once: about 20 minutes on two cores"
    if not has_environment:
        return "Images and MLflow's environment are made once: about 4 minutes on two cores"
    return ""


def prepare(workspace: Workspace, console: Console) -> Prepared:
    """Tools, packages, base image and MLflow's environment, side by side; what is there already is used."""

    def system(report: side_by_side.Report) -> None:
        packages.ensure(report)
        debian.build(workspace.home, report)

    plan = toolchain.plan(workspace.home, _path())
    try:
        tools = side_by_side.run(
            console,
            lambda report: toolchain.ensure(plan, report, workspace.python),
            {"system": system, "mlflow": lambda report: mlflow_env.ensure(workspace, report)},
        )
    except (toolchain.ToolchainError, ImageError, packages.PackageError) as error:
        raise CliError(str(error), hint="the next run goes on where this one ended", code=ExitCode.MACHINE) from error
    toolchain.add_to_plugin_cache(tools, workspace.pulumi_home)
    return Prepared(tools)


def start(workspace: Workspace, prepared: Prepared, platform: PlatformSpec, console: Console) -> ClusterFacts:
    """The running cluster's facts. Where it runs already as wanted, nothing changes."""
    instance = instance_of(workspace, platform.gateway.port)
    try:
        cluster = embedded.up(instance, prepared.tools.bin_dir, workspace.mlflow_python, console.progress)
    except (NodeError, ImageError) as error:
        hint = "`knobless down` clears it; the next `knobless up` starts afresh"
        raise CliError(f"the embedded cluster did not start: {error}", hint=hint, code=ExitCode.MACHINE) from error
    return ClusterFacts(
        kubeconfig=str(cluster.kubeconfig),
        registry=cluster.registry,
        registry_plain_http=True,
        model_registry=cluster.mlflow_uri,
        prometheus=cluster.prometheus,
        gateway_url=instance.gateway,
        node_address=cluster.node_address,
        authority=str(tls.ca_file(workspace.ca_dir)),
    )


def stop(workspace: Workspace, console: Console) -> None:
    """End the node and remove its state and that of its stacks; tools, images, models and keys stay."""
    if not workspace.cluster_file.exists():
        check_owner(workspace)
    embedded.down(instance_of(workspace, 8443), console.note)  # whatever its port was
    forget_stacks(workspace)


def forget_stacks(workspace: Workspace) -> None:
    """Remove the state of stacks whose cluster is gone, with the configuration that Pulumi generated for them."""
    orphans.end(workspace.cluster_dir)
    shutil.rmtree(workspace.cluster_dir, ignore_errors=True)
    for generated in (workspace.root / GENERATED).glob(f"Pulumi.{workspace.environment}.*.yaml"):
        generated.unlink()


def purge(workspace: Workspace, console: Console) -> None:
    """Remove what is ours of the state folder. Raises CliError where another instance still runs."""
    try:
        left = embedded.purge(workspace.home, FOLDERS | workspaces.FOLDERS)
    except ValueError as error:
        raise CliError(str(error), hint="`knobless --instance NAME down` ends it") from error
    if left:
        console.note(f"    left in {workspace.home}, since knobless did not make it: {', '.join(left)}")


def pulumi_only(workspace: Workspace, console: Console) -> Path:
    """The folder of pulumi and its plugins, built where there is none; no cluster of ours is needed for it."""
    plan = toolchain.plan(workspace.home, _path())
    try:
        tools = toolchain.ensure_pulumi(plan, console.progress, workspace.python)
    except toolchain.ToolchainError as error:
        raise CliError(str(error), hint="the next run goes on where this one ended", code=ExitCode.MACHINE) from error
    toolchain.add_to_plugin_cache(tools, workspace.pulumi_home)
    return tools.bin_dir


def bin_dir(workspace: Workspace) -> Path:
    """The folder of tools of this checkout, whether or not they are there already."""
    return toolchain.plan(workspace.home, _path()).bin_dir


def _path() -> str:
    return os.environ.get("PATH", os.defpath)
