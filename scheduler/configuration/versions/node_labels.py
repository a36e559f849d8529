"""NodeLabel, as the affinity that NodeAffinity adds to every pod.

Source:
    kube-scheduler v1.22, pkg/scheduler/framework/plugins/nodelabel/node_label.go; the advice to use NodeAffinity:
    staging/src/k8s.io/kube-scheduler/config/v1beta1/types_pluginargs.go, NodeLabelArgs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, name_of
from scheduler.configuration.versions.profiles import (
    args_of,
    names_at,
    plugin_set,
    with_args,
    with_plugin_set,
    without_args,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.configuration.versions.conversion import Conversion

_LABEL, _AFFINITY = "NodeLabel", "NodeAffinity"

NO_PREFERENCE = "was removed, use addedAffinity.preferredDuringSchedulingIgnoredDuringExecution of NodeAffinity's arguments"


def required_labels(present: Iterable[str], absent: Iterable[str]) -> dict[str, Any]:
    """Return the affinity that nodes with all of some labels, and none of others, fulfil."""
    expressions = [{"key": label, "operator": "Exists"} for label in present]
    expressions += [{"key": label, "operator": "DoesNotExist"} for label in absent]
    terms = [{"matchExpressions": expressions}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def without_node_labels(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Have NodeAffinity check what NodeLabel did; its preferences have no equal."""
    filters = _LABEL in names_at(profile, "filter", "enabled")
    for plugin in entries(plugin_set(profile, "score").get("enabled")):
        if name_of(plugin) == _LABEL:
            conversion.fault(plugin, "name", f'"NodeLabel" {NO_PREFERENCE}')
    given = args_of(profile, _LABEL)
    for point, key in (
        ("filter", "enabled"),
        ("score", "enabled"),
        ("filter", "disabled"),
        ("score", "disabled"),
    ):
        listed = entries(plugin_set(profile, point).get(key))
        left = [plugin for plugin in listed if name_of(plugin) != _LABEL]
        if len(left) < len(listed):
            profile = with_plugin_set(profile, conversion, point, **{key: left})
    present, absent = (_texts(given.get(key)) for key in ("presentLabels", "absentLabels"))
    if not filters or not (present or absent):
        return without_args(profile, conversion, (_LABEL,))
    args = args_of(profile, _AFFINITY)
    if args.get("addedAffinity"):
        conversion.fault(args, "addedAffinity", "say here what NodeLabel checks: the plugin was removed")
        return without_args(profile, conversion, (_LABEL,))
    args = {**args, "addedAffinity": required_labels(present, absent)}
    return with_args(profile, conversion, _AFFINITY, args, instead_of=(_LABEL,))


def _texts(value: Any) -> list[str]:
    return [text for text in entries(value) if isinstance(text, str)]
