"""Requests of a scheduler to this extender, and the responses: the server's side of `extender_wire`.

Field names of requests are case-insensitive, as in Go, so that old kube-schedulers that write `nodenames` are understood
as well. An invalid or incomplete request raises RequestError.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/extender/v1/types.go, and pkg/scheduler/extender.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec

from scheduler.errors import ObjectError, SchedulerError
from scheduler.extensions.extender_wire import MetaVictims
from scheduler.objects.decode import decode_pod

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.extensions.extender_wire import FilterAnswer
    from scheduler.objects.pod import PodInfo

NOT_CACHE_CAPABLE = (
    "nodes were sent whole, but this extender has read the cluster itself and wants their names only: "
    "set nodeCacheCapable: true where kube-scheduler's configuration names it"
)

_BINDING_FIELDS = ("PodNamespace", "PodName", "PodUID", "Node")  # as of BindingRequest

_MOST_NODES: Final = 200_000
"""In a request: no cluster has more nodes, and decoding more names would take long."""
_LONGEST_POD_BYTES: Final = 3 * 1024 * 1024
"""The API server's limit of a request."""
_LONGEST_VICTIMS_BYTES: Final = 8 * 1024 * 1024
"""For one node."""

_TOO_DEEP = "the request nests too deep to be read"

T = TypeVar("T")


class RequestError(SchedulerError):
    """A request that cannot be decoded, or of a kind that is not served."""


@dataclass(frozen=True, slots=True)
class NodesRequest:
    """ExtenderArgs: a pod, and the nodes to filter or to score.

    Attributes:
        pod: a pending pod.
        node_names: each once, in the order of the request.
    """

    pod: PodInfo
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """ExtenderPreemptionArgs: a pod that needs capacity, and the victims on each node.

    Attributes:
        pod: a pending pod.
        victims: node name -> pods, and the number of disruption budgets that their preemption violates.
    """

    pod: PodInfo
    victims: Mapping[str, MetaVictims]


@dataclass(frozen=True, slots=True)
class BindingRequest:
    """ExtenderBindingArgs: a pod, and the node it is to run on."""

    namespace: str
    name: str
    uid: str
    node_name: str

    @property
    def key(self) -> str:
        """The pod's `namespace/name`."""
        return f"{self.namespace}/{self.name}"


def nodes_request(body: bytes) -> NodesRequest:
    """Decode ExtenderArgs, which must contain names of nodes and not whole nodes."""
    fields = _fields(body)
    pod = _pod(fields)
    raw_names = bytes(fields.get("nodenames", b""))
    if raw_names.count(b",") >= _MOST_NODES:
        raise RequestError(f"NodeNames: expected at most {_MOST_NODES} names")
    names = _value(fields, "NodeNames", list[str] | None)
    if names is None:
        if _is_given(fields, "Nodes"):
            raise RequestError(NOT_CACHE_CAPABLE)
        raise RequestError("NodeNames: expected a list of node names, found none")
    return NodesRequest(pod, tuple(dict.fromkeys(names)))


def preemption_request(body: bytes) -> PreemptionRequest:
    """Decode ExtenderPreemptionArgs, which contains UIDs of victims or whole victims."""
    fields = _fields(body)
    pod = _pod(fields)
    for name, kind in _VICTIMS.items():
        of_nodes = _value(fields, name, dict[str, msgspec.Raw] | None)
        if of_nodes is not None:
            # One node at a time: no other thread runs while one part is decoded.
            victims = {node: _victims_on(each, f"{name}[{node}]", kind) for node, each in of_nodes.items()}
            return PreemptionRequest(pod, victims)
    raise RequestError("NodeNameToMetaVictims: expected an object, found none")


def binding_request(body: bytes) -> BindingRequest:
    """Decode ExtenderBindingArgs."""
    fields = _fields(body)
    values = [_value(fields, name, str | None) or "" for name in _BINDING_FIELDS]
    if "" in values:
        raise RequestError(f"{_BINDING_FIELDS[values.index('')]}: expected text, found none")
    return BindingRequest(*values)


def filter_result(answer: FilterAnswer) -> bytes:
    """Return ExtenderFilterResult."""
    return msgspec.json.encode(
        _FilterResult(
            node_names=answer.node_names,
            failed_nodes=answer.failed,
            failed_and_unresolvable_nodes=answer.unresolvable,
        )
    )


