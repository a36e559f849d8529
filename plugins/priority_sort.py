"""Tries pods of higher priority first; among equals the pod that has waited longest in the queue.

Source:
    kube-scheduler v1.36, plugins/queuesort/priority_sort.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.framework import QueueSortPlugin

if TYPE_CHECKING:
    from scheduler.framework import QueuedPodInfo


class PrioritySort(QueueSortPlugin):
    """Orders pods by priority, then by the time they entered the queue."""

    name = "PrioritySort"
    api_version = 1

    def sort_key(self, queued: QueuedPodInfo) -> tuple[float, ...]:
        return (-queued.pod.priority, queued.timestamp)
