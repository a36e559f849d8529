"""Topology of provisioned volumes.

Source:
    sigs.k8s.io/sig-storage-lib-external-provisioner, and external-provisioner, pkg/controller/topology.go.
"""

from __future__ import annotations

import itertools
import zlib
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
