"""Two instances never meet: not in an address, not in a name on the host, not on disk."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from embedded.instance import HOME_MAX, INDEX_MAX, POOL, Instance, choose_index, registered

INSTANCES = [Instance(f"i{index}", index=index) for index in range(INDEX_MAX + 1)]


def test_at_least_eight_instances_have_slices_that_do_not_overlap() -> None:
    assert len(INSTANCES) >= 8
    for one, other in combinations(INSTANCES, 2):
        assert not one.network.overlaps(other.network)


@pytest.mark.parametrize("instance", INSTANCES, ids=lambda instance: instance.name)
def test_ranges_of_an_instance_lie_in_its_slice_and_apart(instance: Instance) -> None:
    ranges = (instance.pods, instance.services, instance.link)
    assert all(part.subnet_of(instance.network) and part.subnet_of(POOL) for part in ranges)
    assert not any(one.overlaps(other) for one, other in combinations(ranges, 2))


def test_a_worked_slice_has_the_documented_addresses() -> None:
    dev = Instance("dev", index=2)
    assert str(dev.network) == "198.18.64.0/19"
    assert str(dev.pods) == "198.18.64.0/20"
    assert str(dev.services) == "198.18.80.0/21"
    assert (str(dev.host_address), str(dev.node_address)) == ("198.18.95.253", "198.18.95.254")
    assert dev.host_mac == "02:00:c6:12:5f:fd"
    assert str(dev.kubernetes_service_address) == "198.18.80.1"
    assert dev.registry == "198.18.95.254:5000"


@pytest.mark.parametrize("value", ["", "Upper", "9lives", "a" * 13, "end-", "with.dot", "../up"])
def test_a_name_that_is_no_interface_name_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="can't name an instance"):
        Instance(value)


def test_the_longest_name_still_makes_an_interface_name() -> None:
    assert len(Instance("a" * 12).interface) == 15


@pytest.mark.parametrize("home", ["relative", "/run/knobless", "/" + "h" * HOME_MAX])
def test_a_home_that_can_not_hold_a_node_is_refused(home: str) -> None:
    with pytest.raises(ValueError, match="home"):
        Instance(home=Path(home))


def test_a_socket_below_the_longest_home_still_has_a_legal_path() -> None:
    home = Path("/" + "h" * (HOME_MAX - 1))
    assert len(str(Instance("a" * 12, home).init_socket)) == 107


@pytest.mark.parametrize(
    ("name", "taken", "index"),
    [
        ("default", {}, 0),
        ("test", {}, 1),
        ("dev", {}, 2),
        ("dev", {"dev": 7}, 7),
        ("other", {"dev": 2}, 3),
        ("default", {"default": 5}, 5),
    ],
)
def test_an_instance_keeps_its_slice_or_takes_the_first_free_one(name: str, taken: dict[str, int], index: int) -> None:
    assert choose_index(name, taken) == index


def test_no_slice_is_given_twice() -> None:
    with pytest.raises(ValueError, match="in use"):
        choose_index("one-more", {f"i{index}": index for index in range(INDEX_MAX + 1)})


def test_a_record_that_is_not_a_number_is_no_registration(tmp_path: Path) -> None:
    for name, text in (("whole", "3\n"), ("torn", "")):
        (tmp_path / "nodes" / name).mkdir(parents=True)
        (tmp_path / "nodes" / name / "index").write_text(text)
    assert registered(tmp_path) == {"whole": 3}
