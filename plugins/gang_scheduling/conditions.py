"""Writes the result of a group's scheduling as a condition of its object, once for each result."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import msgspec

from plugins.gang_scheduling.objects import SCHEDULED, Condition, PodGroupObject
from scheduler.clock import rfc3339
from scheduler.errors import ApiError
from scheduler.objects.pod_group import POD_GROUPS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework import ApiWrite, Background, Clock, ClusterObjects, Sleep, Status

logger = logging.getLogger(__name__)

_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
_TRIES: Final = 8
_FIRST_PAUSE_SECONDS: Final = 0.1


class GroupConditions:
    """Writes the condition PodGroupScheduled.

    Once a group was scheduled, the condition stays True, whatever happens to later members.

    Source:
        kube-scheduler v1.36, schedule_one_podgroup.go, updatePodGroupCondition.
    """

    def __init__(
        self, *, api: ApiWrite, objects: ClusterObjects, background: Background, sleep: Sleep, clock: Clock
    ) -> None:
        self._api = api
        self._objects = objects
        self._background = background
        self._sleep = sleep
        self._clock = clock
        self._wanted: dict[str, tuple[str, Condition]] = {}  # key -> uid and the condition to write

    def tell(self, key: str, status: Status) -> None:
        """Write the result of an attempt at a group, if it has changed."""
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key)
        if found is None:
            return
        is_writing = key in self._wanted
        said = self._wanted[key][1] if is_writing else found.scheduled()
        condition = _condition(status)
        if said == condition or said.status == "True":
            return
        self._wanted[key] = found.metadata.uid, condition
        if not is_writing:
            self._background.start(self._write(key), f"condition of PodGroup {key}")

    async def _write(self, key: str) -> None:
        """Write the condition of a group, and its later changes."""
        written: Condition | None = None
        try:
            while self._wanted[key][1] != written:
                uid, written = self._wanted[key]
                await self._patch(key, uid, written)
        finally:
            del self._wanted[key]

    async def _patch(self, key: str, uid: str, condition: Condition) -> None:
        namespace, _, name = key.partition("/")
        path = f"/apis/scheduling.k8s.io/v1alpha2/namespaces/{namespace}/podgroups/{name}/status"
        pause = _FIRST_PAUSE_SECONDS
        for left in reversed(range(_TRIES)):
            body = self._body(key, uid, condition)
            if body is None:
                return
            try:
                answer = await self._api.api_write("PATCH", path, body, content_type=_STRATEGIC_MERGE_PATCH)
            except ApiError as error:
                if error.status == 404:
                    return
                if not left or not (error.is_transient or error.status == 409):
                    raise
                await self._sleep.sleep(error.pause_seconds(pause))
                pause *= 2
                continue
            if key in self._objects.objects(POD_GROUPS):
                self._objects.assume(POD_GROUPS, answer)
            return

    def _body(self, key: str, uid: str, condition: Condition) -> Mapping[str, Any] | None:
        """Return the patch; None if nothing is to be written any more."""
        found = self._objects.objects(POD_GROUPS).typed(PodGroupObject, key)
        if found is None or found.metadata.uid != uid:
            return None
        before = found.scheduled()
        fields: dict[str, Any] = msgspec.to_builtins(condition)
        fields.setdefault("message", "")
        if before.status != condition.status:
            fields["lastTransitionTime"] = rfc3339(self._clock.utc_now())
        return {"metadata": {"uid": uid}, "status": {"conditions": [fields]}}


def _condition(status: Status) -> Condition:
    if status.is_success:
        return Condition(SCHEDULED, "True", "Scheduled")
    reason = "Unschedulable" if status.is_rejected else "SchedulerError"
    return Condition(SCHEDULED, "False", reason, status.message)
