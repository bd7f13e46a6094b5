"""What is read of a model's folder, in the environment that has MLflow, before anything is known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtimes.selection_card import Card, UnreadableModelError
from stacks.cli.inspect_model import card

MLMODEL = "flavors:\n  python_function: {python_version: 3.11.9}\n  pytorch: {model_data: data}\nmodel_size_bytes: 7\n"


def test_the_card_tells_from_the_files_how_a_network_is_stored(tmp_path: Path) -> None:
    (tmp_path / "MLmodel").write_text(MLMODEL)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "model.pth").touch()
    pickled = Card("pytorch", pyfunc=True, python="3.11.9", stored="pickle", size_bytes=7)
    assert card(tmp_path) == pickled
    (tmp_path / "data" / "model.pt2").touch()
    assert card(tmp_path).stored == "pt2"


@pytest.mark.parametrize("text", [None, "flavors: [", "- a", "", "\xff"])
def test_a_folder_without_a_readable_mlmodel_is_told_as_that(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "MLmodel").write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableModelError, match="MLmodel"):
        card(tmp_path)
