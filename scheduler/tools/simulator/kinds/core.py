"""Namespaces, Nodes, Services, LimitRanges, Leases and Events.

Source:
    kube-apiserver v1.36, pkg/apis/events/v1/conversion.go and pkg/apis/core/validation/events.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.api_types import api_type
from scheduler.objects.limit_ranges import default_limit_range
from scheduler.tools.simulator.apimachinery.causes import Cause, duplicate, invalid_value, required, too_many
from scheduler.tools.simulator.apimachinery.objects import names
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.apimachinery.strategy import Cluster, Strategy, dns_label, validate_label_name
from scheduler.tools.simulator.apimachinery.structure import fill_in
from scheduler.tools.simulator.kinds.placement_rules import validate_amount, validate_taints

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object

ALWAYS_THERE: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_IMMORTAL: Final = frozenset({"default", "kube-public", "kube-system"})
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_MOST_OWNERS: Final = 20


class NamespaceStrategy(Strategy):
    """The rules of namespaces."""

    name_rule = staticmethod(dns_label)
    has_status = True
    returns_deleted = True

    def default(self, obj: Object) -> None:
        name = obj["metadata"].get("name")
        if name:
            obj["metadata"]["labels"] = obj["metadata"].get("labels", {}) | {_NAME_LABEL: name}

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        obj["status"] = {"phase": "Active"}
        if "kubernetes" not in obj["spec"].get("finalizers", ()):
            obj["spec"]["finalizers"] = [*obj["spec"].get("finalizers", ()), "kubernetes"]

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        obj["spec"] = old["spec"]

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        if subresource != "finalize":
            super().prepare_part_update(subresource, obj, old, cluster)
            return
        finalizers = obj["spec"].get("finalizers", ())
        for field in {*obj, *old} - {"spec"}:
            obj[field] = old[field]
        obj["spec"] = {name: value for name, value in old["spec"].items() if name != "finalizers"}
        if finalizers:
            obj["spec"]["finalizers"] = list(finalizers)

    def check_delete(self, obj: Object) -> None:
        name = obj["metadata"]["name"]
        if name in _IMMORTAL:
            message = f'namespaces "{name}" is forbidden: this namespace may not be deleted'
            raise StatusError(403, "Forbidden", message, {"name": name, "kind": "namespaces"})

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Mark a namespace as terminating as long as it has a finalizer.

        Raises:
            StatusError: 409, it is already terminating.
        """
        metadata = obj["metadata"]
        if not obj["spec"].get("finalizers"):
            return None
        if "deletionTimestamp" in metadata:
            name = metadata["name"]
            raise StatusError(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on namespaces "{name}": The system is ensuring all content is '
                "removed from this namespace.  Upon completion, this namespace will automatically be purged by "
                "the system.",
                {"name": name, "kind": "namespaces"},
            )
        return obj | {
            "metadata": metadata | {"deletionTimestamp": cluster.timestamp()},
            "status": obj.get("status", {}) | {"phase": "Terminating"},
        }

    def is_released(self, obj: Object) -> bool:
        """Return whether a terminating namespace is empty, so that it has no finalizers."""
        metadata = obj["metadata"]
        return "deletionTimestamp" in metadata and not (
            metadata.get("finalizers") or obj["spec"].get("finalizers")
        )


class NodeStrategy(Strategy):
    """The rules of nodes; unlike other kinds, a new node keeps its status."""

    has_status = True

    def default(self, obj: Object) -> None:
        status = obj["status"]
        if "capacity" in status:
            status.setdefault("allocatable", dict(status["capacity"]))

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from validate_taints(obj["spec"].get("taints", ()), "metadata.taints")
        yield from _validate_amounts(obj)
        owners = obj["spec"].get("podPreemptionPolicy", {}).get("disableResizePreemption", ())
        yield from _validate_owners(owners, "spec.podPreemptionPolicy.disableResizePreemption")

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from self.validate(obj)
        # Upstream reports these errors twice.
        yield from validate_taints(obj["spec"].get("taints", ()), "metadata.taints")

    def validate_part_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        return _validate_amounts(obj)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        """Keep a new node unchanged."""


def _validate_owners(owners: Sequence[str], path: str) -> Iterator[Cause]:
    """Yield the errors of a set of at most 20 label keys.

    Source:
        kube-apiserver v1.37, staging/src/k8s.io/api/core/v1/types.go, NodePodPreemptionPolicy, the `+k8s:` tags.
    """
    if len(owners) > _MOST_OWNERS:
        yield too_many(path, len(owners), _MOST_OWNERS)
        return
    for index, owner in enumerate(owners):
        if owner in owners[:index]:
            yield duplicate(f"{path}[{index}]", owner)
        yield from validate_label_name(owner, f"{path}[{index}]")


def _validate_amounts(node: Object) -> Iterator[Cause]:
    for field in ("capacity", "allocatable"):
        for name, text in node["status"].get(field, {}).items():
            yield from validate_amount(name, text, f"status.{field}.{name}")


