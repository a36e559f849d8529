"""A pod with values derived from it, and a bound pod reduced to what scheduling still reads."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cache, cached_property
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import msgspec

from scheduler.loop_work import run_to_end
from scheduler.objects.caches import Remembered
from scheduler.objects.pod_affinity import NO_TERMS, AffinityTerms, has_long_terms, read_affinity_terms
from scheduler.objects.pod_group import group_annotations, group_of
from scheduler.objects.resources import PodResources, pod_resources, resize_is_deferred
from scheduler.objects.selectors import required_node_affinity
from scheduler.objects.storage import PodClaim, StorageUse, pod_claims, storage_uses, storage_volumes
from scheduler.objects.v1 import Affinity, HostPort, Pod, PodSpec, PodStatus, Tolerations, host_ports

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping, Sequence
    from types import EllipsisType

    from scheduler.objects.pod_group import GroupKey
    from scheduler.objects.resources import PodRules
    from scheduler.objects.selectors import NodeAffinity, RequiredNodeAffinity
    from scheduler.objects.v1 import NodeAllocatableResourceClaimStatus, Toleration, Volume

_ENCODER = msgspec.msgpack.Encoder()
_ANNOTATIONS = msgspec.json.Encoder()

MANY_ENTRIES: Final = 128
"""Signatures contain `spec_digest` instead of a list of the spec with more entries: they are kept, hashed and compared."""


NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})
TOPOLOGY_LABELS: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")
"""The labels of a node that the API server adds to the pods that are bound to it, since Kubernetes 1.35.

Source:
    kube-apiserver v1.36, plugin/pkg/admission/podtopologylabels.
