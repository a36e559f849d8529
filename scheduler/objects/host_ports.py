"""Host ports of pods, and conflicts between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.objects.v1 import Pod

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - the address of a pod without a host IP; nothing listens here


class HostPort(NamedTuple):
    """A port of a node.

    Attributes:
        ip: the node's address; ALL_ADDRESSES for all of them.
        protocol: "TCP", "UDP" or "SCTP".
        port: 1 to 65535.
    """

    ip: str
    protocol: str
    port: int


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the host ports that a pod holds while it runs: those of sidecars too, but not of init containers.

    Source:
        kube-scheduler v1.36, pkg/scheduler/util/utils.go, GetHostPorts.
    """
    spec = pod.spec
    containers = spec.containers
    if spec.init_containers:
        sidecars = tuple(
            container for container in spec.init_containers if container.restart_policy == "Always"
        )
        containers = sidecars + containers
    if not any(container.ports for container in containers):
        return ()
    return tuple(
        HostPort(port.host_ip or ALL_ADDRESSES, port.protocol or "TCP", port.host_port)
        for container in containers
        for port in container.ports
        if port.host_port > 0
    )


def conflicts_with(wanted: Iterable[HostPort]) -> Callable[[Iterable[HostPort]], bool]:
    """Return a function that returns whether one of the wanted ports conflicts with one of the used ports.

    Two ports conflict if two pods on one node cannot use both. A pod may have thousands of ports, so the wanted ones are
    looked up and not compared.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
    """
    addresses: dict[tuple[int, str], set[str]] = {}  # (port, protocol) -> the wanted addresses
    for ip, protocol, port in wanted:
        addresses.setdefault((port, protocol), set()).add(ip)

    def conflict(used: Iterable[HostPort]) -> bool:
        for ip, protocol, port in used:
            its = addresses.get((port, protocol))
            if its is not None and (ip == ALL_ADDRESSES or ip in its or ALL_ADDRESSES in its):
                return True
        return False

    return conflict
