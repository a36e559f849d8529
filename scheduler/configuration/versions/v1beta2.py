"""v1beta2 to v1beta3: weights of default plugins changed, multiPoint came, the insecure addresses went.

Source:
    kube-scheduler v1.25, pkg/scheduler/apis/config/v1beta2/default_plugins.go and v1beta3/default_plugins.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import mapping
from scheduler.configuration.versions.profiles import Profile, profiles_of
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

OLD_WEIGHTS = {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
"""Of default plugins that v1beta3 gave others."""

_NO_ADDRESS = "has no effect: --bind-address and --secure-port say where, --http-port without TLS"
_OLD_LOCKS = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")


def convert(fields: dict[str, Any], conversion: Conversion) -> None:
    """Make a v1beta2 configuration v1beta3."""
    for key in ("healthzBindAddress", "metricsBindAddress"):
        if fields.pop(key, None):
            conversion.note(fields, key, _NO_ADDRESS)
    election = mapping(fields.get("leaderElection"))
    lock = election.get("resourceLock")
    if lock in _OLD_LOCKS:
        # There is one sort of lock, as kube-scheduler came to have; old ones were objects of other kinds.
        told = f"has no effect: a Lease is the lock, {quoted(lock)} is history"
        conversion.note(election, "resourceLock", told)
        election["resourceLock"] = "leases"
    for profile in profiles_of(fields, conversion):
        if "multiPoint" in profile.plugins:
            conversion.fault(
                profile.plugins, "multiPoint", "came with v1beta3: list the plugins at each extension point"
            )
            del profile.plugins["multiPoint"]
        _keep_old_weights(profile)


def _keep_old_weights(profile: Profile) -> None:
    """Give default plugins the weights they had, unless the profile says otherwise."""
    added = [
        {"name": name, "weight": weight}
        for name, weight in OLD_WEIGHTS.items()
        if name not in profile.names("score", "enabled") and not profile.disables("score", name)
    ]
    profile.list_at("score", "enabled", [*profile.listed("score", "enabled"), *added])
