"""Follows one ConfigMap with kopf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import kopf

from scheduler.daemon.config_watch.config_map import ConfigMap
from scheduler.daemon.config_watch.kopf_thread import DELETED

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
