"""Converts configurations of old versions to the current one, one version at a time.

The conversion uses plain values, before decoding, so that its result is decoded, checked and written like any current
configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.versions import policy
from scheduler.configuration.versions.algorithm_source import PATH, read_algorithm_source
from scheduler.configuration.versions.conversion import Conversion, entries, mapping, name_of
from scheduler.configuration.versions.profiles import profiles_of
from scheduler.configuration.versions.steps import (
    from_v1alpha1,
    from_v1alpha2,
    from_v1beta1,
    from_v1beta2,
    from_v1beta3,
)
from scheduler.configuration.yaml_text import read
from scheduler.errors import FieldError
from scheduler.objects.wording import was

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scheduler.configuration.versions.algorithm_source import AlgorithmSource, PolicyConfigMap
    from scheduler.configuration.versions.policy import PolicyPlugins

_GROUP = API_VERSION.rpartition("/")[0]
_WITH_SOURCE = (f"{_GROUP}/v1alpha1", f"{_GROUP}/v1alpha2")
_AFTER_SOURCE = f"{_GROUP}/v1beta1"
_STEPS = {
    _AFTER_SOURCE: from_v1beta1,
    f"{_GROUP}/v1beta2": from_v1beta2,
    f"{_GROUP}/v1beta3": from_v1beta3,
}
"""apiVersion -> conversion to the next version, for versions without `algorithmSource`; oldest first."""

OLD_VERSIONS = tuple(reversed((*_WITH_SOURCE, *_STEPS)))
"""Old versions of KubeSchedulerConfiguration, newest first."""
POLICY = ("v1", "Policy")
"""apiVersion and kind of the Policy, the predecessor of configurations."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A document of the current version.

    Attributes:
        conversion: the result, the errors and losses, and the original paths.
        source: content of `algorithmSource`; None for versions without it.
    """

    conversion: Conversion
    source: AlgorithmSource | None = None


def type_meta_faults(document: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors of apiVersion and kind; without valid ones, nothing else can be checked."""
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) == POLICY or (kind == KIND and version in (API_VERSION, *OLD_VERSIONS)):
        return []
    faults = []
    if version is None:
        faults.append(FieldError("apiVersion", f"is missing, must be {API_VERSION}"))
    elif version not in (API_VERSION, *OLD_VERSIONS):
        old = ", ".join(each.rpartition("/")[2] for each in OLD_VERSIONS)
        accepted = f"{API_VERSION}, or one of {old} there, which are converted, or v1 of a Policy"
        faults.append(FieldError("apiVersion", f"must be {accepted}, {was(version)}"))
    if kind != KIND:
        faults.append(
            FieldError(
                "kind", f"is missing, must be {KIND}" if kind is None else f"must be {KIND}, {was(kind)}"
            )
        )
    return faults


def to_current(document: dict[str, Any], folder: Path, policies: Mapping[PolicyConfigMap, str]) -> Converted:
    """Convert a document with valid apiVersion and kind; the path of a policy is relative to `folder`."""
    conversion = Conversion(document)
    fields = conversion.result
    version, kind = fields.pop("apiVersion"), fields.pop("kind")
    source = None
    if (version, kind) == POLICY:
        plugins = policy.convert(fields, conversion)
        conversion.result = {}
        _run_policy(conversion.result, conversion, plugins)
    elif version in _WITH_SOURCE:
        source = read_algorithm_source(fields, conversion, folder, policies)
        fields.pop(PATH, None)
        if version == _WITH_SOURCE[0]:
            from_v1alpha1(fields, conversion)
        if source.path:
            _refuse_beside_policy(fields, conversion)
        from_v1alpha2(fields, conversion, source.provider)
        _through(_AFTER_SOURCE, fields, conversion)
        _run_policy(fields, conversion, _read_policy(source, conversion))
    elif version in _STEPS:
        _through(version, fields, conversion)
    return Converted(conversion, source)


def _through(version: str, fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert from one version to the current one."""
    steps = list(_STEPS)
    for step in steps[steps.index(version) :]:
        _STEPS[step](fields, conversion)
    for profile in profiles_of(fields, conversion):
        # Arguments have the version they were written for; they are converted already.
        for config in entries(profile.fields.get("pluginConfig")):
            args = mapping(mapping(config).get("args"))
            if args.get("apiVersion") in OLD_VERSIONS:
                args["apiVersion"] = API_VERSION


def _refuse_beside_policy(fields: dict[str, Any], conversion: Conversion) -> None:
    """Report settings that a policy would silently replace."""
    for profile in profiles_of(fields, conversion):
        configs = entries(profile.fields.get("pluginConfig"))
        given = {
            "plugins": profile.plugins,
            "pluginConfig": [one for one in configs if conversion.place(one, "")],
        }
        for key, value in given.items():
            if value:
                conversion.fault(
                    profile.fields, key, "cannot be set beside a policy, which selects the plugins"
                )


def _read_policy(source: AlgorithmSource, conversion: Conversion) -> PolicyPlugins | None:
    """Parse the policy's own document; its errors become errors of the field with its name."""
    if source.policy is None:
        return None
    document = read(source.policy)
    own = Conversion(mapping(document.value))
    own.errors.extend(document.errors)
    plugins = None
    if not isinstance(document.value, dict):
        if not document.errors:
            own.fault(None, "", f"must be a mapping, {was(document.value)}")
    else:
        for key, expected in zip(("apiVersion", "kind"), POLICY, strict=True):
            found = document.value.get(key)
            if found not in {None, expected}:  # both are optional
                own.fault(None, key, f"must be {expected}, {was(found)}")
        fields = {key: value for key, value in own.result.items() if key not in {"apiVersion", "kind"}}
        plugins = policy.convert(fields, own)
    conversion.errors.extend(FieldError(source.path, f"{source.where}: {error}") for error in own.errors)
    for note in own.notes:
        conversion.note(None, source.path, f"{source.where}: {note.path}: {note.text}")
    return plugins


def _run_policy(fields: dict[str, Any], conversion: Conversion, plugins: PolicyPlugins | None) -> None:
    """Set the plugins of a policy, if there is one, in every profile, without preemption if it is disabled."""
    if plugins is None:
        return
    names = {name_of(plugin) for plugin in plugins.plugins["multiPoint"]["enabled"]}
    for profile in profiles_of(fields, conversion):
        sets, args = dict(plugins.plugins), dict(plugins.args)
        off = profile.listed("postFilter", "disabled")
        if off:
            sets["postFilter"] = {"disabled": off}
        # Set by fields of the configuration, outside of the policy.
        for name in ("InterPodAffinity", "VolumeBinding"):
            of_field = profile.args(name)
            if name in names and of_field:
                args.setdefault(name, of_field)
        profile.fields["plugins"] = sets
        profile.fields["pluginConfig"] = [{"name": name, "args": args[name]} for name in sorted(args)]
        if not args:
            del profile.fields["pluginConfig"]
    extenders = [*entries(fields.get("extenders")), *plugins.extenders]
    if extenders:
        fields["extenders"] = extenders
