"""pods/binding: sets the node of a pod, once.

Source:
    kube-apiserver v1.36, pkg/registry/core/pod/storage/storage.go, BindingREST.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.kinds import Place
from scheduler.simulator.apimachinery.objects import is_terminating, with_condition
from scheduler.simulator.apimachinery.status import StatusError, bad_request, conflict
from scheduler.simulator.kinds.pods import topology_labels

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.decoding import WriteOptions
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.registry import Registry
    from scheduler.simulator.storage.entries import Entry


_SCHEDULED: Final = {"type": "PodScheduled", "status": "True", "lastProbeTime": None}


def bind(registry: Registry, namespace: str, name: str, binding: Any, options: WriteOptions) -> Entry:
    """Bind a pod according to a v1.Binding; the node need not exist.

    Raises:
        StatusError: 400, names differ; 404, no such pod; 409, it cannot be bound, or its uid or version differs;
            500, the Binding names no node.
    """
    metadata, target = _parts(binding)
    if metadata.get("name", "") != name:
        raise bad_request("name in URL does not match name in Binding object")
    node = target.get("name") or ""
    if target.get("kind", "Node") not in {"Node", ""}:
        problem = f'Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"'
        raise StatusError(500, "", f"target.kind: {problem}")
    if not node:
        raise StatusError(500, "", "target.name: Required value")

    kind = registry.kinds.named("pods")
    entry = registry.get(Place(kind, namespace, name))
    pod = entry.object
    _check_preconditions(registry, entry, metadata)
    problem = _obstacle(pod)
    if problem:
        raise conflict(kind, name, f"pod {name} {problem}", subresource="binding")
    labels = metadata.get("labels", {})
    if target.get("kind") == "Node":
        labels = labels | topology_labels(node, registry)
    bound = _bound(pod, node, metadata.get("annotations", {}), labels, registry.timestamp())
    return registry.commit(kind, entry, bound, options)


def _obstacle(pod: Object) -> str:
    """Return why a pod cannot be bound; "" if it can."""
    if is_terminating(pod):
        return "is being deleted, cannot be assigned to a host"
    if pod["spec"].get("nodeName"):
        return f'is already assigned to node "{pod["spec"]["nodeName"]}"'
    return "has non-empty .spec.schedulingGates" if pod["spec"].get("schedulingGates") else ""


def _parts(binding: Any) -> tuple[Object, Object]:
    """Return a Binding's metadata and target; raises the errors of a decoder."""
    if not isinstance(binding, dict):
        raise bad_request("not a Binding object")
    metadata, target = binding.get("metadata") or {}, binding.get("target") or {}
    if not isinstance(metadata, dict) or not isinstance(target, dict):
        raise bad_request(
            'Binding in version "v1" cannot be handled as a Binding: json: cannot unmarshal into Go struct'
        )
    return metadata, target


def _check_preconditions(registry: Registry, entry: Entry, metadata: Object) -> None:
    """Reject a Binding whose uid or version differs from the pod's."""
    pairs = (
        ("UID", metadata.get("uid"), entry.object["metadata"]["uid"]),
        ("ResourceVersion", metadata.get("resourceVersion"), str(entry.version)),
    )
    for what, asked, found in pairs:
        if asked and asked != found:
            raise conflict(
                registry.kinds.named("pods"),
                entry.name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{entry.key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: {what} in precondition: {asked}, {what} in object "
                f"meta: {found}",
            )


def _bound(
    pod: Object, node: str, annotations: dict[str, str], labels: dict[str, str], timestamp: str
) -> Object:
    metadata = dict(pod["metadata"])
    for field, added in (("annotations", annotations), ("labels", labels)):
        if added:
            metadata[field] = metadata.get(field, {}) | added
    status = {name: value for name, value in pod["status"].items() if name != "nominatedNodeName"}
    status["conditions"] = with_condition(status.get("conditions"), _SCHEDULED, timestamp)
    return pod | {"metadata": metadata, "spec": pod["spec"] | {"nodeName": node}, "status": status}