class ServiceStrategy(Strategy):
    """The rules of services."""

    name_rule = staticmethod(dns_label)
    create_on_update = True
    returns_deleted = True
    has_status = True

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports", ()):
            port.setdefault("protocol", "TCP")
            if not port.get("targetPort"):
                port["targetPort"] = port.get("port", 0)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        spec = obj["spec"]
        if spec["type"] == "ExternalName":
            return
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        if "clusterIP" not in spec:
            low = cluster.random_bits(16)
            spec["clusterIP"] = f"10.96.{low >> 8}.{low & 0xFF}"
        spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if field in old["spec"]:
                obj["spec"].setdefault(field, old["spec"][field])


class LimitRangeStrategy(Strategy):
    """The rules of LimitRanges."""

    create_on_update = True

    def default(self, obj: Object) -> None:
        default_limit_range(obj)


class LeaseStrategy(Strategy):
    """The rules of leases."""

    unconditional_update = False
    create_on_update = True

    def validate(self, obj: Object) -> Iterator[Cause]:
        spec = obj["spec"]
        duration, transitions = spec.get("leaseDurationSeconds", 1), spec.get("leaseTransitions", 0)
        if duration <= 0:
            yield invalid_value("spec.leaseDurationSeconds", str(duration), "must be greater than 0")
        if transitions < 0:
            problem = "must be greater than or equal to 0"
            yield invalid_value("spec.leaseTransitions", str(transitions), problem)


_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}  # core/v1 -> events.k8s.io/v1
_CORE_NAMES: Final = {new: core for core, new in _NAMES.items()}
_NEVER_EMPTY: Final = ("reportingComponent", "reportingInstance")
_UNSET_IN_NEW: Final = ("firstTimestamp", "lastTimestamp", "count", "source")
_IMMUTABLE: Final = names(
    "involvedObject reason message source firstTimestamp lastTimestamp count type eventTime action related "
    "reportingComponent reportingInstance"
)
_LONGEST: Final = {"reportingInstance": 128, "action": 128, "reason": 128, "message": 1024}

INVOLVED_FIELDS: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


class CoreEventStrategy(Strategy):
    """The rules of events in core/v1: nearly none."""

    create_on_update = True

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate_always(obj, "reportingComponent")


class EventStrategy(CoreEventStrategy):
    """The rules of events in events.k8s.io/v1."""

    def default(self, obj: Object) -> None:
        """Add the fields that core/v1 always has, because that is the stored version."""
        fill_in(api_type("v1", "Event"), obj)

    def to_storage(self, obj: Object) -> Object:
        stored = {_CORE_NAMES.get(name, name): value for name, value in obj.items()}
        return stored | {"kind": "Event", "apiVersion": "v1"}

    def from_storage(self, obj: Object) -> Object:
        seen = {
            _NAMES.get(name, name): value
            for name, value in obj.items()
            if value != "" or name not in _NEVER_EMPTY
        }
        return seen | {"apiVersion": "events.k8s.io/v1"}

    def validate(self, obj: Object) -> Iterator[Cause]:
        yield from _validate_always(obj, "reportingController")
        if obj.get("eventTime") is None:
            yield required("eventTime")
        if obj.get("type") not in {"Normal", "Warning"}:
            yield invalid_value("type", '""', f"has invalid value: {obj.get('type', '')}")
        for name in _UNSET_IN_NEW:
            if obj.get(name):
                yield invalid_value(name, '""', "needs to be unset")
        yield from _validate_series(obj)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from _validate_always(obj, "reportingController")
        if obj.get("series") != old.get("series"):
            yield from _validate_series(obj)
        for name in _IMMUTABLE:
            if obj.get(name) != old.get(name):
                yield invalid_value(_NAMES.get(name, name), f'"{obj.get(name)}"', "field is immutable")


def _validate_always(obj: Object, reporting_field: str) -> Iterator[Cause]:
    """Yield the errors of an event in either version.

    Source:
        kube-apiserver v1.36, pkg/apis/core/validation/events.go, legacyValidateEvent.
    """
    namespace = obj["metadata"].get("namespace", "")
    involved = obj["involvedObject"].get("namespace", "")
    mismatch = invalid_value("involvedObject.namespace", f'"{involved}"', "does not match event.namespace")
    if obj.get("eventTime") is None:
        if namespace != involved and not (not involved and namespace == "default"):
            yield mismatch
        return
    if not involved and namespace not in {"default", "kube-system"}:
        yield mismatch
    if not obj.get("reportingComponent"):
        yield required(reporting_field)
    for name in ("reportingInstance", "action", "reason", "message"):
        text = obj.get(name, "")
        if not text and name != "message":
            yield required(name)
        elif len(text.encode()) > _LONGEST[name]:
            yield invalid_value(name, '""', f"can have at most {_LONGEST[name]} characters")


def _validate_series(obj: Object) -> Iterator[Cause]:
    series = obj.get("series")
    if series is None:
        return
    if series.get("count", 0) < 2:
        yield invalid_value("series.count", '""', "should be at least 2")
    if not series.get("lastObservedTime"):
        yield required("series.lastObservedTime")
