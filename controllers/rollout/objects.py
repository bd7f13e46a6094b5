"""Endpoint object -> the Deployment and the headless Service of a revision. Pure.

The Deployment never states `spec.replicas`: that field is the autoscaler's alone.
"""

from controllers.kube.fields import key_of, mapping
from controllers.kube.resources import DEPLOYMENTS, SERVICES, Object
from spec import names

MODEL_VERSION = f"{names.GROUP}/model-version"
PORT_NAME = "http"
PORT = 8080


def deployment_object(endpoint: Object, revision: str) -> Object:
    """What rollout owns of the declared revision's Deployment: the template as given, plus the labels."""
    template, selector = endpoint["spec"]["podTemplate"], _selector(endpoint, revision)
    metadata = mapping(template, "metadata")
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": _metadata(endpoint, revision),
        "spec": {
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": selector},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    key: value
                    for key, value in {
                        "labels": mapping(metadata, "labels") | _labels(endpoint, revision),
                        "annotations": mapping(metadata, "annotations"),
                    }.items()
                    if value
                },
                "spec": template["spec"],
            },
        },
    }


def service_object(endpoint: Object, revision: str) -> Object:
    """A headless Service: its EndpointSlices are how the gateway sees the pods."""
    metadata = _metadata(endpoint, revision)
    del metadata["annotations"]
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": _selector(endpoint, revision),
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
        },
    }


def _metadata(endpoint: Object, revision: str) -> Object:
    namespace, name = key_of(endpoint)
    owner = {
        "apiVersion": endpoint["apiVersion"],
        "kind": endpoint["kind"],
        "name": name,
        "uid": endpoint["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": revision,
        "namespace": namespace,
        "labels": _labels(endpoint, revision),
        "annotations": {MODEL_VERSION: str(endpoint["spec"]["model"]["version"])},
        "ownerReferences": [owner],
    }


def _labels(endpoint: Object, revision: str) -> dict[str, str]:
    return names.revision_labels(key_of(endpoint)[1], endpoint["spec"]["team"], revision)


def _selector(endpoint: Object, revision: str) -> dict[str, str]:
    return {names.LABEL_ENDPOINT: key_of(endpoint)[1], names.LABEL_REVISION: revision}
