"""The pack's module: importing it starts nothing, and what the engine sends becomes plain values."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from pulumi_policy.proxy import UNKNOWN_NUMBER_VALUE, UNKNOWN_STRING_VALUE, unknown_checking_proxy

import policies
from policies.declared import UNKNOWN


@pytest.mark.case("pulumi-H3")
def test_importing_every_policy_module_returns() -> None:
    found = [module.name for module in pkgutil.iter_modules(policies.__path__, "policies.")]
    assert "policies.rules" in found
    for name in [*found, "policies.pack.__main__"]:
        assert importlib.import_module(name)


def test_what_the_engine_sends_becomes_plain_values_with_the_unknown_marked() -> None:
    pack = importlib.import_module("policies.pack.__main__")
    sent = {"a": [1.0, {"b": UNKNOWN_STRING_VALUE}], "c": UNKNOWN_NUMBER_VALUE, "d": "text", "e": None, "f": True}
    seen = pack.plain(unknown_checking_proxy(sent))
    assert seen == {"a": [1.0, {"b": UNKNOWN}], "c": UNKNOWN, "d": "text", "e": None, "f": True}
    assert type(seen) is dict
    assert type(seen["a"]) is list
