"""Metrics that kube-scheduler does not have: of the configuration, the cache, the loop, plugins' background data, the extender."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.daemon.metrics.families import exponential_buckets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from scheduler.daemon.metrics.families import Families

    Numbers = Iterable[tuple[tuple[str, ...], float]]

RELOADED, REJECTED = "reloaded", "rejected"


class ConfigurationMetrics:
    """Metrics of hot reload; all but the counter have no series if no configuration is watched.

    Attributes:
        restart_needed: paths of fields whose new value needs a restart.
        watch_up: source, `file` or `configmap` -> whether its changes are currently seen.
    """

    def __init__(self, families: Families) -> None:
        self.restart_needed: Sequence[str] = ()
        self.watch_up: dict[str, bool] = {}
        self._reloads = families.counters(
            "custom_scheduler_config_reloads_total",
            "Configurations offered to the running scheduler, by result.",
            "result",
        )
        self._successful = families.gauges(
            "custom_scheduler_config_last_reload_successful",
            "Whether the last offered configuration is active.",
        )
        self._succeeded_at = families.gauges(
            "custom_scheduler_config_last_reload_success_timestamp_seconds",
            "When the active configuration was loaded.",
        )
        self._hash = families.gauges(
            "custom_scheduler_config_hash",
            "A hash of the active configuration and its plugin files, as a number: equal for equal ones.",
        )
        families.read_gauges(
            "custom_scheduler_config_restart_needed",
            "Fields of the configuration whose new value needs a restart.",
            ("field",),
            lambda: [((path,), 1.0) for path in self.restart_needed],
        )
        families.read_gauges(
            "custom_scheduler_config_watch_up",
            "Whether changes of the configuration are seen.",
            ("source",),
            lambda: [((source,), float(up)) for source, up in self.watch_up.items()],
        )
        for result in (RELOADED, REJECTED):
            self._reloads[result].add(0)

    def activated(self, digest: bytes, at: float) -> None:
        """Record the active configuration, by its digest, and its activation time in Unix seconds."""
        self._successful[()].value = 1.0
        self._succeeded_at[()].value = at
        self._hash[()].value = float(int.from_bytes(digest[:6]))  # 48 bits: a float holds them exactly

    def reloaded(self) -> None:
        """Count a configuration that was loaded."""
        self._reloads[RELOADED].add()

    def rejected(self) -> None:
        """Count a configuration that was rejected."""
        self._successful[()].value = 0.0
        self._reloads[REJECTED].add()


RESULTS = ("clean", "drift", "failed")


class ConsistencyMetrics:
    """Counts checks and their findings."""

    def __init__(self, families: Families) -> None:
        self._checks = families.counters(
            "custom_scheduler_cache_checks_total",
            "Comparisons of the cache with the API server, by result: clean, drift, failed (no answer from the server).",
            "result",
        )
        self._drift = families.counters(
            "custom_scheduler_cache_drift_total",
            "Differences between the cache and the API server or its own source data, by type.",
            "what",
        )
        self._checked_at = families.gauges(
            "custom_scheduler_cache_last_check_timestamp_seconds",
            "When the cache was last compared with the API server.",
        )
        for result in RESULTS:
            self._checks[result].add(0)

    def checked(self, result: str, found: Iterable[str], at: float) -> None:
        """Count a check.

        Args:
            result: one of RESULTS.
            found: the type of each difference.
            at: time in Unix seconds.
        """
        self._checks[result].add()
        for what in found:
            self._drift[what].add()
        if result != "failed":
            self._checked_at[()].value = at

    def may_find(self, what: Iterable[str]) -> None:
        """Show the series of all types from the beginning, so that a first finding is an increase."""
        for each in what:
            self._drift[each].add(0)


class LoopMetrics:
    """Metrics of the loop that all decisions, watches, bindings, HTTP endpoints and the lease share."""

    def __init__(self, families: Families) -> None:
        self._lag = families.histograms(
            "custom_scheduler_loop_lag_seconds",
            "How late a task of the main loop ran, measured ten times a second, in seconds.",
            bounds=exponential_buckets(0.001, 2, 15),
        )[()]
        self._stalls = families.counters(
            "custom_scheduler_loop_stalls_total",
            "Number of times that the main loop was held for more than a second, by cause.",
            "holder",
        )
        self._longest: dict[str, float] = {}
        families.read_gauges(
            "custom_scheduler_loop_longest_stall_seconds",
            "Longest time that the main loop was held, in seconds, of those beyond a second, by cause.",
            ("holder",),
            lambda: [((holder,), seconds) for holder, seconds in self._longest.items()],
        )

    def lagged(self, seconds: float) -> None:
        """Record how late a task ran."""
        self._lag.observe(seconds)

    def stalled(self, holder: str, seconds: float) -> None:
        """Record that something of a kind held the loop."""
        self._stalls[holder].add()
        self._longest[holder] = max(seconds, self._longest.get(holder, 0.0))


class RefreshMetrics:
    """Metrics of plugins with background data; without such plugins there are no series.

    Attributes:
        ages: ((plugin, profile), seconds since the last successful refresh) of the active plugins.
        nodes_without_data: ((plugin, profile), number of nodes) of plugins with data about nodes.
    """

    def __init__(self, families: Families) -> None:
        self.ages: Callable[[], Numbers] = lambda: ()
        self.nodes_without_data: Callable[[], Numbers] = lambda: ()
        self._refreshes = families.counters(
            "custom_scheduler_plugin_refresh_total",
            "Number of refreshes of a plugin's background data.",
            "plugin profile",
        )
        self._failures = families.counters(
            "custom_scheduler_plugin_refresh_failures_total",
            "Number of failed refreshes of a plugin's background data.",
            "plugin profile",
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_age_seconds",
            "Time since a plugin last refreshed its background data, or since its first try.",
            ("plugin", "profile"),
            lambda: self.ages(),  # noqa: PLW0108 - set later
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_nodes_without_data",
            "Nodes without data, or without recent data, in a plugin's background data.",
            ("plugin", "profile"),
            lambda: self.nodes_without_data(),  # noqa: PLW0108 - set later
        )

    def began(self, plugin: str, profile: str) -> None:
        """Show the counters of a plugin before its first refresh."""
        self._refreshes[plugin, profile].add(0)
        self._failures[plugin, profile].add(0)

    def refreshed(self, plugin: str, profile: str) -> None:
        """Count a successful refresh."""
        self._refreshes[plugin, profile].add()

    def failed(self, plugin: str, profile: str) -> None:
        """Count a failed refresh."""
        self._refreshes[plugin, profile].add()
        self._failures[plugin, profile].add()


class ExtenderRequestMetrics:
    """Metrics of the requests of other schedulers."""

    def __init__(self, families: Families) -> None:
        self._requests = families.counters(
            "custom_scheduler_extender_requests_total",
            "Requests of schedulers that use this extender, by verb and result: success, error (no answer was "
            "possible), invalid (the request was malformed, or its verb is not served).",
            "verb result",
        )
        self._seconds = families.histograms(
            "custom_scheduler_extender_request_duration_seconds",
            "Latency of answers to schedulers that use this extender, in seconds.",
            "verb",
            bounds=exponential_buckets(0.0005, 2, 15),
        )
        self._nodes = families.counters(
            "custom_scheduler_extender_unknown_nodes_total",
            "Nodes in requests that this extender does not know.",
        )

    def extender_asked(self, verb: str, result: str, seconds: float) -> None:
        """Count an answered request."""
        self._requests[verb, result].add()
        self._seconds[verb].observe(seconds)

    def unknown_nodes(self, number: int) -> None:
        """Count unknown nodes in requests."""
        self._nodes[()].add(number)
