"""Who may import what: nothing of ours but itself, and each side only what its environment has."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stacks import images

ROOT = Path(__file__).parents[2]
MODEL_SIDE = ("runtimes.mlflow.worker", "runtimes.mlflow.model", "runtimes.fetch")


def imports(module: str) -> set[str]:
    """Every module that this one imports, wherever in it the import stands."""
    path = ROOT / Path(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if not name.startswith("runtimes") or exists(name)}


def exists(module: str) -> bool:
    path = ROOT / Path(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def reached(module: str) -> tuple[set[str], set[str]]:
    """Modules of ours that this one reaches, and top-level packages of others."""
    ours, others, waiting = {module}, set(), [module]
    while waiting:
        for name in imports(waiting.pop()):
            if name.split(".")[0] == "runtimes":
                if name not in ours:
                    ours.add(name)
                    waiting.append(name)
            elif name.split(".")[0] not in sys.stdlib_module_names:
                others.add(name.split(".")[0])
    return ours, others


def every_module() -> list[str]:
    files = (ROOT / "runtimes").rglob("*.py")
    return sorted(".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files if file.stem != "__init__")


@pytest.mark.parametrize("module", MODEL_SIDE)
def test_the_model_s_side_needs_nothing_but_the_standard_library_and_mlflow_s_own(module: str) -> None:
    assert reached(module)[1] <= {"mlflow", "numpy", "pandas"}


def test_the_worker_itself_starts_on_the_standard_library_alone() -> None:
    tree = ast.parse((ROOT / "runtimes" / "mlflow" / "worker.py").read_text())
    at_start = {node.module for node in tree.body if isinstance(node, ast.ImportFrom) and node.module}
    assert all(not reached(name)[1] for name in at_start if name.startswith("runtimes."))


def test_the_front_starts_a_predictor_before_it_has_imported_what_it_serves_with() -> None:
    tell = "import sys, runtimes.mlflow.__main__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", tell], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "runtimes.mlflow.launch" in loaded
    assert not {"asyncio", "uvloop", "uvicorn", "orjson", "prometheus_client", "runtimes.mlflow.engine"} & loaded


@pytest.mark.parametrize("runtime", ["mlflow", "triton"])
def test_the_front_needs_nothing_but_what_its_lock_has(runtime: str) -> None:
    locked = re.findall(r"^([a-z-]+)==", (ROOT / "runtimes" / "requirements.txt").read_text(), re.MULTILINE)
    packages = {{"pyyaml": "yaml"}.get(name, name.replace("-", "_")) for name in locked}
    assert reached(f"runtimes.{runtime}.__main__")[1] <= packages


def test_what_runs_inside_vllm_needs_little_that_vllm_has_not() -> None:
    stated = (ROOT / "requirements" / "vllm.in").read_text()
    of_ours = {"orjson", "zstandard"}
    assert all(f"\n{name}" in stated for name in of_ours)
    of_vllm = {"httptools", "prometheus_client", "uvicorn", "uvloop", "yaml"}
    assert reached("runtimes.vllm.__main__")[1] | reached("runtimes.vllm.middleware")[1] <= of_ours | of_vllm


def test_the_interface_fits_beside_any_engine_s_pins() -> None:
    ours, others = reached("runtimes.interface.app")
    assert others == {"orjson", "prometheus_client", "zstandard"}
    assert {name.split(".")[1] for name in ours} == {"interface"}


@pytest.mark.parametrize("module", ["runtimes.digest", "runtimes.images"])
def test_what_the_command_line_uses_is_of_the_standard_library(module: str) -> None:
    assert reached(module)[1] == set()


ENTRANCES = {
    images.FETCH: ["fetch"],
    images.PROXY: ["proxy.__main__"],
    images.TRITON: ["triton.__main__", "triton.arrange", "triton.python_model"],
    images.VLLM: ["vllm.__main__", "vllm.server", "vllm.middleware"],
}


@pytest.mark.parametrize("image", ENTRANCES)
def test_all_of_ours_that_an_image_s_processes_import_goes_into_it(image: str) -> None:
    given = [ROOT / each for each in images.OWN[image].inputs]
    for module in {each for name in ENTRANCES[image] for each in reached(f"runtimes.{name}")[0]}:
        path = ROOT / Path(*module.split("."))
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        assert any(each in (file, *file.parents) for each in given), f"{module} is imported and not in the image"


def test_nothing_imports_the_control_plane() -> None:
    packages = {"spec", "stacks", "components", "controllers", "policies", "embedded", "pydantic"}
    assert not any(reached(module)[1] & packages for module in every_module())
    assert len(every_module()) > 20
