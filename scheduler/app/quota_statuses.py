"""Keeps the status of ElasticQuotas while the plugin CapacityScheduling is in force: what is used, and whether they count.

Source:
    scheduler-plugins, pkg/controllers/elasticquota_controller.go: what is used is that of running pods.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

import msgspec

from plugins.capacity_scheduling.quotas import ELASTIC_QUOTAS as KIND
from plugins.capacity_scheduling.quotas import Quotas, add
from scheduler.client.http.request import MERGE_PATCH, Request
from scheduler.client.recorded_event import ObjectReference
from scheduler.client.resources import ELASTIC_QUOTAS
from scheduler.clock import rfc3339
from scheduler.errors import ApiError
from scheduler.objects.amounts import amount_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from plugins.capacity_scheduling.quotas import Quota
    from scheduler.app.aside import Aside
    from scheduler.app.assembly import Parts
    from scheduler.client.events import EventRecorder
    from scheduler.client.requests import Requests
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_PLUGIN: Final = "CapacityScheduling"
_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 0.01
"""Of the time that counting may take: where there are many pods it is done less often."""
_ACTION: Final = "Counting"
_NONE: Mapping[str, int] = {}


class Verdict(NamedTuple):
    """Whether a quota counts as it stands: the reason of its condition Accepted, and what is wrong, with its field."""

    reason: str
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        return self.reason == "Valid"


class QuotaStatuses:
    """Writes the status of each ElasticQuota when it changes; only the leader does.

    Args:
        parts: the quotas, and the profiles in force.
        pods: namespace/name -> pod, as last heard of.
        requests: for writes.
        is_leading: whether anything may be written now.
        recorder: of events about quotas.
        aside: counts in another thread.
    """

    def __init__(
        self,
        parts: Parts,
        pods: Mapping[str, PodInfo],
        *,
        requests: Requests,
        is_leading: Callable[[], bool],
        recorder: EventRecorder,
        aside: Aside,
    ) -> None:
        self._parts = parts
        self._pods = pods
        self._requests = requests
        self._is_leading = is_leading
        self._recorder = recorder
        self._aside = aside
        self._clock = parts.clock
        self._quotas = Quotas()
        self._written: dict[str, dict[str, Any]] = {}  # uid -> what was written last, without times

    async def run(self) -> NoReturn:
        """Look once a second, or less often, until cancelled."""
        while True:
            began = self._clock.monotonic()
            if self._is_leading() and self._is_in_force():
                await self._look()
            took = self._clock.monotonic() - began
            await asyncio.sleep(max(_EVERY_SECONDS, took / _SHARE))

    def _is_in_force(self) -> bool:
        return any(
            plugin.name == _PLUGIN
            for framework in self._parts.profiles.frameworks.values()
            for plugin in framework.plugins.all()
        )

    async def _look(self) -> None:
        objects = self._parts.cache.table.watch_kind(KIND)
        if not objects:
            return
        self._quotas.look_at(objects)
        namespaces = {key.partition("/")[0] for key in objects}
        # Copied, for another thread counts them: pods wait for nothing.
        pods = list(self._pods.values())
        used = await self._aside(partial(used_by_running, pods, namespaces))
        for key, obj in list(objects.items()):
            namespace, _, name = key.partition("/")
            holder, quota = self._quotas.holders.get(namespace, ""), self._quotas.by_namespace.get(namespace)
            verdict = judged(key, holder, quota)
            wanted = {
                "used": written(used.get(namespace, _NONE), obj.get("spec") or {}),
                "conditions": [
                    {
                        "type": "Accepted",
                        "status": str(verdict.is_accepted),
                        "reason": verdict.reason,
                        "message": verdict.message,
                    }
                ],
            }
            uid = obj["metadata"]["uid"]
            if wanted != self._written.get(uid, _timeless(obj.get("status") or {})):
                await self._write(namespace, name, obj, wanted, verdict)

    async def _write(
        self, namespace: str, name: str, obj: Mapping[str, Any], wanted: dict[str, Any], verdict: Verdict
    ) -> None:
        before = obj.get("status") or {}
        gone = {resource: None for resource in before.get("used") or {} if resource not in wanted["used"]}
        old: Mapping[str, Any] = next(iter(before.get("conditions") or ()), {})
        [condition] = wanted["conditions"]
        is_same = old.get("status") == condition["status"]
        at = old["lastTransitionTime"] if is_same else rfc3339(self._clock.utc_now())
        status = {"used": wanted["used"] | gone, "conditions": [{**condition, "lastTransitionTime": at}]}
        path = ELASTIC_QUOTAS.path(namespace, name, "status")
        body = msgspec.json.encode({"status": status})
        try:
            await self._requests.send(Request("PATCH", path, body, MERGE_PATCH))
        except ApiError as error:
            if error.status != 404:
                fields = {"quota": f"{namespace}/{name}", "error": str(error)}
                logger.warning("Status of an ElasticQuota could not be written", extra=fields)
            return
        self._written[obj["metadata"]["uid"]] = wanted
        if not verdict.is_accepted and (old.get("reason"), old.get("message")) != verdict:
            self._tell(namespace, name, obj, verdict)

    def _tell(self, namespace: str, name: str, obj: Mapping[str, Any], verdict: Verdict) -> None:
        about = ObjectReference(
            kind=ELASTIC_QUOTAS.kind,
            namespace=namespace,
            name=name,
            uid=obj["metadata"]["uid"],
            api_version=ELASTIC_QUOTAS.api_version,
        )
        self._recorder.record(
            about,
            type_="Warning",
            reason=verdict.reason,
            action=_ACTION,
            note=verdict.message,
            is_unique=True,
        )


def used_by_running(pods: Iterable[PodInfo], namespaces: set[str]) -> dict[str, dict[str, int]]:
    """Return what running pods ask for: namespace -> resource -> milliCPU, bytes or a count."""
    used: dict[str, dict[str, int]] = {}
    for pod in pods:
        if pod.namespace in namespaces and pod.pod.status.phase == "Running":
            add(used.setdefault(pod.namespace, {}), pod.resources.requests)
    return used


def judged(key: str, holder: str, quota: Quota | None) -> Verdict:
    """Say whether a quota counts.

    Args:
        key: `namespace/name`.
        holder: the key of the quota that counts in its namespace; "" without one.
        quota: that one, as it was understood.
    """
    if holder and key != holder:
        name = holder.partition("/")[2]
        return Verdict(
            "Ignored", f"metadata.namespace: ElasticQuota {name} is older, and the first one counts"
        )
    if quota is None:
        return Verdict("Invalid", "spec: cannot be understood, so it does not count")
    faults = [
        f"spec.min.{name}: must be at most spec.max.{name} ({amount_text(name, most)}), was {amount_text(name, amount)}; max holds"
        for name, amount in sorted(quota.min.items())
        if quota.max is not None and name in quota.max and amount > (most := quota.max[name])
    ]
    return Verdict("MinAboveMax", "; ".join(faults)) if faults else Verdict("Valid")


def written(used: Mapping[str, int], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return amounts as quantities: of what is used, and of what the quota names."""
    names = {*used, *(spec.get("min") or ()), *(spec.get("max") or ())}
    return {name: amount_text(name, used.get(name, 0)) for name in sorted(names)}


def _timeless(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return a status as it is compared: when a condition changed does not matter."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
    ]
    return {"used": status.get("used"), "conditions": conditions}
