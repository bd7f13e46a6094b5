"""What `knobless plan` and `up` do with the real engine: plans that leave nothing, announced removals and replaces."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stacks.cli import planning
from stacks.cli.applying import apply, gate
from stacks.cli.console import Console
from stacks.cli.errors import CliError
from stacks.cli.planning import StackPlan

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[3]


def planned(command: Any, environment: str, *stacks: str) -> tuple[StackPlan, ...]:
    return planning.make(command, list(stacks), environment, removals=False, report=lambda _: None)


def carry_out(command: Any, plans: tuple[StackPlan, ...], *announced: str) -> None:
    console = Console(err=io.StringIO(), out=io.StringIO())
    apply(command, plans, console, lambda _: lambda: None, gate(plans, announced))


def resources(engine: Any, stack: str) -> dict[str, dict[str, Any]]:
    exported = engine.run("stack", "export", "-s", stack)
    assert exported.code == 0, exported.output
    return {each["urn"]: each for each in json.loads(exported.output)["deployment"]["resources"]}


def unprotected(engine: Any, stack: str, *kinds: str) -> list[str]:
    """Namespaces, kinds and endpoints in the state that a bare `pulumi up` may delete."""
    found = resources(engine, stack)
    objects = {urn: each for urn, each in found.items() if each["type"].startswith("kubernetes:")}
    return [urn for urn, each in objects.items() if each["type"].endswith(kinds) and not each.get("protect")]


def written(engine: Any, environment: str) -> set[str]:
    """Every file of the backend and every generated one of this environment; the checkout has others' too."""
    generated = (ROOT / ".pulumi-config").glob(f"*.{environment}.*")
    return {str(path) for path in (*(engine.folder / "state").rglob("*"), *generated) if path.is_file()}


# A plan leaves nothing


