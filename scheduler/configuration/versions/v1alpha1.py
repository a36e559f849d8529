"""v1alpha1 to v1alpha2: the only profile, whose parts were top-level fields, became a list of profiles.

Source:
    kube-scheduler v1.18, pkg/scheduler/apis/config/v1alpha1/conversion.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.versions.conversion import mapping
from scheduler.configuration.versions.profiles import Profile
from scheduler.objects.wording import quoted

if TYPE_CHECKING:
    from scheduler.configuration.versions.conversion import Conversion

_OF_A_PROFILE = ("schedulerName", "plugins", "pluginConfig")
_LOCK_FIELDS = {"lockObjectNamespace": "resourceNamespace", "lockObjectName": "resourceName"}


def convert(fields: dict[str, Any], conversion: Conversion) -> None:
    """Convert a v1alpha1 configuration to v1alpha2."""
    if "profiles" in fields:
        conversion.fault(
            fields, "profiles", "came with v1alpha2: v1alpha1 has schedulerName, plugins, pluginConfig"
        )
    parts = {key: fields.pop(key, None) for key in _OF_A_PROFILE}
    given = {key: value for key, value in parts.items() if value is not None}
    profile = Profile(conversion.instead(fields, given), conversion)
    fields["profiles"] = [given]
    if "postFilter" in profile.plugins:
        # The extension point between Filter and Score has a new name.
        profile.plugins["preScore"] = profile.plugins.pop("postFilter")
    weight = conversion.whole_number(fields, "hardPodAffinitySymmetricWeight", 0, 100)
    fields.pop("hardPodAffinitySymmetricWeight", None)
    if weight is not None:
        args = {"hardPodAffinityWeight": weight, **profile.args("InterPodAffinity")}
        profile.put_args("InterPodAffinity", args)
    _name_lock(mapping(fields.get("leaderElection")), conversion)


def _name_lock(election: dict[str, Any], conversion: Conversion) -> None:
    for old, new in _LOCK_FIELDS.items():
        before, now = election.get(old), election.get(new)
        if before and now and before != now:
            conversion.fault(
                election, old, f"must be {new}, {quoted(str(now))}, or be left out, was {quoted(str(before))}"
            )
        elif before and not now:
            election[new] = before
        election.pop(old, None)
