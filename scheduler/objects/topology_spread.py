"""Topology spread constraints, as written in a pod and in the arguments of PodTopologySpread."""

from __future__ import annotations

from scheduler.objects.meta import ApiStruct
from scheduler.objects.selectors import LabelSelector

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
HONOR = "Honor"
IGNORE = "Ignore"


class TopologySpreadConstraint(ApiStruct, frozen=True, gc=True, weakref=True):
    """v1.TopologySpreadConstraint; None for an absent pointer of the API."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()
