"""Changes to a cluster before a simulation: added nodes, removed nodes, scaled workloads."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import SchedulerError
from scheduler.objects.decode import decode_node
from scheduler.objects.quantity import canonical_quantity
from scheduler.tools.simulator.apimachinery.selectors import parse_labels
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.scenarios.clusters import ready_node
from scheduler.tools.whatif.documents import plural
from scheduler.tools.whatif.simulation.object_versions import (
    edited,
    goes_with_node,
    in_order_of_removal,
    named,
    pending,
    with_replicas,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.whatif.cluster_file import ClusterFile

_ADD: Final = re.compile(r"(?P<count>[1-9][0-9]*):(?P<shape>.+)")
_SIZE: Final = re.compile(r"(?P<workload>[^=]+)=(?:(?P<factor>[0-9]+(?:\.[0-9]+)?)x|(?P<number>[0-9]+))")
_HOSTNAME: Final = "kubernetes.io/hostname"
_RESOURCES: Final = ("cpu", "memory", "pods", "ephemeral-storage")
_POD_TEMPLATE_HASH: Final = "pod-template-hash"
_DEFAULT_PODS: Final = "110"


class EditError(SchedulerError):
    """An edit is malformed or has no effect; the message contains the option."""


def with_nodes(cluster: ClusterFile, text: str) -> ClusterFile:
    """Add nodes: `10:like=NODE`, or `10:cpu=8,memory=32Gi,topology.kubernetes.io/zone=z`.

    In a shape, cpu, memory, pods and names of extended resources with an integer value are resources; all other entries
    are labels.

    Raises:
        EditError: it is malformed, there is no such node, or an amount is invalid.
    """
    found = _ADD.fullmatch(text)
    if found is None:
        raise EditError(
            f"--add-nodes {text}: must be NUMBER:like=NODE or NUMBER:cpu=AMOUNT,memory=AMOUNT[,LABEL=VALUE...]"
        )
    parts = dict(_pair(part, f"--add-nodes {text}") for part in found["shape"].split(","))
    make = _like(cluster, parts, text) if "like" in parts else _shaped(parts, text)
    taken = {node.name for node in cluster.nodes}
    names = (f"added-{number}" for number in range(1, 1 << 62))
    free = (name for name in names if name not in taken)
    added = [make(next(free)) for _ in range(int(found["count"]))]
    return replace(cluster, nodes=[*cluster.nodes, *added])


def without(cluster: ClusterFile, selector: str) -> ClusterFile:
    """Remove the nodes that match a label selector; their pods become pending, except pods of DaemonSets.

    Raises:
        EditError: the selector is malformed, or matches no node.
    """
    try:
        rule = parse_labels(selector)
    except StatusError as error:
        raise EditError(f"--without {selector}: {error.message}") from error
    gone = {node.name for node in cluster.nodes if rule.matches(node.labels)}
    if not gone:
        labels = sorted({name for node in cluster.nodes for name in node.labels})
        raise EditError(
            f"--without {selector}: no node matches; the labels of nodes are {', '.join(labels) or 'none'}"
        )
    pods = []
    for pod in cluster.pods:
        if pod.node_name not in gone or pod.is_terminal:
            pods.append(pod)
        elif not goes_with_node(pod):
            pods.append(pending(pod))
    return replace(cluster, nodes=[node for node in cluster.nodes if node.name not in gone], pods=pods)


def scaled(cluster: ClusterFile, text: str) -> ClusterFile:
    """Change the number of pods of a workload: `deployment/web=2x`, `statefulset/shop/db=5`.

    Added pods are copies, and pending; see `in_order_of_removal` for removed ones. The controllers of these pods get as many
    replicas more or less, if the file has them.

    Raises:
        EditError: it is malformed, or the workload has no pods.
    """
    found = _SIZE.fullmatch(text)
    kind, _, rest = found["workload"].partition("/") if found else ("", "", "")
    namespace, _, name = rest.rpartition("/")
    if found is None or not name:
        raise EditError(f"--scale {text}: must be KIND/[NAMESPACE/]NAME=NUMBER or =FACTORx")
    pods = [pod for pod in cluster.pods if not pod.is_terminal and not pod.is_terminating]
    of_it = [
        pod
        for pod in pods
        if (not namespace or pod.namespace == namespace) and name in _owners(pod, kind.lower())
    ]
    if not of_it:
        known = sorted({f"{owner.kind.lower()}/{owner.name}" for pod in pods for owner in _controllers(pod)})
        raise EditError(
            f"--scale {text}: the workload has no pods; workloads with pods: {', '.join(known[:20]) or 'none'}"
        )
    wanted = int(found["number"]) if found["number"] else ceil(len(of_it) * Fraction(found["factor"]))
    if wanted <= len(of_it):
        by_age = sorted(of_it, key=lambda pod: (pod.pod.metadata.creation_timestamp, pod.name))
        leaving = in_order_of_removal(by_age)[: len(of_it) - wanted]
        gone = {pod.uid for pod in leaving}
        kept = [pod for pod in cluster.pods if pod.uid not in gone]
        return replace(cluster, pods=kept, others=_with_more_replicas(cluster, leaving, -1))
    more = _more(of_it, wanted - len(of_it), kind.lower(), cluster)
    return replace(cluster, pods=[*cluster.pods, *more], others=_with_more_replicas(cluster, more, 1))


def _with_more_replicas(
    cluster: ClusterFile, pods: Sequence[PodInfo], sign: int
) -> dict[str, dict[str, bytes]]:
    """Return the other objects of a cluster after pods were added, or with a sign of -1 removed."""
    others = dict(cluster.others)
    numbers = Counter(
        (f"{owner.api_version}/{plural(owner.kind)}", f"{pod.namespace}/{owner.name}")
        for pod in pods
        for owner in _controllers(pod)
    )
    for (kind, key), number in numbers.items():
        raw = others.get(kind, {}).get(key)
        controller: dict[str, Any] = {} if raw is None else msgspec.json.decode(raw)
        replicas = (controller.get("spec") or {}).get("replicas")
        if isinstance(replicas, int):
            changed = with_replicas(controller, max(0, replicas + sign * number))
            others[kind] = {**others[kind], key: msgspec.json.encode(changed)}
    return others


def _more(of_it: Sequence[PodInfo], number: int, kind: str, cluster: ClusterFile) -> list[PodInfo]:
    sibling, taken = of_it[0], {pod.key for pod in cluster.pods}
    base = sibling.name.rpartition("-")[0] if kind == "statefulset" else f"{sibling.name}-more"
    first = 0 if kind == "statefulset" else 1
    names = (f"{base}-{place}" for place in range(first, 1 << 62))
    free = (name for name in names if f"{sibling.namespace}/{name}" not in taken)
    return [named(sibling, next(free)) for _ in range(number)]


def _controllers(pod: PodInfo) -> list[Any]:
    return [owner for owner in pod.pod.metadata.owner_references if owner.controller]


def _owners(pod: PodInfo, kind: str) -> set[str]:
    """Return the names of a pod's owners of a kind; a Deployment's name is derived from its ReplicaSet's."""
    if kind != "deployment":
        return {owner.name for owner in _controllers(pod) if owner.kind.lower() == kind}
    sets = [owner.name for owner in _controllers(pod) if owner.kind == "ReplicaSet"]
    hashed = pod.labels.get(_POD_TEMPLATE_HASH)
    if hashed is not None:
        return {name.removesuffix(f"-{hashed}") for name in sets}
    return {name[: found.start()] for name in sets if (found := re.search(r"-[a-z0-9]{1,10}$", name))}


