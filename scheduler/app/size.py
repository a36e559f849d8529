"""Which requests and limits fit a cluster of a size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from scheduler.app.rights import Named

_PODS_PER_NODE: Final = 30
_MIB: Final = 2**20
_BASE_BYTES: Final = 96 * _MIB
"""The program."""
_WAITING_BYTES: Final = 200 * _MIB
"""Ten thousand pods that wait: they are kept whole."""
_NODE_BYTES: Final = 20 * 2**10
_POD_BYTES: Final = 3 * 2**10
"""As kubelets and controllers write them; both measured, and rounded up: `python -m tests.bench.cluster_size`."""
_STEP_BYTES: Final = 128 * _MIB
_RELISTED: Final = 2
"""While a list is read again, what was known before is there as well."""
_MILLI_PER_STEP: Final = 250
_NODES_PER_STEP: Final = 2500
"""What a decision costs grows with the nodes that changed, and what the watches cost with all of them."""
_HEAD: Final = """\
# For {nodes} nodes with {pods} pods: `custom-scheduler check --size {nodes},{pods}`. Name this file under `patches` of the
# kustomization that has manifests/base among its resources.
"""


class ClusterSize(NamedTuple):
    """How large a cluster is."""

    nodes: int
    pods: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `NODES` or `NODES,PODS`; without the latter, thirty on each node.

        Raises:
            ValueError: it is neither.
        """
        parts = text.split(",")
        if len(parts) not in {1, 2} or not all(part.isascii() and part.isdigit() for part in parts):
            raise ValueError(f"NODES or NODES,PODS is expected, was {text!r}")
        numbers = [int(part) for part in parts]
        return cls(numbers[0], numbers[1] if len(numbers) == 2 else numbers[0] * _PODS_PER_NODE)


@dataclass(frozen=True, slots=True)
class Resources:
    """What a container asks for, and what it may have.

    Attributes:
        milli_cpu: requested; there is no limit, as a burst is to be over soon.
        request_bytes: of memory.
        limit_bytes: likewise.
    """

    milli_cpu: int
    request_bytes: int
    limit_bytes: int


def resources_for(size: ClusterSize) -> Resources:
    """Return what the daemon, leading or standing by, needs for a cluster."""
    cluster = size.nodes * _NODE_BYTES + size.pods * _POD_BYTES
    steps = 1 + max(0, size.nodes - 1) // _NODES_PER_STEP
    return Resources(
        milli_cpu=_MILLI_PER_STEP * steps,
        request_bytes=_rounded_up(_BASE_BYTES + cluster),
        limit_bytes=_rounded_up(_BASE_BYTES + _WAITING_BYTES + _RELISTED * cluster),
    )


def size_patch(size: ClusterSize, account: Named) -> str:
    """Return a patch of the Deployment that is called like its ServiceAccount, for kustomize."""
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
