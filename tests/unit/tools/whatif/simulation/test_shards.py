"""Simulations of several replicas: which replica places a pod, and when pods are preempted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner

from scheduler.cli.simulate import simulate as command
from scheduler.engine.sharding.buckets import bucket_of, key_of, wanted_owners
from scheduler.engine.sharding.shards import SimulatedShards
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.simulation.parallel_simulations import simulate
from scheduler.tools.whatif.simulation.virtual_daemon import VirtualDaemon
from scheduler.tools.whatif.simulation.workload import Arrival, Workload
from tests.support.builders import node, node_object, pod, pod_object
from tests.unit.tools.whatif.simulation.test_simulate import CONFIG
from tests.unit.tools.whatif.simulation.test_virtual_daemon import in_group, on, play

if TYPE_CHECKING:
    from pathlib import Path

MEMBERS = [f"shard-{number}" for number in range(2)]
OWNERS = wanted_owners(MEMBERS)


def first_of(name: str) -> str:
    """Return the replica of a pod."""
    return OWNERS[bucket_of(key_of(pod(name)))]


def owner_of(node_name: str) -> str:
    return OWNERS[bucket_of(node_name)]


def nodes_of(member: str, number: int, **fields: Any) -> list[Any]:
    """Return nodes of a replica."""
    names = [f"n-{each}" for each in range(100)]
    return [node(name, **fields) for name in names if owner_of(name) == member][:number]


def other(member: str) -> str:
    return next(name for name in MEMBERS if name != member)


def places(lines: list[Any]) -> dict[str, str]:
    return {name: what.removeprefix("placed ") for _, what, name in lines if what.startswith("placed ")}


def test_a_pod_goes_to_a_node_of_its_replica_and_is_passed_on_if_none_fits():
    first = first_of("a")
    (own,), (others,) = nodes_of(first, 1, cpu="4"), nodes_of(other(first), 1, cpu="8")
    for cpu, chosen, passed_on in (("3", own, 0), ("6", others, 1)):
        workload = on([own, others], Arrival(pod("a", cpu=cpu), 0.0))
        lines, _ = play(workload, shards=2)
        assert places(lines) == {"a": chosen.name}
        assert simulate(workload, CONFIG, seed=1, shards=2).passed_on == passed_on


def test_a_pod_that_fits_nowhere_is_reported_for_all_nodes():
    nodes = [*nodes_of(MEMBERS[0], 2), *nodes_of(MEMBERS[1], 3)]
    _, daemon = play(on(nodes, Arrival(pod("a", cpu="900"), 0.0)), shards=2)

    (condition,) = daemon.parts.pods["default/a"].pod.status.conditions
    assert condition.message.startswith("0/5 nodes are available: 5 Insufficient cpu.")


def test_no_pod_is_preempted_while_another_replica_has_a_node():
    first = first_of("high")
    nodes = [*nodes_of(first, 1, cpu="4"), *nodes_of(other(first), 1, cpu="4")]
    low = pod("low", cpu="3", nodeName=nodes[0].name)
    workload = Workload(
        ClusterFile(nodes=nodes, pods=[low]), [Arrival(pod("high", cpu="3", priority=9), 1.0)]
    )
    lines, _ = play(workload, shards=2)

    assert places(lines) == {"high": nodes[1].name}
    assert [what for _, what, name in lines if name == "low"] == []


def test_while_its_victims_leave_a_pod_preempts_no_others():
    first = first_of("high")
    own, others = nodes_of(first, 1, cpu="4"), nodes_of(other(first), 1, cpu="4")
    pods = [pod(f"low-{each.name}", cpu="3", nodeName=each.name) for each in [*own, *others]]
    arrivals = [
        Arrival(pod("high", cpu="3", priority=9), 1.0),
        Arrival(pod("tiny", cpu="100m"), 5.0, 1.0),  # its end lets the other pod be tried again
    ]
    lines, _ = play(Workload(ClusterFile(nodes=[*own, *others], pods=pods), arrivals), shards=2)

    assert [victim for _, what, victim in lines if what == "evicted"] == [f"low-{own[0].name}"]
    assert places(lines)["high"] == own[0].name


@pytest.mark.parametrize(("cpu", "is_in_one"), [("1", True), ("3", False)])
def test_a_gang_is_placed_in_one_replica_or_if_none_holds_it_on_all_nodes(cpu: str, *, is_in_one: bool):
    group = {
        "metadata": {"name": "g", "namespace": "default", "uid": "g"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}},
    }
    nodes = [*nodes_of(MEMBERS[0], 2, cpu="4"), *nodes_of(MEMBERS[1], 2, cpu="4")]
    groups = {"scheduling.k8s.io/v1alpha2/podgroups": {"default/g": msgspec.json.encode(group)}}
    members = [Arrival(in_group(f"g-{number}", cpu=cpu), 1.0) for number in range(3)]
    lines, _ = play(Workload(ClusterFile(nodes=nodes, others=groups), members), shards=2)

    assert len(places(lines)) == 3
    assert (len({owner_of(name) for name in places(lines).values()}) == 1) == is_in_one


def overloaded() -> Workload:
    """Pods of two priorities that request more than the nodes have."""
    nodes = [node(f"n-{number}", cpu="4") for number in range(3)]
    arrivals = [
        Arrival(pod(f"p-{number}", cpu=f"{1 + number % 3}", priority=number % 2), float(number), 20.0)
        for number in range(30)
    ]
    return Workload(ClusterFile(nodes=nodes), arrivals)


def test_one_replica_decides_as_without_shards(monkeypatch: pytest.MonkeyPatch):
    expected = simulate(overloaded(), CONFIG, seed=1)
    assert expected.preemptions > 0
    assert simulate(overloaded(), CONFIG, seed=1, shards=1) == expected

    made = VirtualDaemon.__init__

    def with_one_shard(self: VirtualDaemon, *args: Any, **options: Any) -> None:
        made(self, *args, **options)
        self.shards = self.parts.profiles.shards = SimulatedShards(["only"])

    monkeypatch.setattr(VirtualDaemon, "__init__", with_one_shard)
    found = simulate(overloaded(), CONFIG, seed=1)
    found.passed_on = msgspec.UNSET
    assert found == expected


def test_the_command_simulates_shards_and_counts_the_pods_that_were_passed_on(tmp_path: Path):
    cluster = tmp_path / "cluster.json"
    items = [node_object("n", cpu="4"), *(pod_object(f"p-{number}", cpu="100m") for number in range(20))]
    cluster.write_bytes(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items}))

    def answer(*flags: str) -> Any:
        return CliRunner().invoke(command, [str(cluster), *flags])

    without, one, two = (
        msgspec.json.decode(answer("-o", "json", *flags).stdout)[0]
        for flags in ((), ("--shards", "1"), ("--shards", "2"))
    )
    assert one == without
    assert two["placed"] == 20
    assert 0 < two["passedOn"] < 20  # one replica has the only node
    assert f"{two['passedOn']} pods were placed on nodes of another replica" in answer("--shards", "2").stdout
    assert answer("--shards", "0").exit_code == 2
