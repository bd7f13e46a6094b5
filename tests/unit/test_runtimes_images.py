"""From a model's folder to its image: the environment, its digest, and why there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runtimes.images import (
    ModelFiles,
    UnsupportedModelError,
    environment,
    image_tag,
    read_files,
)

MLMODEL = """\
flavors:
  python_function:
    env: {conda: conda.yaml, virtualenv: python_env.yaml}
    loader_module: mlflow.sklearn
    python_version: 3.11.7
model_size_bytes: 1048576
"""
REQUIREMENTS = "mlflow==3.17.2\nscikit-learn==1.7.2\n"
PYTHON_ENV = "python: 3.11.7\nbuild_dependencies:\n- pip==23.0\ndependencies:\n- -r requirements.txt\n"
FILES = ModelFiles(MLMODEL, REQUIREMENTS, PYTHON_ENV)


def test_the_environment_is_the_model_s_own_pins() -> None:
    made = environment(FILES)
    assert (made.python, made.requirements) == ("3.11", ("mlflow==3.17.2", "scikit-learn==1.7.2"))
    assert made.requirements_text == REQUIREMENTS


@pytest.mark.parametrize(
    "same",
    ["scikit-learn==1.7.2\nmlflow==3.17.2\n", "# by hand\nmlflow==3.17.2  # loads it\n\nscikit-learn==1.7.2"],
)
def test_order_comments_and_blank_lines_make_no_other_image(same: str) -> None:
    assert environment(replace(FILES, requirements=same)).digest == environment(FILES).digest


@pytest.mark.parametrize("other", ["mlflow==3.17.2\n", "mlflow==3.17.1\nscikit-learn==1.7.2\n"])
def test_other_requirements_make_another_image(other: str) -> None:
    assert environment(replace(FILES, requirements=other)).digest != environment(FILES).digest


def test_a_patch_release_of_python_makes_no_other_image() -> None:
    assert environment(replace(FILES, python_env="python: '3.11.2'\n")).digest == environment(FILES).digest


def test_the_tag_changes_with_the_model_s_environment_and_with_our_own_recipe() -> None:
    made = environment(FILES)
    other = environment(replace(FILES, requirements="mlflow==3.17.2\n"))
    assert len({image_tag(made, "a"), image_tag(made, "b"), image_tag(other, "a")}) == 3
    assert image_tag(made, "a") == image_tag(environment(FILES), "a")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (replace(FILES, mlmodel=None), "no MLmodel file"),
        (replace(FILES, mlmodel="flavors: {}\n"), "no python_function flavor"),
        (replace(FILES, requirements=None), "no requirements.txt"),
        (replace(FILES, requirements="scikit-learn==1.7.2\n"), "does not list mlflow"),
        (replace(FILES, requirements="mlflow-extra==1\n"), "does not list mlflow"),
        (replace(FILES, requirements="mlflow==3.17.2\n-r more.txt\n"), "names something beside it: -r more.txt"),
        (replace(FILES, requirements="mlflow==3.17.2\n./local.whl\n"), "names something beside it"),
        (replace(FILES, requirements="mlflow==3.17.2\nx @ file:///tmp/x.whl\n"), "names something beside it"),
        (replace(FILES, python_env="python: 3.12.1\n"), "logged with Python 3.12.1, the image has 3.11"),
        (replace(FILES, python_env="python: 3.1\n"), "logged with Python 3.1, the image has 3.11"),
        (
            ModelFiles("flavors:\n  python_function:\n    loader_module: x\n", REQUIREMENTS, None),
            "says which Python",
        ),
    ],
)
def test_a_model_that_can_get_no_image_says_what_to_change(files: ModelFiles, why: str) -> None:
    with pytest.raises(UnsupportedModelError, match=why):
        environment(files)


@pytest.mark.parametrize("line", ["mlflow==3.17.2", "mlflow-skinny==3.17.2", "mlflow[extras]>=3", "MLflow", "mlflow<3"])
def test_every_way_to_require_mlflow_counts(line: str) -> None:
    assert environment(replace(FILES, requirements=line)).requirements == (line,)


def test_python_is_read_from_mlmodel_where_there_is_no_python_env() -> None:
    assert environment(replace(FILES, python_env=None)).python == "3.11"


def test_files_are_read_from_a_folder_and_missing_ones_are_none(tmp_path: Path) -> None:
    (tmp_path / "MLmodel").write_text(MLMODEL)
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    assert read_files(tmp_path) == ModelFiles(MLMODEL, REQUIREMENTS, None)
