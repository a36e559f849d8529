"""Configurations that name plugins, and clusters to try them on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tests.support.builders import node_object, pod_object

if TYPE_CHECKING:
    from pathlib import Path


def profile_with(folder: Path, plugin: str) -> Path:
    """Write a configuration whose only profile enables a plugin beside the default ones."""
    file = folder / "scheduler.yaml"
    enabled = {"multiPoint": {"enabled": [{"name": plugin}]}}
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "custom-scheduler", "plugins": enabled}],
    }
    file.write_bytes(msgspec.json.encode(configuration))
    return file


def cluster_of_two_racks(folder: Path) -> Path:
    """Write a cluster of a loud node, a quiet one and a pending pod."""
    items: list[dict[str, Any]] = [
        node_object("loud", labels={"example.com/noisy": "yes"}),
        node_object("quiet"),
        pod_object("web"),
    ]
    file = folder / "cluster.json"
    file.write_bytes(msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items}))
    return file
