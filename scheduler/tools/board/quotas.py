"""The queues and quotas of the active plugins, with their use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from scheduler.engine.cycle.time_slices import run_in_slices
from scheduler.framework import Plugin
from scheduler.loop_work import calls_plugin_code

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from scheduler.framework import QuotaUsage
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.subject import Subject

logger = logging.getLogger(__name__)


async def quota_usages(subject: Subject) -> list[dict[str, Any]]:
    """Return the use of each queue and quota of all plugins as JSON values: the fields of `QuotaUsage`, and the `plugin`."""
    pending = [each.pod for each in subject.pending()]
    plugins: dict[type[Plugin], dict[str, Plugin]] = {}
    for name, framework in subject.parts.profiles.frameworks.items():
        for plugin in framework.plugins.all():
            if type(plugin).quota_usages is not Plugin.quota_usages:
                plugins.setdefault(type(plugin), {})[name] = plugin
    found: list[dict[str, Any]] = []
    for its_class, by_profile in plugins.items():
        its = [pod for pod in pending if pod.scheduler_name in by_profile]
        try:
            usages = await run_in_slices(_usages(list(by_profile.values()), its))
        except Exception:
            logger.exception("Plugin has no quotas", extra={"plugin": its_class.name})
            continue
        found += [{"plugin": its_class.name, **each._asdict()} for each in usages]
    return found


@calls_plugin_code
def _usages(
    plugins: Sequence[Plugin], pending: Sequence[PodInfo]
) -> Generator[None, None, Sequence[QuotaUsage]]:
    return (yield from plugins[0].quota_usages(plugins, pending))
