"""NodePorts as a loop over one node, from reading node_ports.go and HostPortInfo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from plugins.node_ports import NodePorts
from tests.reference.one_node import PASSES, filtered, one_by_one
from tests.support.clusters import Cluster, wild_clusters, wild_pods

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

REFUSAL = ("Unschedulable", ("node(s) didn't have free ports for the requested pod ports",))


def ports_of(pod: PodInfo) -> list[tuple[str, str, int]]:
    spec = pod.object["spec"]
    found = []
    sidecars = [container for container in spec["initContainers"] if container["restartPolicy"] == "Always"]
    for container in [*sidecars, *spec["containers"]]:
        for port in container["ports"]:
            if port["hostPort"] > 0:
                found.append((port["hostIP"] or "0.0.0.0", port["protocol"] or "TCP", port["hostPort"]))  # noqa: PERF401, S104
    return found


def conflicts(wanted: tuple[str, str, int], used: set[tuple[str, str, int]]) -> bool:
    """types.go, HostPortInfo.CheckConflict."""
    ip, protocol, port = wanted
    if ip == "0.0.0.0":  # noqa: S104 - every address
        return any((protocol, port) == (other[1], other[2]) for other in used)
    return ("0.0.0.0", protocol, port) in used or (ip, protocol, port) in used  # noqa: S104


@given(wild_clusters("ports"), wild_pods("ports"))
def test_the_filter_agrees_with_the_reference_loop(cluster: Cluster, pod: PodInfo):
    found = filtered(NodePorts(), pod, cluster.snapshot())

    wanted = ports_of(pod)
    if not wanted:
        assert found == "Skip"
        return
    expected = []
    for node in one_by_one(cluster):
        used = {port for other in node.pods for port in ports_of(other)}
        expected.append(REFUSAL if any(conflicts(port, used) for port in wanted) else PASSES)
    assert found == expected