"""
_DERIVED_IN_SLOTS: Final = ("_affinity_terms", "_group", "_host_ports")
_BEFORE_ANNOTATIONS: Final = b'{"metadata":{"annotations":'
_BEFORE_METADATA: Final = b'{"metadata":{'


class UnannotatedJson(msgspec.Struct, frozen=True, gc=False):
    """The JSON of a pod whose annotations are kept only once, decoded: they may have 256 KiB.

    Attributes:
        rest: all that follows the annotations.
        size: the approximate number of bytes with the annotations.
    """

    rest: bytes
    size: int

    @classmethod
    def of(cls, raw: bytes, annotations_size: int) -> Self:
        """Return the JSON of a pod that begins with its metadata, which have a name and no annotations."""
        rest = b"," + raw.removeprefix(_BEFORE_METADATA)
        return cls(rest, len(rest) + annotations_size)

    def whole(self, annotations: Mapping[str, str]) -> bytes:
        """Return the JSON with the annotations."""
        return b"".join((_BEFORE_ANNOTATIONS, _ANNOTATIONS.encode(annotations), self.rest))


class PodInfo:
    """A pod, with values that scheduling derives from it.

    Immutable: an update of the pod is a new PodInfo. Versions of one pod share `uid`.

    Attributes:
        pod: the decoded object.
        node_name: the node it is bound to or assumed on; "" while it is pending.
        uid, namespace: as in the object; no properties, because they are read more often than all others.
    """

    # What is read of every pod on a node has a slot: the dictionary of a pod would take more memory than the pod.
    __slots__ = (
        *_DERIVED_IN_SLOTS,
        "__dict__",
        "__weakref__",
        "_raw",
        "_resources",
        "namespace",
        "node_name",
        "pod",
        "uid",
    )

    def __init__(
        self,
        pod: Pod,
        raw: bytes | UnannotatedJson | None = None,
        *,
        node_name: str | None = None,
        resources: PodResources | None = None,
    ) -> None:
        self.pod = pod
        self.uid, self.namespace = pod.metadata.uid, pod.metadata.namespace
        self._raw = raw
        self.node_name = pod.spec.node_name if node_name is None else node_name
        self._resources = resources
        self._affinity_terms: AffinityTerms | None = None
        self._group: GroupKey | EllipsisType | None = ...
        self._host_ports: tuple[HostPort, ...] | None = None

    @property
    def raw(self) -> bytes | None:
        """Its JSON from the API server, without managedFields; None on bound pods, unless a plugin `needs` it."""
        raw = self._raw
        return raw.whole(self.pod.metadata.annotations) if isinstance(raw, UnannotatedJson) else raw

    @property
    def raw_size(self) -> int:
        """The approximate length of `raw`; 0 if it was not kept."""
        raw = self._raw
        return 0 if raw is None else raw.size if isinstance(raw, UnannotatedJson) else len(raw)

    @property
    def name(self) -> str:
        return self.pod.metadata.name

    @property
    def resource_version(self) -> str:
        return self.pod.metadata.resource_version

    @property
    def labels(self) -> Mapping[str, str]:
        return self.pod.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        """The annotations; a bound pod keeps only those that plugins `need`."""
        return self.pod.metadata.annotations

    @property
    def scheduler_name(self) -> str:
        return self.pod.spec.scheduler_name

    @property
    def priority(self) -> int:
        return self.pod.spec.priority

    @property
    def group(self) -> GroupKey | None:
        """The group that the pod refers to; its profile decides whether groups of that kind are supported."""
        if self._group is ...:
            self._group = group_of(self.pod)
        return self._group

    @property
    def tolerations(self) -> tuple[Toleration, ...]:
        return self.pod.spec.tolerations

    @cached_property
    def tolerated(self) -> Tolerations:
        """The taints that its tolerations cover."""
        return Tolerations(self.tolerations)

    @property
    def node_affinity(self) -> NodeAffinity | None:
        affinity = self.pod.spec.affinity
        return None if affinity is None else affinity.node_affinity

    @cached_property
    def required_node_affinity(self) -> RequiredNodeAffinity:
        """The required labels and name of its node."""
        return required_node_affinity(self.pod.spec.node_selector, self.node_affinity)

    @cached_property
    def spec_digest(self) -> bytes:
        """A digest that only pods with equal specs have in common; computed once for each version of the pod."""
        return spec_digest(self.pod.spec)

    @cached_property
    def written_node_affinity(self) -> bytes:
        """Its encoded node affinity; equal for pods with equal affinity, and cheap to compare."""
        affinity = self.node_affinity
        return b"" if affinity is None else _ENCODER.encode(affinity)

    @property
    def affinity_terms(self) -> AffinityTerms:
        """The required and preferred pod affinity and anti-affinity."""
        if self._affinity_terms is None:
            self._affinity_terms = (
                NO_TERMS if self.pod.spec.affinity is None else run_to_end(self.read_affinity_terms())
            )
        return self._affinity_terms

    def read_affinity_terms(self) -> Generator[None, None, AffinityTerms]:
        """Return `affinity_terms`; the first call parses them in steps."""
        affinity = self.pod.spec.affinity
        if self._affinity_terms is None and affinity is not None:
            self._affinity_terms = yield from read_affinity_terms(
                self.namespace, affinity.pod_affinity, affinity.pod_anti_affinity
            )
        return self.affinity_terms

    @property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports that it requests."""
        if self._host_ports is None:
            self._host_ports = host_ports(self.pod)
        return self._host_ports

    @property
    def storage_volumes(self) -> tuple[Volume, ...]:
        """Its volumes that the node must attach; a bound pod keeps only these."""
        return self._storage_volumes if self.pod.spec.volumes else ()

    @property
    def claims(self) -> tuple[PodClaim, ...]:
        """The PersistentVolumeClaims it uses, in the order of its volumes."""
        return self._claims if self.pod.spec.volumes else ()

    @cached_property
    def claim_keys(self) -> frozenset[str]:
        """`namespace/name` of the PersistentVolumeClaims it uses."""
        return frozenset(claim.key for claim in self.claims)

    @cached_property
    def resource_claim_keys(self) -> frozenset[str]:
        """`namespace/name` of its ResourceClaims, as far as its spec or status names them."""
        names = [each.resource_claim_name for each in self.pod.spec.resource_claims]
        names += [each.resource_claim_name for each in self.pod.status.resource_claim_statuses]
        return frozenset(f"{self.namespace}/{name}" for name in names if name is not None)

    @cached_property
    def storage_uses(self) -> frozenset[StorageUse]:
        """The storage it attaches, with the keys of the snapshot's `storage`."""
        return storage_uses(self.pod)

    @cached_property
    def _storage_volumes(self) -> tuple[Volume, ...]:
        return storage_volumes(self.pod)

    @cached_property
    def _claims(self) -> tuple[PodClaim, ...]:
        return pod_claims(self.pod)

    @cached_property
    def key(self) -> str:
        """`namespace/name`, as in logs and messages."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def is_terminating(self) -> bool:
        return bool(self.pod.metadata.deletion_timestamp)

    @property
    def is_terminal(self) -> bool:
        """Whether the pod has ended, so that it holds no resources any more."""
        return self.pod.status.phase in {"Succeeded", "Failed"}

    @property
    def has_deferred_resize(self) -> bool:
        """Whether it is on a node that lacks the capacity for its resize."""
        return bool(self.pod.spec.node_name) and resize_is_deferred(self.pod)

    @property
    def held_for_resize(self) -> Mapping[str, int]:
        """The amounts that it holds of its node only for a deferred resize: resource name -> milliCPU, bytes or a count."""
        return self.resources.not_allocated if self.has_deferred_resize else {}

    @property
    def resources(self) -> PodResources:
        """Its requests, as the integers that scheduling computes with."""
        if self._resources is None:
            self._resources = pod_resources(self.pod)
        return self._resources

    def under(self, rules: PodRules) -> PodInfo:
        """Return a complete pod with its requests by other rules; the same if they do not matter to it."""
        resources = pod_resources(self.pod, rules)
        if resources == self.resources:
            return self
        return PodInfo(self.pod, self._raw, node_name=self.node_name, resources=resources)

    def with_claims(
        self, statuses: tuple[NodeAllocatableResourceClaimStatus, ...], rules: PodRules
    ) -> PodInfo:
        """Return the pod with other amounts that it takes of its node with the devices of its claims."""
        status = msgspec.structs.replace(self.pod.status, node_allocatable_resource_claim_statuses=statuses)
        pod = msgspec.structs.replace(self.pod, status=status)
        return PodInfo(pod, self._raw, node_name=self.node_name, resources=pod_resources(pod, rules))

    @cached_property
    def object(self) -> Mapping[str, Any]:
        """The whole object from the API server.

        Raises:
            LookupError: the bytes were not kept; a plugin that reads whole bound pods must declare it in
                `needs`.
        """
        raw = self.raw
        if raw is None:
            raise LookupError(f"Pod {self.key}: its whole object was not kept; see Needs.bound_pod_objects")
        return msgspec.json.decode(raw)  # type: ignore[no-any-return]

    def with_spec(self, **changed: Any) -> PodInfo:
        """Return the pod as if its spec had other values of some fields; its requests stay the same."""
        spec = msgspec.structs.replace(self.pod.spec, **changed)
        pod = msgspec.structs.replace(self.pod, spec=spec)
        return PodInfo(pod, self._raw, node_name=self.node_name, resources=self._resources)

    def with_requests(self, requests: Mapping[str, int]) -> PodInfo:
        """Return the pod as if a node needed other free amounts for it."""
        resources = replace(self.resources, requests=requests)
        return PodInfo(self.pod, self._raw, node_name=self.node_name, resources=resources)

    def takes_the_same_as(self, other: PodInfo) -> bool:
        """Return whether a node's counts are the same with either of two versions of the pod."""
        return (
            (self.resources is other.resources or self.resources == other.resources)
            and self.labels == other.labels
            and self.is_terminating == other.is_terminating
            and self.pod.spec.affinity == other.pod.spec.affinity
            and self.host_ports == other.host_ports
            and self.storage_volumes == other.storage_volumes
            and self.namespace == other.namespace
        )

    def placed_on(self, node_name: str, labels: Mapping[str, str] = NO_LABELS) -> PodInfo:
        """Return the same pod as if bound to a node, and as if that had added some labels."""
        pod = self.pod
        if labels:
            metadata = msgspec.structs.replace(pod.metadata, labels={**pod.metadata.labels, **labels})
            pod = msgspec.structs.replace(pod, metadata=metadata)
        placed = PodInfo(pod, self._raw, node_name=node_name, resources=self._resources)
        placed.take_derived_from(self)
        return placed

    def take_derived_from(self, other: PodInfo, names: Collection[str] | None = None) -> None:
        """Use values that another PodInfo derived from equal fields: those with the given names, or all."""
        for name in _DERIVED_IN_SLOTS:
            if names is None or name in names:
                setattr(self, name, getattr(other, name))
        for name, value in other.__dict__.items():
            if names is None or name in names:
                self.__dict__[name] = value

    def __repr__(self) -> str:
        return f"PodInfo({self.key}@{self.node_name})" if self.node_name else f"PodInfo({self.key})"