def _like(cluster: ClusterFile, parts: dict[str, str], text: str) -> Callable[[str], NodeObject]:
    model = next((node for node in cluster.nodes if node.name == parts["like"]), None)
    if model is None:
        raise EditError(f"--add-nodes {text}: there is no node {parts['like']}")
    more = {name: value for name, value in parts.items() if name != "like"}

    def make(name: str) -> NodeObject:
        def rename(obj: dict[str, Any]) -> None:
            labels = {**(obj["metadata"].get("labels") or {}), **more}
            if _HOSTNAME in labels:
                labels[_HOSTNAME] = name
            obj["metadata"] |= {"name": name, "uid": f"uid-of-{name}", "labels": labels}
            obj.setdefault("spec", {}).pop("unschedulable", None)

        return edited(model, rename)

    return make


def _shaped(parts: dict[str, str], text: str) -> Callable[[str], NodeObject]:
    offered = {name: value for name, value in parts.items() if _is_resource(name, value)}
    for name in ("cpu", "memory"):
        if name not in offered:
            raise EditError(f"--add-nodes {text}: {name} is missing")
    for name, amount in offered.items():
        try:
            canonical_quantity(amount)
        except ValueError as error:
            raise EditError(f"--add-nodes {text}: {name}: must be a quantity, was {amount!r}") from error
    offered.setdefault("pods", _DEFAULT_PODS)
    labels = {name: value for name, value in parts.items() if name not in offered}
    zone = labels.pop("topology.kubernetes.io/zone", labels.pop("zone", ""))

    def make(name: str) -> NodeObject:
        obj = ready_node(name, zone, labels, {}, offered, offered)
        if not zone:
            del obj["metadata"]["labels"]["topology.kubernetes.io/zone"]
        obj["metadata"]["uid"] = f"uid-of-{name}"
        return decode_node(msgspec.json.encode(obj))

    return make


def _is_resource(name: str, value: str) -> bool:
    return name in _RESOURCES or ("/" in name and value.isdigit() and "kubernetes.io/" not in name)


def _pair(part: str, where: str) -> tuple[str, str]:
    name, separator, value = part.partition("=")
    if not separator or not name:
        raise EditError(f"{where}: {part!r} must be NAME=VALUE")
    return name.strip(), value.strip()
