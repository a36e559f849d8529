"""Watches one ConfigMap, or all SchedulerProfiles, with kopf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import kopf

from scheduler.daemon.config_watch.config_map import ConfigMap
from scheduler.daemon.config_watch.kopf_thread import DELETED
from scheduler.daemon.config_watch.scheduler_profile import SchedulerProfile

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.daemon.config_watch.kopf_thread import Notify

_CONFIG_MAPS: Final = "configmaps"


class ConfigMapWatch:
    """Watches one ConfigMap with kopf.

    Args:
        namespace: namespace of the ConfigMap.
        name: name of the ConfigMap.
        began: called in the daemon's loop when kopf starts or restarts: afterwards kopf shows the object if
            it exists, and nothing if it does not.
        changed: called in the daemon's loop with every version, and with None on deletion.
        seen: called in the daemon's loop: True once kopf has shown the object, False when kopf ended.
    """

    def __init__(
        self,
        namespace: str,
        name: str,
        *,
        began: Callable[[], None],
        changed: Callable[[ConfigMap | None], None],
        seen: Callable[[bool], None],
    ) -> None:
        self.namespace = namespace
        self.source = f"ConfigMap {namespace}/{name}"
        self.began = began
        self._name = name
        self._changed = changed
        self._seen = seen

    def ended(self) -> None:
        self._seen(False)

    def register(
        self, registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, tell: Notify
    ) -> None:
        settings.watching.field_selectors[_CONFIG_MAPS] = f"metadata.name={self._name}"

        @kopf.on.event("", "v1", _CONFIG_MAPS, registry=registry, when=self._is_meant)
        async def changed(event: kopf.RawEvent, **_: Any) -> None:
            config_map = None if event["type"] == DELETED else ConfigMap.of(event["object"])
            tell(self._changed, config_map)
            tell(self._seen, True)

    def _is_meant(self, name: str | None, namespace: str | None, **_: Any) -> bool:
        return (namespace, name) == (self.namespace, self._name)


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
