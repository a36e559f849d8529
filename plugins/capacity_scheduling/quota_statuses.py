"""The status of ElasticQuotas while the plugin CapacityScheduling is active: their use, and whether they are accepted.

Source:
    scheduler-plugins, pkg/controllers/elasticquota_controller.go: what is used is that of running pods.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from plugins.capacity_scheduling.quotas import ELASTIC_QUOTAS, Quotas, add
from scheduler.framework import WantedStatus
from scheduler.framework.statuses import (
    ACCEPTED,
    Acceptance,
    StatusSource,
    named_in,
    written,
)
from scheduler.objects.quantity import amount_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from plugins.capacity_scheduling.quotas import Quota
    from scheduler.framework.statuses import StatusAccess, StatusOf
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects

_NONE: Mapping[str, int] = {}


class QuotaStatuses(StatusSource):
    """Computes the statuses of quotas, and shows the share of each quota that is used.

    Args:
        access: reads pods, and counts them in another thread.
    """

    kind = ELASTIC_QUOTAS
    object_kind = "ElasticQuota"
    condition_types = frozenset({ACCEPTED})

    def __init__(self, access: StatusAccess) -> None:
        self._access = access
        self._quotas = Quotas()
        self._used_ratio = access.metrics.gauge(
            "custom_scheduler_quota_used_ratio",
            "The greatest part of its quota's max that a namespace uses of any resource.",
            "namespace",
        )

    def ended(self) -> None:
        self._used_ratio.replace({})

    async def status_of(self, objects: Objects) -> StatusOf:
        await self._access.in_slices(self._quotas.reading(objects))
        quotas, holders, wrong = self._quotas.by_namespace, self._quotas.holders, self._quotas.wrong
        namespaces = set(objects.versions)
        # A copy for the other thread, so that pods need not wait for it.
        pods = list(self._access.pods.values())
        used = await self._access.aside(
            partial(used_by_running, pods, namespaces), "counting what quotas' pods use"
        )
        parts = await self._access.in_slices(parts_of_max(quotas, used))
        self._used_ratio.replace({(namespace,): part for namespace, part in parts.items()})

        def status_of(key: str, obj: Mapping[str, Any]) -> WantedStatus | None:
            namespace = key.partition("/")[0]
            if namespace not in quotas and key not in wrong:
                return None  # it was added meanwhile, and is not read yet
            amounts = written(used.get(namespace, _NONE), named_in(obj.get("spec") or {}))
            verdict = acceptance_of(
                key, holders.get(namespace, ""), quotas.get(namespace), wrong.get(key, "")
            )
            return WantedStatus({"used": amounts}, (verdict.condition(),))

        return status_of


def used_by_running(pods: Iterable[PodInfo], namespaces: set[str]) -> dict[str, dict[str, int]]:
    """Return what running pods request: namespace -> resource -> milliCPU, bytes or a count."""
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.namespace in namespaces and pod.pod.status.phase == "Running":
            add(used.setdefault(pod.namespace, {}), pod.resources.requests)
    return used


def parts_of_max(
    quotas: Mapping[str, Quota], used: Mapping[str, Mapping[str, int]]
) -> Generator[None, None, Mapping[str, float]]:
    """Return namespace -> `part_of_max`, without namespaces that have no max; one namespace in each step."""
    found = {}
    for namespace, quota in quotas.items():
        yield
        if quota.max is not None:
            found[namespace] = part_of_max(used.get(namespace, _NONE), quota)
    return found


def part_of_max(used: Mapping[str, int], quota: Quota) -> float:
    """Return the highest share of a quota's max that is used of any resource; resources with max 0 are ignored."""
    most = quota.max or {}
    return max((used.get(name, 0) / amount for name, amount in most.items() if amount), default=0.0)


def acceptance_of(key: str, holder: str, quota: Quota | None, wrong: str = "") -> Acceptance:
    """Return whether a quota is accepted.

    Args:
        key: `namespace/name`.
        holder: key of the accepted quota of the namespace; "" if there is none.
        quota: the accepted quota, decoded.
        wrong: why the quota with the key is invalid, with the field; "" if it is valid.
    """
    if wrong or quota is None:
        return Acceptance("Invalid", f"{wrong}; it does not count")
    if holder and key != holder:
        name = holder.partition("/")[2]
        return Acceptance(
            "Ignored", f"metadata.namespace: ElasticQuota {name} is older, and the first one counts"
        )
    faults = [
        f"spec.min.{name}: must be at most spec.max.{name} ({amount_text(name, most)}), was {amount_text(name, amount)}; max holds"
        for name, amount in sorted(quota.min.items())
        if quota.max is not None and name in quota.max and amount > (most := quota.max[name])
    ]
    return Acceptance("MinAboveMax", "; ".join(faults)) if faults else Acceptance("Valid")
