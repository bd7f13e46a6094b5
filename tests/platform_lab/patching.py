"""Faults that no file can declare: an image that isn't there, a policy of somebody's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from controllers.kube import MODEL_ENDPOINTS, Conflict, KubeClient
from spec import names
from tests.platform_lab.command import ROOT
from tests.platform_lab.suite import Suite

RULE = '''"""A policy pack of somebody's own: version 2 of the sleeper may not be served."""
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy


def validate(args, report):
    if args.resource_type.endswith(":ModelEndpoint") and args.resource_type.startswith("kubernetes:"):
        if args.props["spec"]["model"]["version"] == "2":
            report("version 2 was recalled")


PolicyPack(
    name="of-somebody",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[ResourceValidationPolicy(name="recalled", description="No recalled model.", validate=validate)],
)
'''


def change(suite: Suite, endpoint: str, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change the endpoint object as a person with kubectl would."""

    async def work(kube: KubeClient) -> None:
        for _ in range(5):
            found = await kube.get(MODEL_ENDPOINTS, names.team_namespace("alpha"), endpoint)
            edit(found)
            try:
                await kube.replace(MODEL_ENDPOINTS, names.team_namespace("alpha"), found, "a-person")
                return
            except Conflict:
                continue
        raise AssertionError("five conflicts in a row")

    suite.ask(work)


@contextmanager
def with_image(suite: Suite, endpoint: str, image: str) -> Iterator[None]:
    """The endpoint declares another image for a while."""
    kept: dict[str, str] = {}

    def set_image(found: dict[str, Any]) -> None:
        container = found["spec"]["podTemplate"]["spec"]["containers"][0]
        kept["image"], container["image"] = container["image"], image

    def put_back(found: dict[str, Any]) -> None:
        found["spec"]["podTemplate"]["spec"]["containers"][0]["image"] = kept["image"]

    change(suite, endpoint, set_image)
    try:
        yield
    finally:
        change(suite, endpoint, put_back)


@contextmanager
def with_extra_rule(suite: Suite) -> Iterator[None]:
    """A second policy pack, named as a person names it."""
    pack = suite.stacks / "recall-pack"
    pack.mkdir(exist_ok=True)
    own = (ROOT / "policies" / "pack" / "PulumiPolicy.yaml").read_text()
    (pack / "PulumiPolicy.yaml").write_text(own.replace("../../.venv", str(ROOT / ".venv")))
    (pack / "__main__.py").write_text(RULE)
    os.environ["KNOBLESS_POLICY_PACKS"] = str(pack)
    try:
        yield
    finally:
        del os.environ["KNOBLESS_POLICY_PACKS"]
