"""Endpoint object -> the Deployment or LeaderWorkerSet and the headless Service of a revision. Pure.

Neither states `spec.replicas`: that field is the autoscaler's alone. A replica over several nodes is a group of
LeaderWorkerSet: one pod leads and takes the requests, the others work for it.
"""

from controllers.kube.fields import key_of, mapping, number
from controllers.kube.resources import DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES, Gvr, Object
from spec import names

MODEL_VERSION = f"{names.GROUP}/model-version"
PORT_NAME = "http"
PORT = 8080


def nodes_of(endpoint: Object) -> int:
    """Pods of one replica of the declared revision."""
    return number(endpoint, "spec", "nodes") or 1


def kind_of(endpoint: Object) -> Gvr:
    """What runs the declared revision."""
    return LEADER_WORKER_SETS if nodes_of(endpoint) > 1 else DEPLOYMENTS


def workload_object(endpoint: Object, revision: str) -> Object:
    """What rollout owns of what runs the declared revision: the template as given, plus the labels."""
    render = group_object if nodes_of(endpoint) > 1 else deployment_object
    return render(endpoint, revision)


def deployment_object(endpoint: Object, revision: str) -> Object:
    """One pod a replica."""
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": _metadata(endpoint, revision),
        "spec": {
            "revisionHistoryLimit": 0,
            "selector": {"matchLabels": _selector(endpoint, revision)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": _template(endpoint, revision),
        },
    }


def group_object(endpoint: Object, revision: str) -> Object:
    """A group of pods a replica. All begin together, and together they begin anew when one of them ends.

    The leader's template is the workers'. Each group has a DNS name of its own: the one for all groups would be a
    Service of the revision's name, and that one is ours.
    """
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": _metadata(endpoint, revision),
        "spec": {
            "leaderWorkerTemplate": {
                "size": nodes_of(endpoint),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": _template(endpoint, revision),
            },
            "networkConfig": {"subdomainPolicy": "UniquePerReplica"},
            "startupPolicy": "LeaderCreated",
        },
    }


def service_object(endpoint: Object, revision: str, gvr: Gvr = DEPLOYMENTS) -> Object:
    """A headless Service: its EndpointSlices are how the gateway sees the pods. Of groups (`gvr` says what runs the
    revision) those that lead."""
    metadata = _metadata(endpoint, revision)
    del metadata["annotations"]
    leads = {names.LABEL_WORKER_INDEX: names.LEADER_INDEX} if gvr == LEADER_WORKER_SETS else {}
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": _selector(endpoint, revision) | leads,
            "ports": [{"name": PORT_NAME, "port": PORT, "protocol": "TCP", "targetPort": PORT_NAME}],
        },
    }


def _template(endpoint: Object, revision: str) -> Object:
    template = endpoint["spec"]["podTemplate"]
    metadata = mapping(template, "metadata")
    said = {
        "labels": mapping(metadata, "labels") | _labels(endpoint, revision),
        "annotations": mapping(metadata, "annotations"),
    }
    return {"metadata": {key: value for key, value in said.items() if value}, "spec": template["spec"]}


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
