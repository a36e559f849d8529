"""v1beta2 to v1beta3: weights of default plugins changed, multiPoint was added, insecure addresses were removed.

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
"""Weights of default plugins that v1beta3 changed."""

_NO_ADDRESS = "has no effect: --bind-address and --secure-port say where, --http-port without TLS"
_OLD_LOCKS = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")


def convert(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1beta2 configuration to v1beta3."""
    for key in ("healthzBindAddress", "metricsBindAddress"):
        if fields.pop(key, None):
            conversion.note(fields, key, _NO_ADDRESS)
    election = mapping(fields.get("leaderElection"))
    lock = election.get("resourceLock")
    if lock in _OLD_LOCKS:
        # Only Leases are supported, as in later versions of kube-scheduler; old locks were objects of other
        # kinds.
        message = f"has no effect: a Lease is the lock, {quoted(lock)} is not supported any more"
        conversion.note(election, "resourceLock", message)
        election["resourceLock"] = "leases"
    for profile in profiles_of(fields, conversion):
        if "multiPoint" in profile.plugins:
            conversion.fault(
                profile.plugins, "multiPoint", "came with v1beta3: list the plugins at each extension point"
            )
            del profile.plugins["multiPoint"]
        _keep_old_weights(profile)


def _keep_old_weights(profile: Profile) -> None:
    """Give default plugins their old weights, unless the profile sets others."""
    added = [
        {"name": name, "weight": weight}
        for name, weight in OLD_WEIGHTS.items()
        if name not in profile.names("score", "enabled") and not profile.disables("score", name)
    ]
    profile.list_at("score", "enabled", [*profile.listed("score", "enabled"), *added])
