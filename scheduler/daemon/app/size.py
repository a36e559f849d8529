"""The requests and limits of the daemon for a cluster size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from scheduler.daemon.app.rights import Named

_PODS_PER_NODE: Final = 30
_MIB: Final = 2**20
_BASE_BYTES: Final = (96 + 72) * _MIB
"""The program, and the last attempts, which are kept for explanations."""
_WAITING_BYTES: Final = 200 * _MIB
"""Ten thousand pending pods, which are kept whole."""
_NODE_BYTES: Final = 6 * 2**10
_POD_BYTES: Final = 1792
"""As kubelets and controllers write them; both measured, and rounded up: `python -m tests.bench.cluster_size`."""
_RESULT_BYTES: Final = 14 * 2**10
"""For each node, the results that are kept for all nodes: of 128 kinds of pods, and of 1024 selectors."""
_MOST_RESULT_BYTES: Final = 512 * _MIB
"""What they take at most, see `scheduler.snapshot.arrays.most_kept`."""
_STEP_BYTES: Final = 128 * _MIB
_RELISTED: Final = 2
"""While a list is read again, the earlier objects are in memory as well."""
_MILLI_PER_STEP: Final = 250
_NODES_PER_STEP: Final = 2500
"""The time of a decision grows with the number of changed nodes, and that of the watches with the number of all nodes."""
_MOST_MILLI: Final = 1000
"""All of this is done by one thread."""
_HEAD: Final = """\
# For {nodes} nodes with {pods} pods: `custom-scheduler check --size {nodes},{pods}`. Name this file under `patches` of the
# kustomization that has manifests/base among its resources.
"""


class ClusterSize(NamedTuple):
    """The numbers of nodes and pods for which requests and limits are computed."""

    nodes: int
    pods: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `NODES` or `NODES,PODS`; the default is thirty pods for each node.

        Raises:
            ValueError: the text has another format.
        """
        parts = text.split(",")
        if len(parts) not in {1, 2} or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"NODES or NODES,PODS is expected, was {text!r}")
        numbers = [int(part) for part in parts]
        return cls(numbers[0], numbers[1] if len(numbers) == 2 else numbers[0] * _PODS_PER_NODE)


@dataclass(frozen=True, slots=True)
class Resources:
    """The requests and limits of a container.

    Attributes:
        milli_cpu: requested milliCPU; there is no limit, so that bursts end soon.
        request_bytes: requested memory, in bytes.
        limit_bytes: memory limit, in bytes.
    """

    milli_cpu: int
    request_bytes: int
    limit_bytes: int


def resources_for(size: ClusterSize) -> Resources:
    """Return the resources that the daemon, leading or standby, needs for a cluster."""
    cluster = size.nodes * _NODE_BYTES + size.pods * _POD_BYTES
    results = min(size.nodes * _RESULT_BYTES, _MOST_RESULT_BYTES)
    steps = 1 + max(0, size.nodes - 1) // _NODES_PER_STEP
    return Resources(
        milli_cpu=min(_MILLI_PER_STEP * steps, _MOST_MILLI),
        request_bytes=_rounded_up(_BASE_BYTES + cluster + results),
        limit_bytes=_rounded_up(_BASE_BYTES + _WAITING_BYTES + _RELISTED * cluster + results),
    )


def size_patch(size: ClusterSize, account: Named) -> str:
    """Return a kustomize patch of the Deployment that has its ServiceAccount's name."""
    needed = resources_for(size)
    return _HEAD.format(nodes=size.nodes, pods=size.pods) + (
        "apiVersion: apps/v1\n"
        "kind: Deployment\n"
        f"metadata: {{name: {account.name}, namespace: {account.namespace}}}\n"
        "spec:\n"
        "  template:\n"
        "    spec:\n"
        "      containers:\n"
        "      - name: custom-scheduler\n"
        "        resources:\n"
        f"          requests: {{cpu: {needed.milli_cpu}m, memory: {needed.request_bytes // _MIB}Mi}}\n"
        f"          limits: {{memory: {needed.limit_bytes // _MIB}Mi}}\n"
    )


def _rounded_up(size: int) -> int:
    return math.ceil(size / _STEP_BYTES) * _STEP_BYTES
