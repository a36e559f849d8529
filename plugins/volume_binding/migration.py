"""The nodes that reach volumes of in-tree plugins: where a plugin is migrated to CSI, the driver's labels count.

Source:
    kube-scheduler v1.36, plugins/volumebinding/binder.go, tryTranslatePVToCSI and what it calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from plugins.volume_binding.reachability import reach_of
from plugins.volumes.csi_migration import in_tree_plugin, translated
from scheduler.objects.storage import CSINode
from scheduler.snapshot import Index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugins.volume_binding.reachability import Reach
    from plugins.volumes.csi_migration import InTreePlugin
    from scheduler.objects.storage import PersistentVolume

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
"""Annotation of CSINodes: the in-tree plugins that are migrated to CSI drivers there."""


def _migrated_on(node: CSINode) -> Sequence[str]:
    return node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")


MIGRATED: Final = Index(CSINode, _migrated_on)
"""Name of an in-tree plugin -> the nodes where it is migrated to CSI."""


def migrated_plugin(volume: PersistentVolume) -> InTreePlugin | None:
    """Return the in-tree plugin of a volume if it is migrated to CSI on some nodes."""
    plugin = in_tree_plugin(volume.spec)
    return plugin if plugin is not None and plugin.is_migrated else None


def reach_by_driver(volume: PersistentVolume, plugin: InTreePlugin) -> Reach:
    """Return the nodes that reach a volume, among those where the plugin is migrated to CSI.

    Raises:
        ValueError: the driver cannot have such a volume; the text is upstream's message.
    """
    try:
        return reach_of(translated(volume, plugin))
    except ValueError as error:
        raise ValueError(f"could not translate pv: {error}") from error


def reach_on(volume: PersistentVolume, node: CSINode | None) -> Reach:
    """Return the nodes that reach a volume, as one node sees it.

    Raises:
        ValueError: as `reach_by_driver`.
    """
    plugin = migrated_plugin(volume)
    if plugin is None or node is None or plugin.name not in _migrated_on(node):
        return reach_of(volume)
    return reach_by_driver(volume, plugin)
