"""The use of the queues and quotas that a plugin enforces, as users see them on the board."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class QuotaUsage(NamedTuple):
    """The use of one queue or quota, with all queues below it; amounts are milliCPU, bytes or counts by resource.

    Attributes:
        kind: the kind of its object, as in `Needs.kinds`.
        key: the key of its object: `namespace/name`, or the name of an object without a namespace.
        parent: the key of the queue above it; "" for none.
        used: what its pods on nodes request.
        guaranteed: what it gets before others; a missing resource is 0.
        borrowed: the part of `used` that others may take back by preemption.
        limit: the most that it may use; a missing resource has no limit.
        fair_share: its fair share of the cluster now; None if the plugin has no fair shares.
        average_share: the average of the greatest part of the cluster that it used of any resource, in [0, 1]; None if the
            plugin keeps no history.
        waiting: what its pending pods request.
        pending: the number of its pending pods.
        fault: why the object, or a part of it, is not active; "" if it is.
    """

    kind: str
    key: str
    parent: str = ""
    used: Mapping[str, int] = {}
    guaranteed: Mapping[str, int] = {}
    borrowed: Mapping[str, int] = {}
    limit: Mapping[str, int] = {}
    fair_share: Mapping[str, int] | None = None
    average_share: float | None = None
    waiting: Mapping[str, int] = {}
    pending: int = 0
    fault: str = ""
