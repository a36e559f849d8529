"""Custom resources: the kinds of a CustomResourceDefinition, and the rules of their objects.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.simulator.apimachinery.kinds import Kind
from scheduler.simulator.apimachinery.objects import clone, json_text, restore
from scheduler.simulator.apimachinery.strategy import ScalePaths, Strategy
from scheduler.simulator.apimachinery.tables import AGE, NAME, Printer, PrinterColumn, age
from scheduler.simulator.custom_resources.definitions import found_at
from scheduler.simulator.custom_resources.schemas import fill_in, prune, violations

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from scheduler.simulator.apimachinery.causes import Cause
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_VERSION: Final = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


class CustomResourceStrategy(Strategy):
    """The rules of the objects of one version of a definition."""

    unconditional_update = False

    def __init__(self, definition: Object, version: Object) -> None:
        """Set up for one of a definition's `spec.versions`."""
        spec = definition["spec"]
        self._stored = next(one["name"] for one in spec["versions"] if one["storage"])
        self._stored_api_version = f"{spec['group']}/{self._stored}"
        self._api_version = f"{spec['group']}/{version['name']}"
        self.schema = version.get("schema", {}).get("openAPIV3Schema") or {}
        subresources = version.get("subresources") or {}
        self._keeps_status_apart = "status" in subresources
        self.scale_paths = _scale_paths(subresources.get("scale"))

    def prune(self, obj: Object) -> list[str]:
        return prune(obj, self.schema, is_resource=True)

    def default(self, obj: Object) -> None:
        fill_in(obj, self.schema)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        if self._keeps_status_apart:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def prepare_update(self, obj: Object, old: Object) -> None:
        apart = {"metadata"}
        if self._keeps_status_apart:
            restore(obj, old, "status")
            apart.add("status")
        if _without(obj, apart) != _without(old, apart):
            obj["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def prepare_part_update(self, subresource: str, obj: Object, old: Object, cluster: Cluster) -> None:
        """Keep only the status of a status update."""
        kept = {"status": obj["status"]} if "status" in obj else {}
        version = obj["metadata"].get("resourceVersion")
        metadata = old["metadata"] | ({"resourceVersion": version} if version else {})
        obj.clear()
        obj |= _without(old, {"status"}) | {"metadata": metadata} | kept

    def validate(self, obj: Object) -> Iterable[Cause]:
        return violations(obj, self.schema)

    def validate_part_update(self, obj: Object, old: Object) -> Iterable[Cause]:
        return self.validate(obj)

    def to_storage(self, obj: Object) -> Object:
        return obj | {"apiVersion": self._stored_api_version}

    def from_storage(self, obj: Object) -> Object:
        """Return an object in this version: without conversion, only apiVersion and the schema differ."""
        if self._api_version == self._stored_api_version:
            return obj
        seen: Object = clone(obj)
        prune(seen, self.schema, is_resource=True)
        fill_in(seen, self.schema)
        return seen | {"apiVersion": self._api_version}


def _without(obj: Object, fields: set[str]) -> Object:
    return {name: value for name, value in obj.items() if name not in fields}


def _scale_paths(scale: Object | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        spec_replicas=scale["specReplicasPath"],
        status_replicas=scale["statusReplicasPath"],
        selector=scale.get("labelSelectorPath", ""),
    )


def kinds_of(definition: Object) -> list[Kind]:
    """Return the served kinds of a definition, by version priority."""
    spec = definition["spec"]
    names = definition.get("status", {}).get("acceptedNames") or spec["names"]
    found = []
    for version in sorted(spec["versions"], key=lambda one: version_rank(one["name"])):
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        fields = [one["jsonPath"].lstrip(".") for one in version.get("selectableFields") or ()]
        found.append(
            Kind(
                spec["group"],
                version["name"],
                names["plural"],
                names["kind"],
                spec["scope"] == "Namespaced",
                CustomResourceStrategy(definition, version),
                tuple(names.get("shortNames", ())),
                tuple(names.get("categories", ())),
                tuple(name for name in ("status", "scale") if name in subresources),
                {field: (tuple(field.split(".")), "") for field in fields},
                None,
                _VERBS,
                names.get("singular", ""),
                names.get("listKind", ""),
                _printer(version.get("additionalPrinterColumns")),
                True,
            )
        )
    return found


def version_rank(version: str) -> tuple[Any, ...]:
    """Return a sort key for versions in the order of discovery: v2, v1, v1beta2, v1alpha1, then others by name.

    Source:
        staging/src/k8s.io/apimachinery/pkg/version/helpers.go, CompareKubeAwareVersionStrings.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        return (3, version)
    stability = {None: 0, "beta": 1, "alpha": 2}[match[2]]
    return (stability, -int(match[1]), -int(match[3] or 0))


def _printer(columns: Sequence[Object] | None) -> Printer:
    """Return the table columns of a version: the name, and those of the definition."""
    if not columns:
        return Printer((NAME, AGE))
    shown = [
        PrinterColumn(
            one["name"],
            one.get("description")
            or f"Custom resource definition column (in JSONPath format): {one['jsonPath']}",
            one["type"],
            one.get("priority", 0),
            one.get("format", ""),
            partial(_cell, one["jsonPath"], one["type"]),
        )
        for one in columns
    ]
    return Printer((NAME, *shown))


def _cell(path: str, type_: str, obj: Object, now: datetime) -> Any:
    """Return the cell of a column; a value of another type than the column's is omitted."""
    found = found_at(obj, path)
    if not found:
        return None
    value = found[0] if len(found) == 1 or type_ != "string" else found
    if type_ == "date":
        return _age_at(value, now)
    if type_ == "string":
        if len(found) > 1:
            return ",".join(map(_text, found))
        return _text(value)
    wanted: tuple[type, ...] = {"integer": (int,), "number": (int, float), "boolean": (bool,)}.get(type_, ())
    is_truth = isinstance(value, bool)
    return value if isinstance(value, wanted) and is_truth == (type_ == "boolean") else None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(value)


def _age_at(value: Any, now: datetime) -> str:
    try:
        return age(value, now)
    except (TypeError, ValueError):
        return "<invalid>"
