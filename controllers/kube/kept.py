"""What is kept of an object that a list or a watch told: what some controller of ours reads. Pure.

Owns what is left out: the books of field owners but for who sets replicas, and of a pod's spec all but its ports. Its
one idea: the words of ten thousand endpoints are the same few thousand, and each is held once. An endpoint with its
Deployment and two pods takes 35 KiB so, and 200 as decoded.
"""

from sys import intern
from typing import Any

from controllers.kube.fields import at, items, mapping
from controllers.kube.resources import PODS, Object


def kept(obj: Object) -> Object:
    """A new object. What it says of replicas' owners is as `managedFields` says it, without their other fields."""
    metadata = mapping(obj, "metadata")
    slim = obj | {"metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    if owners := [_owner(entry) for entry in items(metadata, "managedFields") if _owns_replicas(entry)]:
        slim["metadata"]["managedFields"] = owners
    if obj.get("kind") == PODS.kind and "spec" in obj:
        slim["spec"] = _ports(obj["spec"])
    found: Object = _shared(slim)
    return found


def _owns_replicas(entry: Object) -> bool:
    return at(entry, "fieldsV1", "f:spec", "f:replicas") is not None


def _owner(entry: Object) -> Object:
    return entry | {"fieldsV1": {"f:spec": {"f:replicas": {}}}}


def _ports(spec: Object) -> Object:
    containers = [{key: each[key] for key in ("name", "ports") if key in each} for each in items(spec, "containers")]
    return {"containers": containers}


def _shared(value: Any) -> Any:
    """The same, each text being the one text of these letters."""
    if type(value) is str:
        return intern(value)
    if isinstance(value, dict):
        return {intern(key): _shared(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shared(each) for each in value]
    return value
