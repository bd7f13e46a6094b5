"""Requests to the API server: get, list, create, delete, server-side apply, the scale sub-resource.

Owns the connection pool and the translation of answers into objects or typed errors. Retries nothing
but a refused token: whether a write may be repeated, only its caller knows.
"""

import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal

import httpx

from controllers.kube.credentials import Credentials, from_environment
from controllers.kube.errors import Gone, Unauthorized, Unreachable, error_from
from controllers.kube.kept import kept
from controllers.kube.resources import DEPLOYMENTS, Gvr, Object, Objects
from controllers.kube.watch import Event, follow, selection
from spec import names

Propagation = Literal["Background", "Foreground", "Orphan"]

_PAGE = 500
_TIMEOUT = httpx.Timeout(10.0, connect=5.0, pool=10.0)
# A peer that is gone without a word is noticed after 10 + 3 x 5 = 25 s.
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]
_APPLY = "application/apply-patch+yaml"  # JSON is YAML


class KubeClient:
    """One asyncio client; close it, or use it as an async context."""

    def __init__(self, credentials: Credentials, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._token = credentials.token
        self.namespace = credentials.namespace
        self._http = httpx.AsyncClient(
            base_url=credentials.server,
            transport=transport or _transport(credentials),
            timeout=_TIMEOUT,
            headers={
                "accept": "application/json",
                "accept-encoding": "identity",
                "user-agent": names.MANAGED_BY,
            },
        )

    @classmethod
    def from_environment(cls) -> "KubeClient":
        """KUBECONFIG where set, else the pod's service account. Raises CredentialsError."""
        return cls(from_environment())

    async def __aenter__(self) -> "KubeClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def get(self, gvr: Gvr, namespace: str | None, name: str) -> Object:
        return await self._request("GET", gvr.path(namespace, name))

    async def list(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> Objects:
        """All objects, in pages. `labels` is a selector: `a=b,c in (d, e),!f`; `name` picks one by its name."""
        objects, _ = await self._listed(gvr, namespace, selection(labels, name), lambda obj: obj)
        return objects

    async def list_with_version(
        self, gvr: Gvr, namespace: str | None = None, labels: str | None = None, name: str | None = None
    ) -> tuple[Objects, str]:
        """What is kept of all objects, with the apiVersion and kind that list items lack; and the version to watch
        from. Never are more than a page's objects held whole."""
        return await self._listed(gvr, namespace, selection(labels, name), kept)

    async def _listed(
        self, gvr: Gvr, namespace: str | None, selected: dict[str, str], each: Callable[[Object], Object]
    ) -> tuple[Objects, str]:
        try:
            return await self._pages(gvr, namespace, selected, each, _PAGE)
        except Gone:  # the pages' snapshot was compacted away half-way
            return await self._pages(gvr, namespace, selected, each, 0)

    async def _pages(
        self, gvr: Gvr, namespace: str | None, selected: dict[str, str], each: Callable[[Object], Object], page: int
    ) -> tuple[Objects, str]:
        objects: Objects = []
        params = {"limit": str(page)} | selected
        while True:
            answer = await self._request("GET", gvr.path(namespace), params=params)
            for item in answer.get("items") or []:
                objects.append(each({"apiVersion": gvr.api_version, "kind": gvr.kind} | item))
            token = answer.get("metadata", {}).get("continue")
            if not token:
                return objects, str(answer["metadata"]["resourceVersion"])
            params["continue"] = token

    def watch(
        self,
        gvr: Gvr,
        namespace: str | None = None,
        labels: str | None = None,
        name: str | None = None,
        optional: bool = False,
    ) -> AsyncIterator[Event]:
        """First the state as one SYNC, then each change, for ever. See `controllers.kube.watch`.

        With `name` it needs permission for that one object only (RBAC `resourceNames`). An `optional` kind may be
        none of this cluster: that is told as ABSENT, and asked again now and then.
        """
        return follow(self, gvr, namespace, labels, name, optional)

    async def create(self, gvr: Gvr, namespace: str | None, body: Object, manager: str = names.MANAGED_BY) -> Object:
        params = {"fieldManager": manager}
        return await self._request("POST", gvr.path(namespace), params=params, body=_typed(gvr, body))

    async def replace(self, gvr: Gvr, namespace: str | None, body: Object, manager: str = names.MANAGED_BY) -> Object:
        """PUT; with metadata.resourceVersion it raises Conflict if somebody wrote in between."""
        path = gvr.path(namespace, body["metadata"]["name"])
        return await self._request("PUT", path, params={"fieldManager": manager}, body=_typed(gvr, body))

    async def delete(
        self,
        gvr: Gvr,
        namespace: str | None,
        name: str,
        propagation: Propagation = "Background",
        uid: str | None = None,
    ) -> None:
        """With `uid` only that very object: Conflict if the name is another's by now."""
        body: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        if uid is not None:
            body["preconditions"] = {"uid": uid}
        await self._request("DELETE", gvr.path(namespace, name), body=body)

    async def apply(
        self, gvr: Gvr, namespace: str | None, name: str, manager: str, body: Object, force: bool = True
    ) -> Object:
        """Server-side apply: `body` holds exactly what `manager` owns; what it leaves out, it gives up."""
        return await self._apply(gvr.path(namespace, name), gvr, name, manager, body, force)

    async def apply_status(
        self, gvr: Gvr, namespace: str | None, name: str, manager: str, body: Object, force: bool = True
    ) -> Object:
        """As `apply`, on the status sub-resource; `body` is the object with its `status`. Never creates."""
        return await self._apply(gvr.path(namespace, name, "status"), gvr, name, manager, body, force)

    async def _apply(self, path: str, gvr: Gvr, name: str, manager: str, body: Object, force: bool) -> Object:
        params = {"fieldManager": manager, "force": str(force).lower()}
        metadata = dict(body.get("metadata") or {}) | {"name": name}
        sent = _typed(gvr, body) | {"metadata": metadata}
        return await self._request("PATCH", path, params=params, body=sent, content_type=_APPLY)

    async def get_scale(self, namespace: str, deployment: str) -> Object:
        return await self._request("GET", DEPLOYMENTS.path(namespace, deployment, "scale"))

    async def patch_scale(
        self,
        namespace: str,
        name: str,
        replicas: int,
        resource_version: str | None = None,
        manager: str = names.MANAGER_AUTOSCALER,
        gvr: Gvr = DEPLOYMENTS,
    ) -> Object:
        """Sets replicas and nothing else. With `resource_version`: Conflict if it moved on.

        It is an apply, since only an apply makes `manager` the owner of a field that has none yet; a plain patch of
        the scale sub-resource leaves no trace in `managedFields` then, nor does the next writer's.

        The scale of a custom kind takes no apply (Kubernetes 1.35 answers 500): there the object's own field is
        applied, which makes no object where there is none.
        """
        version = {"resourceVersion": resource_version} if resource_version is not None else {}
        if gvr != DEPLOYMENTS:
            said: Object = {"metadata": version, "spec": {"replicas": replicas}}
            return await self.apply(gvr, namespace, name, manager, said)
        body: Object = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace} | version,
            "spec": {"replicas": replicas},
        }
        path = DEPLOYMENTS.path(namespace, name, "scale")
        params = {"fieldManager": manager, "force": "true"}
        return await self._request("PATCH", path, params=params, body=body, content_type=_APPLY)

    async def _request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        try:
            return await self._send(method, path, params, body, content_type, refused=False)
        except Unauthorized:  # the token may have been replaced since it was read
            return await self._send(method, path, params, body, content_type, refused=True)

    async def _send(
        self,
        method: str,
        path: str,
        params: Mapping[str, str] | None,
        body: Object | None,
        content_type: str,
        *,
        refused: bool,
    ) -> Object:
        headers = self._authorization(refused) | ({"content-type": content_type} if body is not None else {})
        try:
            response = await self._http.request(method, path, params=params, json=body, headers=headers)
        except httpx.TransportError as error:
            raise Unreachable(f"{method} {path}: {type(error).__name__} {error}") from error
        if response.is_success:
            return _object(response)
        raise error_from(response.status_code, _body(response))

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, str], read_timeout_s: float
    ) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a long answer, for `watch`. Silence of `read_timeout_s` is Unreachable."""
        timeout = httpx.Timeout(10.0, connect=5.0, read=read_timeout_s)
        try:
            async with self._http.stream(
                "GET", path, params=params, headers=self._authorization(False), timeout=timeout
            ) as response:
                if not response.is_success:
                    await response.aread()
                    if response.status_code == 401:
                        self._authorization(True)
                    raise error_from(response.status_code, _body(response))
                yield response.aiter_lines()
        except (httpx.TransportError, httpx.StreamError) as error:
            raise Unreachable(f"GET {path}: {type(error).__name__} {error}") from error

    def _authorization(self, refused: bool) -> dict[str, str]:
        token = self._token.value(time.monotonic(), refused=refused)
        return {"authorization": f"Bearer {token}"} if token else {}


def _transport(credentials: Credentials) -> httpx.AsyncHTTPTransport:
    return httpx.AsyncHTTPTransport(
        verify=credentials.tls if credentials.tls is not None else True,
        trust_env=False,  # a proxy of the user's is not on the way to a cluster's own API server
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=30.0),
        socket_options=_KEEPALIVE,
    )


def _typed(gvr: Gvr, body: Object) -> Object:
    return body | {"apiVersion": gvr.api_version, "kind": gvr.kind}


def _object(response: httpx.Response) -> Object:
    body = _body(response)
    return body if isinstance(body, dict) else {}


def _body(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError:
        return response.text[:500]
