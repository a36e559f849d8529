"""The status of PodGroups of scheduler-plugins and of Volcano while a profile has the plugin Coscheduling.

Source:
    scheduler-plugins, pkg/controllers/podgroup_controller.go; volcano, pkg/scheduler/framework/job_updater.go.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from plugins.coscheduling.free_resources import resource_gap
from plugins.coscheduling.objects import (
    VOLCANO_CONDITIONS,
    Members,
    PodGroupObject,
    coscheduling_status,
    volcano_status,
)
from scheduler.clock import rfc3339
from scheduler.errors import ApiError, ObjectError
from scheduler.framework import StatusSource, WantedStatus
from scheduler.objects import pod_group as kinds
from scheduler.objects.decode import decode_object, typed_object
from scheduler.objects.pod_group import GroupKey, group_of, task_of
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from scheduler.framework.statuses import StatusAccess, StatusOf
    from scheduler.snapshot import Objects

logger = logging.getLogger(__name__)

_LOOK_AGAIN_SECONDS: Final = 60.0
"""Ended pods are listed again after this time, because some may have been created and ended in between."""
_ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
_FINAL: Final = frozenset({"Finished", "Failed", "Completed"})


class PodGroupStatuses(StatusSource):
    """The statuses of the PodGroups of one kind.

    Args:
        kind: the kind.
        access: reads pods; lists the ended ones, which are not watched.
    """

    object_kind = "PodGroup"

    def __init__(self, kind: str, access: StatusAccess) -> None:
        self.kind = kind
        self.condition_types = VOLCANO_CONDITIONS if kind == kinds.VOLCANO_POD_GROUPS else frozenset[str]()
        self._access, self._clock = access, access.clock
        self._live: dict[GroupKey, set[str]] = {}  # group -> uids of its pods that had not ended
        self._ended: dict[str, Mapping[GroupKey, list[Pod]]] = {}  # namespace -> group -> its ended pods
        self._listed: dict[str, float] = {}  # namespace -> when its ended pods were listed
        self._began: dict[str, str] = {}  # uid of a group -> when its first pod got a node

    async def status_of(self, objects: Objects) -> StatusOf:
        groups = await self._access.in_slices(self._unfinished(dict(objects)))
        if not groups:
            return lambda _key, _obj: None
        live = await self._access.in_slices(self._members(groups))
        uids = {key: {pod.metadata.uid for pod in pods} for key, pods in live.items()}
        for namespace in {key.namespace for key in groups if self._may_have_ended(key, groups[key], uids)}:
            self._ended[namespace] = await self._list_ended(namespace)
            self._listed[namespace] = self._clock.monotonic()
        self._live = uids
        self._forget(groups)
        statuses = await self._access.in_slices(self._statuses(groups, live))
        return lambda key, _obj: statuses.get(key)

    def _unfinished(
        self, objects: Mapping[str, Mapping[str, Any]]
    ) -> Generator[None, None, dict[GroupKey, Mapping[str, Any]]]:
        """Return the groups whose status may still change; one object in each step."""
        found = {}
        for path, obj in objects.items():
            yield
            if (obj.get("status") or {}).get("phase") not in _FINAL:
                namespace, _, name = path.partition("/")
                found[GroupKey(self.kind, namespace, name)] = obj
        return found

    def _members(self, groups: Mapping[GroupKey, object]) -> Generator[None, None, dict[GroupKey, list[Pod]]]:
        """Return the pods of groups that have not ended; one pod in each step."""
        found: dict[GroupKey, list[Pod]] = {}
        for pod in list(self._access.pods.values()):
            yield
            if pod.group is not None and pod.group in groups:
                found.setdefault(pod.group, []).append(pod.pod)
        return found

    def _may_have_ended(
        self, key: GroupKey, obj: Mapping[str, Any], uids: Mapping[GroupKey, set[str]]
    ) -> bool:
        """Return whether pods of a group may have ended since they were listed."""
        listed = self._listed.get(key.namespace)
        if listed is None or self._live.get(key, set()) - uids.get(key, set()):
            return True
        is_under_way = (obj.get("status") or {}).get("phase") not in {None, "", "Pending"}
        return is_under_way and self._clock.monotonic() - listed >= _LOOK_AGAIN_SECONDS

    async def _list_ended(self, namespace: str) -> Mapping[GroupKey, list[Pod]]:
        """Return the ended pods of groups in a namespace; the last known ones if the list fails."""
        found: dict[GroupKey, list[Pod]] = {}
        try:
            async for item in self._access.listed(
                f"/api/v1/namespaces/{namespace}/pods", {"fieldSelector": _ENDED}
            ):
                try:
                    pod = typed_object(decode_object(item), Pod)
                except ObjectError:
                    continue  # the watch of pods logs it
                key = group_of(pod)
                if key is not None:
                    found.setdefault(key, []).append(pod)
        except ApiError as error:
            logger.warning(
                "Pods that ended cannot be counted", extra={"namespace": namespace, "error": str(error)}
            )
            return self._ended.get(namespace, {})
        return found

    def _forget(self, groups: Mapping[GroupKey, Mapping[str, Any]]) -> None:
        """Drop the data of deleted namespaces and groups."""
        namespaces = {key.namespace for key in groups}
        uids = {obj["metadata"]["uid"] for obj in groups.values()}
        self._ended = {name: ended for name, ended in self._ended.items() if name in namespaces}
        self._listed = {name: at for name, at in self._listed.items() if name in namespaces}
        self._began = {uid: at for uid, at in self._began.items() if uid in uids}

    def _statuses(
        self, groups: Mapping[GroupKey, Mapping[str, Any]], live: Mapping[GroupKey, list[Pod]]
    ) -> Generator[None, None, Mapping[str, WantedStatus]]:
        """Return the statuses of groups; one group in each step."""
        found = {}
        for key, obj in groups.items():
            yield
            pods = {pod.metadata.uid: pod for pod in live.get(key, ())}
            pods |= {pod.metadata.uid: pod for pod in self._ended.get(key.namespace, {}).get(key, ())}
            wanted = self._status(key, obj, counted(pods.values()))
            if wanted is not None:
                found[key.key] = wanted
        return found

    def _status(self, key: GroupKey, obj: Mapping[str, Any], members: Members) -> WantedStatus | None:
        """Return the status of one group; None if it stays unchanged."""
        before = obj.get("status") or {}
        try:
            group = self._access.cluster.objects(key.kind).typed(PodGroupObject, key.key)
            if group is None:
                return None
            if key.kind == kinds.VOLCANO_POD_GROUPS:
                has_begun = members.placed + members.running + members.succeeded
                gap = {} if has_begun else resource_gap(group.least(), self._access.cluster.snapshot())
                return WantedStatus(*volcano_status(group, before, members, gap))
            fields = coscheduling_status(group, before, members)
        except (ObjectError, ValueError) as error:
            logger.debug("PodGroup cannot be understood", extra={"group": key.key, "error": str(error)})
            return None
        if fields["phase"] != "Pending" and not before.get("scheduleStartTime"):
            uid = obj["metadata"]["uid"]
            fields["scheduleStartTime"] = self._began.setdefault(uid, rfc3339(self._clock.utc_now()))
        return WantedStatus(fields)


def counted(pods: Iterable[Pod]) -> Members:
    """Count the pods of a group."""
    members, tasks = Members(), dict[str, int]()
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        match pod.status.phase:
            case "Running":
                members.running += 1
            case "Succeeded":
                members.succeeded += 1
            case "Failed":
                members.failed += 1
            case _ if pod.spec.node_name:
                members.placed += 1
            case _:
                members.pending += 1
                members.refusal = members.refusal or _refusal(pod)
        if pod.status.phase != "Failed":
            tasks[task_of(pod)] = tasks.get(task_of(pod), 0) + 1
        members.occupied_by = members.occupied_by or _owners(pod)
    members.tasks = tasks
    return members


def _refusal(pod: Pod) -> str:
    """Return the message of a pod's PodScheduled condition; "" if it has none."""
    return next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")


def _owners(pod: Pod) -> str:
    names = (f"{pod.metadata.namespace}/{owner.name}" for owner in pod.metadata.owner_references)
    return ",".join(sorted(names))
