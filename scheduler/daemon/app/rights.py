"""The RBAC rights that a configuration needs: those of the daemon itself, and those of its plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from scheduler.daemon.app.default_scheduler import DEFAULT_LEASE, DEFAULT_SCHEDULER
from scheduler.kube.client.resources import EVENTS, LEASES, NODES, PODS, SCHEDULER_PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from scheduler.configuration.types import KubeSchedulerConfiguration
    from scheduler.engine.runtime.framework import Framework
    from scheduler.framework.interface import Needs

_CORE: Final = "v1"


class Named(NamedTuple):
    """One object in a namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Right(NamedTuple):
    """One verb for one kind, or for one object of it.

    Attributes:
        verb: the verb, as in RBAC.
        group: the API group; "" for core.
        resource: the plural, with an optional subresource: `pods/binding`.
        namespace: "" for all namespaces, and for cluster-scoped kinds.
        name: name of one object; "" for all.
    """

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        kind = f"{plural}.{self.group}{slash}{subresource}" if self.group else self.resource
        named = f' "{self.name}"' if self.name else ""
        return f"{self.verb} {kind}{named}{f' in {self.namespace}' if self.namespace else ''}"


def rights_of(
    frameworks: Iterable[Framework],
    settings: KubeSchedulerConfiguration,
    *,
    config_map: Named | None,
    policy: Named | None = None,
    scheduler_profiles: bool = False,
) -> dict[Right, str]:
    """Return all rights that the daemon needs with a configuration -> their purpose, or the plugins that need them.

    The daemon's own rights come first.

    Args:
        frameworks: its profiles, plugins included.
        settings: the configuration.
        config_map: the watched ConfigMap, if any.
        policy: the ConfigMap with the policy of an old configuration, if any.
        scheduler_profiles: whether SchedulerProfiles are watched.

    Raises:
        ValueError: a plugin's `needs` contain an invalid kind or right.
    """
    own = {right: reason for reason, right in _own(settings, config_map, policy)}
    if scheduler_profiles:
        own |= _PROFILES
    return own | _of_plugins(frameworks, own.keys())


def rights_of_shadow(frameworks: Iterable[Framework]) -> dict[Right, str]:
    """Return all rights that a shadow needs with some profiles: it only reads.

    Raises:
        ValueError: a plugin's `needs` contain an invalid kind or right.
    """
    cluster = [Right(verb, each.group, each.plural) for each in (NODES, PODS) for verb in ("list", "watch")]
    of_plugins = _of_plugins(frameworks, set(cluster))
    reading = {right: names for right, names in of_plugins.items() if right.verb in _READING}
    return dict.fromkeys(cluster, "the cluster") | reading


def _of_plugins(frameworks: Iterable[Framework], known: AbstractSet[Right]) -> dict[Right, str]:
    """Return the additional rights of plugins, and the plugins that need them."""
    users: dict[Right, dict[str, None]] = {}
    for framework in frameworks:
        for plugin in framework.plugins.all():
            for right in sorted(rights_of_needs(plugin.needs) - known):
                users.setdefault(right, {})[plugin.name] = None
    return {right: ", ".join(names) for right, names in users.items()}


def rights_of_needs(needs: Needs) -> set[Right]:
    """Return the rights that plugins need.

    Raises:
        ValueError: a kind or a right is invalid.
    """
    named = [*needs.rights, *(f"{verb} {kind}" for kind in needs.kinds for verb in ("list", "watch"))]
    return {_parsed(text) for text in named}


def _parsed(text: str) -> Right:
    """Parse a right in the format of `Needs.rights`; the version is only for people."""
    verb, _, kind = text.partition(" ")
    parts = kind.split("/")
    if parts[0] == _CORE:
        parts.insert(0, "")
    if not verb or len(parts) not in {3, 4} or not all(parts[1:]) or any(" " in part for part in parts):
        raise ValueError(
            f"a right is a verb and version/plural or group/version/plural, perhaps /subresource, was {text!r}"
        )
    return Right(verb, parts[0], "/".join(parts[2:]))


def _own(
    settings: KubeSchedulerConfiguration, config_map: Named | None, policy: Named | None
) -> Iterator[tuple[str, Right]]:
    """Yield the rights without plugins: purpose and right."""
    for resource in (NODES, PODS):
        for verb in ("list", "watch"):
            yield "the cluster", Right(verb, resource.group, resource.plural)
    yield "check pods after a lost response", Right("get", PODS.group, PODS.plural)
    yield "conditions of pods", Right("patch", PODS.group, f"{PODS.plural}/status")
    for verb in ("create", "patch"):
        yield "events", Right(verb, EVENTS.group, EVENTS.plural)
    election = settings.leader_election
    if election.leader_elect:
        where, name = election.resource_namespace, election.resource_name
        yield "leader election; RBAC cannot restrict create by name", Right("create", *_LEASES, where)
        for verb in ("get", "watch", "update"):
            yield "leader election", Right(verb, *_LEASES, where, name)
    if any(profile.scheduler_name == DEFAULT_SCHEDULER for profile in settings.profiles):
        yield "detect a running kube-scheduler", Right("get", *_LEASES, *DEFAULT_LEASE)
    if config_map is not None:
        for verb in ("get", "list", "watch"):
            yield "the configuration", Right(verb, "", "configmaps", *config_map)
    if policy is not None:
        yield "the policy", Right("get", "", "configmaps", *policy)


_READING: Final = ("get", "list", "watch")
_LEASES: Final = (LEASES.group, LEASES.plural)
_PROFILES: Final = {
    Right("list", SCHEDULER_PROFILES.group, SCHEDULER_PROFILES.plural): "SchedulerProfiles",
    Right("watch", SCHEDULER_PROFILES.group, SCHEDULER_PROFILES.plural): "SchedulerProfiles",
    Right(
        "patch", SCHEDULER_PROFILES.group, f"{SCHEDULER_PROFILES.plural}/status"
    ): "status of SchedulerProfiles",
}
