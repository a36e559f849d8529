"""Metrics of plugins' background data."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.daemon.metrics.families import Families

    Numbers = Iterable[tuple[tuple[str, ...], float]]


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
