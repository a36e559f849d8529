"""Validation rules of a configuration, beyond the types of its fields.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/validation/validation.go,
    ValidateKubeSchedulerConfiguration; component-base/config/validation/validation.go,
    ValidateLeaderElectionConfiguration; client-go/tools/leaderelection/leaderelection.go, NewLeaderElector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.configuration import extender_rules
from scheduler.configuration.defaults import ALL, REMOVED_PLUGINS, UPSTREAM_PLUGINS
from scheduler.configuration.feature_gates import gate_faults
from scheduler.configuration.types import API_VERSION, Plugins
from scheduler.errors import FieldError
from scheduler.objects.wording import child, entry, quoted, was

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.configuration.types import (
        KubeSchedulerConfiguration,
        LeaderElection,
        PluginConfig,
        PluginSet,
        Profile,
    )

_JITTER_FACTOR = 1.2  # client-go waits up to this many retry periods between two tries
_LEAST_BUDGET, _MOST_BUDGET = 50_000_000, 5_000_000_000  # nanoseconds


def faults(settings: KubeSchedulerConfiguration) -> Iterator[FieldError]:
    """Yield all errors that involve several fields.

    Expects zero values to be replaced already, and the profiles of the file: once they are merged with the
    default plugins, the indices in a path would differ from those in the file.
    """
    yield from leader_election_faults(settings.leader_election)
    if settings.pod_max_backoff_seconds < settings.pod_initial_backoff_seconds:
        yield FieldError(
            "podMaxBackoffSeconds",
            f"must be at least podInitialBackoffSeconds ({settings.pod_initial_backoff_seconds}), "
            f"was {settings.pod_max_backoff_seconds}",
        )
    if settings.node_pause_max_seconds < settings.node_pause_initial_seconds:
        yield FieldError(
            "nodePauseMaxSeconds",
            f"must be at least nodePauseInitialSeconds ({settings.node_pause_initial_seconds}), "
            f"was {settings.node_pause_max_seconds}",
        )
    if not _LEAST_BUDGET <= settings.attempt_budget.nanoseconds <= _MOST_BUDGET:
        yield FieldError("attemptBudget", f"must be from 50ms to 5s, was {settings.attempt_budget}")
    yield from (
        FieldError(child("featureGates", gate), fault) for gate, fault in gate_faults(settings.feature_gates)
    )
    yield from profile_faults(settings.profiles)
    yield from extender_rules.faults(settings.extenders)


def leader_election_faults(election: LeaderElection) -> Iterator[FieldError]:
    """Yield the errors of the leader election; none if it is off."""
    if not election.leader_elect:
        return
    path = "leaderElection"
    durations = (
        ("leaseDuration", election.lease_duration),
        ("renewDeadline", election.renew_deadline),
        ("retryPeriod", election.retry_period),
    )
    negative = [(name, duration) for name, duration in durations if duration.nanoseconds <= 0]
    for name, duration in negative:
        yield FieldError(f"{path}.{name}", f"must be greater than 0, was {duration}")
    if not negative:
        if election.lease_duration <= election.renew_deadline:
            yield FieldError(
                f"{path}.leaseDuration",
                f"must be greater than renewDeadline ({election.renew_deadline}), "
                f"was {election.lease_duration}",
            )
        if election.renew_deadline.nanoseconds <= _JITTER_FACTOR * election.retry_period.nanoseconds:
            yield FieldError(
                f"{path}.renewDeadline",
                f"must be greater than {_JITTER_FACTOR} times retryPeriod ({election.retry_period}), "
                f"was {election.renew_deadline}",
            )
    if election.resource_lock != "leases":
        yield FieldError(f"{path}.resourceLock", f'must be "leases", {was(election.resource_lock)}')


def profile_faults(profiles: Sequence[Profile]) -> Iterator[FieldError]:
    """Yield the errors of profiles, as written."""
    names: dict[str, str] = {}  # scheduler name -> path of the profile that has it
    for i, profile in enumerate(profiles):
        path = entry("profiles", i)
        if not profile.scheduler_name:
            yield FieldError(f"{path}.schedulerName", "must not be empty")
        elif profile.scheduler_name in names:
            yield FieldError(
                f"{path}.schedulerName",
                f"{quoted(profile.scheduler_name)} is the name of {names[profile.scheduler_name]} already",
            )
        else:
            names[profile.scheduler_name] = path
        for name, encoded in zip(Plugins.__struct_fields__, Plugins.__struct_encode_fields__, strict=True):
            yield from _plugin_set_faults(getattr(profile.plugins, name), f"{path}.plugins.{encoded}")
        if len(profile.plugins.queue_sort.enabled) > 1:
            yield FieldError(
                f"{path}.plugins.queueSort.enabled",
                f"only one queue sort plugin can be enabled, found {len(profile.plugins.queue_sort.enabled)}",
            )
        yield from _plugin_config_faults(profile.plugin_config, f"{path}.pluginConfig")


def _plugin_set_faults(plugin_set: PluginSet, path: str) -> Iterator[FieldError]:
    for key, plugins in (("enabled", plugin_set.enabled), ("disabled", plugin_set.disabled)):
        places: dict[str, int] = {}  # plugin name -> its first place in the list
        for i, plugin in enumerate(plugins):
            name_path = f"{entry(f'{path}.{key}', i)}.name"
            if not plugin.name:
                yield FieldError(name_path, "is missing")
            elif key == "disabled":
                continue  # duplicates are allowed, as upstream
            elif plugin.name in places:
                first = entry(key, places[plugin.name])
                yield FieldError(name_path, f"{quoted(plugin.name)} is listed already at {first}")
            else:
                yield from _name_faults(plugin.name, name_path)
            places.setdefault(plugin.name, i)


def _name_faults(name: str, path: str) -> Iterator[FieldError]:
    if name == ALL:
        yield FieldError(path, '"*" can only be disabled')
    if name in REMOVED_PLUGINS:
        yield FieldError(
            path, f"{quoted(name)} is no plugin any more in {API_VERSION}, NodeVolumeLimits does its work"
        )


def _plugin_config_faults(configs: Sequence[PluginConfig], path: str) -> Iterator[FieldError]:
    places: dict[str, int] = {}  # plugin name -> its first place in the list
    for i, config in enumerate(configs):
        name_path = f"{entry(path, i)}.name"
        if not config.name:
            yield FieldError(name_path, "is missing")
        elif config.name in places:
            first = entry("pluginConfig", places[config.name])
            yield FieldError(name_path, f"{quoted(config.name)} has its arguments already at {first}")
        else:
            yield from _name_faults(config.name, name_path)
        places.setdefault(config.name, i)
        if config.name in UPSTREAM_PLUGINS:
            yield from type_meta_faults(config.name, config.args, f"{entry(path, i)}.args")


def type_meta_faults(plugin: str, args: dict[str, object], path: str) -> Iterator[FieldError]:
    """Yield the errors of `apiVersion` and `kind` in a plugin's arguments; they are optional."""
    for key, expected in (("apiVersion", API_VERSION), ("kind", f"{plugin}Args")):
        found = args.get(key)
        if found is not None and found != expected:
            yield FieldError(f"{path}.{key}", f"must be {quoted(expected)}, {was(found)}")
