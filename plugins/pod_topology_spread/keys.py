"""What pods and nodes bring that come, go or change, to pods that wait to be spread; see `EventWithHint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.label_keys import keys_of_changes, keys_of_labels

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.objects.label_keys import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

ANYBODY: Final = ""
"""What every pod brings to its namespace, whatever its labels are."""


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable]:
    """Return what a pod brings to those of its namespace: its labels; nothing if it is on no node."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not (each.node_name or each.pod.status.nominated_node_name):
                return set()
            keys.add((each.namespace, ANYBODY))
            keys.update((each.namespace, key) for key in keys_of_labels(each.labels))
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject | None) -> set[LabelKey] | None:
    """Return the labels of a node that changed; one that came, went, or has other taints may help everybody."""
    if old is None or new is None or old.taints != new.taints:
        return None
    return set(keys_of_changes(old.labels, new.labels))
