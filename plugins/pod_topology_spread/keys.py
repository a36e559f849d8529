"""The keys of pod and node events for pods with spread constraints; see `EventWithHint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.label_keys import keys_of_changes, keys_of_labels

if TYPE_CHECKING:
    from collections.abc import Hashable

    from scheduler.objects.label_keys import LabelKey
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

ANYBODY: Final = ""
"""A key of every pod event in a namespace, whatever the pod's labels are."""


def brought_by_pod(old: PodInfo | None, new: PodInfo | None) -> set[Hashable]:
    """Return the keys of a pod event for its namespace: the pod's labels; none if it has no node."""
    keys: set[Hashable] = set()
    for each in (old, new):
        if each is not None:
            if not (each.node_name or each.pod.status.nominated_node_name):
                return set()
            keys.add((each.namespace, ANYBODY))
            keys.update((each.namespace, key) for key in keys_of_labels(each.labels))
    return keys


def brought_by_node(old: NodeObject | None, new: NodeObject | None) -> set[LabelKey] | None:
    """Return the changed labels of a node; an added, deleted or retainted node may help every pod."""
    if old is None or new is None or old.taints != new.taints:
        return None
    return set(keys_of_changes(old.labels, new.labels))
