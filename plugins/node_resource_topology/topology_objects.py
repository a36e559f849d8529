"""NodeResourceTopology objects: what is free in each NUMA zone of a node, and how its kubelet aligns pods.

An agent on each node writes the object with the name of the node.

Source:
    noderesourcetopology-api v0.1, pkg/apis/topology/v1alpha2/types.go and helper/numanode/numanode.go.
    scheduler-plugins, pkg/noderesourcetopology/nodeconfig/topologymanager.go and pluginhelpers.go, createNUMANodeList.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # msgspec resolves annotations
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from plugins.node_resource_topology.placements import EncodedPlacement, read_placement
from scheduler.errors import ObjectError
from scheduler.objects.decode import typed_object
from scheduler.objects.meta import ApiStruct, ObjectMeta
from scheduler.objects.quantity import parse_quantity
from scheduler.objects.resource_names import CPU

NODE_TOPOLOGIES: Final = "topology.node.k8s.io/v1alpha2/noderesourcetopologies"

SINGLE_NUMA_NODE: Final = "single-numa-node"
POLICIES: Final = ("none", "best-effort", "restricted", SINGLE_NUMA_NODE)
CONTAINER_SCOPE: Final = "container"
POD_SCOPE: Final = "pod"

_POLICY: Final = "topologyManagerPolicy"
_SCOPE: Final = "topologyManagerScope"
_MAX_ZONES: Final = "topologyManagerMaxNUMANodes"
_FINGERPRINT: Final = "nodeTopologyPodsFingerprint"
_FINGERPRINT_METHOD: Final = "nodeTopologyPodsFingerprintMethod"
_FINGERPRINT_ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
_EXCLUSIVE_METHOD: Final = "with-exclusive-resources"
_PLACEMENT: Final = "topology.node.k8s.io/numaplacement-metadata"
_PLACEMENT_VECTOR: Final = "topology.node.k8s.io/numaplacement-vector"
_OF_OLD_POLICIES: Final[Mapping[str, tuple[str, str] | None]] = {
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, CONTAINER_SCOPE),
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, POD_SCOPE),
    "RestrictedContainerLevel": ("restricted", CONTAINER_SCOPE),
    "RestrictedPodLevel": ("restricted", POD_SCOPE),
    "BestEffortContainerLevel": ("best-effort", CONTAINER_SCOPE),
    "BestEffortPodLevel": ("best-effort", POD_SCOPE),
    "Restricted": None,
    "BestEffort": None,
    "None": None,
}
"""Value of the deprecated field `topologyPolicies` -> policy and scope; None for values without an effect."""

_DEFAULT_MAX_ZONES: Final = 8
_LIMIT_OF_MAX_ZONES: Final = 1024
MOST_ZONES: Final = 64
"""Zones are numbered below this number; further ones do not count."""
MOST_AMOUNTS: Final = 1024
"""Maximum number of amounts of all zones together; further ones do not count."""
MOST_LISTED: Final = 1024
"""Maximum number of entries of a list that are read: attributes, zones, costs."""
_LARGEST_AMOUNT: Final = 2**56
"""Larger amounts count as this one, so that sums and percentages fit into an int64."""
LARGEST_COST: Final = 255
"""The cost of an unknown distance, and the largest one: of ACPI SLIT."""
_MOST_PROBLEMS: Final = 3
_ZONE_TYPE: Final = "Node"
_ZONE_PREFIX: Final = "node-"


class Attribute(ApiStruct, frozen=True):
    """A name with a value, of the object or of a zone."""

    name: str = ""
    value: str = ""


class Cost(ApiStruct, frozen=True):
    """The distance to a zone."""

    name: str = ""
    value: int = 0


class ZoneResource(ApiStruct, frozen=True):
    """An amount of a resource in a zone."""

    name: str = ""
    allocatable: str | int | float = 0
    available: str | int | float = 0


class Zone(ApiStruct, frozen=True):
    """A part of a node; only those of the type Node are NUMA zones. `parent` is not read."""

    name: str = ""
    type: str = ""
    attributes: tuple[Attribute, ...] = ()
    costs: tuple[Cost, ...] = ()
    resources: tuple[ZoneResource, ...] = ()


class NodeResourceTopology(ApiStruct, frozen=True):
    """topology.node.k8s.io/v1alpha2 NodeResourceTopology, with the fields that scheduling reads."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    topology_policies: tuple[str, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    zones: tuple[Zone, ...] = ()


