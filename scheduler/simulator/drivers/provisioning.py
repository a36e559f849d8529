"""Provisioning of volumes: their topology, and faults on demand.

Source:
    sigs.k8s.io/sig-storage-lib-external-provisioner, and external-provisioner, pkg/controller/topology.go.
"""

from __future__ import annotations

import itertools
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scheduler.simulator.apimachinery.objects import key_of, labels_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.simulator.apimachinery.objects import Object


_ZONE: Final = "topology.kubernetes.io/zone"

Segment = dict[str, str]  # label of nodes -> value


def segment_of_node(node: Object, keys: Sequence[str]) -> Segment:
    """Return the topology segment of a node, by the label keys of a driver."""
    labels = labels_of(node)
    return {key: labels[key] for key in keys if key in labels}


def keys_of_driver(driver: str, csi_node: Object | None, class_: Object) -> Sequence[str]:
    """Return the topology keys of a driver: those of its CSINode, else of the class, else zones."""
    for one in (csi_node or {"spec": {}})["spec"].get("drivers") or ():
        if one["name"] == driver and one.get("topologyKeys"):
            keys: Sequence[str] = one["topologyKeys"]
            return keys
    return [key for segment in allowed_segments(class_)[:1] for key in segment] or [_ZONE]


def allowed_segments(class_: Object) -> list[Segment]:
    """Return the segments that a class allows; empty for all."""
    segments = []
    for term in class_.get("allowedTopologies", ()):
        requirements = term.get("matchLabelExpressions", ())
        keys = [one["key"] for one in requirements]
        combined = itertools.product(*(one["values"] for one in requirements))
        segments += [dict(zip(keys, values, strict=True)) for values in combined]
    return segments


def is_allowed(segment: Segment, class_: Object) -> bool:
    """Return whether a class allows a segment."""
    allowed = allowed_segments(class_)
    return not allowed or any(one.items() <= segment.items() for one in allowed)


def chosen_segment(claim: Object, class_: Object, nodes: Iterable[Object], keys: Sequence[str]) -> Segment:
    """Choose the segment of a volume without a selected node; claims of a StatefulSet are spread."""
    segments = allowed_segments(class_)
    if not segments:
        found = {tuple(segment_of_node(node, keys).items()) for node in nodes}
        segments = [dict(one) for one in sorted(found) if one]
    if not segments:
        return {}
    base, _, ordinal = key_of(claim)[1].rpartition("-")
    name, place = (base, int(ordinal)) if base and ordinal.isdigit() else (key_of(claim)[1], 0)
    return segments[(zlib.crc32(name.encode()) + place) % len(segments)]


def node_affinity(segment: Segment) -> Object:
    """Return the VolumeNodeAffinity of a segment."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in segment.items()]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}


@dataclass(eq=False, slots=True)
class ProvisioningFault:
    """Volumes that cannot be provisioned.

    Attributes:
        provisioner: only of this driver; "" for all.
        node: only for this selected node; "" for all, also without a selected node.
        claim: only for this claim, `namespace/name`; "" for all.
        times: remaining number of failures; None for no end.
        message: message of the error.
    """

    provisioner: str = ""
    node: str = ""
    claim: str = ""
    times: int | None = None
    message: str = "rpc error: code = ResourceExhausted desc = out of space"


class ProvisioningFaults:
    """The active faults."""

    def __init__(self) -> None:
        self._faults: list[ProvisioningFault] = []

    def add(self, fault: ProvisioningFault) -> ProvisioningFault:
        """Add a fault, and return it, so that it can be removed."""
        self._faults.append(fault)
        return fault

    def remove(self, fault: ProvisioningFault) -> None:
        if fault in self._faults:
            self._faults.remove(fault)

    def hit(self, provisioner: str, node: str, claim: str) -> str:
        """Return why a volume cannot be provisioned, and count the failure; "" if it can be."""
        for fault in self._faults:
            asked = ((fault.provisioner, provisioner), (fault.node, node), (fault.claim, claim))
            if fault.times == 0 or any(wanted and wanted != found for wanted, found in asked):
                continue
            if fault.times is not None:
                fault.times -= 1
            return fault.message
        return ""
