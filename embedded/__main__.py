"""The embedded cluster's own command line, for its tests and for whoever works on it; users have `knobless`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path

from embedded import host, node, packages, preflight, snapshot
from embedded.images import ImageError
from embedded.instance import DEFAULT_HOME, Instance, choose_index, registered
from embedded.packages import PackageError
from embedded.startup import NodeError


def main(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    home = options.home.resolve()
    index = options.index if options.index is not None else choose_index(options.instance, registered(home))
    instance = Instance(options.instance, home, index)
    try:
        return int(COMMANDS[options.command](instance, options))
    except (NodeError, ImageError, PackageError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m embedded", description=__doc__)
    parser.add_argument("command", choices=sorted(COMMANDS))
    parser.add_argument("component", nargs="?", help="of stop and start")
    parser.add_argument("--instance", default="default")
    parser.add_argument("--home", type=Path, default=DEFAULT_HOME)
    parser.add_argument("--index", type=int, help="address slice, 0 to 15; by default the instance's last one")
    parser.add_argument("--tools", type=Path, help="folder of kube-apiserver, etcd, coredns and the others")
    parser.add_argument("--mlflow-python", type=Path, help="interpreter that has mlflow; without it there is none")
    return parser


def _up(instance: Instance, options: argparse.Namespace) -> int:
    if options.tools is None:
        print("error: up needs --tools", file=sys.stderr)
        return 2
    start_s = time.monotonic()

    def report(line: str) -> None:
        print(f"{time.monotonic() - start_s:6.1f} s  {line}", file=sys.stderr)

    if node.status(instance) is None:
        found = preflight.problems(host.observe(instance), instance, preflight.Needs())
        if found:
            print("\n".join(f"error: {problem}" for problem in found), file=sys.stderr)
            return 1
        packages.ensure(report)
    cluster = node.up(instance, options.tools.resolve(), options.mlflow_python, report)
    print(json.dumps({name: str(value) for name, value in dataclasses.asdict(cluster).items()}, indent=2))
    return 0


def _down(instance: Instance, options: argparse.Namespace) -> int:
    node.down(instance, lambda line: print(line, file=sys.stderr))
    return 0


def _status(instance: Instance, options: argparse.Namespace) -> int:
    status = node.status(instance)
    if status is None:
        print(f"{instance.node_name} does not run")
        return 3
    for name, member in status.members.items():
        print(f"{name:24} {member.phase:9} failures {member.failures}  {member.last_end or ''}".rstrip())
    return 0 if status.all_ready else 1


def _stop(instance: Instance, options: argparse.Namespace) -> int:
    node.stop_component(instance, options.component)
    return 0


def _start(instance: Instance, options: argparse.Namespace) -> int:
    node.start_component(instance, options.component)
    return 0


def _snapshot(instance: Instance, options: argparse.Namespace) -> int:
    print(json.dumps(snapshot.host_snapshot(), indent=1))
    return 0


def _purge(instance: Instance, options: argparse.Namespace) -> int:
    node.purge(instance.home)
    return 0


COMMANDS = {
    "up": _up,
    "down": _down,
    "status": _status,
    "stop": _stop,
    "start": _start,
    "snapshot": _snapshot,
    "purge": _purge,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