def spec_digest(spec: PodSpec) -> bytes:
    """Return a digest that only equal specs have in common."""
    return sha256(_ENCODER.encode(spec)).digest()


_T = TypeVar("_T", bound=msgspec.Struct)

_REPEATED = frozenset(
    {
        "namespace",
        "scheduler_name",
        "node_name",
        "preemption_policy",
        "priority_class_name",
        "creation_timestamp",
    }
)

_EMPTY: dict[str, Any] = {}
_SHARED: Remembered[tuple[type, str, bytes], Any] = Remembered()
"""(struct type, field, encoded value) -> the shared value."""


def trim_bound_pod(pod: PodInfo, *, keep_annotations: bool = False, keep_object: bool = False) -> PodInfo:
    """Return a bound pod without the fields that are read only of pending pods.

    A large cluster has very many, and most of a pod is the same in all replicas of its workload: labels, containers,
    tolerations, conditions. Equal parts are stored once and shared, so they must not be changed. The resources are
    computed before the container statuses are removed.

    Args:
        pod: a bound pod.
        keep_annotations: keep all annotations; else only those of its group.
        keep_object: keep its bytes, so that `object` still works.
    """
    metadata, spec, status = pod.pod.metadata, pod.pod.spec, pod.pod.status
    own: dict[str, Any] = {}
    if spec.affinity is not None and has_long_terms(
        spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity
    ):
        terms = pod.affinity_terms
        assert terms.written is not None, "what is written of long terms is kept with them"
        near, apart = terms.written
        own["affinity"] = Affinity(spec.affinity.node_affinity, near, apart)
    if spec.volumes:
        own["volumes"] = _shared(PodSpec, "volumes", storage_volumes(pod.pod))
    trimmed = PodInfo(
        Pod(
            metadata=_sharing(
                metadata,
                annotations=metadata.annotations
                if keep_annotations
                else group_annotations(metadata.annotations) or _EMPTY,
            ),
            spec=_trimmed_spec(spec, own),
            status=PodStatus(
                phase=sys.intern(status.phase),
                conditions=_shared(PodStatus, "conditions", status.conditions),
                nominated_node_name=status.nominated_node_name,
                allocated_resources=_EMPTY,
                start_time=sys.intern(status.start_time),
                node_allocatable_resource_claim_statuses=status.node_allocatable_resource_claim_statuses,
            ),
        ),
        pod.raw if keep_object else None,
        node_name=sys.intern(pod.node_name),
        resources=pod.resources,
    )
    if spec.affinity is not None:
        # Pods with equal terms share them for as long as one of these pods exists.
        trimmed.take_derived_from(pod, ("_affinity_terms",))
    return trimmed


