"""Suggestions for misplaced keys, which tutorials or earlier versions have elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.configuration.types import (
    Extender,
    ExtenderTLS,
    KubeSchedulerConfiguration,
    PluginConfig,
    Plugins,
    Profile,
)
from scheduler.objects.wording import did_you_mean, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

_TO_EXTENDERS = "extenders, beside profiles: all profiles share them"
_OF_TLS = {key.lower(): f"tlsConfig.{key}" for key in ExtenderTLS.__struct_encode_fields__}
_OF_EXTENDERS = ("urlPrefix", "filterVerb", "prioritizeVerb", "bindVerb", "preemptVerb", "nodeCacheCapable")

_ELSEWHERE: dict[type, dict[str, str]] = {  # struct -> key in lower case -> its correct place
    KubeSchedulerConfiguration: {
        "schedulername": "profiles[].schedulerName",
        "plugins": "profiles[].plugins",
        "pluginconfig": "profiles[].pluginConfig",
        "extender": "extenders",
        "extenderconfig": "extenders",
        "extenderconfigs": "extenders",
        **{key.lower(): f"extenders[].{key}" for key in _OF_EXTENDERS},
    },
    Profile: {
        "name": "schedulerName",
        "extender": _TO_EXTENDERS,
        "extenders": _TO_EXTENDERS,
        "extenderconfig": _TO_EXTENDERS,
        "extenderconfigs": _TO_EXTENDERS,
        "args": "pluginConfig[].args",
    },
    PluginConfig: {"config": "args", "arguments": "args", "argument": "args", "plugin": "name"},
    Plugins: {
        "extenders": _TO_EXTENDERS,
        "unreserve": "reserve",
        "prescoring": "preScore",
        "normalizescore": "score",
    },
    Extender: {
        **_OF_TLS,
        "trustedcafile": "tlsConfig.caFile",
        "url": "urlPrefix",
        "address": "urlPrefix",
        "timeout": "httpTimeout",
        "timeoutseconds": "httpTimeout",
    },
    ExtenderTLS: {
        "trustedcafile": "caFile",
        "insecureskipverify": "insecure",
        "insecureskiptlsverify": "insecure",
    },
}

_REMOVED: dict[type, dict[str, str]] = {  # struct -> key in lower case -> its replacement
    KubeSchedulerConfiguration: {
        "algorithmsource": "was removed after v1alpha1; `check --convert` makes profiles of a file of that version",
        "bindtimeoutseconds": "was removed after v1alpha2, use bindTimeoutSeconds of VolumeBinding's arguments",
        "disablepreemption": "was removed after v1alpha2, disable DefaultPreemption at postFilter",
        "featuregates": "was never part of it, a feature is a setting of a profile here",
        "hardpodaffinitysymmetricweight": "was removed after v1alpha1, use hardPodAffinityWeight of "
        "InterPodAffinity's arguments",
        "healthzbindaddress": "was removed after v1beta2, use --bind-address and --secure-port or --http-port",
        "metricsbindaddress": "was removed after v1beta2, use --bind-address and --secure-port or --http-port",
        "policy": "is a document of its own: apiVersion v1, kind Policy",
        "predicates": "belongs to a Policy: apiVersion v1, kind Policy",
        "priorities": "belongs to a Policy: apiVersion v1, kind Policy",
    },
    Profile: {"algorithmsource": "was removed after v1alpha1, use plugins and pluginConfig"},
}


def unknown_field(struct: type, key: str, known: Iterable[str]) -> str:
    """Return the message for an unknown key of a struct, with a suggestion."""
    removed = _REMOVED.get(struct, {}).get(key.lower())
    if removed:
        return f"unknown field: {removed}"
    known = tuple(known)
    same = next((field for field in known if field.lower() == key.lower()), "")
    elsewhere = _ELSEWHERE.get(struct, {}).get(key.lower())
    if elsewhere and not same:
        name, comma, why = elsewhere.partition(",")
        return f"unknown field, did you mean {quoted(name)}{comma}{why}?"
    return f"unknown field{did_you_mean(key, known)}"
