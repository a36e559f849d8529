"""Watches all SchedulerProfiles with kopf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import kopf

from scheduler.daemon.config_watch.kopf_thread import DELETED
from scheduler.daemon.config_watch.scheduler_profile import SchedulerProfile

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.daemon.config_watch.kopf_thread import Notify


class SchedulerProfileWatch:
    """Watches the SchedulerProfiles of a cluster with kopf.

    Args:
        began: called in the daemon's loop when kopf starts or restarts.
        changed: called in the daemon's loop with every version.
        deleted: called in the daemon's loop with the name of a deleted profile.
        ended: called in the daemon's loop when kopf ended.
    """

    source = "SchedulerProfiles"
    namespace = ""

    def __init__(
        self,
        *,
        began: Callable[[], None],
        changed: Callable[[SchedulerProfile], None],
        deleted: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        self.began = began
        self.ended = ended
        self._changed = changed
        self._deleted = deleted

    def register(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Notify
    ) -> None:
        @kopf.on.event("custom-scheduler.io", "v1alpha1", "schedulerprofiles", registry=registry)
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            profile = SchedulerProfile.of(event["object"])
            if event["type"] == DELETED:
                tell(self._deleted, profile.name)
            else:
                tell(self._changed, profile)
