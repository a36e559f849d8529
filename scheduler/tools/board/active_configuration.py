"""The active configuration: profiles with their plugins, the last reload, and the extenders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scheduler.daemon.metrics import Metrics
    from scheduler.daemon.metrics.families import Family
    from scheduler.engine.runtime.framework import Framework
    from scheduler.extensions.extenders.http_extender import HttpExtender
    from scheduler.tools.board.subject import Subject

_RELOADS = "custom_scheduler_config_reloads_total"
_SUCCEEDED_AT = "custom_scheduler_config_last_reload_success_timestamp_seconds"
_SUCCESSFUL = "custom_scheduler_config_last_reload_successful"


def active_configuration(subject: Subject) -> dict[str, Any]:
    """Return the active configuration as JSON values."""
    profiles = subject.parts.profiles
    return {
        "apiVersion": subject.configuration().api_version,
        "profiles": [_profile(name, framework) for name, framework in profiles.frameworks.items()],
        "extenders": [_extender(each) for each in profiles.extenders or ()],
        "reload": None if subject.metrics is None else _reload(subject.metrics),
    }


def _profile(name: str, framework: Framework) -> dict[str, Any]:
    points: dict[str, list[str]] = {}
    for point, plugins in framework.plugins.at.items():
        for plugin in plugins:
            points.setdefault(plugin.name, []).append(point.metric_name)
    weights = framework.plugins.weights
    told = [
        {"name": plugin, "weight": weights.get(plugin, 1) if "Score" in at else None, "points": at}
        for plugin, at in points.items()
    ]
    return {"name": name, "plugins": told}


def _extender(extender: HttpExtender) -> dict[str, Any]:
    settings, health = extender.settings, extender.health
    verbs = {
        "filter": settings.filter_verb,
        "prioritize": settings.prioritize_verb,
        "preempt": settings.preempt_verb,
        "bind": settings.bind_verb,
    }
    return {
        "url": extender.name,
        "verbs": [verb for verb, path in verbs.items() if path],
        "ignorable": extender.ignorable,
        "asked": health.asked,
        "failed": health.failed,
        "seconds": health.seconds,
        "answeredAt": health.answered_at,
        "failedAt": health.failed_at,
        "error": health.error,
    }


def _reload(metrics: Metrics) -> dict[str, Any]:
    families = {family.name: family for family in metrics.families}
    watch = metrics.configuration
    return {
        "results": {labels[0]: int(number) for labels, number in families[_RELOADS].series()},
        "since": _only(families[_SUCCEEDED_AT]),
        "successful": _only(families[_SUCCESSFUL]),
        "restartNeeded": list(watch.restart_needed),
        "followed": dict(watch.watch_up),
    }


def _only(family: Family) -> float | None:
    return next((number for _, number in family.series()), None)
