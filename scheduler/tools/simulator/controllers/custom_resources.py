"""Serves the kinds of CustomResourceDefinitions with the rules of their objects, and deletes those of deleted kinds.

A real API server does this itself, so custom resources can be used without controllers.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/registry/customresource.
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/controller/{status,establish,finalizer}.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.kinds import AGE, NAME, Kind, Printer, PrinterColumn, age
from scheduler.tools.simulator.apimachinery.objects import (
    clone,
    condition_of,
    is_terminating,
    json_text,
    restore,
    with_condition,
)
from scheduler.tools.simulator.apimachinery.strategy import ScalePaths, Strategy
from scheduler.tools.simulator.controllers.controller import QueueController
from scheduler.tools.simulator.kinds.custom_resource_definitions import CLEANUP_FINALIZER, found_at
from scheduler.tools.simulator.kinds.custom_resource_schemas import fill_in, prune, violations
from scheduler.tools.simulator.registry.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from scheduler.tools.simulator.apimachinery.causes import Cause
    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

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


_DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_RETRY_SECONDS: Final = 1.0


class DefinitionController(QueueController[Store]):
    """Accepts names, serves kinds, and deletes custom resources with their definition."""

    resources = (_DEFINITIONS,)

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._definitions: dict[str, Object] = {}  # name -> definition
        self._served: dict[str, tuple[Object, list[Kind]]] = {}  # name -> (served spec, kinds)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        name = obj["metadata"]["name"]
        self.enqueue(name)
        if type_ == "DELETED":
            self._definitions.pop(name, None)
        else:
            self._definitions[name] = obj

    def reconcile(self, key: str) -> None:
        definition = self._definitions.get(key)
        if definition is None:
            self._withdraw(key)
        elif is_terminating(definition):
            self._empty(definition)
        else:
            self._establish(definition)

    def _establish(self, definition: Object) -> None:
        """Accept a definition's names unless they conflict with another's; then serve it."""
        spec = definition["spec"]
        problem = self._taken(definition)
        accepted = definition["status"]["acceptedNames"] if problem else spec["names"]
        now = self.store.timestamp()
        reason, message = problem or ("NoConflicts", "no conflicts found")
        names_accepted = _condition("NamesAccepted", not problem, reason, message)
        conditions = with_condition(definition["status"].get("conditions"), names_accepted, now)
        if not problem:
            text = "the initial names have been accepted"
            established = _condition("Established", True, "InitialNamesAccepted", text)
            conditions = with_condition(conditions, established, now)
            self._serve(definition | {"status": definition["status"] | {"acceptedNames": accepted}})
        elif not condition_of(definition, "Established"):
            refused = _condition("Established", False, "NotAccepted", "not all names are accepted")
            conditions = with_condition(conditions, refused, now)
        status = {"conditions": conditions, "acceptedNames": accepted}
        self.store.change(definition, {"status": status}, "status")

    def _serve(self, definition: Object) -> None:
        name, spec = definition["metadata"]["name"], definition["spec"]
        known = self._served.get(name)
        if known is not None and known[0] == spec:
            return
        kinds = kinds_of(definition)
        self.store.serve(kinds, instead_of=known[1] if known else ())
        self._served[name] = (spec, kinds)

    def _taken(self, definition: Object) -> tuple[str, str] | None:
        """Return the reason and message of a name conflict with another kind of the group; None if there is none."""
        spec = definition["spec"]
        mine = {spec["names"].get(field, "") for field in ("plural", "singular")}
        mine |= set(spec["names"].get("shortNames", ()))
        for name, (other, _) in self._served.items():
            if name == definition["metadata"]["name"] or other["group"] != spec["group"]:
                continue
            names = other["names"]
            theirs = {names.get("plural", ""), names.get("singular", ""), *names.get("shortNames", ())}
            for clash in sorted(mine & theirs - {""}):
                return "NamesConflict", f'"{clash}" is already in use'
            if names["kind"] == spec["names"]["kind"]:
                return "KindConflict", f'"{names["kind"]}" is already in use'
        return None

    def _empty(self, definition: Object) -> None:
        """Delete all custom resources of a terminating definition; remove it when none is left."""
        name = definition["metadata"]["name"]
        if name in self._served:
            for obj in self.store.list(name):
                if not is_terminating(obj):
                    self.store.remove(obj)
            if self.store.list(name):
                self.later(_RETRY_SECONDS, self.look_again, name)
                return
        kept = [one for one in definition["metadata"].get("finalizers", ()) if one != CLEANUP_FINALIZER]
        self._withdraw(name)
        self.store.change(definition, {"metadata": {"finalizers": kept or None}})

    def _withdraw(self, name: str) -> None:
        _, kinds = self._served.pop(name, ({}, []))
        self.store.serve((), instead_of=kinds)


def _condition(type_: str, holds: bool, reason: str, message: str) -> Object:
    return {"type": type_, "status": str(holds), "reason": reason, "message": message}