@dataclass(frozen=True, slots=True)
class NumaZone:
    """One NUMA zone of a node.

    Attributes:
        number: its number, as in `node-0`.
        available: resource -> milliCPU, bytes or a count that is free.
        costs: number of a zone -> the distance to it.
        allocatable: resource -> how much of it can be available at most; empty if the object has no `placement`.
    """

    number: int
    available: Mapping[str, int]
    costs: Mapping[int, int]
    allocatable: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{_ZONE_PREFIX}{self.number}"


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """The content of one object.

    Attributes:
        policy: the policy of the kubelet's Topology Manager, one of `POLICIES`.
        scope: its scope: whether it aligns each container, or the pod as a whole.
        max_zones: the number of zones that the kubelet supports; it scales the score of LeastNUMANodes.
        zones: the NUMA zones by rising number.
        fingerprint: of the pods that the available amounts include; "" if unknown.
        is_of_exclusive_pods: whether the fingerprint is of pods with exclusive resources only.
        has_fingerprint_attribute: whether it is in an attribute, not in the older annotation.
        placement: the zones of the containers of these pods; None if unknown.
        problems: fields of the object that do not count, and why; the first few.
    """

    policy: str = "none"
    scope: str = CONTAINER_SCOPE
    max_zones: int = _DEFAULT_MAX_ZONES
    zones: tuple[NumaZone, ...] = ()
    fingerprint: str = ""
    is_of_exclusive_pods: bool = False
    has_fingerprint_attribute: bool = False
    placement: EncodedPlacement | None = None
    problems: tuple[str, ...] = ()

    @property
    def kubelet_settings(self) -> tuple[str, str, int]:
        """The settings of the kubelet: they change only when it restarts."""
        return self.policy, self.scope, self.max_zones

    @property
    def resources(self) -> frozenset[str]:
        """The resources that any zone names."""
        return frozenset(name for zone in self.zones for name in zone.available)


def read_topology(obj: Mapping[str, Any]) -> NodeTopology | str:
    """Return the content of an object, or why none of it can be read, with the field.

    Invalid fields do not count, as if they were absent; an invalid amount is 0. `problems` names them.
    """
    try:
        # It is read once, so `objects.typed` need not keep it.
        found = typed_object(obj, NodeResourceTopology)
    except ObjectError as error:
        return f"{error.path or 'object'}: {error.problem}"
    problems: list[str] = []
    policy, scope, max_zones = _settings(found, problems)
    values = _values(found.attributes)
    return NodeTopology(
        policy=policy,
        scope=scope,
        max_zones=max_zones,
        zones=_zones(found.zones, problems, has_placement=_PLACEMENT in values),
        fingerprint=values.get(_FINGERPRINT, found.metadata.annotations.get(_FINGERPRINT_ANNOTATION, "")),
        is_of_exclusive_pods=_FINGERPRINT in values and values.get(_FINGERPRINT_METHOD) == _EXCLUSIVE_METHOD,
        has_fingerprint_attribute=_FINGERPRINT in values,
        placement=_placement(values, found.zones, problems),
        problems=tuple(problems[:_MOST_PROBLEMS]),
    )


def _settings(found: NodeResourceTopology, problems: list[str]) -> tuple[str, str, int]:
    """Return policy, scope and number of zones; attributes take precedence over the deprecated field."""
    policy, scope, max_zones = "none", CONTAINER_SCOPE, _DEFAULT_MAX_ZONES
    if found.topology_policies:
        written = found.topology_policies[0]
        if written not in _OF_OLD_POLICIES:
            problems.append(f"topologyPolicies[0]: unknown value {written!r:.80}")
        policy, scope = _OF_OLD_POLICIES.get(written) or (policy, scope)
    for place, attribute in enumerate(found.attributes[:MOST_LISTED]):
        name, value = attribute.name, attribute.value
        is_valid = True
        if name == _POLICY:
            is_valid = value in POLICIES
            policy = value if is_valid else policy
        elif name == _SCOPE:
            is_valid = value in {CONTAINER_SCOPE, POD_SCOPE}
            scope = value if is_valid else scope
        elif name == _MAX_ZONES:
            is_valid = value.isascii() and value.isdigit() and int(value[:8]) > 1
            max_zones = min(int(value[:8]), _LIMIT_OF_MAX_ZONES) if is_valid else max_zones
        if not is_valid:
            problems.append(f"attributes[{place}].value: unknown value {value!r:.80} of {name}")
    return policy, scope, max_zones


