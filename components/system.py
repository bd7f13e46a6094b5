"""Owns the component `System`: what must stand before anything else of the platform can.

One idea: other components take its resources as "after", so that no namespace and no kind is missing when they come.
"""

from __future__ import annotations

import pulumi

from components.manifests import crd, system
from components.objects import declare


class System(pulumi.ComponentResource):
    """The kind `ModelEndpoint`, established, and the platform's namespace; both protected.

    Deleting the kind would delete every endpoint, deleting the namespace every key.
    """

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("knobless:serving:System", name, None, opts)
        self.kind = declare(crd.endpoint_kind(), self, protect=True)
        self.namespace = declare(system.namespace(), self, protect=True)
        self.register_outputs({})
