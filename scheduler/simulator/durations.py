"""Ages as kubectl shows them: `45s`, `3m20s`, `5h`, `12d`."""

from __future__ import annotations

from datetime import datetime


def human_duration(seconds: float) -> str:
    """Write a duration shortly; a second or two before now still counts as now.

    Source:
        kube-apiserver v1.36, staging/src/k8s.io/apimachinery/pkg/util/duration/duration.go, HumanDuration.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    steps = (
        (whole < 120, f"{max(whole, 0)}s"),
        (minutes < 10, _two(minutes, "m", whole % 60, "s")),
        (minutes < 180, f"{minutes}m"),
        (hours < 8, _two(hours, "h", minutes % 60, "m")),
        (hours < 48, f"{hours}h"),
        (days < 8, _two(days, "d", hours % 24, "h")),
        (days < 365 * 2, f"{days}d"),
        (days < 365 * 8, _two(days // 365, "y", days % 365, "d")),
    )
    return next((text for fits, text in steps if fits), f"{days // 365}y")


def age(timestamp: str | None, now: datetime) -> str:
    """Write the time since a moment in RFC 3339; `<unknown>` when there is none."""
    if not timestamp:
        return "<unknown>"
    return human_duration((now - datetime.fromisoformat(timestamp)).total_seconds())


def _two(great: int, great_unit: str, small: int, small_unit: str) -> str:
    return f"{great}{great_unit}{small}{small_unit}" if small else f"{great}{great_unit}"
