"""Validation of CustomResourceDefinitions, and their JSONPaths.

Source:
    Kubernetes v1.36, staging/src/k8s.io/client-go/util/jsonpath; supported are fields, indexes, `[*]` and filters that
    compare one field with a text or a number, as in `.status.conditions[?(@.type=="Ready")].status`.
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation and
    pkg/registry/customresourcedefinition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.causes import (
    Cause,
    forbidden_field,
    invalid_value,
    not_supported,
    required,
)
from scheduler.tools.simulator.apimachinery.objects import is_terminating, is_true, json_text, with_condition
from scheduler.tools.simulator.apimachinery.strategy import Generic, dns_label, dns_subdomain
from scheduler.tools.simulator.kinds.custom_resource_schemas import is_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.apimachinery.strategy import Cluster

Step = Callable[[Any], Iterator[Any]]

_STEP: Final = re.compile(
    r"\.(?P<field>(?:\\.|[^.\[\]\\])+)"
    r"|\['(?P<quoted>[^']*)'\]"
    r"|\[(?P<index>-?\d+)\]"
    r"|(?P<all>\[\*\]|\.\*)"
    r"|\[\?\(\s*@(?P<key>(?:\.[\w\-/]+)+)\s*(?P<operator>==|!=)\s*(?P<value>\"[^\"]*\"|'[^']*'|-?[\d.]+|true|false)\s*\)\]"
)


def found_at(obj: Any, path: str) -> list[Any]:
    """Return the values at a path; none if the path leads nowhere.

    Raises:
        ValueError: it is not a path, or uses an unsupported feature.
    """
    values = [obj]
    for step in _steps(path):
        values = [inner for value in values for inner in step(value)]
    return values


@lru_cache(maxsize=1024)
def _steps(path: str) -> tuple[Step, ...]:
    """Parse a path.

    Raises:
        ValueError: it is not supported.
    """
    steps: list[Step] = []
    place = 0
    while place < len(path):
        match = _STEP.match(path, place)
        if match is None:
            raise ValueError(f"JSONPath {path!r} cannot be understood from {path[place:]!r} on")
        steps.append(_step(match))
        place = match.end()
    return tuple(steps)


def _step(match: re.Match[str]) -> Step:
    field = match["quoted"] if match["field"] is None else re.sub(r"\\(.)", r"\1", match["field"])
    if field == "*" or match["all"]:
        return _every
    if field is not None:
        return lambda value: iter([value[field]] if isinstance(value, dict) and field in value else ())
    if match["index"] is not None:
        return _at(int(match["index"]))
    return _where(match["key"], match["operator"] == "==", match["value"])


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _at(index: int) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list) and -len(value) <= index < len(value):
            yield value[index]

    return step


def _where(key: str, equal: bool, literal: str) -> Step:
    wanted = _read(literal)

    def step(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = found_at(item, key)
            if (found[:1] == [wanted]) == equal:
                yield item

    return step


def _read(literal: str) -> Any:
    if literal[0] in "\"'":
        return literal[1:-1]
    if literal in {"true", "false"}:
        return literal == "true"
    return float(literal) if "." in literal else int(literal)


CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"

_APPROVAL: Final = "api-approved.kubernetes.io"
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_SCOPES: Final = ("Cluster", "Namespaced")


_NONE_YET: Final = {"conditions": None, "storedVersions": None}  # as Go writes it


class DefinitionStrategy(Generic):
    """The rules of CustomResourceDefinitions."""

    def default(self, obj: Object) -> None:
        spec = obj["spec"]
        names = spec["names"]
        if names["kind"]:
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        spec.setdefault("conversion", {"strategy": "None"})
        obj["status"] = _NONE_YET | obj["status"]

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": _stored_versions(obj) or None,
        }

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        before = old["status"].get("storedVersions") or []
        stored = dict.fromkeys([*before, *_stored_versions(obj)])
        obj["status"] = old["status"] | {"storedVersions": list(stored)}

    def validate(self, obj: Object) -> Iterator[Cause]:
        return _validate(obj)

    def validate_update(self, obj: Object, old: Object) -> Iterator[Cause]:
        yield from _validate(obj)
        if is_true(old, "Established"):
            for path in ("spec.scope", "spec.names.kind", "spec.group", "spec.names.plural"):
                now, before = found_at(obj, f".{path}"), found_at(old, f".{path}")
                if now != before:
                    yield invalid_value(path, json_text(now[0] if now else None), "field is immutable")
        names = {one.get("name") for one in obj["spec"].get("versions") or ()}
        for index, stored in enumerate(old["status"].get("storedVersions") or ()):
            if stored not in names:
                problem = f"missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
                yield invalid_value(f"status.storedVersions[{index}]", json_text(stored), problem)

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Keep a definition until its custom resources are deleted."""
        metadata = obj["metadata"]
        if is_terminating(obj):
            return None
        now = cluster.timestamp()
        terminating = {
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        }
        finalizers = metadata.get("finalizers", [])
        if CLEANUP_FINALIZER not in finalizers:
            finalizers = [*finalizers, CLEANUP_FINALIZER]
        marked = metadata | {
            "deletionTimestamp": now,
            "deletionGracePeriodSeconds": 0,
            "finalizers": finalizers,
        }
        conditions = with_condition(obj["status"].get("conditions"), terminating, now)
        return obj | {"metadata": marked, "status": obj["status"] | {"conditions": conditions}}


