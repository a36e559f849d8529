"""Keeps the status of PodGroups of scheduler-plugins and of Volcano while the plugin Coscheduling is in force.

Source:
    scheduler-plugins, pkg/controllers/podgroup_controller.go; volcano, pkg/scheduler/framework/job_updater.go.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, NoReturn

import msgspec

from plugins.coscheduling.objects import PodGroupObject
from plugins.coscheduling.phases import Members, coscheduling_status, volcano_status
from plugins.coscheduling.room import resource_gap
from scheduler.client.http.request import MERGE_PATCH, Request
from scheduler.client.paging import listed
from scheduler.client.resources import COSCHEDULING_POD_GROUPS, PODS, VOLCANO_POD_GROUPS
from scheduler.clock import rfc3339
from scheduler.errors import ApiError, ObjectError
from scheduler.objects import pod_group as kinds
from scheduler.objects.decode import decode_object, typed_object
from scheduler.objects.pod_group import GroupKey, group_of, task_of
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from scheduler.app.assembly import Parts
    from scheduler.client.requests import Requests
    from scheduler.objects.pod import PodInfo

logger = logging.getLogger(__name__)

_PLUGIN: Final = "Coscheduling"
_EVERY_SECONDS: Final = 1.0
_SHARE: Final = 0.01
"""Of the time that going over all pods may take: where there are many it is done less often."""
_LOOK_AGAIN_SECONDS: Final = 60.0
"""Pods that ended are listed again after so long, for some may have come and ended between two looks."""
_ENDED: Final = "status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
_RESOURCES: Final = {
    kinds.COSCHEDULING_POD_GROUPS: COSCHEDULING_POD_GROUPS,
    kinds.VOLCANO_POD_GROUPS: VOLCANO_POD_GROUPS,
}


class PodGroupStatuses:
    """Writes the status of each PodGroup when it changes, at most once a second; only the leader does.

    Args:
        parts: the groups, and the profiles in force.
        pods: namespace/name -> pod that has not ended, as last heard of.
        requests: for writes.
        reads: to ask for pods that ended, which nobody watches.
        is_leading: whether anything may be written now.
    """

    def __init__(
        self,
        parts: Parts,
        pods: Mapping[str, PodInfo],
        *,
        requests: Requests,
        reads: Requests,
        is_leading: Callable[[], bool],
    ) -> None:
        self._parts = parts
        self._pods = pods
        self._requests = requests
        self._reads = reads
        self._is_leading = is_leading
        self._clock = parts.clock
        self._live: dict[GroupKey, set[str]] = {}  # group -> uids of its pods that had not ended
        self._ended: dict[str, Mapping[GroupKey, list[Pod]]] = {}  # namespace -> group -> its pods that have
        self._listed: dict[str, float] = {}  # namespace -> when those were asked for
        self._written: dict[str, dict[str, Any]] = {}  # uid -> what was written last, without times

    async def run(self) -> NoReturn:
        """Look once a second, or less often, until cancelled."""
        while True:
            took = 0.0
            if self._is_leading() and self._is_in_force():
                took = await self._look()
            await asyncio.sleep(max(_EVERY_SECONDS, took / _SHARE))

    def _is_in_force(self) -> bool:
        return any(
            plugin.name == _PLUGIN
            for framework in self._parts.profiles.frameworks.values()
            for plugin in framework.plugins.all()
        )

    async def _look(self) -> float:
        """Tell what is news; return how many seconds it took to go over all pods, during which nothing else is done."""
        groups = self._groups()
        began = self._clock.monotonic()
        live: dict[GroupKey, list[Pod]] = {}
        if groups:
            for pod in self._pods.values():
                if pod.group in groups:
                    live.setdefault(pod.group, []).append(pod.pod)
        took = self._clock.monotonic() - began
        uids = {key: {pod.metadata.uid for pod in pods} for key, pods in live.items()}
        for namespace in {key.namespace for key in groups if self._may_have_ended(key, groups[key], uids)}:
            self._ended[namespace] = await self._ask_for_ended(namespace)
            self._listed[namespace] = self._clock.monotonic()
        self._live = uids
        self._forget(groups)
        for key, obj in groups.items():
            pods = {pod.metadata.uid: pod for pod in live.get(key, ())}
            pods |= {pod.metadata.uid: pod for pod in self._ended.get(key.namespace, {}).get(key, ())}
            await self._tell(key, obj, counted(pods.values()))
        return took

    def _groups(self) -> dict[GroupKey, Mapping[str, Any]]:
        """Return the objects of all groups whose status may still change."""
        found = {}
        for kind in _RESOURCES:
            for path, obj in self._parts.cache.table.watch_kind(kind).items():
                if (obj.get("status") or {}).get("phase") not in {"Finished", "Failed", "Completed"}:
                    namespace, _, name = path.partition("/")
                    found[GroupKey(kind, namespace, name)] = obj
        return found

    def _may_have_ended(
        self, key: GroupKey, obj: Mapping[str, Any], uids: Mapping[GroupKey, set[str]]
    ) -> bool:
        """Whether pods of a group may have ended since they were asked for."""
        listed = self._listed.get(key.namespace)
        if listed is None or self._live.get(key, set()) - uids.get(key, set()):
            return True
        is_under_way = (obj.get("status") or {}).get("phase") not in {None, "", "Pending"}
        return is_under_way and self._clock.monotonic() - listed >= _LOOK_AGAIN_SECONDS

    async def _ask_for_ended(self, namespace: str) -> Mapping[GroupKey, list[Pod]]:
        """Return the pods of groups in a namespace that have ended; what was known if nobody answers."""
        found: dict[GroupKey, list[Pod]] = {}
        try:
            async for item in listed(self._reads, PODS.path(namespace), {"fieldSelector": _ENDED}):
                try:
                    pod = typed_object(decode_object(item), Pod)
                except ObjectError:
                    continue  # told where it was watched
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
        """Keep what is of use only."""
        namespaces = {key.namespace for key in groups}
        uids = {obj["metadata"]["uid"] for obj in groups.values()}
        self._ended = {name: ended for name, ended in self._ended.items() if name in namespaces}
        self._listed = {name: at for name, at in self._listed.items() if name in namespaces}
        self._written = {uid: written for uid, written in self._written.items() if uid in uids}

    async def _tell(self, key: GroupKey, obj: Mapping[str, Any], members: Members) -> None:
        """Write the status of a group, if that is news."""
        before = obj.get("status") or {}
        try:
            group = self._parts.cache.table.watch_kind(key.kind).typed(PodGroupObject, key.key)
            if group is None:
                return
            if key.kind == kinds.VOLCANO_POD_GROUPS:
                has_begun = members.placed + members.running + members.succeeded
                gap = {} if has_begun else resource_gap(group.least(), self._parts.cache.snapshot())
                wanted = volcano_status(group, before, members, gap)
            else:
                wanted = coscheduling_status(group, before, members)
        except (ObjectError, ValueError) as error:
            logger.debug("PodGroup cannot be understood", extra={"group": key.key, "error": str(error)})
            return
        uid = obj["metadata"]["uid"]
        known = self._written.get(uid, before)
        if wanted is None or wanted == {name: _timeless(known.get(name)) for name in wanted}:
            return
        status = {**wanted, **self._times(wanted, before)}
        path = _RESOURCES[key.kind].path(key.namespace, key.name, "status")
        try:
            await self._requests.send(
                Request("PATCH", path, msgspec.json.encode({"status": status}), MERGE_PATCH)
            )
        except ApiError as error:
            if error.status != 404:
                logger.warning(
                    "Status of a PodGroup could not be written", extra={"group": key.key, "error": str(error)}
                )
            return
        self._written[uid] = wanted

    def _times(self, wanted: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of a status says when it came to be."""
        now = rfc3339(self._clock.utc_now())
        if "conditions" not in wanted:
            has_begun = wanted["phase"] != "Pending" and not before.get("scheduleStartTime")
            return {"scheduleStartTime": now} if has_begun else {}
        since = {each.get("type"): each.get("lastTransitionTime") for each in before.get("conditions") or ()}
        return {
            "conditions": [
                {**each, "lastTransitionTime": since.get(each["type"]) or now}
                for each in wanted["conditions"]
            ]
        }


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
    """Return why a pod is on no node, as its condition has it."""
    return next((each.message for each in pod.status.conditions if each.type == "PodScheduled"), "")


def _owners(pod: Pod) -> str:
    names = (f"{pod.metadata.namespace}/{owner.name}" for owner in pod.metadata.owner_references)
    return ",".join(sorted(names))


def _timeless(value: Any) -> Any:
    """Return a part of a status as it is compared: when a condition changed does not matter."""
    if not isinstance(value, list):
        return value
    return [{name: each[name] for name in each if name != "lastTransitionTime"} for each in value]