@pytest.mark.case("pulumi-H8")
def test_many_endpoints_are_planned_at_once_and_no_trace_of_the_plan_stays(
    engine: Any, platform: str, command: Any, workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = [f"planned-{number}" for number in range(6)]
    stacks = [engine.endpoint("beta", name) for name in names]
    before = written(engine, workspace.environment)
    plans = planned(command, workspace.environment, *stacks)
    assert [plan.stack for plan in plans] == stacks
    for name, plan in zip(names, plans, strict=True):
        lines = planning.describe(plan)
        assert "new endpoint" in lines[0]
        assert f"create ModelEndpoint team-beta/{name}" in {line.strip() for line in lines}
    assert written(engine, workspace.environment) == before
    assert list(tmp_path.iterdir()) == []
    assert not set(stacks) & set(command.stacks())


# Plans as `knobless` does, in a process of its own.
PLAN = """
import sys
from pathlib import Path
from stacks.cli import interruption, planning
from stacks.cli.pulumi_cli import Pulumi
from stacks.cli.workspace import Workspace
interruption.install()
root, stacks, home, environment, bin_dir, *wanted = sys.argv[1:]
pulumi = Pulumi(Workspace(Path(root), Path(stacks), Path(home), environment, "test"), Path(bin_dir))
try:
    planning.make(pulumi, wanted, environment, removals=False, report=lambda line: print(line, flush=True))
except KeyboardInterrupt:
    interruption.finish()
    sys.exit(130)
"""


def test_an_interrupted_plan_leaves_no_trace_either(
    engine: Any, platform: str, command: Any, workspace: Any, tmp_path: Path, until: Callable[..., None]
) -> None:
    stacks = [engine.endpoint("beta", f"interrupted-{number}") for number in range(4)]
    before = written(engine, workspace.environment)
    argv = [str(workspace.root), str(workspace.stacks), str(workspace.home), workspace.environment]
    running = subprocess.Popen(
        [sys.executable, "-c", PLAN, *argv, str(Path(engine.program).parent), *stacks],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: bool(list(tmp_path.glob("knobless-plan-*"))), 60, "a copy to plan on")
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert list(tmp_path.glob("knobless-plan-*")) == []
    assert written(engine, workspace.environment) == before
    assert not set(stacks) & set(command.stacks())


# What is protected goes when it was announced


@pytest.fixture
def leaving(engine: Any, platform: str, platform_text: str, cluster: Any) -> str:
    """A team with an endpoint that are up, and that the files declare no more; the endpoint's stack."""
    engine.write("platform.yaml", platform_text + "  leaving: {}\n")
    ran = engine.up(platform, "--exclude", "**Deployment**")
    assert ran.code == 0, ran.output
    stack: str = engine.made(engine.endpoint("leaving", "last"))
    ran = engine.up(stack)
    assert ran.code == 0, ran.output
    engine.write("platform.yaml", platform_text)
    (engine.folder / "stacks" / stack.split(".")[0] / "endpoints" / "leaving" / "last.yaml").unlink()
    return stack


def test_a_team_is_removed_by_one_announced_up_and_by_nothing_less(
    engine: Any, platform: str, leaving: str, command: Any, workspace: Any, cluster: Any
) -> None:
    plans = planned(command, workspace.environment, platform)
    assert plans[1:] == (StackPlan(leaving, None),), "its endpoint goes before, though no removal was asked for"
    assert "    delete Namespace team-leaving" in planning.describe(plans[0]), "the plan says what would go"
    before = resources(engine, platform)

    with pytest.raises(CliError, match="delete of Namespace team-leaving: everything in the namespace would go"):
        carry_out(command, plans)
    with pytest.raises(CliError, match="delete of Namespace team-leaving"):
        carry_out(command, plans, "team-alpha")
    assert resources(engine, platform) == before
    assert cluster.endpoint("team-leaving", "last") is not None
    bare = engine.up(platform, "--exclude", "**Deployment**")
    assert bare.code != 0 and "protect" in bare.output, "and a bare `pulumi up` is stopped by the protection"
    assert cluster.get("/api/v1/namespaces/team-leaving")["status"]["phase"] == "Active"

    carry_out(command, plans, "team-leaving")
    assert cluster.get("/api/v1/namespaces/team-leaving") is None
    assert leaving not in command.stacks()
    assert not [urn for urn in resources(engine, platform) if "leaving" in urn]
    assert unprotected(engine, platform, ":Namespace", ":CustomResourceDefinition") == []
    assert cluster.get("/api/v1/namespaces/team-beta")["status"]["phase"] == "Active"
    (after,) = planned(command, workspace.environment, platform)
    assert not {"delete", "replace"} & set(after.preview.counts if after.preview else ())


def test_an_announced_removal_that_is_cut_off_leaves_what_stands_protected(
    engine: Any, platform: str, platform_text: str, command: Any, cluster: Any
) -> None:
    engine.write("platform.yaml", platform_text + "  staying: {}\n")
    assert engine.up(platform, "--exclude", "**Deployment**").code == 0
    (urn,) = [urn for urn in resources(engine, platform) if urn.endswith("Namespace::team-staying")]
    engine.write("platform.yaml", platform_text)
    with pytest.raises(CliError, match="cut off"):
        command.up(platform, lambda _: None, lambda: "cut off", [urn])
    if urn in resources(engine, platform):
        assert unprotected(engine, platform, ":Namespace") == []
        assert cluster.get("/api/v1/namespaces/team-staying")["status"]["phase"] == "Active"
    command.up(platform, lambda _: None, lambda: None, [urn] if urn in resources(engine, platform) else [])
    assert cluster.get("/api/v1/namespaces/team-staying") is None


@pytest.mark.case("pulumi-E1")
def test_a_replace_of_what_serves_is_refused_and_announced_ends_with_all_of_it_there(
    engine: Any, platform: str, platform_text: str, command: Any, workspace: Any, cluster: Any, registries: str
) -> None:
    """Another context is another provider, and the engine then replaces everything under it, named objects too."""
    stack = engine.made(engine.endpoint("alpha", "replaced"))
    assert engine.up(stack).code == 0
    uid = cluster.endpoint("team-alpha", "replaced")["metadata"]["uid"]
    named = (
        f"cluster: {{context: x}}\nregistry: http://{registries}\nmodel_registry: http://{registries}\n"
        "gateway: {expose: NodePort, port: 30443}\n"
    )
    engine.write("platform.yaml", platform_text + named)
    facts = json.loads((engine.folder / "cluster.json").read_text())
    workspace.cluster_file.write_text(json.dumps(facts | {"context": "x"}))
    try:
        plans = planned(command, workspace.environment, stack)
        with pytest.raises(CliError) as caught:
            carry_out(command, plans)
        for refused in ("ModelEndpoint team-alpha/replaced", "Service team-alpha/replaced", "kubernetes cluster"):
            assert f"refused: replace of {refused}" in caught.value.message
        assert cluster.endpoint("team-alpha", "replaced")["metadata"]["uid"] == uid
        carry_out(command, plans, "team-alpha/replaced", "cluster")
        assert cluster.endpoint("team-alpha", "replaced") is not None
        for kind in ("services", "serviceaccounts"):
            assert cluster.get(f"/api/v1/namespaces/team-alpha/{kind}/replaced") is not None, kind
        assert unprotected(engine, stack, ":ModelEndpoint") == []
        assert not planned(command, workspace.environment, stack)[0].changes
    finally:
        engine.write("platform.yaml", platform_text)
        workspace.cluster_file.write_text(json.dumps(facts))


@pytest.mark.case("pulumi-B4")
def test_a_stack_whose_cluster_is_gone_is_forgotten_without_asking_any_cluster(
    engine: Any, platform: str, command: Any, cluster: Any
) -> None:
    stack = engine.made(engine.endpoint("alpha", "forgotten"))
    assert engine.up(stack).code == 0
    command.forget(stack)
    assert stack not in command.stacks()
    assert cluster.endpoint("team-alpha", "forgotten") is not None
