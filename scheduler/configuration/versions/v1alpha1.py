"""v1alpha1 to v1alpha2: the one profile, whose parts were fields of the whole, became one of several.

Source:
    kube-scheduler v1.18, pkg/scheduler/apis/config/v1alpha1/conversion.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import mapping
from scheduler.configuration.versions.profiles import args_of, with_args
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

_OF_A_PROFILE = ("schedulerName", "plugins", "pluginConfig")
_LOCK_FIELDS = {"lockObjectNamespace": "resourceNamespace", "lockObjectName": "resourceName"}


def convert(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Return a v1alpha1 configuration as v1alpha2."""
    if "profiles" in fields:
        conversion.fault(
            fields, "profiles", "came with v1alpha2: v1alpha1 has schedulerName, plugins, pluginConfig"
        )
        fields = conversion.without(fields, "profiles")
    given = {key: fields[key] for key in _OF_A_PROFILE if fields.get(key) is not None}
    profile = _with_pre_score(conversion.instead(fields, given), conversion)
    weight = conversion.whole_number(fields, "hardPodAffinitySymmetricWeight", 0, 100)
    if weight is not None:
        args = {"hardPodAffinityWeight": weight, **args_of(profile, "InterPodAffinity")}
        profile = with_args(profile, conversion, "InterPodAffinity", args)
    fields = _with_resource_lock(fields, conversion)
    fields = conversion.without(fields, *_OF_A_PROFILE, "hardPodAffinitySymmetricWeight")
    return conversion.changed(fields, profiles=[profile])


def _with_pre_score(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Call the point after Filter and before Score by its later name."""
    plugins = mapping(profile.get("plugins"))
    if "postFilter" not in plugins:
        return profile
    renamed = {"preScore" if key == "postFilter" else key: value for key, value in plugins.items()}
    return conversion.changed(profile, plugins=conversion.instead(plugins, renamed))


def _with_resource_lock(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    election = mapping(fields.get("leaderElection"))
    if _LOCK_FIELDS.keys().isdisjoint(election):
        return fields
    changed = {key: value for key, value in election.items() if key not in _LOCK_FIELDS}
    for old, new in _LOCK_FIELDS.items():
        before, now = election.get(old), election.get(new)
        if before and now and before != now:
            conversion.fault(
                election, old, f"must be {new}, {quoted(str(now))}, or be left out, was {quoted(str(before))}"
            )
        elif before and not now:
            changed[new] = before
    return conversion.changed(fields, leaderElection=conversion.instead(election, changed))
