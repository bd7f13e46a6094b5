"""Writes anew what is chosen for each model; read the difference before it is committed.

Argument: the file to write; without one, the golden itself.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from runtimes.selection import SelectionError, Wish, select
from runtimes.selection_card import Card, read_card

HERE = Path(__file__).resolve().parent
FILES = "# files: "


def card_of(path: Path) -> Card:
    """The card of an MLmodel whose comment names the files beside it."""
    text = path.read_text()
    (files,) = [line.removeprefix(FILES).split() for line in text.splitlines() if line.startswith(FILES)]
    return read_card(yaml.safe_load(text), files)


def chosen(card: Card) -> dict[str, Any]:
    try:
        return asdict(select(card, Wish()))
    except SelectionError as error:
        return {"refused": [asdict(refusal) for refusal in error.refusals]}


def choices() -> dict[str, Any]:
    """By the name of the file: the card's text, and what is chosen without any wish."""
    cards = {path.stem: card_of(path) for path in sorted(HERE.glob("*.yaml"))}
    return {name: {"card": json.loads(card.text), "choice": chosen(card)} for name, card in cards.items()}


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "choices.json"
    target.write_text(json.dumps(choices(), indent=1, sort_keys=True) + "\n")
