"""Messages to and from an extender: JSON with the field names of Go.

The types upstream have no JSON names. Fields are therefore written as in Go ("NodeNames") and read case-insensitively,
as by Go's decoder: many extenders answer in lower case.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/extender/v1/types.go, and encoding/json.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

MAX_EXTENDER_PRIORITY = 10
"""The score of an extender that weighs as much as the highest score of a plugin; scores may be higher, or negative."""

_LARGE_BYTES = 256 * 1024
"""A longer response is decoded in parts, and only the needed ones: it may contain whole nodes, up to 16 MiB."""
_LARGEST_PART_BYTES = 1024 * 1024
"""In a large response: a text, a number, or an unexpected value."""
_MOST_VICTIMS = 20_000
"""On one node."""
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_LARGEST = (1 << 63) - 1

T = TypeVar("T")


class ExtenderError(SchedulerError):
    """A call of an extender failed, or its response is invalid."""

    reason_code = "ExtenderError"


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """An extender's filter result.

    Attributes:
        node_names: the nodes that can run the pod, in the extender's order.
        failed: name -> reason of the rejection; preemption there may help.
        unresolvable: name -> reason of the rejection; preemption there cannot help.
    """

    node_names: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetaVictims:
    """Pods to preempt on a node, as an extender names them.

    Attributes:
        uids: UIDs of the pods, each once.
        pdb_violations: number of violated disruption budgets.
    """

    uids: tuple[str, ...]
    pdb_violations: int


def arguments(pod: PodInfo, nodes: Sequence[NodeObject], *, names_only: bool) -> bytes:
    """Return ExtenderArgs: a whole pod, and the nodes to filter or to score, whole or by name."""
    if names_only:
        names = msgspec.json.encode([node.name for node in nodes])
        return b'{"Pod":%b,"Nodes":null,"NodeNames":%b}' % (_bytes_of(pod), names)
    items = b",".join(node.raw for node in nodes)
    return b'{"Pod":%b,"Nodes":{"metadata":{},"items":[%b]},"NodeNames":null}' % (_bytes_of(pod), items)


def binding_arguments(pod: PodInfo, node_name: str) -> bytes:
    """Return ExtenderBindingArgs."""
    return msgspec.json.encode(
        {"PodName": pod.name, "PodNamespace": pod.namespace, "PodUID": pod.uid, "Node": node_name}
    )


def preemption_arguments(
    pod: PodInfo, victims: Mapping[str, tuple[Sequence[PodInfo], int]], *, names_only: bool
) -> bytes:
    """Return ExtenderPreemptionArgs; `victims` are pods, whole or by UID, and the number of violated budgets."""
    if names_only:
        meta = {
            name: {"Pods": [{"UID": each.uid} for each in pods], "NumPDBViolations": violations}
            for name, (pods, violations) in victims.items()
        }
        return b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}' % (
            _bytes_of(pod),
            msgspec.json.encode(meta),
        )
    whole = {
        name: {
            "Pods": [msgspec.Raw(_bytes_of(each)) for each in pods],
            "NumPDBViolations": violations,
        }
        for name, (pods, violations) in victims.items()
    }
    return b'{"Pod":%b,"NodeNameToVictims":%b,"NodeNameToMetaVictims":null}' % (
        _bytes_of(pod),
        msgspec.json.encode(whole),
    )


def _bytes_of(pod: PodInfo) -> bytes:
    """Return a pod as the API server sent it; for a bound pod, the fields that are kept."""
    return pod.raw if pod.raw is not None else msgspec.json.encode(pod.pod)


def filter_answer(body: bytes, asked: Collection[str], *, names_only: bool) -> FilterAnswer:
    """Decode ExtenderFilterResult for the nodes `asked`, by name if names were sent.

    Raises:
        ExtenderError: the response is invalid, contains an error, or names a node that was not sent.
    """
    fields = _object(_json(body))
    error = _field(fields, "Error", str, "")
    if error:
        raise ExtenderError(error)
    _check_number(fields, "NodeNames", b'"', len(asked))
    names = _field(fields, "NodeNames", list, None)
    nodes = _field(fields, "Nodes", dict, None)
    passed: Sequence[Any] = ()
    known = frozenset(asked)
    most = 2 * len(known)  # some extenders repeat nodes
    if names_only and names is not None:
        _limited(names, most, "NodeNames")
        passed = [_typed(name, str, f"NodeNames[{place}]") for place, name in enumerate(names)]
    elif nodes is not None:
        items = _limited(_field(_folded(nodes), "items", list, [], "Nodes.items"), most, "Nodes.items")
        passed = [_node_name(item, f"Nodes.items[{place}]") for place, item in enumerate(items)]
    for name in passed:
        if name not in known:
            raise ExtenderError(
                f"claims a filtered node {_quoted(name)} which is not found in the input node list"
            )
    return FilterAnswer(
        tuple(dict.fromkeys(passed)),
        _reasons(fields, "FailedNodes", asked),
        _reasons(fields, "FailedAndUnresolvableNodes", asked),
    )


def priorities_answer(body: bytes, asked: int) -> Sequence[tuple[str, int]]:
    """Decode HostPriorityList for `asked` nodes: (node name, score) in the extender's order.

    A score is any integer of 64 bits.

    Raises:
        ExtenderError: the response is invalid.
    """
    items = _limited(_typed(_json(body), list, "", empty=[]), 2 * asked)
    priorities = []
    for place, item in enumerate(items):
        fields = _object(item, f"[{place}]")
        host = _field(fields, "Host", str, "", f"[{place}].Host")
        score = _field(fields, "Score", int, 0, f"[{place}].Score")
        priorities.append((host, score))
    return priorities


def binding_answer(body: bytes) -> None:
    """Decode ExtenderBindingResult.

    Raises:
        ExtenderError: the response is invalid, or contains an error.
    """
    error = _field(_object(_json(body)), "Error", str, "")
    if error:
        raise ExtenderError(error)


def preemption_answer(body: bytes) -> Mapping[str, MetaVictims]:
    """Decode ExtenderPreemptionResult: node name -> victims.

    Raises:
        ExtenderError: the response is invalid.
    """
    name = "NodeNameToMetaVictims"
    of_nodes = _field(_object(_json(body)), name, dict, {})
    return {node: _meta_victims(of_nodes[node], f"{name}[{node}]") for node in of_nodes}


def _meta_victims(value: Any, path: str) -> MetaVictims:
    fields = _object(value, path)
    pods = _limited(_field(fields, "Pods", list, [], f"{path}.Pods"), _MOST_VICTIMS, f"{path}.Pods")
    uids = (_uid(pod, f"{path}.Pods[{place}]") for place, pod in enumerate(pods))
    return MetaVictims(
        tuple(dict.fromkeys(uids)), _field(fields, "NumPDBViolations", int, 0, f"{path}.NumPDBViolations")
    )


def _uid(pod: Any, path: str) -> str:
    return _field(_object(pod, path), "UID", str, "", f"{path}.UID")


def _reasons(fields: Mapping[str, Any], name: str, asked: Collection[str]) -> Mapping[str, str]:
    """Return node -> reason, for the nodes of the request."""
    _check_number(fields, name, b'":', len(asked))
    reasons = _field(fields, name, dict, {})
    return {
        node: _typed(reasons[node], str, f"{name}[{node}]", empty="") for node in asked if node in reasons
    }


def _check_number(fields: Mapping[str, Any], name: str, sign: bytes, asked: int) -> None:
    """Reject a part of a large response with far more nodes than the request, before it is decoded.

    Args:
        fields: fields of the response.
        name: name of the part.
        sign: bytes that occur once or twice for each node, and rarely elsewhere.
        asked: number of nodes of the request.
    """
    value = fields.get(name.lower())
    if isinstance(value, msgspec.Raw) and bytes(value).count(sign) > 10 * asked + 1000:
        raise ExtenderError(f"answered very many more nodes at {name} than the {asked} it was asked about")


def _limited(items: list[Any], most: int, path: str = "") -> list[Any]:
    if len(items) > most:
        where = f" at {path}" if path else ""
        raise ExtenderError(f"answered a list of {len(items)} items{where}, expected at most {most}")
    return items


def _node_name(item: Any, path: str) -> str:
    metadata = _field(_folded(_typed(item, dict, path)), "metadata", dict, {}, f"{path}.metadata")
    return _field(_folded(metadata), "name", str, "", f"{path}.metadata.name")


def _json(body: bytes) -> Any:
    """Decode the first JSON value of a response; the rest is ignored, as by Go's decoder.

    A large response is decoded by `_typed`, and nothing may follow the value.
    """
    if len(body) > _LARGE_BYTES:
        return msgspec.Raw(body)
    import json  # only this decoder stops after the first value

    text = body.decode("utf-8", "replace").lstrip()
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
        return _without_surrogates(value) if _SURROGATE.search(text) else value
    except ValueError as error:
        raise ExtenderError(f"answered what is no JSON: {_quoted(text[:100])}") from error
    except RecursionError as error:
        raise ExtenderError("answered what nests too deep") from error


def _without_surrogates(value: Any) -> Any:
    """Return JSON with lone surrogates replaced, as in Go: they cannot be encoded again."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(each) for each in value]
    if isinstance(value, dict):
        return {_without_surrogates(name): _without_surrogates(each) for name, each in value.items()}
    return value


