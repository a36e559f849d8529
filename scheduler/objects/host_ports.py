"""Ports of nodes that pods ask for, and when two pods' wishes collide."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.objects.v1 import Pod

ALL_ADDRESSES = "0.0.0.0"  # noqa: S104 - what a pod means that names no address; nothing listens here


class HostPort(NamedTuple):
    """A port of a node.

    Attributes:
        ip: the node's address; ALL_ADDRESSES is every one.
        protocol: "TCP", "UDP" or "SCTP".
        port: 1 to 65535.
    """

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        """Say whether two pods on one node could not have these two at once.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
        """
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or ALL_ADDRESSES in {self.ip, other.ip})
        )


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the ports of its node that a pod holds as long as it runs: of sidecars too, of init containers not.

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


def any_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Say whether any of the ports wanted is taken by those used."""
    used = tuple(used)
    return any(port.conflicts(other) for port in wanted for other in used)
