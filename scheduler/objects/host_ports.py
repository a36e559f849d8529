"""Host ports of pods, and conflicts between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

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

    def conflicts(self, other: HostPort) -> bool:
        """Return whether two pods on one node cannot use these two ports at once.

        Source:
            kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/framework/types.go, HostPortInfo.CheckConflict.
        """
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or ALL_ADDRESSES in {self.ip, other.ip})
        )


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


def any_conflict(wanted: Iterable[HostPort], used: Iterable[HostPort]) -> bool:
    """Return whether a wanted port conflicts with a used one."""
    used = tuple(used)
    return any(port.conflicts(other) for port in wanted for other in used)
