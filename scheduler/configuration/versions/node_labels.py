"""Converts NodeLabel to the affinity that NodeAffinity adds to every pod.

Source:
    kube-scheduler v1.22, pkg/scheduler/framework/plugins/nodelabel/node_label.go; the advice to use NodeAffinity:
    staging/src/k8s.io/kube-scheduler/config/v1beta1/types_pluginargs.go, NodeLabelArgs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, name_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.configuration.versions.profiles import Profile

_LABEL, _AFFINITY = "NodeLabel", "NodeAffinity"

NO_PREFERENCE = "was removed, use addedAffinity.preferredDuringSchedulingIgnoredDuringExecution of NodeAffinity's arguments"


def required_labels(present: Iterable[str], absent: Iterable[str]) -> dict[str, Any]:
    """Return the affinity for nodes with all of some labels, and none of others."""
    expressions = [{"key": label, "operator": "Exists"} for label in present]
    expressions += [{"key": label, "operator": "DoesNotExist"} for label in absent]
    terms = [{"matchExpressions": expressions}]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}


def move_node_labels(profile: Profile) -> None:
    """Move the checks of NodeLabel to NodeAffinity; its preferences have no equivalent."""
    filters = _LABEL in profile.names("filter", "enabled")
    for plugin in profile.listed("score", "enabled"):
        if name_of(plugin) == _LABEL:
            profile.conversion.fault(plugin, "name", f'"NodeLabel" {NO_PREFERENCE}')
    for point in ("filter", "score"):
        for key in ("enabled", "disabled"):
            profile.drop(point, key, {_LABEL})
    given, args = profile.args(_LABEL), profile.args(_AFFINITY)
    present, absent = (_texts(given.get(key)) for key in ("presentLabels", "absentLabels"))
    if filters and (present or absent):
        if args.get("addedAffinity"):
            message = "add the checks of NodeLabel here: the plugin was removed"
            profile.conversion.fault(args, "addedAffinity", message)
        else:
            args = {**args, "addedAffinity": required_labels(present, absent)}
            profile.put_args(_AFFINITY, args, instead_of=_LABEL)
    profile.drop_args({_LABEL})


def _texts(value: Any) -> list[str]:
    return [text for text in entries(value) if isinstance(text, str)]
