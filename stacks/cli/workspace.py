"""Where things are for one run of the command line: the checkout, the state folder, the environment of Git.

Every path that the command line uses is computed here; nothing here reads or writes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOME = Path("/var/lib/knobless")
PROJECT = "knobless"
# What the command line makes directly below the state folder, besides the folders of `embedded`.
FOLDERS = frozenset({"ca", "clusters", "envs", "keys", "models", "payloads", "pulumi-home"})


@dataclass(frozen=True)
class Workspace:
    """One checkout, one state folder, one environment, one embedded instance.

    Args:
        root: the checkout (the folder of Pulumi.yaml).
        stacks: the folder that holds the environments' folders.
        home: KNOBLESS_HOME: tools, images, model registry, keys, Pulumi's state.
        environment: the folder below stacks/ that is planned and applied.
        instance: the embedded node's name.
        more_packs: policy packs besides the project's own.
    """

    root: Path
    stacks: Path
    home: Path
    environment: str
    instance: str
    more_packs: tuple[Path, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter of the project's own environment."""
        return Path(sys.prefix) / "bin" / "python"

    @property
    def mlflow_env(self) -> Path:
        return self.home / "envs" / "mlflow"

    @property
    def mlflow_python(self) -> Path:
        return self.mlflow_env / "bin" / "python"

    @property
    def node_dir(self) -> Path:
        return self.home / "nodes" / self.instance

    @property
    def cluster_dir(self) -> Path:
        """What belongs to one environment on one cluster, and goes with it."""
        return self.home / "clusters" / f"{self.instance}.{self.environment}"

    @property
    def cluster_file(self) -> Path:
        """Facts of the running cluster, for the Pulumi program and the other commands."""
        return self.cluster_dir / "cluster.json"

    @property
    def pulumi_dir(self) -> Path:
        return self.cluster_dir / "pulumi"

    @property
    def payloads_dir(self) -> Path:
        """Input examples of the models, as files that curl can send."""
        return self.home / "payloads"

    @property
    def pulumi_home(self) -> Path:
        """PULUMI_HOME of every run: its plugin cache and credentials, nothing of the user's."""
        return self.home / "pulumi-home"

    @property
    def passphrase_file(self) -> Path:
        return self.pulumi_dir / "passphrase"

    @property
    def keys_dir(self) -> Path:
        return self.home / "keys" / f"{self.instance}.{self.environment}"

    @property
    def ca_dir(self) -> Path:
        return self.home / "ca"

    @property
    def policy_pack(self) -> Path:
        """The project's own pack; `more_packs` of a person's organisation come after it."""
        return self.root / "policies" / "pack"


def home_problem(home: Path, root: Path, user_home: Path | None) -> str | None:
    """Why `home` can't be the state folder: `down --purge` removes folders of it by name, such as `go` and `keys`."""
    if not home.is_absolute():
        return f"KNOBLESS_HOME is {home}: write an absolute path"
    taken = next(
        (place for place in (user_home, root) if place and place.resolve().is_relative_to(home.resolve())), None
    )
    if taken is not None:
        other = home / "knobless"
        return f"KNOBLESS_HOME is {home}, which is or holds {taken}: name a folder of its own, such as {other}"
    return None


def from_process(environment: str, instance: str, env: dict[str, str] | None = None) -> Workspace:
    """The workspace of this process: KNOBLESS_ROOT, _STACKS, _HOME and _POLICY_PACKS, each with its default."""
    env = dict(os.environ) if env is None else env
    root = Path(env["KNOBLESS_ROOT"]) if env.get("KNOBLESS_ROOT") else Path(__file__).resolve().parents[2]
    stacks = Path(env.get("KNOBLESS_STACKS") or root / "stacks")
    home = Path(env.get("KNOBLESS_HOME") or DEFAULT_HOME)
    packs = tuple(Path(entry) for entry in env.get("KNOBLESS_POLICY_PACKS", "").split(os.pathsep) if entry)
    return Workspace(root, stacks, home, environment, instance, packs)
