"""What a cycle has decided, told: as metrics, in the endpoint's status, as events.

Owns the writes that tell. Leaves their words to `status`, and the replicas themselves to `act`.
"""

from collections.abc import Callable, Iterable, Mapping

from controllers.autoscaler.act import Scaler
from controllers.autoscaler.core import Verdict
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.status import Change, Report, status_object
from controllers.autoscaler.view import Endpoint
from controllers.kube import MODEL_ENDPOINTS, NotFound, Object
from controllers.kube.store import Store
from controllers.lease import FencedWriter
from controllers.metrics import Metrics
from spec import names


class Teller:
    def __init__(
        self,
        endpoints: Store,
        writer: FencedWriter,
        scaler: Scaler,
        metrics: Metrics,
        settings: Settings,
        wall: Callable[[], float],
    ) -> None:
        self._endpoints, self._writer, self._scaler = endpoints, writer, scaler
        self._metrics, self._settings, self._wall = metrics, settings, wall

    def measure(self, endpoint: Endpoint, verdict: Verdict, ready: Mapping[str, int]) -> None:
        labels = (endpoint.namespace, endpoint.name)
        self._metrics.desired.labels(*labels).set(sum(d.desired for d in verdict.decisions))
        self._metrics.ready.labels(*labels).set(sum(ready.values()))
        self._metrics.unknown.labels(*labels).set(verdict.unknown_s)
        if verdict.demand.requests is not None:
            self._metrics.demand.labels(*labels).set(verdict.demand.requests)

    async def report(self, endpoint: Endpoint, obj: Object, report: Report) -> None:
        """Writes the status where there is something to say."""
        held = self._endpoints.objects.get((endpoint.namespace, endpoint.name), obj)
        status = status_object(held, report, self._settings, self._wall())
        if status is None:
            return
        try:
            written = await self._writer.apply_status(
                MODEL_ENDPOINTS, endpoint.namespace, endpoint.name, names.MANAGER_AUTOSCALER, {"status": status}
            )
        except NotFound:
            return
        self._endpoints.put(written)

    async def announce(self, endpoint: Endpoint, obj: Object, changes: Iterable[Change], verdict: Verdict) -> None:
        for change in changes:
            self._metrics.decisions.labels(endpoint.namespace, endpoint.name, str(change.reason)).inc()
            await self._scaler.announce(obj, change, verdict)
