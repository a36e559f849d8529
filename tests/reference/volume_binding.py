"""VolumeBinding as loops over one node, its claims and all volumes, from reading the Go source.

Everything is looked up in the JSON of objects, each time anew. Of volumes that are equally good the first by name is
taken, where upstream takes any.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scheduler.objects.quantity import Quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from tests.reference.one_node import Verdict

Json = dict[str, Any]

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NOT_ENOUGH_SPACE = "node(s) did not have enough free storage"
PV_NOT_EXIST = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"

BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
EBS, EBS_ZONE = "kubernetes.io/aws-ebs", "topology.ebs.csi.aws.com/zone"
ZONE = "topology.kubernetes.io/zone"


@dataclass
class Objects:
    """All that the cluster has of storage, as it is shown."""

    claims: dict[str, Json] = field(default_factory=dict)  # namespace/name
    volumes: dict[str, Json] = field(default_factory=dict)
    classes: dict[str, Json] = field(default_factory=dict)
    csi_nodes: dict[str, Json] = field(default_factory=dict)
    drivers: dict[str, Json] = field(default_factory=dict)
    capacities: dict[str, Json] = field(default_factory=dict)


class PreFilterError(Exception):
    """PreFilter rejects the pod, or fails; with the words."""


class FilterError(Exception):
    """A node cannot be judged; with the words."""


@dataclass
class Found:
    """What would be done on a node.

    Attributes:
        bindings: keys of claims, and names of volumes.
        provisions: keys of claims.
    """

    bindings: list[tuple[str, str]] = field(default_factory=list)
    provisions: list[str] = field(default_factory=list)


def annotations(obj: Json) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def key_of(obj: Json) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def class_of(obj: Json) -> str:
    return str(annotations(obj).get(BETA_CLASS, obj["spec"].get("storageClassName", "")))


def is_fully_bound(claim: Json) -> bool:
    return bool(claim["spec"].get("volumeName")) and BIND_COMPLETED in annotations(claim)


# PreFilter.


def claims_of(pod: PodInfo, objects: Objects) -> tuple[list[Json], list[Json]] | None:
    """Bound claims, and unbound ones that wait for a node; None where the pod has none."""
    names = []
    for volume in pod.object["spec"].get("volumes", []):
        if "persistentVolumeClaim" in volume:
            names.append(volume["persistentVolumeClaim"]["claimName"])
            _check_claim(names[-1], pod, objects, is_ephemeral=False)
        elif "ephemeral" in volume:
            names.append(f"{pod.name}-{volume['name']}")
            _check_claim(names[-1], pod, objects, is_ephemeral=True)
    if not names:
        return None
    bound, waiting, immediate = [], [], []
    for name in names:
        claim = objects.claims[f"{pod.namespace}/{name}"]
        if is_fully_bound(claim):
            bound.append(claim)
        elif _is_delayed(claim, objects) and not claim["spec"].get("volumeName"):
            waiting.append(claim)
        else:
            immediate.append(claim)
    if immediate:
        raise PreFilterError(UNBOUND_IMMEDIATE)
    return bound, waiting


def _check_claim(name: str, pod: PodInfo, objects: Objects, *, is_ephemeral: bool) -> None:
    claim, said = objects.claims.get(f"{pod.namespace}/{name}"), f'persistentvolumeclaim "{name}"'
    if claim is None:
        waits = f"waiting for ephemeral volume controller to create the {said}"
        raise PreFilterError(waits if is_ephemeral else f"{said} not found")
    if claim["status"]["phase"] == "Lost":
        lost = claim["spec"].get("volumeName", "")
        raise PreFilterError(f'{said} bound to non-existent persistentvolume "{lost}"')
    if "deletionTimestamp" in claim["metadata"]:
        raise PreFilterError(f"{said} is being deleted")
    owners = claim["metadata"].get("ownerReferences", [])
    if is_ephemeral and not any(each["uid"] == pod.uid and each["controller"] for each in owners):
        raise PreFilterError(f"PVC {key_of(claim)} was not created for pod {pod.key} (pod is not owner)")


def _is_delayed(claim: Json, objects: Objects) -> bool:
    class_ = objects.classes.get(class_of(claim))
    if class_ is None:
        return False
    if "volumeBindingMode" not in class_:
        raise PreFilterError(f'VolumeBindingMode not set for StorageClass "{class_of(claim)}"')
    return bool(class_["volumeBindingMode"] == "WaitForFirstConsumer")


# Filter.


def judge(
    bound: Iterable[Json], waiting: Iterable[Json], node: NodeObject, objects: Objects
) -> tuple[Verdict, Found]:
    """What is said of one node, and what would be done there."""
    found = Found()
    try:
        reasons = [*_bound_reasons(bound, node, objects)]
        reasons += _unbound_reasons([*waiting], node, objects, found)
    except FilterError as error:
        return ("Error", (str(error),)), found
    order = (NODE_CONFLICT, BIND_CONFLICT, NOT_ENOUGH_SPACE, PV_NOT_EXIST)
    said = tuple(each for each in order if each in reasons)
    return ("UnschedulableAndUnresolvable" if said else "Success", said), found


def _bound_reasons(claims: Iterable[Json], node: NodeObject, objects: Objects) -> list[str]:
    for claim in claims:
        volume = objects.volumes.get(claim["spec"]["volumeName"])
        if volume is None:
            return [PV_NOT_EXIST]
        if not reaches(_translated(volume, objects.csi_nodes.get(node.name)), node):
            return [NODE_CONFLICT]
    return []


def _unbound_reasons(claims: list[Json], node: NodeObject, objects: Objects, found: Found) -> list[str]:
    to_match, to_provision = [], []
    for claim in claims:
        selected = annotations(claim).get(SELECTED_NODE)
        if selected is None:
            to_match.append(claim)
        elif selected != node.name:
            return [BIND_CONFLICT]
        else:
            to_provision.append(claim)
    chosen: set[str] = set()
    for claim in sorted(to_match, key=_size):
        volume = _matching_volume(claim, node, chosen, objects)
        if volume is None:
            to_provision.append(claim)
        else:
            chosen.add(volume)
            found.bindings.append((key_of(claim), volume))
    for claim in to_provision:
        class_ = objects.classes[class_of(claim)]
        if class_["provisioner"] in {"", "kubernetes.io/no-provisioner"}:
            return [BIND_CONFLICT]
        if not _is_allowed(class_, node):
            return [BIND_CONFLICT]
        if not _has_room(claim, class_, node, objects):
            return [NOT_ENOUGH_SPACE]
        found.provisions.append(key_of(claim))
    return []


def _size(obj: Json) -> Quantity:
    return parse_quantity(obj["spec"]["resources"]["requests"].get("storage", "0"))


def _matching_volume(claim: Json, node: NodeObject, chosen: set[str], objects: Objects) -> str | None:
    """The volume that is held for a claim, or else the smallest that fits; None for none."""
    spec, smallest = claim["spec"], None
    if "Near" in str(spec.get("selector")):
        raise FilterError("the selector is none")
    for name in sorted(objects.volumes):
        volume = objects.volumes[name]
        own = volume["spec"]
        if class_of(volume) != class_of(claim) or name in chosen:
            continue
        is_held = _is_held_for(volume, claim)
        if "claimRef" in own and not is_held:
            continue
        if (
            parse_quantity(own["capacity"]["storage"]) < _size(claim)
            or own.get("volumeMode", "Filesystem") != spec.get("volumeMode", "Filesystem")
            or own.get("volumeAttributesClassName", "") != spec.get("volumeAttributesClassName", "")
            or "deletionTimestamp" in volume["metadata"]
        ):
            continue
        reached = reaches(volume, node)
        if is_held:
            return name if reached else None
        wanted = spec.get("selector", {}).get("matchLabels", {}).items()
        if (
            volume["status"]["phase"] != "Available"
            or not wanted <= volume["metadata"].get("labels", {}).items()
            or not reached
            or not set(spec["accessModes"]) <= set(own["accessModes"])
        ):
            continue
        if smallest is None or parse_quantity(own["capacity"]["storage"]) < smallest[0]:
            smallest = parse_quantity(own["capacity"]["storage"]), name
    return None if smallest is None else smallest[1]


def _is_held_for(volume: Json, claim: Json) -> bool:
    reference = volume["spec"].get("claimRef")
    if reference is None or f"{reference['namespace']}/{reference['name']}" != key_of(claim):
        return False
    return reference.get("uid", "") in {"", claim["metadata"]["uid"]}


def reaches(volume: Json, node: NodeObject) -> bool:
    required = volume["spec"].get("nodeAffinity", {}).get("required")
    if required is None:
        return True
    for term in required["nodeSelectorTerms"]:
        expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
        if (expressions or fields) and all(_holds(each, node.labels) for each in expressions):
            return True  # fields of nodes are not looked at
    return False


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    if operator == "In":
        return labels.get(key) in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    return operator == "DoesNotExist" and key not in labels


def _translated(volume: Json, csi_node: Json | None) -> Json:
    """A volume as the CSI driver of EBS knows it, where that does the work."""
    source = volume["spec"].get("awsElasticBlockStore")
    migrated = annotations(csi_node or {"metadata": {}}).get(
        "storage.alpha.kubernetes.io/migrated-plugins", ""
    )
    if source is None or EBS not in migrated.split(","):
        return volume
    if not source["volumeID"].startswith("vol-") and source["volumeID"].startswith("aws://"):
        id_ = source["volumeID"]
        problem = f"failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id_})"
        raise FilterError(f"could not translate pv: {problem}")
    affinity = volume["spec"].get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", [])
    terms = [
        {
            **term,
            "matchExpressions": [
                {**each, "key": EBS_ZONE if each["key"] == ZONE else each["key"]}
                for each in term.get("matchExpressions", [])
            ],
        }
        for term in affinity
    ]
    required = {"required": {"nodeSelectorTerms": terms}}
    return {**volume, "spec": {**volume["spec"], "nodeAffinity": required}} if terms else volume


def _is_allowed(class_: Json, node: NodeObject) -> bool:
    terms = class_.get("allowedTopologies", [])
    return not terms or any(
        term["matchLabelExpressions"]
        and all(node.labels.get(each["key"]) in each["values"] for each in term["matchLabelExpressions"])
        for term in terms
    )


def _has_room(claim: Json, class_: Json, node: NodeObject, objects: Objects) -> bool:
    driver = objects.drivers.get(class_["provisioner"])
    if "storage" not in claim["spec"]["resources"]["requests"]:
        return True
    if driver is None or not driver["spec"].get("storageCapacity"):
        return True
    return bool(_rooms(claim, class_, node, objects))


def _rooms(claim: Json, class_: Json, node: NodeObject, objects: Objects) -> list[Json]:
    """Return the reports with enough capacity for a claim, by name."""
    found = []
    for _, capacity in sorted(objects.capacities.items()):
        limit = capacity.get("maximumVolumeSize", capacity.get("capacity"))
        if (
            capacity["storageClassName"] == class_["metadata"]["name"]
            and limit is not None
            and parse_quantity(limit).value() >= _size(claim).value()
            and "nodeTopology" in capacity
            and capacity["nodeTopology"]["matchLabels"].items() <= node.labels.items()
        ):
            found.append(capacity)
    return found


def score(found: Found, node: NodeObject, objects: Objects) -> int:
    """volume_binding.go, Score, with StorageCapacityScoring and its default shape."""
    classes: dict[str, list[int]] = {}  # class -> requested, capacity
    for key, name in found.bindings:
        volume = objects.volumes[name]
        use = classes.setdefault(volume["spec"]["storageClassName"], [0, 0])
        use[0] += _size(objects.claims[key]).value()
        use[1] += parse_quantity(volume["spec"]["capacity"]["storage"]).value()
    for key in [] if found.bindings else found.provisions:
        claim = objects.claims[key]
        class_ = objects.classes[class_of(claim)]
        driver = objects.drivers.get(class_["provisioner"])
        if "storage" not in claim["spec"]["resources"]["requests"]:
            continue
        if driver is None or not driver["spec"]["storageCapacity"]:
            continue
        (room, *_) = _rooms(claim, class_, node, objects)
        use = classes.setdefault(claim["spec"]["storageClassName"], [0, 0])
        use[0] += _size(claim).value()
        use[1] = parse_quantity(room.get("capacity", 0)).value()
    if not classes:
        return 0
    percents = [
        100 if capacity == 0 or requested > capacity else requested * 100 // capacity
        for requested, capacity in classes.values()
    ]
    return (2 * sum(100 - percent for percent in percents) + len(percents)) // (2 * len(percents))
