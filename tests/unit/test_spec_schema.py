"""Schemas for editors: they know the files' fields, and nothing that no file may say."""

from __future__ import annotations

import json

from spec.schema import endpoint_schema, platform_schema


def test_the_schema_of_an_endpoint_file_has_its_fields_and_no_team() -> None:
    schema = endpoint_schema()
    assert set(schema["properties"]) == {
        *("endpoint", "model", "image", "container", "concurrency", "latency", "resources", "runtime", "accelerator"),
        *("parallelism", "env", "egress", "access", "affinity", "deadline_s", "queue", "rollout"),
    }
    assert schema["required"] == ["endpoint", "concurrency"]
    assert schema["additionalProperties"] is False


def test_the_schema_of_a_platform_file_has_its_fields() -> None:
    schema = platform_schema()
    assert {"environment", "cluster", "teams", "gateway", "autoscaler"} <= set(schema["properties"])
    assert schema["required"] == ["environment"]


def test_no_schema_offers_null() -> None:
    assert "null" not in json.dumps([endpoint_schema(), platform_schema()])
