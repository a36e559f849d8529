"""CustomResourceDefinitions: what they must say.

Source:
    kube-apiserver v1.36, staging/src/k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation and
    pkg/registry/customresourcedefinition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from scheduler.simulator.apimachinery.causes import Cause, invalid_value, not_supported, required
from scheduler.simulator.apimachinery.metadata import dns_label, dns_subdomain
from scheduler.simulator.apimachinery.strategy import Generic
from scheduler.simulator.custom_resources.schema_rules import is_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.strategy import Cluster

CLEANUP_FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"

_APPROVAL: Final = "api-approved.kubernetes.io"
_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_SCOPES: Final = ("Cluster", "Namespaced")


class DefinitionStrategy(Generic):
    """The rules of CustomResourceDefinitions."""

    blank: ClassVar[Object] = {
        "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": None},
    }

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        names = spec.setdefault("names", {})
        for field in ("plural", "kind"):
            names.setdefault(field, "")
        if names["kind"]:
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        for version in spec.get("versions") or ():
            version.setdefault("served", False)
            version.setdefault("storage", False)
        spec.setdefault("conversion", {"strategy": "None"})
        status = obj.setdefault("status", {})
        status.setdefault("conditions", None)
        accepted = status.setdefault("acceptedNames", {})
        accepted.setdefault("plural", "")
        accepted.setdefault("kind", "")
        status.setdefault("storedVersions", None)

    def prepare_create(self, obj: Object, cluster: Cluster) -> None:
        super().prepare_create(obj, cluster)
        stored = [one.get("name") for one in obj["spec"].get("versions") or () if one.get("storage")]
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored or None,
        }

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)
        before = old["status"].get("storedVersions") or []
        stored = [one["name"] for one in obj["spec"].get("versions") or () if one.get("storage")]
        obj["status"] = old["status"] | {"storedVersions": list(dict.fromkeys([*before, *stored]))}

    def validate_create(self, obj: Object) -> Sequence[Cause]:
        return list(_validate(obj))

    def validate_update(self, obj: Object, old: Object) -> Sequence[Cause]:
        causes = list(_validate(obj))
        if _is_established(old):
            spec, before = obj["spec"], old["spec"]
            for field, now, then in (
                ("spec.scope", spec.get("scope"), before.get("scope")),
                ("spec.names.kind", spec["names"].get("kind"), before["names"].get("kind")),
                ("spec.group", spec.get("group"), before.get("group")),
                ("spec.names.plural", spec["names"].get("plural"), before["names"].get("plural")),
            ):
                if now != then:
                    causes.append(invalid_value(field, _shown(now), "field is immutable"))
        names = {one.get("name") for one in obj["spec"].get("versions") or ()}
        for index, stored in enumerate(old["status"].get("storedVersions") or ()):
            if stored not in names:
                problem = f"missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {stored} and removes {stored} from status.storedVersions"
                causes.append(invalid_value(f"status.storedVersions[{index}]", _shown(stored), problem))
        return causes

    def begin_delete(self, obj: Object, cluster: Cluster) -> Object | None:
        """Let a definition wait until its custom resources are gone."""
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata:
            return None
        now = cluster.timestamp()
        terminating = {
            "type": "Terminating",
            "status": "True",
            "lastTransitionTime": now,
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
        others = [one for one in obj["status"].get("conditions") or () if one["type"] != "Terminating"]
        return obj | {
            "metadata": marked,
            "status": obj["status"] | {"conditions": [*others, terminating]},
        }


def _is_established(definition: Object) -> bool:
    return any(
        one["type"] == "Established" and one["status"] == "True"
        for one in definition["status"].get("conditions") or ()
    )


def _validate(definition: Object) -> Iterator[Cause]:
    """Yield what is wrong with a definition."""
    spec, metadata = definition["spec"], definition["metadata"]
    names, group = spec["names"], spec.get("group", "")
    expected = f"{names['plural']}.{group}"
    if metadata.get("name") != expected:
        problem = 'must be spec.names.plural+"."+spec.group'
        yield invalid_value("metadata.name", _shown(metadata.get("name", "")), problem)
    if not group:
        yield required("spec.group")
    elif dns_subdomain(group):
        yield invalid_value("spec.group", _shown(group), dns_subdomain(group))
    elif "." not in group:
        yield invalid_value("spec.group", _shown(group), "should be a domain with at least one dot")
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
            yield invalid_value(f"spec.names.{field}", _shown(name), dns_label(name.lower()))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        yield invalid_value(
            "spec.names.listKind", _shown(names["kind"]), "kind and listKind may not be the same"
        )


def _validate_versions(versions: Sequence[Object]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name", "")
        if dns_label(name):
            yield invalid_value(f"{path}.name", _shown(name), dns_label(name))
        if name in seen:
            yield invalid_value("spec.versions", _shown(name), "must contain unique version names")
        seen.add(name)
        schema = version.get("schema", {}).get("openAPIV3Schema")
        if schema is None:
            yield required(f"{path}.schema.openAPIV3Schema", "schemas are required")
        else:
            if schema.get("type") != "object":
                yield invalid_value(
                    f"{path}.schema.openAPIV3Schema.type",
                    _shown(schema.get("type", "")),
                    "must be object at the root",
                )
            yield from _validate_schema(schema, f"{path}.schema.openAPIV3Schema")
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            yield from _validate_scale(scale, f"{path}.subresources.scale")
    stored = sum(bool(version.get("storage")) for version in versions)
    if stored != 1:
        yield invalid_value(
            "spec.versions", _shown(versions), "must have exactly one version marked as storage version"
        )


def _validate_scale(scale: Object, path: str) -> Iterator[Cause]:
    for field, prefix in (("specReplicasPath", ".spec."), ("statusReplicasPath", ".status.")):
        if not scale.get(field):
            yield required(f"{path}.{field}")
        elif not scale[field].startswith(prefix):
            problem = f"should be a json path under {prefix.rstrip('.')}"
            yield invalid_value(f"{path}.{field}", _shown(scale[field]), problem)


def _validate_schema(schema: Object, path: str) -> Iterator[Cause]:
    """Yield where a schema is not structural."""
    free = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type"):
        if not free:
            yield required(f"{path}.type", "must not be empty for specified object fields")
    elif schema["type"] not in _TYPES:
        yield not_supported(f"{path}.type", schema["type"], _TYPES)
    if schema.get("pattern") and not is_pattern(schema["pattern"]):
        yield invalid_value(
            f"{path}.pattern", _shown(schema["pattern"]), "must be a valid regular expression"
        )
    if schema.get("type") == "array" and schema.get("items") is None:
        yield required(f"{path}.items", "must be specified")
    if schema.get("properties") and schema.get("additionalProperties") is not None:
        yield Cause(
            "FieldValueForbidden",
            f"{path}.additionalProperties",
            "Forbidden: additionalProperties and properties are mutual exclusive",
        )
    for name, inner in (schema.get("properties") or {}).items():
        yield from _validate_schema(inner, f"{path}.properties[{name}]")
    if isinstance(schema.get("items"), dict):
        yield from _validate_schema(schema["items"], f"{path}.items")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _validate_schema(schema["additionalProperties"], f"{path}.additionalProperties")


def _shown(value: Any) -> str:
    return msgspec.json.encode(value).decode()
