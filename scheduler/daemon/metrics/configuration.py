"""Metrics of the active configuration and of the last reload."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.daemon.metrics.families import Families

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
