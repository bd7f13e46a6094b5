"""The programs that knobless needs and pip cannot bring: Kubernetes, etcd, CoreDNS, Pulumi and its provider.

Those on PATH are used where their version suits; the others are built once from pinned Go modules, which
Go's checksum database verifies. Standard library only: this runs before there is an environment.

    plan(home, path_env) -> BuildPlan     what is there and what will be built
    ensure(plan, report) -> Tools         builds it, and says where everything is
    ensure_pulumi(plan, report)           the same without a cluster of our own
    ensure_one(home, target, report)      a program that goes into an image, where one needs it
"""

from .build import ensure, ensure_one, ensure_pulumi
from .golang import ToolchainError
from .install import PulumiTools, Tools, add_to_plugin_cache, install_language_host
from .planning import BuildPlan, Task, plan
from .progress import terminal_report
from .versions import LEADER_WORKER_SET, Target

__all__ = [
    "LEADER_WORKER_SET",
    "BuildPlan",
    "PulumiTools",
    "Target",
    "Task",
    "ToolchainError",
    "Tools",
    "add_to_plugin_cache",
    "ensure",
    "ensure_one",
    "ensure_pulumi",
    "install_language_host",
    "plan",
    "terminal_report",
]
