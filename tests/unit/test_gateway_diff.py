"""Desired against read-back state: the right commands, in the right order, and none where nothing differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controllers.gateway.desired import ACCESS, KEYS, MAPS, Desired, Live, LiveServer, Mode, Target
from controllers.gateway.diff import Command, Stage, Step, Swap, diff, draining


def target(maxconn: int = 4, address: str = "10.0.0.1", port: int = 8080) -> Target:
    return Target(address, port, maxconn)


def server(
    maxconn: int | None = 4, mode: Mode = Mode.READY, in_flight: int = 0, idle: int = 0, address: str = "10.0.0.1"
) -> LiveServer:
    return LiveServer(address, 8080, maxconn, mode, in_flight, idle)


def weighted(weight: int, maxconn: int) -> Target:
    return replace(target(maxconn), weight=weight)


def maps(**entries: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    return {name: entries.get(name, {}) for name in MAPS}


def commands(desired: Desired, live: Live) -> list[str]:
    return [
        command.text for step in diff(desired, live) if not isinstance(step.action, Swap) for command in step.action
    ]


@pytest.mark.parametrize(
    ("wanted", "held", "expected"),
    [
        (target(), None, ["add server b/p 10.0.0.1:8080 maxconn 4", "enable server b/p"]),
        (target(address="fd00::1"), None, ["add server b/p [fd00::1]:8080 maxconn 4", "enable server b/p"]),
        (target(), server(), []),
        (target(6), server(4), ["set maxconn server b/p 6"]),
        (target(2), server(4), ["set maxconn server b/p 2"]),
        (target(2), server(None), ["set maxconn server b/p 2"]),
        (weighted(256, 6), server(4), ["set maxconn server b/p 6", "set weight b/p 256"]),
        (weighted(256, 4), server(4), ["set weight b/p 256"]),
        (target(4), replace(server(6), weight=256), ["set maxconn server b/p 4", "set weight b/p 1"]),
        (target(), server(mode=Mode.DRAIN), ["set maxconn server b/p 4", "set server b/p state ready"]),
        (target(), server(mode=Mode.MAINT), ["set maxconn server b/p 4", "set server b/p state ready"]),
        (target(), server(address="10.9.9.9"), ["set server b/p state drain"]),
        (None, server(), ["set server b/p state drain"]),
        (None, server(in_flight=3), ["set server b/p state drain"]),
        (None, server(mode=Mode.DRAIN, in_flight=3), []),
        (None, server(mode=Mode.DRAIN), ["set server b/p state maint"]),
        (None, server(mode=Mode.MAINT), ["del server b/p"]),
        (None, server(mode=Mode.MAINT, idle=1), ["set server b/p state drain", "set server b/p state maint"]),
        (None, server(mode=Mode.MAINT, in_flight=1), ["set server b/p state drain"]),
    ],
)
def test_a_server_gets_what_it_lacks(wanted: Target | None, held: LiveServer | None, expected: list[str]) -> None:
    desired = Desired({"b": {"p": wanted} if wanted else {}})
    live = Live(1, servers={"b": {"p": held} if held else {}})
    assert commands(desired, live) == expected


def test_a_limit_of_none_is_never_sent() -> None:
    with pytest.raises(ValueError, match="unlimited"):
        diff(Desired({"b": {"p": target(0)}}), Live(1))
    with pytest.raises(ValueError, match="unlimited"):
        diff(Desired({"b": {"p": target(0)}}), Live(1, servers={"b": {"p": server(4)}}))


def test_steps_come_in_the_one_order_that_loses_nothing() -> None:
    desired = Desired(
        servers={"new": {"n": target()}, "kept": {"less": target(2), "more": target(6)}},
        maps=maps(routes={"iris": "new/1/1", "rose": "kept/1/1"}, access={"AB/iris": "1"}),
        owners={"new": "iris", "kept": "rose"},
    )
    live = Live(
        1,
        servers={
            "old": {"o": server(), "p": server(mode=Mode.MAINT)},
            "kept": {"less": server(4), "more": server(4)},
        },
        maps=maps(routes={"iris": "old/1/1", "tulip": "old/1/1"}, access={"CD/iris": "1"}),
    )
    assert commands(desired, live) == [
        "set maxconn server kept/less 2",
        "add server new/n 10.0.0.1:8080 maxconn 4",
        "enable server new/n",
        "set maxconn server kept/more 6",
        "add map access.map AB/iris 1",
        "add map routes.map rose kept/1/1",
        "set map routes.map iris new/1/1",
        "del map access.map CD/iris",
        "del map routes.map tulip",
        "set server old/o state drain",
        "del server old/p",
    ]


def test_one_endpoints_change_sends_that_endpoints_commands_only() -> None:
    held = {f"b{i:05}": {"p": server()} for i in range(1000)}
    wanted: dict[str, dict[str, Target]] = {name: {"p": target()} for name in held}
    wanted["b00007"] = {"p": target(5)}
    assert commands(Desired(wanted), Live(1, servers=held)) == ["set maxconn server b00007/p 5"]


def test_each_step_names_the_endpoint_whose_failure_it_would_be() -> None:
    desired = Desired({"b": {"p": target()}}, maps(routes={"iris": "b/1/1"}, access={"AB/iris": "1"}), {"b": "iris"})
    assert {step.owner for step in diff(desired, Live(1))} == {"iris"}


def test_a_path_is_its_endpoints_and_no_character_of_it_ends_a_command() -> None:
    live = Live(1, maps=maps(paths={"rose/c;d": "1"}))
    steps = diff(Desired(maps=maps(paths={"iris/a;b/c": "1"})), live)
    told = [(step.owner, [each.text for each in step.action]) for step in steps if not isinstance(step.action, Swap)]
    assert told == [
        ("iris", [r"add map paths.map iris/a\;b/c 1"]),
        ("rose", [r"del map paths.map rose/c\;d"]),
    ]


def test_keys_change_in_one_transaction() -> None:
    desired = Desired(maps=maps(keys={"AB": "alpha"}))
    assert diff(desired, Live(1)) == (Step(Stage.ADMIT, KEYS, Swap(KEYS, {"AB": "alpha"})),)


def test_many_changes_of_a_map_are_one_transaction_and_few_are_single_ones() -> None:
    many = {f"AB/{i}": "1" for i in range(65)}
    (step,) = diff(Desired(maps=maps(access=many)), Live(1))
    assert step.action == Swap(ACCESS, many)
    few = dict(list(many.items())[:64])
    assert len(diff(Desired(maps=maps(access=few)), Live(1))) == 64


@pytest.mark.parametrize("name", MAPS)
def test_a_map_with_a_key_twice_is_replaced_whole(name: str) -> None:
    entries = maps(**{name: {"a": "b/1/1"}})
    (step,) = diff(Desired(maps=entries), Live(1, maps=entries, damaged=frozenset({name})))
    assert step.action == Swap(name, {"a": "b/1/1"})


def test_what_is_on_its_way_out_is_draining_and_what_serves_is_not() -> None:
    live = Live(1, servers={"a": {"p": server()}, "b": {"p": server(mode=Mode.DRAIN, in_flight=2)}, "c": {}})
    assert draining(Desired({"a": {"p": target()}}), live) == {"b"}


# A model of HAProxy, as far as its commands are used: whatever the start, passes lead to the desired state.


@dataclass
class Model:
    servers: dict[str, dict[str, LiveServer]]
    routes: dict[str, str]
    log: list[str] = field(default_factory=list)

    @property
    def live(self) -> Live:
        servers = {backend: dict(held) for backend, held in self.servers.items()}
        return Live(1, servers=servers, maps=maps(routes=dict(self.routes)))

    def run(self, command: Command) -> None:
        self.log.append(command.text)
        match command.text.split(" "):
            case ["add", "server", place, address, "maxconn", limit]:
                backend, name = place.split("/")
                assert name not in self.servers.setdefault(backend, {})
                host, _, port = address.rpartition(":")
                self.servers[backend][name] = LiveServer(host, int(port), int(limit), Mode.MAINT, 0)
            case ["enable", "server", place]:
                self._change(place, mode=Mode.READY)
            case ["set", "maxconn", "server", place, limit]:
                self._change(place, maxconn=int(limit))
            case ["set", "weight", place, weight]:
                backend, name = place.split("/")
                self.servers[backend][name] = replace(self.servers[backend][name], weight=int(weight))
            case ["set", "server", place, "state", mode]:
                self._change(place, mode=Mode(mode))
            case ["del", "server", place]:
                backend, name = place.split("/")
                gone = self.servers[backend].pop(name)
                assert (gone.mode, gone.in_flight) == (Mode.MAINT, 0)
            case ["add" | "set", "map", "routes.map", key, value]:
                self.routes[key] = value
                backend = value.split("/")[0]
                assert any(s.mode is Mode.READY for s in self.servers.get(backend, {}).values()), "a route to nothing"
            case ["del", "map", "routes.map", key]:
                del self.routes[key]
            case other:
                raise AssertionError(other)

    def _change(self, place: str, mode: Mode | None = None, maxconn: int | None = None) -> None:
        backend, name = place.split("/")
        held = self.servers[backend][name]
        limit = held.maxconn if maxconn is None else maxconn
        self.servers[backend][name] = replace(held, maxconn=limit, mode=mode or held.mode)

    def finish(self) -> None:
        for held in self.servers.values():
            for name, each in held.items():
                held[name] = replace(each, in_flight=0, idle=0)


places = st.sampled_from(["b00000", "b00001", "b00002"])
pod_names = st.sampled_from(["p", "q", "r"])
addresses = st.sampled_from(["10.0.0.1", "10.0.0.2"])
live_servers = st.builds(
    LiveServer,
    addresses,
    st.just(8080),
    st.one_of(st.none(), st.integers(1, 5)),
    st.sampled_from(Mode),
    st.integers(0, 2),
    st.integers(0, 2),
)
targets = st.builds(Target, addresses, st.just(8080), st.integers(1, 5))


@given(
    st.dictionaries(places, st.dictionaries(pod_names, live_servers)),
    st.dictionaries(places, st.dictionaries(pod_names, targets, min_size=1)),
    st.sets(st.sampled_from(["iris", "rose"])),
    st.sets(st.sampled_from(["iris", "rose", "tulip"])),
)
def test_passes_reach_the_declared_state_from_any_other_one(
    held: dict[str, dict[str, LiveServer]],
    wanted: dict[str, dict[str, Target]],
    routed: set[str],
    stale: set[str],
) -> None:
    routes = {endpoint: f"{sorted(wanted)[0]}/8/1000" for endpoint in routed if wanted}
    desired = Desired(wanted, maps(routes=routes))
    model = Model({b: dict(s) for b, s in held.items()}, dict.fromkeys(stale, "b00009/8/1000"))
    for _ in range(8):
        for step in diff(desired, model.live):
            # A pod whose old self still leaves is added later, so a route may have to wait for the next pass too.
            assert not isinstance(step.action, Swap)
            ready = step.stage is not Stage.ROUTE or _filled(model, step)
            for command in step.action if ready else ():
                model.run(command)
        model.finish()
    assert diff(desired, model.live) == ()
    assert draining(desired, model.live) == frozenset()
    assert model.routes == routes


def _filled(model: Model, step: Step) -> bool:
    assert step.entry is not None
    assert step.entry.value is not None
    backend = step.entry.value.split("/")[0]
    return any(each.mode is Mode.READY for each in model.servers.get(backend, {}).values())