_NOT_SHARED: Mapping[str, Any] = {"node_name": "", "volumes": (), "affinity": None}


def _trimmed_spec(spec: PodSpec, own: Mapping[str, Any]) -> PodSpec:
    """Return a spec whose parts are shared with equal ones, except for the given parts and the node's name."""
    own = {"node_name": sys.intern(spec.node_name), **own}
    common = msgspec.structs.replace(spec, **{name: _NOT_SHARED[name] for name in own})
    content = _ENCODER.encode(common)
    known: PodSpec | None = _SHARED.get((PodSpec, "", content))
    if known is None:  # workloads differ, but many parts are the same in several
        known = _SHARED.keep((PodSpec, "", content), _sharing(common), len(content))
    return msgspec.structs.replace(known, **own)


def _sharing(struct: _T, **own: Any) -> _T:
    """Return a struct whose parts are shared with equal ones, except for the given parts."""
    kind = type(struct)
    for name in _parts_of(kind):
        if name in own:
            continue
        part = getattr(struct, name)
        if not part:
            if part.__class__ is dict:
                own[name] = _EMPTY
        elif part.__class__ is str:
            own[name] = sys.intern(part)
        else:
            own[name] = _shared(kind, name, part)
    return msgspec.structs.replace(struct, **own)


@cache
def _parts_of(kind: type[msgspec.Struct]) -> Sequence[str]:
    """Return the fields that pods have in common: all but numbers, and the text that differs between pods."""
    return [
        name
        for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
        if name in _REPEATED or not isinstance(default, str | int)
    ]


def _shared(kind: type, name: str, part: Any) -> Any:
    if not part:
        return part
    content = _ENCODER.encode(part)
    known = _SHARED.get((kind, name, content))
    return _SHARED.keep((kind, name, content), part, len(content)) if known is None else known
