"""``python -m runtimes.triton.arrange``: the Triton inside the pytriton package, in the layout of Triton's own images.

Owns that layout (`bin/`, `lib/`, `backends/`) for an installation that lacks it; leaves running it to process. It is
run once, where an image or a test's environment is made.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
from pathlib import Path

_WHERE = "import sys, sysconfig; print(sysconfig.get_path('purelib')); print('%d.%d' % sys.version_info[:2])"


def arrange(python: Path, to: Path) -> None:
    """Make the folder ``to`` from the pytriton that this interpreter has."""
    told = subprocess.run([str(python), "-c", _WHERE], capture_output=True, text=True, check=True).stdout.split()
    packages, version = Path(told[0]), told[1]
    inside = packages / "pytriton" / "tritonserver"
    backend = to / "backends" / "python"
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(inside / "backends" / "python", backend)
    stub = shutil.copy2(inside / "python_backend_stubs" / version / "triton_python_backend_stub", backend)
    binary = inside / "bin" / "tritonserver"
    for program in (Path(stub), binary):
        program.chmod(0o755)
    (to / "bin").mkdir()
    (to / "bin" / "tritonserver").symlink_to(binary)
    (to / "lib").symlink_to(packages / "nvidia_pytriton.libs")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m runtimes.triton.arrange", description=arrange.__doc__)
    parser.add_argument("--python", type=Path, required=True, help="the interpreter that has pytriton")
    parser.add_argument("--to", type=Path, required=True, help="the folder to make")
    told = parser.parse_args()
    arrange(told.python, told.to)


if __name__ == "__main__":
    main()