def _object(value: Any, path: str = "") -> Mapping[str, Any]:
    """Return an object's fields by lower-case name; none for null."""
    return _folded(_typed(value, dict, path, empty={}))


def _folded(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return fields by lower-case name."""
    return {name.lower(): value for name, value in fields.items()}


def _field(fields: Mapping[str, Any], name: str, kind: type[T], absent: Any, path: str = "") -> T:
    value = fields.get(name.lower())
    if isinstance(value, msgspec.Raw):
        value = _opened(value, kind, path or name)
    field_value: T = absent if value is None else _typed(value, kind, path or name)
    return field_value


def _typed(value: Any, kind: type[T], path: str, *, empty: T | None = None) -> T:
    if isinstance(value, msgspec.Raw):
        value = _opened(value, kind, path)
    if value is None and empty is not None:
        return empty
    if _is_of(value, kind):
        typed: T = value
        return typed
    where = f" at {path}" if path else ""
    raise ExtenderError(f"answered {_shown(value)}{where}, expected {_KINDS[kind]}")


def _opened(raw: msgspec.Raw, kind: type, path: str) -> Any:
    """Decode a part of a large response; the items of lists and objects stay undecoded."""
    head = bytes(memoryview(raw)[:100])
    try:
        if kind in _PARTS and head.lstrip()[:1] == _PARTS[kind][0]:
            return msgspec.json.decode(raw, type=_PARTS[kind][1])
        if memoryview(raw).nbytes <= _LARGEST_PART_BYTES:
            return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ExtenderError(
            f"answered what is no JSON: {_quoted(head.decode('utf-8', 'replace'))}"
        ) from error
    except RecursionError as error:
        raise ExtenderError("answered what nests too deep") from error
    where = f" at {path}" if path else ""
    raise ExtenderError(f"answered {head.decode('utf-8', 'replace')}...{where}, expected {_KINDS[kind]}")


def _is_of(value: Any, kind: type) -> bool:
    if kind is int:  # as in Go: 64 bits, and not a boolean
        return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST - 1 <= value <= _LARGEST
    return isinstance(value, kind)


def _shown(value: Any) -> str:
    try:
        text = msgspec.json.encode(value).decode()
    except (OverflowError, RecursionError):  # an integer beyond 64 bits, or deeply nested lists
        return f"a {type(value).__name__}"
    return text if len(text) <= 100 else f"{text[:100]}..."


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


_PARTS: Mapping[Any, tuple[bytes, Any]] = {
    dict: (b"{", dict[str, msgspec.Raw]),
    list: (b"[", list[msgspec.Raw]),
}
_KINDS: Mapping[type, str] = {str: "text", int: "an integer", list: "a list", dict: "an object"}
