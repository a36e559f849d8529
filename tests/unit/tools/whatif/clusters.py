"""Clusters as files, and the scheduler that reads them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from plugins.registry import IN_TREE
from scheduler.configuration.load import default, parse
from scheduler.tools.whatif import cluster_file
from scheduler.tools.whatif.offline import OfflineScheduler

if TYPE_CHECKING:
    from scheduler.framework import Plugin


def scheduler_of(*objects: Any, config: str = "", plugins: tuple[type[Plugin], ...] = ()) -> OfflineScheduler:
    """Return a scheduler offline.

    Args:
        objects: API objects.
        config: YAML; profile custom-scheduler with the default plugins if empty.
        plugins: in-tree plugins beside the real ones.
    """
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return OfflineScheduler(
        cluster_file.parse(text.encode(), "cluster"),
        parse(config, "config") if config else default(),
        in_tree={**IN_TREE, **{plugin.name: plugin for plugin in plugins}},
    )


def profile_with(*plugins: str) -> str:
    """Return a configuration whose only profile has these plugins beside the default ones."""
    enabled = "".join(f"\n      - name: {name}" for name in plugins)
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"profiles:\n- schedulerName: custom-scheduler\n  plugins:\n    multiPoint:\n      enabled:{enabled}\n"
    )
