"""The clock and the wiring: a second of the world is pods, routing, traffic, samples, then both controllers."""

import itertools
from collections.abc import Callable
from pathlib import Path

from controllers.autoscaler.act import Scaler
from controllers.autoscaler.checkpoints import PERIOD_S, Checkpoints
from controllers.autoscaler.journal import Journal
from controllers.autoscaler.loop import Autoscaler
from controllers.autoscaler.observe import Sampler
from controllers.autoscaler.settings import Settings
from controllers.autoscaler.vertical.signals import Signals
from controllers.kube import MODEL_ENDPOINTS, PODS, RESOURCE_QUOTAS, SERVICES, Object
from controllers.kube.fields import condition, mapping
from controllers.kube.store import Store
from controllers.lease import FencedWriter, NotLeader
from controllers.metrics import Metrics
from controllers.rollout.loop import Rollout
from controllers.workloads import KINDS
from spec import names
from spec.revision import revision_of
from tests.scenarios.lab.cluster import Cluster
from tests.scenarios.lab.gateway import Gateway

NAMESPACE, ENDPOINT, SYSTEM = "team-alpha", "iris", "knobless-system"
GATEWAY_POD: Object = {
    "metadata": {"namespace": "knobless-system", "name": "gateway-1", "uid": "g1"},
    "status": {"phase": "Running", "podIP": "10.0.0.9"},
}


