"""Configurations of every age, made today's one step at a time.

Each module is one version and makes its configurations those of the next. The steps work on plain values, before
anything is decoded, so that what they make is read, checked and written like any configuration of today.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scheduler.configuration.types import API_VERSION, KIND
from scheduler.configuration.versions import policy, v1alpha1, v1alpha2, v1beta1, v1beta2, v1beta3
from scheduler.configuration.versions.algorithm_source import PATH, read_algorithm_source
from scheduler.configuration.versions.conversion import Conversion, entries, mapping, name_of
from scheduler.configuration.versions.profiles import args_of, each_profile
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
_STEPS = {
    f"{_GROUP}/v1alpha1": v1alpha1.convert,
    f"{_GROUP}/v1alpha2": v1alpha2.convert,
    f"{_GROUP}/v1beta1": v1beta1.convert,
    f"{_GROUP}/v1beta2": v1beta2.convert,
    f"{_GROUP}/v1beta3": v1beta3.convert,
}
"""Old apiVersion -> what makes the next one of it; oldest first."""

OLD_VERSIONS = tuple(reversed(_STEPS))
"""Of a KubeSchedulerConfiguration, newest first."""
POLICY = ("v1", "Policy")
"""apiVersion and kind of what came before configurations."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A document in today's form.

    Attributes:
        conversion: the result, what is wrong or lost, and where everything came from.
        source: what `algorithmSource` said; None where there can be none.
    """

    conversion: Conversion
    source: AlgorithmSource | None = None


def type_meta_faults(document: Mapping[str, Any]) -> list[FieldError]:
    """Say what is wrong with apiVersion and kind; without them nothing else can be judged."""
    version, kind = document.get("apiVersion"), document.get("kind")
    if (version, kind) == POLICY or (kind == KIND and version in (API_VERSION, *_STEPS)):
        return []
    faults = []
    if version is None:
        faults.append(FieldError("apiVersion", f"is missing, must be {API_VERSION}"))
    elif version not in (API_VERSION, *_STEPS):
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
    """Make a document today's, whose apiVersion and kind have no faults; the path of a policy starts from `folder`."""
    conversion = Conversion(document)
    version = document["apiVersion"]
    fields = conversion.without(document, "apiVersion", "kind")
    source = None
    if (version, document["kind"]) == POLICY:
        plugins = policy.convert(fields, conversion)
        fields = {} if plugins is None else _with_policy({}, conversion, plugins)
    elif version in _WITH_SOURCE:
        source = read_algorithm_source(fields, conversion, folder, policies)
        fields = conversion.without(fields, PATH)
        if version == _WITH_SOURCE[0]:
            fields = v1alpha1.convert(fields, conversion)
        by_policy = bool(source.path)
        if by_policy:
            fields = _refuse_beside_policy(fields, conversion)
        fields = _through(_WITH_SOURCE[1], fields, conversion, source.provider)
        plugins = _read_policy(source, conversion)
        if plugins is not None:
            fields = _with_policy(fields, conversion, plugins)
    elif version in _STEPS:
        fields = _through(version, fields, conversion)
    conversion.result = fields
    return Converted(conversion, source)


def _through(
    version: str, fields: dict[str, Any], conversion: Conversion, provider: str = ""
) -> dict[str, Any]:
    """Take the steps from one version on."""
    steps = list(_STEPS)
    for step in steps[steps.index(version) :]:
        if step == _WITH_SOURCE[1]:
            fields = v1alpha2.convert(fields, conversion, provider)
        else:
            fields = _STEPS[step](fields, conversion)
    return each_profile(fields, conversion, lambda profile: _with_version_of_args(profile, conversion))


def _with_version_of_args(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Arguments name the version they are written for; their own conversion is done."""
    configs = []
    for config in entries(profile.get("pluginConfig")):
        args = mapping(config).get("args")
        if mapping(args).get("apiVersion") in _STEPS:
            configs.append(conversion.changed(config, args=conversion.changed(args, apiVersion=API_VERSION)))
        else:
            configs.append(config)
    return conversion.changed(profile, pluginConfig=configs) if configs else profile


def _refuse_beside_policy(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Refuse what a policy would silently replace."""

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        for key in ("plugins", "pluginConfig"):
            given = [config for config in entries(profile.get(key)) if conversion.place(config, "")]
            if given or mapping(profile.get(key)):
                conversion.fault(profile, key, "cannot be set beside a policy, which says what runs")
        return profile

    return each_profile(fields, conversion, change)


def _read_policy(source: AlgorithmSource, conversion: Conversion) -> PolicyPlugins | None:
    """Read the policy's own document; its faults become those of the field that named it."""
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
            if found not in {None, expected}:  # both could be left out
                own.fault(None, key, f"must be {expected}, {was(found)}")
        plugins = policy.convert(own.without(document.value, "apiVersion", "kind"), own)
    conversion.errors.extend(FieldError(source.path, f"{source.where}: {error}") for error in own.errors)
    for note in own.notes:
        conversion.note(None, source.path, f"{source.where}: {note.path}: {note.text}")
    return plugins


def _with_policy(fields: dict[str, Any], conversion: Conversion, plugins: PolicyPlugins) -> dict[str, Any]:
    """Have every profile run a policy's plugins, less preemption where that is off."""

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        sets = dict(plugins.plugins)
        off = mapping(mapping(profile.get("plugins")).get("postFilter")).get("disabled")
        if off:
            sets["postFilter"] = {"disabled": off}
        args = dict(plugins.args)
        names = {name_of(plugin) for plugin in plugins.plugins["multiPoint"]["enabled"]}
        # Set by fields of the configuration, beside the policy.
        for name in ("InterPodAffinity", "VolumeBinding"):
            of_field = args_of(profile, name)
            if name in names and of_field:
                args.setdefault(name, of_field)
        configs = [{"name": name, "args": args[name]} for name in sorted(args)]
        changed = conversion.changed(profile, plugins=sets)
        return (
            conversion.changed(changed, pluginConfig=configs)
            if configs
            else conversion.without(changed, "pluginConfig")
        )

    fields = each_profile(fields, conversion, change)
    extenders = [*entries(fields.get("extenders")), *plugins.extenders]
    return conversion.changed(fields, extenders=extenders) if extenders else fields
