"""What can't be declared is one sentence with its file and field, before the first resource is registered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pulumi
import pytest

from runtimes.selection_card import Card
from spec import names
from spec.image_reference import ImageReference
from spec.model_reference import ModelReference
from spec.problems import SpecError
from stacks import program
from stacks.cluster import ClusterFacts
from stacks.declared import read_environment, read_files
from stacks.images import Image, ImageError
from stacks.model_registry import ModelRegistryError, RegisteredModel

PLATFORM = "environment: local\nteams: {alpha: {}}\n"
WINE = "endpoint: wine\nmodel: models:/wine/1\nconcurrency: {min: 1, max: 8}\n"
CARD = Card("sklearn", pyfunc=True, python="3.11.9", size_bytes=12_345)
CLUSTER = ClusterFacts(kubeconfig="/k", registry="r:5000", model_registry="http://m:5500")


class Answers:
    """Registries that answer, or refuse with the given error."""

    def __init__(self, model: Exception | None = None, image: Exception | None = None) -> None:
        self._model, self._image = model, image

    def model(self, reference: ModelReference) -> RegisteredModel:
        if self._model is not None:
            raise self._model
        return RegisteredModel(reference.uri, reference.version_text, "ab" * 32, CARD, "e1")

    def digest(self, image: Image) -> str:
        if self._image is not None:
            raise self._image
        return image.at("sha256:" + "0" * 64)

    def own(self, reference: ImageReference) -> str:
        if self._image is not None:
            raise self._image
        return reference.at("sha256:" + "1" * 64)


def environment(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "cluster.json").write_text(CLUSTER.model_dump_json())
    return root


LOCAL = {"local/platform.yaml": PLATFORM, "local/endpoints/alpha/wine.yaml": WINE}


def declare(stack: str, root: Path, answers: Answers | None = None) -> None:
    variables = {"KNOBLESS_STACKS": str(root), "KNOBLESS_CLUSTER": str(root / "cluster.json"), "HOME": "/h"}
    program.declare(names.parse_stack(stack), root, variables, lambda cluster, embedded: answers or Answers())


def problems(stack: str, root: Path, answers: Answers | None = None) -> list[str]:
    with pytest.raises(SpecError) as caught:
        declare(stack, root, answers)
    return [str(problem) for problem in caught.value.problems]


def test_files_are_named_as_in_the_repository(tmp_path: Path) -> None:
    environment(tmp_path, LOCAL)
    assert sorted(read_files(tmp_path, "local")) == [f"stacks/{name}" for name in sorted(LOCAL)]


def test_an_environment_that_is_not_there_lacks_its_platform_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"stacks/nowhere/platform\.yaml"):
        read_environment(tmp_path, "nowhere")


def test_the_examples_of_the_repository_are_right() -> None:
    found = read_environment(Path(__file__).parents[2] / "stacks", "local")
    assert {(spec.team, spec.endpoint) for spec in found.endpoints} == {("alpha", "wine"), ("beta", "tumour")}


def test_every_problem_of_every_file_is_told_at_once(tmp_path: Path) -> None:
    broken = {"local/endpoints/alpha/wine.yaml": WINE.replace("8", "0"), "local/platform.yaml": PLATFORM + "grwth: 1\n"}
    environment(tmp_path, LOCAL | broken)
    told = problems("local.platform", tmp_path)
    assert [line.split(":")[0] for line in told] == [
        "stacks/local/endpoints/alpha/wine.yaml",
        "stacks/local/platform.yaml",
    ]


@pytest.mark.parametrize("stack", ["local.alpha.iris", "local.beta.wine"])
def test_a_stack_without_a_file_names_the_file_that_it_misses(tmp_path: Path, stack: str) -> None:
    environment(tmp_path, LOCAL)
    (told,) = problems(stack, tmp_path)
    _, team, endpoint = stack.split(".")
    assert told.startswith(f"stacks/local/endpoints/{team}/{endpoint}.yaml: no such file")


@pytest.mark.parametrize(
    "answers", [Answers(model=ModelRegistryError("not there")), Answers(image=ImageError("not there"))]
)
def test_a_model_that_cannot_be_served_is_a_problem_of_the_file_s_model_field(tmp_path: Path, answers: Answers) -> None:
    environment(tmp_path, LOCAL)
    assert problems("local.alpha.wine", tmp_path, answers) == [
        "stacks/local/endpoints/alpha/wine.yaml: model: not there"
    ]


def errors_shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs the program, which must end with the status that says its errors were shown."""
    shown: list[str] = []
    monkeypatch.setattr(pulumi.log, "error", shown.append)
    with pytest.raises(SystemExit) as ended:
        program.run()
    assert ended.value.code == 32
    return shown


@pytest.mark.parametrize(
    ("stack", "said"),
    [
        ("local", "'local' names no stack"),
        ("local.alpha.wine", "2 problems in what Git declares:\nstacks/"),
        ("local.platform", "2 problems in what Git declares:\nstacks/"),
    ],
)
def test_bare_pulumi_ends_with_one_error_and_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: str, said: str
) -> None:
    environment(tmp_path, {"local/platform.yaml": "environment: other\nsize: 1\n"})
    monkeypatch.setenv("KNOBLESS_STACKS", str(tmp_path))
    monkeypatch.setattr(pulumi, "get_stack", lambda: stack)
    monkeypatch.setattr(pulumi, "get_root_directory", lambda: str(tmp_path))
    (shown,) = errors_shown(monkeypatch)
    assert shown.startswith(said)


def test_a_cluster_that_never_started_ends_with_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(tmp_path, LOCAL)
    monkeypatch.setenv("KNOBLESS_STACKS", str(tmp_path))
    monkeypatch.delenv("KNOBLESS_CLUSTER", raising=False)
    monkeypatch.setattr(pulumi, "get_stack", lambda: "local.platform")
    monkeypatch.setattr(pulumi, "get_root_directory", lambda: str(tmp_path))
    (shown,) = errors_shown(monkeypatch)
    assert "`knobless up` starts it" in shown


def test_one_problem_is_told_as_one() -> None:
    error = SpecError([program.Problem("f", None, None, "model", "is missing")])
    assert program.told(error) == "1 problem in what Git declares:\nf: model: is missing"
