"""Validation rules of a configuration, beyond the types of its fields.

Source:
    kube-scheduler v1.36, pkg/scheduler/apis/config/validation/validation.go, ValidateKubeSchedulerConfiguration and
    validateExtenders; the rules of TLS: client-go, transport/transport.go, TLSConfigFor; component-base/config/validation/validation.go,
    ValidateLeaderElectionConfiguration; client-go/tools/leaderelection/leaderelection.go, NewLeaderElector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.configuration.defaults import ALL, REMOVED_PLUGINS, UPSTREAM_PLUGINS
from scheduler.configuration.feature_gates import gate_faults, gate_faults_of_all, parse_version
from scheduler.configuration.types import API_VERSION, Plugins
from scheduler.errors import FieldError
from scheduler.objects.resource_names import is_extended_resource_name
from scheduler.objects.wording import child, entry, quoted, was
from scheduler.urls import is_http_url, shown_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scheduler.configuration.types import (
        Extender,
        ExtenderTLS,
        KubeSchedulerConfiguration,
        LeaderElection,
        PluginConfig,
        PluginSet,
        Profile,
    )

_MAX_SCORE = 100  # the maximum score of an extender, on the scale of plugins
_MAX_TOTAL_SCORE = 2**63 - 1  # the sum of scores is an int64


def extender_faults(extenders: Sequence[Extender]) -> Iterator[FieldError]:
    """Yield the errors of the extenders, of each one and of their combination."""
    if sum(each.weight for each in extenders if each.prioritize_verb) * _MAX_SCORE > _MAX_TOTAL_SCORE:
        yield FieldError("extenders", "the weights are so large that the sum of scores could overflow")
    owners: dict[str, str] = {}  # resource name -> the extender that manages it
    binder = ""
    for i, extender in enumerate(extenders):
        path = entry("extenders", i)
        yield from _faults_of_extender(extender, path)
        if extender.bind_verb and binder:
            yield FieldError(f"{path}.bindVerb", f"only one extender can bind, {binder} does already")
        binder = binder or (path if extender.bind_verb else "")
        for j, resource in enumerate(extender.managed_resources):
            name_path = f"{entry(f'{path}.managedResources', j)}.name"
            if not is_extended_resource_name(resource.name):
                yield FieldError(
                    name_path,
                    f"must be the name of an extended resource as in example.com/gpu, {was(resource.name)}",
                )
            elif resource.name in owners:
                yield FieldError(
                    name_path, f"{quoted(resource.name)} is managed by {owners[resource.name]} already"
                )
            else:
                owners[resource.name] = path


def _faults_of_extender(extender: Extender, path: str) -> Iterator[FieldError]:
    if not extender.url_prefix:
        yield FieldError(f"{path}.urlPrefix", "is missing")
    elif not is_http_url(extender.url_prefix):
        yield FieldError(
            f"{path}.urlPrefix",
            f"must be an http:// or https:// address, {was(shown_url(extender.url_prefix))}",
        )
    if extender.prioritize_verb and extender.weight <= 0:
        yield FieldError(
            f"{path}.weight",
            f"must be at least 1 for an extender with a prioritizeVerb, was {extender.weight}",
        )
    if extender.http_timeout.nanoseconds < 0:
        yield FieldError(f"{path}.httpTimeout", f"must not be negative, was {extender.http_timeout}")
    if extender.tls_config is not None:
        yield from _tls_faults(extender.tls_config, f"{path}.tlsConfig")


def _tls_faults(tls: ExtenderTLS, path: str) -> Iterator[FieldError]:
    if tls.insecure and (tls.ca_file or tls.ca_data):
        yield FieldError(f"{path}.insecure", "cannot be combined with caFile or caData")
    has_cert, has_key = bool(tls.cert_file or tls.cert_data), bool(tls.key_file or tls.key_data)
    if has_cert and not has_key:
        yield FieldError(path, "a client certificate needs its key: keyFile or keyData")
    if has_key and not has_cert:
        yield FieldError(path, "a client key needs its certificate: certFile or certData")


_JITTER_FACTOR = 1.2  # client-go waits up to this many retry periods between two tries
_LEAST_BUDGET, _MOST_BUDGET = 50_000_000, 5_000_000_000  # nanoseconds


def faults(settings: KubeSchedulerConfiguration, version: str | None = "") -> Iterator[FieldError]:
    """Yield all errors that involve several fields; `version` is that of `load.parse`.

    Expects zero values to be replaced already, and the profiles of the file: once they are merged with the
    default plugins, the indices in a path would differ from those in the file.
    """
    yield from leader_election_faults(settings.leader_election)
    yield from sharding_faults(settings)
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
    yield from _version_faults(settings, version)
    yield from profile_faults(settings.profiles)
    yield from extender_faults(settings.extenders)


def _version_faults(settings: KubeSchedulerConfiguration, otherwise: str | None) -> Iterator[FieldError]:
    if settings.emulated_version:
        try:
            parse_version(settings.emulated_version)
        except ValueError as error:
            yield FieldError("emulatedVersion", str(error))
            return
    gates, version = settings.feature_gates, settings.emulated_version or otherwise
    found = gate_faults_of_all(gates) if version is None else gate_faults(gates, version)
    for gate, fault in found:
        yield FieldError(child("featureGates", gate), fault)


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


BINDING_SECONDS = 5.0
"""With sharding, the time limit of a Binding: without an answer after this time, it has taken effect or never will."""
CLOCK_ERROR_SECONDS = 0.5
"""With sharding, the most by which the clock of a replica measures a lease duration wrongly."""
_AFTER_DEADLINE = BINDING_SECONDS + 2 * CLOCK_ERROR_SECONDS
_LEAST_SHARDED_LEASE = 10.0  # seconds
_LONGEST_LABEL = 63


def sharding_faults(settings: KubeSchedulerConfiguration) -> Iterator[FieldError]:
    """Yield the errors of the sharding; these are rules of ours."""
    election = settings.leader_election
    if not settings.sharding.enabled:
        return
    if not election.leader_elect:
        yield FieldError("sharding.enabled", "must be false without leaderElection.leaderElect, was true")
        return
    path, lease = "leaderElection.leaseDuration", election.lease_duration
    retry = election.retry_period
    if lease.seconds < _LEAST_SHARDED_LEASE:
        yield FieldError(path, f"must be at least {_LEAST_SHARDED_LEASE:g}s with sharding, was {lease}")
    elif lease.seconds - _AFTER_DEADLINE <= _JITTER_FACTOR * retry.seconds:
        yield FieldError(
            path,
            f"must be greater than {_AFTER_DEADLINE:g}s and {_JITTER_FACTOR} times retryPeriod ({retry}) with sharding, "
            f"was {lease}",
        )
    if len(election.resource_name) > _LONGEST_LABEL:
        yield FieldError(
            "leaderElection.resourceName",
            f"must have at most {_LONGEST_LABEL} characters with sharding, {was(election.resource_name)}",
        )


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