def _stored_versions(definition: Object) -> list[str]:
    return [one.get("name") for one in definition["spec"].get("versions") or () if one.get("storage")]


def _validate(definition: Object) -> Iterator[Cause]:
    """Yield the errors of a definition."""
    spec, metadata = definition["spec"], definition["metadata"]
    names, group = spec["names"], spec.get("group", "")
    expected = f"{names['plural']}.{group}"
    if metadata.get("name") != expected:
        problem = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", json_text(metadata.get("name", "")), problem)
    if not group:
        yield required("spec.group")
    elif dns_subdomain(group):
        yield invalid_value("spec.group", json_text(group), dns_subdomain(group))
    elif "." not in group:
        yield invalid_value("spec.group", json_text(group), "should be a domain with at least one dot")
    if _is_protected(group) and not metadata.get("annotations", {}).get(_APPROVAL):
        yield required(
            f"metadata.annotations[{_APPROVAL}]",
            "protected groups must have approval annotation "
            f'"{_APPROVAL}", see https://github.com/kubernetes/enhancements/pull/1111',
        )
    if spec.get("scope") not in _SCOPES:
        yield not_supported("spec.scope", spec.get("scope", ""), _SCOPES)
    yield from _validate_names(names)
    yield from _validate_versions(spec.get("versions") or [])
    if spec.get("conversion", {}).get("strategy") != "None":
        yield not_supported("spec.conversion.strategy", spec["conversion"].get("strategy", ""), ("None",))


def _is_protected(group: str) -> bool:
    return group in {"k8s.io", "kubernetes.io"} or group.endswith((".k8s.io", ".kubernetes.io"))


def _validate_names(names: Object) -> Iterator[Cause]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = names.get(field, "")
        if not name:
            yield required(f"spec.names.{field}")
        elif dns_label(name.lower()):
            yield invalid_value(f"spec.names.{field}", json_text(name), dns_label(name.lower()))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value(
            "spec.names.listKind", json_text(names["kind"]), "kind and listKind may not be the same"
        )


def _validate_versions(versions: Sequence[Object]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if dns_label(name):
            yield invalid_value(f"{path}.name", json_text(name), dns_label(name))
        if name in seen:
            yield invalid_value("spec.versions", json_text(name), "must contain unique version names")
        seen.add(name)
        schema = version.get("schema", {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
        else:
            if schema.get("type") != "object":
                yield invalid_value(
                    f"{path}.schema.openAPIV3Schema.type",
                    json_text(schema.get("type", "")),
                    "must be object at the root",
                )
            yield from _validate_schema(schema, f"{path}.schema.openAPIV3Schema")
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            yield from _validate_scale(scale, f"{path}.subresources.scale")
    stored = sum(bool(version.get("storage")) for version in versions)
    if stored != 1:
        yield invalid_value(
            "spec.versions", json_text(versions), "must have exactly one version marked as storage version"
        )


def _validate_scale(scale: Object, path: str) -> Iterator[Cause]:
    for field, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if not scale.get(field):
            yield required(f"{path}.{field}")
        elif not scale[field].startswith(prefix):
            problem = f"should be a json path under {prefix.rstrip('.')}"
            yield invalid_value(f"{path}.{field}", json_text(scale[field]), problem)


def _validate_schema(schema: Object, path: str) -> Iterator[Cause]:
    """Yield the places where a schema is not structural."""
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type"):
        if not free:
            yield required(f"{path}.type", "must not be empty for specified object fields")
    elif schema["type"] not in _TYPES:
        yield not_supported(f"{path}.type", schema["type"], _TYPES)
    if schema.get("pattern") and not is_pattern(schema["pattern"]):
        yield invalid_value(
            f"{path}.pattern", json_text(schema["pattern"]), "must be a valid regular expression"
        )
    if schema.get("type") == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        yield forbidden_field(
            f"{path}.additionalProperties", "additionalProperties and properties are mutual exclusive"
        )
    for name, inner in (schema.get("properties") or {}).items():
        yield from _validate_schema(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _validate_schema(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _validate_schema(schema["additionalProperties"], f"{path}.additionalProperties")
