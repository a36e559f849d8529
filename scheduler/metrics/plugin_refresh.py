"""How fresh the background data of plugins are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scheduler.metrics.families import Families

    Numbers = Iterable[tuple[tuple[str, ...], float]]


class RefreshMetrics:
    """Metrics of plugins with background data; without such plugins there are no series.

    Attributes:
        ages: ((plugin, profile), seconds since its last success) of the plugins at work.
        nodes_without_data: ((plugin, profile), number) of those whose data are about nodes.
    """

    def __init__(self, families: Families) -> None:
        self.ages: Callable[[], Numbers] = lambda: ()
        self.nodes_without_data: Callable[[], Numbers] = lambda: ()
        self._refreshes = families.counters(
            "custom_scheduler_plugin_refresh_total",
            "Times that a plugin was asked to fetch its background data.",
            "plugin profile",
        )
        self._failures = families.counters(
            "custom_scheduler_plugin_refresh_failures_total",
            "Times that a plugin could not fetch its background data.",
            "plugin profile",
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_age_seconds",
            "Time since a plugin last fetched its background data, or since it began to try.",
            ("plugin", "profile"),
            lambda: self.ages(),  # noqa: PLW0108 - set later
        )
        families.read_gauges(
            "custom_scheduler_plugin_refresh_nodes_without_data",
            "Nodes of which a plugin's background data say nothing, or nothing that is recent enough.",
            ("plugin", "profile"),
            lambda: self.nodes_without_data(),  # noqa: PLW0108 - set later
        )

    def began(self, plugin: str, profile: str) -> None:
        """Show the counters of a plugin that is about to fetch its first data."""
        self._refreshes[plugin, profile].add(0)
        self._failures[plugin, profile].add(0)

    def refreshed(self, plugin: str, profile: str) -> None:
        """A plugin has new data."""
        self._refreshes[plugin, profile].add()

    def failed(self, plugin: str, profile: str) -> None:
        """A plugin could not get data."""
        self._refreshes[plugin, profile].add()
        self._failures[plugin, profile].add()
