"""The cache compared with an obvious model, over random histories."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from scheduler.engine.state.cache import Cache, PodState
from tests.support.builders import node, pod

NODES = st.sampled_from(["n1", "n2", "n3"])
PODS = st.sampled_from([f"p{number}" for number in range(5)])
CPUS = st.integers(1, 9)
PORTS = st.sampled_from([0, 0, 80, 81])


class CacheMachine(RuleBasedStateMachine):
    """The obvious model: the nodes, and each pod's node, request, port and whether it is assumed."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = Cache()
        self.nodes: dict[str, int] = {}  # name -> cpus
        self.pods: dict[str, tuple[str, int, int, bool]] = {}  # name -> node, cpus, port, assumed

    @rule(name=NODES, cpus=CPUS)
    def node_comes_or_changes(self, name: str, cpus: int) -> None:
        self.nodes[name] = cpus
        self.cache.add_node(node(name, cpu=str(cpus)))

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.cache.remove_node(name)

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), name=PODS, cpus=CPUS, port=PORTS)
    def pod_is_assumed(self, data: st.DataObject, name: str, cpus: int, port: int) -> None:
        if name not in self.pods:
            where = data.draw(st.sampled_from(sorted(self.nodes)))
            self.pods[name] = (where, cpus, port, True)
            self.cache.assume(a_pod(name, cpus, port), where)

    @rule(name=PODS, where=NODES, cpus=CPUS, port=PORTS)
    def pod_is_seen_on_a_node(self, name: str, where: str, cpus: int, port: int) -> None:
        self.pods[name] = (where, cpus, port, False)
        self.cache.add_pod(a_pod(name, cpus, port, node=where))

    @rule(name=PODS)
    def pod_is_forgotten(self, name: str) -> None:
        known = self.pods.get(name)
        forgotten = self.cache.forget(pod(name).uid)
        assert (forgotten is not None) == (known is not None and known[3])
        if forgotten is not None:
            del self.pods[name]

    @rule(name=PODS)
    def pod_goes(self, name: str) -> None:
        gone = self.cache.remove_pod(pod(name).uid)
        assert (gone is not None) == (self.pods.pop(name, None) is not None)

    @invariant()
    def the_columns_say_what_the_obvious_cache_says(self) -> None:
        self.cache.check()
        snapshot = self.cache.snapshot()
        found = {
            snapshot.name_of(row): (
                int(snapshot.allocatable["cpu"][row]),
                int(snapshot.requested["cpu"][row]),
                int(snapshot.pod_count[row]),
                {port.port for port in snapshot.used_ports_on(row)},
            )
            for row in range(snapshot.n_nodes)
        }
        assert found == {name: self.expected(name, cpus) for name, cpus in self.nodes.items()}

    def expected(self, name: str, cpus: int) -> tuple[int, int, int, set[int]]:
        here = [each for each in self.pods.values() if each[0] == name]
        ports = {port for _, _, port, _ in here if port}
        return cpus * 1000, sum(asked for _, asked, _, _ in here) * 1000, len(here), ports

    @invariant()
    def states_and_counts_agree(self) -> None:
        for name, (where, _, _, assumed) in self.pods.items():
            state = PodState.ASSUMED if assumed else PodState.CONFIRMED
            assert self.cache.state_of(pod(name).uid) is state
            known = self.cache.pod(pod(name).uid)
            assert known is not None
            assert known.node_name == where
        assert self.cache.counts() == {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "assumed_pods": sum(assumed for *_, assumed in self.pods.values()),
        }


def a_pod(name: str, cpus: int, port: int, **more: Any) -> Any:
    ports = [{"hostPort": port, "protocol": "TCP"}] if port else []
    resources = {"requests": {"cpu": str(cpus)}}
    return pod(name, containers=[{"name": "main", "ports": ports, "resources": resources}], **more)


TestCacheMachine = CacheMachine.TestCase
TestCacheMachine.settings = settings(max_examples=60, stateful_step_count=40)
