"""Owns the component `LocalServices`: what only the embedded cluster is told.

The services themselves (registry, model registry, DNS) are processes of the node and stand before any stack.
"""

from __future__ import annotations

import pulumi

from components.manifests import system
from components.objects import declare


class LocalServices(pulumi.ComponentResource):
    def __init__(self, name: str, registry: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("knobless:serving:LocalServices", name, None, opts)
        declare(system.local_registry(registry), self)
        self.register_outputs({})
