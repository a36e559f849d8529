"""Which configuration is in force, and what became of the last one that was offered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.metrics.families import Families

RELOADED, REJECTED = "reloaded", "rejected"


class ConfigurationMetrics:
    """Metrics of hot reload; all but the counter have no series where nothing is followed.

    Attributes:
        restart_needed: paths of fields whose new value takes a restart.
        watch_up: what is followed, `file` or `configmap` -> whether its changes are seen at present.
    """

    def __init__(self, families: Families) -> None:
        self.restart_needed: Sequence[str] = ()
        self.watch_up: dict[str, bool] = {}
        self._reloads = families.counters(
            "custom_scheduler_config_reloads_total",
            "Configurations that were offered to the running scheduler, by what became of them.",
            "result",
        )
        self._successful = families.gauges(
            "custom_scheduler_config_last_reload_successful",
            "Whether the last configuration that was offered is in force.",
        )
        self._succeeded_at = families.gauges(
            "custom_scheduler_config_last_reload_success_timestamp_seconds",
            "When the configuration in force was taken.",
        )
        self._hash = families.gauges(
            "custom_scheduler_config_hash",
            "A number made of the configuration in force and its plugin files: equal where those are.",
        )
        families.read_gauges(
            "custom_scheduler_config_restart_needed",
            "Fields of the configuration whose new value takes a restart.",
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

    def in_force(self, digest: bytes, at: float) -> None:
        """Note a configuration that is in force, by its digest, since when in Unix seconds."""
        self._successful[()].value = 1.0
        self._succeeded_at[()].value = at
        self._hash[()].value = float(int.from_bytes(digest[:6]))  # 48 bits: a float holds them exactly

    def reloaded(self) -> None:
        """Count one that was taken."""
        self._reloads[RELOADED].add()

    def rejected(self) -> None:
        """Count one that was refused."""
        self._successful[()].value = 0.0
        self._reloads[REJECTED].add()
