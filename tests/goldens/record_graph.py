"""Runs the Pulumi program against a recording monitor and prints every registration with its options, as JSON.

A script of its own, started once a recording: the SDK keeps its state in module globals and event loops.
Arguments: the stack's name, the folder of the environments, and a file of facts where it is not the environment's own.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from pulumi.runtime import mocks, settings
from pulumi.runtime.stack import run_in_stack

from runtimes.selection_card import Card
from spec import names
from spec.image_reference import ImageReference
from spec.model_reference import ModelReference
from spec.revision import canonical_json
from stacks import program
from stacks.cluster import ClusterFacts
from stacks.images import Image
from stacks.model_registry import RegisteredModel

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
CHAT = Card("transformers", pyfunc=True, python="3.12.1", task="llm/v1/chat", size_bytes=60 << 30)
CARD = Card("sklearn", pyfunc=True, python="3.11.9", takes="columns", size_bytes=12_345)


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Whole numbers as such again: on the wire each number is a float."""
    result: dict[str, Any] = json.loads(canonical_json(value))
    return result


class Mirror(mocks.Mocks):
    """Every resource comes out as it went in."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], None]:
        return {}, None


class Recorder(mocks.MockMonitor):
    def __init__(self) -> None:
        super().__init__(Mirror())
        self.seen: list[dict[str, Any]] = []
        self.outputs: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        if request.type != "pulumi:pulumi:Stack":
            self.seen.append(
                {
                    "type": request.type,
                    "name": request.name,
                    "parent": request.parent.split("::", 2)[-1],
                    "provider": request.provider.split("::")[-2] if request.provider else "",
                    "protect": request.protect,
                    "custom": request.custom,
                    "after": sorted(urn.split("::", 2)[-1] for urn in request.dependencies),
                    "ignoreChanges": list(request.ignoreChanges),
                    "deletedWith": request.deletedWith.split("::", 2)[-1],
                    "deleteBeforeReplace": request.deleteBeforeReplace,
                    "retainOnDelete": request.retainOnDelete,
                    "inputs": plain(json_format.MessageToDict(request.object)),
                }
            )
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        if request.urn.split("::")[2] == "pulumi:pulumi:Stack":
            self.outputs = plain(json_format.MessageToDict(request.outputs))
        return super().RegisterResourceOutputs(request)


class Answers:
    """What registries would say: a model for every reference, a digest for every tag."""

    def model(self, reference: ModelReference) -> RegisteredModel:
        card = CHAT if reference.name == "chat" else CARD
        return RegisteredModel(reference.uri, reference.version_text, "ab" * 32, card, "environment-1")

    def digest(self, image: Image) -> str:
        return image.at("sha256:" + "cd" * 32)

    def own(self, reference: ImageReference) -> str:
        return reference.at("sha256:" + "ef" * 32)


def answers(cluster: ClusterFacts, embedded: bool) -> Answers:
    return Answers()


def main(stack: str, stacks: str, cluster: str | None = None) -> None:
    stacks = str(Path(stacks).resolve())
    os.chdir(ROOT)  # the facts of a cluster name files by their place in the repository
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    monitor = Recorder()
    mocks.set_mocks(Mirror(), project=names.PROJECT, stack=stack, preview=False, monitor=monitor)
    # The mocks' own root is finished already; the program's outputs need a fresh one.
    settings.set_root_resource(None)  # type: ignore[arg-type]
    named = names.parse_stack(stack)
    variables = {
        "KNOBLESS_CLUSTER": cluster or str(HERE / f"{named.environment}.cluster.json"),
        "KNOBLESS_STACKS": stacks,
        "HOME": "/home/user",
    }
    declare = partial(program.declare, named, ROOT, variables, answers)
    loop.run_until_complete(run_in_stack(declare))
    resources = sorted(monitor.seen, key=lambda seen: (seen["type"], seen["name"]))
    json.dump({"resources": resources, "outputs": monitor.outputs}, sys.stdout, indent=1, sort_keys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
