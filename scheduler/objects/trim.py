"""Reduces bound pods to the fields that scheduling still reads: a large cluster has very many.

Most of a pod is the same in all replicas of its workload: labels, containers, tolerations, conditions. Those
parts are stored once and shared.
"""

from __future__ import annotations

import sys
from typing import Any, TypeVar

import msgspec

from scheduler.objects.pod import PodInfo
from scheduler.objects.pod_affinity import has_long_terms
from scheduler.objects.pod_group import group_annotations
from scheduler.objects.remembered import Remembered
from scheduler.objects.v1 import Affinity, Pod, PodStatus

_T = TypeVar("_T", bound=msgspec.Struct)

_REPEATED = frozenset({"namespace", "scheduler_name", "node_name", "preemption_policy"})

_EMPTY: dict[str, Any] = {}
_SHARED: Remembered[tuple[type, str, bytes], Any] = (
    Remembered()
)  # (struct type, field, encoded value) -> the shared value
_ENCODER = msgspec.msgpack.Encoder()


def trim_bound_pod(pod: PodInfo, *, keep_annotations: bool = False, keep_object: bool = False) -> PodInfo:
    """Return a bound pod without the fields that are read only of pending pods.

    Its resources are computed before its container statuses are removed. Equal parts are shared with other
    pods, so they must not be changed.

    Args:
        pod: a bound pod.
        keep_annotations: keep all annotations; else only those of its group.
        keep_object: keep its bytes, so that `object` still works.
    """
    metadata, spec, status = pod.pod.metadata, pod.pod.spec, pod.pod.status
    terms, own = None, {}
    if spec.affinity is not None and has_long_terms(
        spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    ):
        terms = pod.affinity_terms
        assert terms.written is not None, "what is written of long terms is kept with them"
        near, apart = terms.written
        own["affinity"] = Affinity(spec.affinity.node_affinity, near, apart)
    trimmed = PodInfo(
        Pod(
            metadata=_sharing(
                metadata,
                annotations=metadata.annotations
                if keep_annotations
                else group_annotations(metadata.annotations) or _EMPTY,
            ),
            spec=_sharing(
                msgspec.structs.replace(spec, volumes=pod.storage_volumes) if spec.volumes else spec, **own
            ),
            status=PodStatus(
                phase=sys.intern(status.phase),
                conditions=_shared(PodStatus, "conditions", status.conditions),
                nominated_node_name=status.nominated_node_name,
                allocated_resources=_EMPTY,
                start_time=status.start_time,
            ),
        ),
        pod.raw if keep_object else None,
        node_name=sys.intern(pod.node_name),
        resources=pod.resources,
    )
    if terms is not None:
        # Pods with equal terms share them for as long as one of these pods exists.
        trimmed.__dict__["affinity_terms"] = terms
    return trimmed


def _sharing(struct: _T, **own: Any) -> _T:
    """Return a struct whose parts are shared with equal ones, except for the given parts."""
    kind = type(struct)
    for name in struct.__struct_fields__:
        if name in own:
            continue
        part = getattr(struct, name)
        if part.__class__ is str:
            if name in _REPEATED:
                own[name] = sys.intern(part)
        elif part.__class__ in {dict, tuple} or isinstance(part, msgspec.Struct):
            own[name] = _shared(kind, name, part)
    return msgspec.structs.replace(struct, **own)


def _shared(kind: type, name: str, part: Any) -> Any:
    if not part:
        return _EMPTY if part.__class__ is dict else part
    content = _ENCODER.encode(part)
    known = _SHARED.get((kind, name, content))
    return _SHARED.keep((kind, name, content), part, len(content)) if known is None else known