class Lines(Journal):
    """A log of decisions in memory."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"))
        self.lines: list[str] = []

    def put(self, line: str) -> None:
        self.lines.append(line)


class HeldLease:
    """A lease that the test gives and takes."""

    def __init__(self) -> None:
        self.mine = True

    def held(self) -> bool:
        return self.mine

    def check(self) -> None:
        if not self.mine:
            raise NotLeader("not ours")


def endpoint_object(version: str = "1", *, limit: int = 10, low: int = 1, high: int = 1000, **spec: Object) -> Object:
    template = {
        "metadata": {"labels": {}, "annotations": {}},
        "spec": {"containers": [{"name": "server", "image": f"iris:{version}"}]},
    }
    return {
        "metadata": {
            "namespace": NAMESPACE,
            "name": ENDPOINT,
            "annotations": {names.ANNOTATION_SPEC_DIGEST: f"digest-{version}-{high}"},
        },
        "spec": {
            "team": "alpha",
            "model": {"uri": f"models:/iris/{version}", "version": version, "sha256": "0" * 64},
            "runtime": {"name": "mlflow", "initialLimit": limit},
            "podTemplate": template,
            "concurrency": {"min": low, "max": high},
            "routing": {"deadlineMs": 5000, "queueMax": 200, "queueTimeoutMs": 5000},
            "access": {"teams": ["alpha"]},
            "rollout": {"holdS": 60, "startTimeoutS": 120},
        }
        | spec,
    }


def revision(obj: Object) -> str:
    return revision_of(ENDPOINT, obj["spec"]["podTemplate"], obj["spec"].get("nodes", 1))


class World:
    """Runs the production controllers second by second. `restart` loses what a process loses: its memory, and the
    origin of its clock."""

    def __init__(
        self,
        obj: Object,
        *,
        rate_rps: Callable[[float], float] = lambda t: 0.0,
        service_s: float = 0.2,
        knee: int | None = None,
        start_s: float = 10.0,
        settings: Settings | None = None,
    ) -> None:
        self.settings = settings or Settings(down_window_s=60.0)
        self.now_s = 1_000_000.0
        self.started_s = self.now_s
        self.cluster, self.lease, self.metrics = Cluster(start_s), HeldLease(), Metrics()
        self.cluster.time_s = self.now_s
        self.gateway = Gateway(self.cluster, ENDPOINT, lambda t: rate_rps(t - self.started_s), service_s, knee)
        self.history: list[int] = []
        self.journal = Lines()
        self._restarts = itertools.count(1)
        self.restart()
        self.declare(obj)

    def restart(self) -> None:
        """A new process: empty stores filled by a first list, no memory."""
        clock, writer = self.clock, FencedWriter(self.cluster, self.lease)
        origin_s = self.now_s - 1_000.0 * next(self._restarts)

        def monotonic() -> float:
            return self.now_s - origin_s

        self.checkpoints = Checkpoints(self.cluster, writer, self.lease, SYSTEM, monotonic, clock)
        self._read = False
        stores = self.cluster.stores = {}
        self.rollout = Rollout(stores, writer, self.lease, self.metrics, clock)
        for gvr in (MODEL_ENDPOINTS, *KINDS, SERVICES, PODS):
            index = None if gvr == MODEL_ENDPOINTS else names.LABEL_ENDPOINT
            stores[gvr] = Store(gvr, self.rollout.touched, index)
            for obj in self.cluster.objects[gvr].values():
                stores[gvr].put(obj)
            if gvr in self.cluster.lacking:
                self.cluster.lack(gvr, True)
        gateways, quotas = Store(PODS), Store(RESOURCE_QUOTAS)
        stores[RESOURCE_QUOTAS] = quotas
        gateways.put(GATEWAY_POD)
        for obj in self.cluster.objects[RESOURCE_QUOTAS].values():
            quotas.put(obj)
        self.autoscaler = Autoscaler(
            stores,
            gateways,
            writer,
            self.lease,
            Scaler(self.cluster, writer, stores, "test", clock),
            self.metrics,
            self.settings,
            Sampler(self.settings, self.gateway.statistics, monotonic),
            self.checkpoints,
            self.journal,
            quotas,
            lambda namespace, pod: Signals(self_test_ms=1000 * self.gateway.service_s),
            monotonic=monotonic,
            wall=clock,
        )

    def clock(self) -> float:
        return self.now_s

    def declare(self, obj: Object) -> str:
        """What `pulumi up` does: the spec and its own annotations, nothing of the status."""
        held = self.cluster.objects[MODEL_ENDPOINTS].get((NAMESPACE, ENDPOINT))
        annotations = mapping(held, "metadata", "annotations") | mapping(obj, "metadata", "annotations")
        metadata = (held["metadata"] if held else {}) | obj["metadata"] | {"annotations": annotations}
        status = {"status": held["status"]} if held and "status" in held else {}
        self.cluster.store(MODEL_ENDPOINTS, obj | {"metadata": metadata} | status)
        return revision(obj)

    def annotate(self, annotation: str, text: str | None) -> None:
        """Another field manager's annotation; None takes it away."""
        held = self.cluster.endpoint(ENDPOINT)
        annotations = held["metadata"]["annotations"]
        said = {key: value for key, value in annotations.items() if key != annotation}
        said |= {annotation: text} if text is not None else {}
        self.cluster.store(MODEL_ENDPOINTS, held | {"metadata": held["metadata"] | {"annotations": said}})

    async def run(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.second()

    async def unattended(self, seconds: int) -> None:
        """No controller runs; pods, gateway and traffic go on."""
        for _ in range(seconds):
            await self._environment()

    async def _environment(self) -> None:
        self.now_s += 1.0
        self.cluster.time_s = self.now_s
        self.cluster.step()
        await self.gateway.route()
        self.gateway.serve(self.now_s - 1.0)

    async def second(self) -> None:
        await self._environment()
        self._read = self._read or await self.checkpoints.read()
        if (self.now_s - self.started_s) % PERIOD_S == 0:
            await self.checkpoints.turn()
        await self.autoscaler.sample()
        for endpoint, obj in self.autoscaler.due():
            await self.autoscaler.attend(endpoint, obj)
        for _ in range(3):  # its own writes make it due again
            if self.lease.held():
                for key in self.rollout.due():
                    await self.rollout.attend(key)
        self.history.append(self.cluster.replicas(self.gateway.routed or ""))

    async def until(self, true: Callable[[], bool], limit_s: int) -> float:
        """Seconds until it holds; fails after `limit_s`."""
        for second in itertools.count():
            if true():
                return float(second)
            assert second < limit_s, f"not within {limit_s} s: {self.status()}"
            await self.second()
        raise AssertionError

    def status(self) -> Object:
        return mapping(self.cluster.endpoint(ENDPOINT), "status")

    def condition(self, kind: str) -> Object:
        return condition(self.cluster.endpoint(ENDPOINT), kind)

    def phases(self) -> dict[str, str]:
        return {item["name"]: item["phase"] for item in self.status().get("revisions", [])}

    def is_ready(self) -> bool:
        obj = self.cluster.endpoint(ENDPOINT)
        ready = self.condition("Ready")
        return ready.get("status") == "True" and ready["observedGeneration"] == obj["metadata"]["generation"]

    def changes(self) -> int:
        return sum(before != after for before, after in itertools.pairwise(self.history))


async def live(declared: Object, rate_rps: float, learnt_s: float = 260) -> World:
    """An endpoint that has had so many requests a second, and has as many replicas as they take."""
    world = World(declared, rate_rps=lambda t: rate_rps if t > 20 else 0.0)
    await world.until(world.is_ready, 60)
    await world.run(learnt_s)
    world.gateway.refused = world.gateway.lost = 0
    return world


def unharmed(world: World) -> bool:
    return world.gateway.refused == world.gateway.lost == 0