def _values(attributes: tuple[Attribute, ...]) -> dict[str, str]:
    return {each.name: each.value for each in reversed(attributes[:MOST_LISTED])}


def _placement(
    values: Mapping[str, str], zones: tuple[Zone, ...], problems: list[str]
) -> EncodedPlacement | None:
    if _PLACEMENT not in values:
        return None
    vectors = {}
    for zone in zones[:MOST_LISTED]:
        number, of_zone = _number_of(zone.name), _values(zone.attributes)
        if zone.type == _ZONE_TYPE and number is not None and _PLACEMENT_VECTOR in of_zone:
            vectors[number] = of_zone[_PLACEMENT_VECTOR]
    try:
        return read_placement(values[_PLACEMENT], vectors)
    except ValueError as error:
        problems.append(f"attribute {_PLACEMENT}: {error}")
        return None


def _zones(zones: tuple[Zone, ...], problems: list[str], *, has_placement: bool) -> tuple[NumaZone, ...]:
    found: dict[int, NumaZone] = {}
    n_amounts = 0
    if len(zones) > MOST_LISTED:
        problems.append(f"zones: only the first {MOST_LISTED} of {len(zones)} count")
    for place, zone in enumerate(zones[:MOST_LISTED]):
        if zone.type != _ZONE_TYPE:
            continue
        path = f"zones[{place}]"
        number = _number_of(zone.name)
        if number is None:
            problems.append(
                f"{path}.name: node-0 to node-{MOST_ZONES - 1} is expected, was {zone.name!r:.80}"
            )
        elif number in found:
            problems.append(f"{path}.name: {zone.name!r} was named before")
        else:
            resources = zone.resources[: MOST_AMOUNTS - n_amounts]
            if len(resources) < len(zone.resources):
                problems.append(f"{path}.resources: only the first {MOST_AMOUNTS} amounts of all zones count")
            n_amounts += len(resources)
            available = _amounts(resources, "available", path, problems)
            allocatable = _amounts(resources, "allocatable", path, problems) if has_placement else {}
            costs = _costs(zone.costs, path, problems)
            found[number] = NumaZone(number, available, costs, allocatable)
    return tuple(found[number] for number in sorted(found))


def _number_of(name: str) -> int | None:
    """Return the number of a zone; None if it has another name, or too large a number."""
    text = name.removeprefix(_ZONE_PREFIX)
    if text == name or not (text.isascii() and text.isdigit()) or len(text) > 8 or int(text) >= MOST_ZONES:
        return None
    return int(text)


def _amounts(
    resources: tuple[ZoneResource, ...], name: str, path: str, problems: list[str]
) -> dict[str, int]:
    """Return resource -> the amount in a field of it."""
    found: dict[str, int] = {}
    for place, resource in enumerate(resources):
        written = getattr(resource, name)
        try:
            nanos = parse_quantity(written).nanos
        except ValueError as error:
            nanos = 0
            problems.append(f"{path}.resources[{place}].{name}: {error}")
        if nanos < 0:
            nanos = 0
            problems.append(f"{path}.resources[{place}].{name}: at least 0 is expected, was {written!s:.80}")
        # Rounded down: a request never gets more than there is.
        found[resource.name] = min(nanos // (10**6 if resource.name == CPU else 10**9), _LARGEST_AMOUNT)
    return found


def _costs(costs: tuple[Cost, ...], path: str, problems: list[str]) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, cost in enumerate(costs[:MOST_LISTED]):
        number = _number_of(cost.name)
        if number is None:
            continue
        if not 0 <= cost.value <= LARGEST_COST:
            problems.append(
                f"{path}.costs[{place}].value: 0 to {LARGEST_COST} is expected, was {cost.value!s:.30}"
            )
        found[number] = min(max(cost.value, 0), LARGEST_COST)
    return found