def failed_filter_result(problem: str) -> bytes:
    """Return an ExtenderFilterResult with an error only, which kube-scheduler shows on the pod."""
    return msgspec.json.encode(_FilterResult(error=problem))


def priorities_result(scores: Iterable[tuple[str, int]]) -> bytes:
    """Return HostPriorityList."""
    return msgspec.json.encode([{"Host": name, "Score": score} for name, score in scores])


def preemption_result(victims: Mapping[str, MetaVictims]) -> bytes:
    """Return ExtenderPreemptionResult."""
    return msgspec.json.encode(
        {
            "NodeNameToMetaVictims": {
                node: {"Pods": [{"UID": uid} for uid in meta.uids], "NumPDBViolations": meta.pdb_violations}
                for node, meta in victims.items()
            }
        }
    )


def binding_result(problem: str = "") -> bytes:
    """Return ExtenderBindingResult; without a problem the pod is bound."""
    return msgspec.json.encode({"Error": problem})


class _FilterResult(msgspec.Struct, rename="pascal"):
    nodes: None = None
    node_names: Sequence[str] | None = None
    failed_nodes: Mapping[str, str] | None = None
    failed_and_unresolvable_nodes: Mapping[str, str] | None = None
    error: str = ""


class _HasUid(msgspec.Struct):
    uid: str = ""


class _WholePod(msgspec.Struct):
    metadata: _HasUid = msgspec.field(default_factory=_HasUid)

    @property
    def uid(self) -> str:
        return self.metadata.uid


class _Victims(msgspec.Struct, Generic[T]):
    pods: list[T] | None = None
    violations: int = msgspec.field(name="numpdbviolations", default=0)


_VICTIMS: Final = {
    "NodeNameToMetaVictims": _Victims[_HasUid] | None,
    "NodeNameToVictims": _Victims[_WholePod] | None,
}
"""Field -> the type of its values; null means an empty value, as in Go."""


def _fields(body: bytes) -> Mapping[str, msgspec.Raw]:
    """Return a request's fields by lower-case name, undecoded."""
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except RecursionError as error:
        raise RequestError(_TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        shown = body[:60].decode("utf-8", "replace")
        raise RequestError(f"the request is no JSON object: {error}: {shown!r}") from error
    return {name.lower(): value for name, value in fields.items()}


def _is_given(fields: Mapping[str, msgspec.Raw], name: str) -> bool:
    value = fields.get(name.lower())
    return value is not None and bytes(value).strip() != b"null"


def _pod(fields: Mapping[str, msgspec.Raw]) -> PodInfo:
    if not _is_given(fields, "Pod"):
        raise RequestError("Pod: expected an object, found none")
    if memoryview(fields["pod"]).nbytes > _LONGEST_POD_BYTES:
        raise RequestError(f"Pod: expected at most {_LONGEST_POD_BYTES} bytes")
    try:
        # A copy, so that the pod does not keep the request's body with all node names alive.
        return decode_pod(bytes(fields["pod"]))
    except RecursionError as error:
        raise RequestError(f"Pod: {_TOO_DEEP}") from error
    except ObjectError as error:
        raise RequestError(str(error)) from error


def _victims_on(raw: msgspec.Raw, path: str, kind: Any) -> MetaVictims:
    if memoryview(raw).nbytes > _LONGEST_VICTIMS_BYTES:
        raise RequestError(f"{path}: expected at most {_LONGEST_VICTIMS_BYTES} bytes")
    try:
        return _meta_victims(msgspec.convert(_folded(msgspec.json.decode(raw)), kind))
    except RecursionError as error:
        raise RequestError(f"{path}: {_TOO_DEEP}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{path}: {error}") from error


def _value(fields: Mapping[str, msgspec.Raw], name: str, kind: Any) -> Any:
    """Return a field decoded as a type; None if it is missing or null."""
    if not _is_given(fields, name):
        return None
    raw = fields[name.lower()]
    try:
        return msgspec.json.decode(raw, type=kind)
    except RecursionError as error:
        raise RequestError(f"{name}: {_TOO_DEEP}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"{name}: {error}") from error


def _folded(value: Any) -> Any:
    """Return JSON with all field names in lower case."""
    if isinstance(value, dict):
        return {name.lower(): _folded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_folded(each) for each in value]
    return value


def _meta_victims(victims: _Victims[Any] | None) -> MetaVictims:
    if victims is None:
        return MetaVictims((), 0)
    return MetaVictims(tuple(dict.fromkeys(each.uid for each in victims.pods or ())), victims.violations)
