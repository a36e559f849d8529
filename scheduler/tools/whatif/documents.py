"""Identifies the API objects of a file, and converts them to the typed values of the daemon."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from scheduler.errors import ObjectError
from scheduler.kube.client import resources
from scheduler.kube.client.resources import Resource
from scheduler.objects.created_pods import default_claim_spec
from scheduler.objects.decode import STRUCTS, decode_node, decode_object, decode_pod, without_nulls
from scheduler.objects.pod_defaults import default_pod
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from scheduler.configuration.manifests import Item
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

_CLAIMS = "resource.k8s.io/v1/resourceclaims"
NODES = "v1/nodes"
PODS = "v1/pods"

_KNOWN = {
    (f"{resource.group}/{version}" if resource.group else version, resource.kind): resource
    for resource in vars(resources).values()
    if isinstance(resource, Resource)
    for version in {resource.version, *resource.versions}
}
"""(apiVersion, kind), in each version that the daemon reads -> its resource."""


class Identity(NamedTuple):
    """The identity of an item.

    Attributes:
        item: the item, with its namespace if its kind is namespaced.
        kind: its kind, as in plugins' `needs`.
        key: `namespace/name`, or `name`.
        is_complete: whether it has its own uid and namespace.
    """

    item: Item
    kind: str
    key: str
    is_complete: bool


def identify(item: Item) -> Identity:
    """Return the identity of an item.

    Raises:
        ValueError: a part of it is missing.
    """
    if item.kind is None or item.name is None or item.api_version is None:
        given = {"apiVersion": item.api_version, "kind": item.kind, "metadata.name": item.name}
        missing = ", ".join(field for field, value in given.items() if value is None)
        raise ValueError(f"{missing}: must be a string that is not empty")
    name = item.name
    resource = _KNOWN.get((item.api_version, item.kind))
    kind = f"{item.api_version}/{plural(item.kind)}"
    if resource is not None:
        kind = f"{resource.api_version}/{resource.plural}"
    is_complete = item.uid is not None and item.namespace is not None
    if resource is not None and resource.namespaced and item.namespace is None:
        item = item._replace(namespace="default")
    key = f"{item.namespace}/{name}" if item.namespace else name
    return Identity(item, kind, key, is_complete)


def is_known(item: Item) -> bool:
    """Return whether an item's kind is one of Kubernetes' kinds that schedulers read or write."""
    return (item.api_version, item.kind) in _KNOWN


def decoded_pod(identity: Identity) -> PodInfo:
    """Decode a pod; a pod without uid, which no API server has seen yet, gets the API server's defaults.

    Raises:
        ObjectError: it cannot be decoded.
    """
    return decode_pod(identity.item.raw) if identity.is_complete else _completed_pod(identity.item)


def decoded(identity: Identity) -> NodeObject | PodInfo | dict[str, object]:
    """Decode an object: a node or pod to its type, any other kind to JSON.

    Raises:
        ObjectError: it cannot be decoded.
    """
    if identity.kind == PODS:
        return decoded_pod(identity)
    if identity.kind == NODES:
        return decode_node(identity.item.raw)
    return decoded_object(identity.item.raw, identity.kind, identity.key)


def decoded_object(raw: bytes, kind: str, key: str) -> dict[str, object]:
    """Decode an object of another kind; its namespace is that of its key, and a claim gets the API server's defaults.

    Raises:
        ObjectError: it cannot be decoded.
    """
    found = decode_object(raw, STRUCTS.get(kind))
    if kind == _CLAIMS:
        with suppress(AttributeError, KeyError, TypeError):  # the reader of the claim reports its shape
            default_claim_spec(found["spec"])
    namespace = key.rpartition("/")[0]
    if namespace:
        found["metadata"].setdefault("namespace", namespace)
    return found


def _completed_pod(item: Item) -> PodInfo:
    obj = decode_object(item.raw)
    identity = {"namespace": item.namespace, "uid": item.uid or f"{item.namespace}/{item.name}"}
    obj["metadata"].update(identity)
    return decode_pod(msgspec.json.encode(obj if item.uid is not None else with_pod_defaults(obj)))


def with_pod_defaults(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a pod with the API server's defaults; it has a name, a namespace and a uid.

    Raises:
        ObjectError: it cannot be decoded.
    """
    pod = decode_pod(msgspec.json.encode(obj))
    found: dict[str, Any] = without_nulls(obj, Pod)
    try:
        default_pod(found)
    except (AttributeError, TypeError) as error:  # in a part that scheduling does not read
        raise ObjectError(
            "Pod", pod.key, "spec", f"does not have the shape of a pod's spec: {error}"
        ) from error
    return found


def plural(kind: str) -> str:
    """Return the most likely plural of a kind in URLs.

    Source:
        apimachinery v0.36, pkg/api/meta/restmapper.go, UnsafeGuessKindToResource.
    """
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith("s"):
        return f"{name}es"
    if name.endswith("y"):
        return f"{name[:-1]}ies"
    return f"{name}s"
