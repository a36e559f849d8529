"""v1beta2 to v1beta3: weights of default plugins changed, multiPoint came, the insecure addresses went.

Source:
    kube-scheduler v1.25, pkg/scheduler/apis/config/v1beta2/default_plugins.go and v1beta3/default_plugins.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import entries, mapping
from scheduler.configuration.versions.profiles import (
    each_profile,
    is_disabled,
    names_at,
    plugin_set,
    with_plugin_set,
)
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

OLD_WEIGHTS = {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
"""Of default plugins that v1beta3 gave others."""

_ADDRESSES = {
    "healthzBindAddress": "has no effect: --bind-address and --secure-port say where, --http-port without TLS",
    "metricsBindAddress": "has no effect: --bind-address and --secure-port say where, --http-port without TLS",
}
_OLD_LOCKS = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")


def convert(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Return a v1beta2 configuration as v1beta3."""
    fields = _without_addresses(fields, conversion)
    fields = _with_leases(fields, conversion)

    def change(profile: dict[str, Any]) -> dict[str, Any]:
        plugins = mapping(profile.get("plugins"))
        if "multiPoint" in plugins:
            conversion.fault(
                plugins, "multiPoint", "came with v1beta3: list the plugins at each extension point"
            )
            profile = conversion.changed(profile, plugins=conversion.without(plugins, "multiPoint"))
        return _with_old_weights(profile, conversion)

    return each_profile(fields, conversion, change)


def _without_addresses(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    for key, text in _ADDRESSES.items():
        if fields.get(key):
            conversion.note(fields, key, text)
    return conversion.without(fields, *_ADDRESSES)


def _with_leases(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Take the one lock there is, as kube-scheduler came to; old ones were objects of other kinds."""
    election = mapping(fields.get("leaderElection"))
    lock = election.get("resourceLock")
    if lock not in _OLD_LOCKS:
        return fields
    conversion.note(
        election, "resourceLock", f"has no effect: a Lease is the lock, {quoted(lock)} is history"
    )
    return conversion.changed(fields, leaderElection=conversion.changed(election, resourceLock="leases"))


def _with_old_weights(profile: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    """Give default plugins the weights they had, unless the profile says otherwise."""
    added = [
        {"name": name, "weight": weight}
        for name, weight in OLD_WEIGHTS.items()
        if name not in names_at(profile, "score", "enabled") and not is_disabled(profile, "score", name)
    ]
    if not added:
        return profile
    score = mapping(profile.get("plugins")).get("score")
    if (score is not None and not isinstance(score, dict)) or not isinstance(
        profile.get("plugins", {}) or {}, dict
    ):
        return profile
    enabled = entries(plugin_set(profile, "score").get("enabled"))
    return with_plugin_set(profile, conversion, "score", enabled=[*enabled, *added])
