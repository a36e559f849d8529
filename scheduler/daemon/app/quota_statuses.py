"""The status of ElasticQuotas while the plugin CapacityScheduling is active: their use, and whether they are accepted.

Source:
    scheduler-plugins, pkg/controllers/elasticquota_controller.go: what is used is that of running pods.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from plugins.capacity_scheduling.quotas import ELASTIC_QUOTAS as KIND
from plugins.capacity_scheduling.quotas import Quotas, add
from scheduler.daemon.app.object_statuses import (
    ACCEPTED,
    Acceptance,
    WantedStatus,
    named_in,
    run_in_slices,
    written,
)
from scheduler.engine.cycle import time_slices
from scheduler.kube.client.resources import ELASTIC_QUOTAS
from scheduler.objects.amounts import amount_text

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from plugins.capacity_scheduling.quotas import Quota
    from scheduler.daemon.app.object_statuses import StatusOf
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Objects
    from scheduler.worker_thread import Aside

_NONE: Mapping[str, int] = {}


class QuotaStatuses:
    """Computes the statuses of quotas.

    Args:
        pods: namespace/name -> pod, as watched last.
        aside: counts in another thread.

    Attributes:
        parts_of_max: namespace -> the highest share of its max that it uses of any resource, from the last computation.
    """

    resource = ELASTIC_QUOTAS
    kind = KIND
    plugin = "CapacityScheduling"
    condition_types = frozenset({ACCEPTED})

    def __init__(self, pods: Mapping[str, PodInfo], aside: Aside) -> None:
        self._pods = pods
        self._aside = aside
        self._quotas = Quotas()
        self.parts_of_max: Mapping[str, float] = {}

    async def status_of(self, objects: Objects) -> StatusOf:
        await time_slices.run_in_slices(self._quotas.reading(objects))
        quotas, holders, wrong = self._quotas.by_namespace, self._quotas.holders, self._quotas.wrong
        namespaces = set(objects.versions)
        # A copy for the other thread, so that pods need not wait for it.
        pods = list(self._pods.values())
        used = await self._aside(partial(used_by_running, pods, namespaces), "counting what quotas' pods use")
        self.parts_of_max = await run_in_slices(parts_of_max(quotas, used))

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
