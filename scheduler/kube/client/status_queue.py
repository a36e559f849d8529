"""Status patches of pods and of other objects: at most one pending for each object; the newest one wins."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.clock import rfc3339
from scheduler.kube.client.background import JobQueue
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request
from scheduler.objects.caches import BoundedDict
from scheduler.objects.decode import decode_object
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import Pod, PodSpec
from scheduler.retries import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from scheduler.clock import Clock
    from scheduler.errors import ApiError
    from scheduler.framework.capabilities import WantedStatus
    from scheduler.kube.client.requests import Requests
    from scheduler.kube.client.resources import Resource
    from scheduler.objects.v1 import PodCondition

LONGEST_MESSAGE = 32 * 1024
"""Characters, the limit of any metav1.Condition: a pod of a megabyte has no space for a message of another megabyte."""
NOMINATED_NODE_NAME = "nominatedNodeName"
_CUT = "..."


def status_patch(
    pod: PodInfo,
    conditions: Iterable[PodCondition],
    nominated_node_name: str | None,
    now: datetime,
    *,
    again: Collection[str] = (),
) -> bytes | None:
    """Return the patch that brings a pod's status to the wanted one, None if there is no difference.

    A condition counts as changed when its status, reason or message differs, not when only its
    observedGeneration does; its lastTransitionTime changes only with its status.

    Args:
        pod: the pod as last seen.
        conditions: wanted, at most one of a type; they get the pod's generation, and messages are cut.
        nominated_node_name: wanted; "" to clear it, None to leave it.
        now: for lastTransitionTime.
        again: types of conditions, and `NOMINATED_NODE_NAME`, to write although the pod as last seen has the
            wanted values.

    Source:
        kube-scheduler v1.36, schedule_one.go, updatePod; util/utils.go, PatchPodStatus;
        pkg/api/v1/pod/util.go, UpdatePodCondition and CalculatePodConditionObservedGeneration.
    """
    present = pod.pod.status.conditions
    order = [condition.type for condition in present]
    patches = []
    for condition in conditions:
        wanted = msgspec.structs.replace(
            condition,
            message=_shortened(condition.message),
            observed_generation=pod.pod.metadata.generation,
        )
        old = next((each for each in present if each.type == wanted.type), None)
        if old is None:
            order.append(wanted.type)
            patches.append(_new_condition(wanted, now))
        elif wanted.type in again or _says_other(old, wanted):
            patches.append(_changed_condition(old, wanted, now))
    status: dict[str, Any] = {}
    if patches:
        if present:
            status["$setElementOrder/conditions"] = [{"type": kind} for kind in order]
        status["conditions"] = patches
    if nominated_node_name is not None and (
        NOMINATED_NODE_NAME in again or nominated_node_name != pod.pod.status.nominated_node_name
    ):
        status[NOMINATED_NODE_NAME] = nominated_node_name or None
    return msgspec.json.encode({"status": status}, order="sorted") if status else None


def changed_fields(
    pod: PodInfo, conditions: Iterable[PodCondition], nominated_node_name: str | None
) -> set[str]:
    """Return the types of the conditions, and `NOMINATED_NODE_NAME`, that differ from the pod as last seen."""
    present = {condition.type: condition for condition in pod.pod.status.conditions}
    fields = {
        wanted.type
        for wanted in conditions
        if (old := present.get(wanted.type)) is None
        or _says_other(old, msgspec.structs.replace(wanted, message=_shortened(wanted.message)))
    }
    if nominated_node_name is not None and nominated_node_name != pod.pod.status.nominated_node_name:
        fields.add(NOMINATED_NODE_NAME)
    return fields


def _says_other(old: PodCondition, wanted: PodCondition) -> bool:
    return (old.status, old.reason, old.message) != (wanted.status, wanted.reason, wanted.message)


def _shortened(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else message[: LONGEST_MESSAGE - len(_CUT)] + _CUT


def _new_condition(wanted: PodCondition, now: datetime) -> dict[str, Any]:
    return {"lastProbeTime": None, "lastTransitionTime": rfc3339(now), **msgspec.to_builtins(wanted)}


def _changed_condition(old: PodCondition, wanted: PodCondition, now: datetime) -> dict[str, Any]:
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(wanted)
    # Empty fields are in neither, as Go omits them, and so removed. Unchanged fields are sent again, unlike
    # in kube-scheduler: an answer may have been lost, and the server may have another message than the pod as
    # last seen.
    patch = {name: after.get(name) for name in before | after}
    if old.status != wanted.status:
        patch["lastTransitionTime"] = rfc3339(now)
    return patch


def merged_status(
    before: Mapping[str, Any], wanted: WantedStatus, condition_types: Collection[str], now: datetime
) -> dict[str, Any]:
    """Return the merge patch of a status that has the wanted fields and conditions.

    The lastTransitionTime of a condition changes only with its status. Conditions of other types stay.

    Args:
        before: the status as last seen.
        wanted: the wanted fields and conditions.
        condition_types: the types of conditions that the writer owns; those that are not wanted are removed.
        now: for lastTransitionTime.
    """
    status: dict[str, Any] = {
        name: _merging(before.get(name), value) for name, value in wanted.fields.items()
    }
    if condition_types:
        old = {each.get("type"): each for each in before.get("conditions") or ()}
        status["conditions"] = [each for type_, each in old.items() if type_ not in condition_types]
        for each in wanted.conditions:
            present = old.get(each["type"], {})
            since = present.get("lastTransitionTime") if present.get("status") == each["status"] else None
            status["conditions"].append({**each, "lastTransitionTime": since or rfc3339(now)})
    return status


def timeless(
    status: Mapping[str, Any], fields: Iterable[str], condition_types: Collection[str]
) -> dict[str, Any]:
    """Return the given fields of a status and its conditions of the given types, as `WantedStatus.status`."""
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in status.get("conditions") or ()
        if each.get("type") in condition_types
    ]
    return {**{field: status.get(field) for field in fields}, "conditions": conditions}


def _merging(before: object, wanted: object) -> object:
    """Return a value for a merge patch: keys that are no longer wanted are removed, at any depth."""
    if isinstance(before, dict) and isinstance(wanted, dict):
        kept = {name: _merging(before.get(name), value) for name, value in wanted.items()}
        return {**dict.fromkeys(before.keys() - wanted.keys()), **kept}
    return wanted


if TYPE_CHECKING:
    Newest = Callable[[str], PodInfo | None]

_RETRIES = RetryPolicy(12, also=frozenset({401, 409}))  # 401: a token has expired, and is replaced soon


class _StatusJob:
    """One status to write, and the tasks that wait for it.

    Attributes:
        about: `namespace/name`, or `name`.
        uid: uid of the object.
        waiters: get the object as written; None if nothing was written.
    """

    def __init__(self, about: str, uid: str) -> None:
        self.about = about
        self.uid = uid
        self.waiters: list[asyncio.Future[Mapping[str, Any] | None]] = []
        self.written: Mapping[str, Any] | None = None
        self._tries = 0

    def should_retry(self, error: ApiError) -> bool:
        self._tries += 1
        return _RETRIES.allows(error, self._tries)

    def finished(self, error: ApiError | None) -> None:
        for waiter in self.waiters:
            if waiter.done():
                continue
            if error is None:
                waiter.set_result(self.written)
            else:
                waiter.set_exception(error)


class ObjectStatus(_StatusJob):
    """The wanted status of an object that is not a pod.

    It is made for the object as last seen, and sent with its resourceVersion: this protects conditions that another
    client has written and the watch has not shown yet. After a conflict it is made again.

    Args:
        clock: gives the time of transitions.
        resource: the kind.
        about: `namespace/name`, or `name`.
        uid: uid of the object; another object of that name is not written.
        wanted: the wanted fields and conditions.
        condition_types: the types of conditions that the writer owns.
        newest: returns the object as last seen, None if there is none.
    """

    def __init__(
        self,
        clock: Clock,
        resource: Resource,
        about: str,
        uid: str,
        wanted: WantedStatus,
        condition_types: Collection[str],
        newest: Callable[[], Mapping[str, Any] | None],
    ) -> None:
        super().__init__(about, uid)
        self._clock, self._resource, self._newest = clock, resource, newest
        self._wanted, self._condition_types = wanted, condition_types

    def replace(self, older: _StatusJob) -> None:
        """Take over the waiters of an older status of the object."""
        self.waiters = older.waiters + self.waiters

    async def send(self, connection: Requests) -> None:
        obj = self._newest()
        if obj is None or obj["metadata"].get("uid") != self.uid:
            return
        before, version = obj.get("status") or {}, obj["metadata"]["resourceVersion"]
        status = merged_status(before, self._wanted, self._condition_types, self._clock.utc_now())
        body = msgspec.json.encode({"metadata": {"resourceVersion": version}, "status": status})
        namespace, _, name = self.about.rpartition("/")
        path = self._resource.path(namespace, name, "status")
        self.written = decode_object((await connection.send(Request("PATCH", path, body, MERGE_PATCH))).body)


_UNSEEN_KEPT = 10_000
"""Maximum number of pods with remembered status changes. A watch usually shows a change within milliseconds."""


class UnseenChanges:
    """The fields of pods' statuses that were written and that the watch has not shown yet.

    Otherwise a patch back to the last seen status would be left out, and the server would keep the value
    written meanwhile.
    """

    def __init__(self) -> None:
        # Pod uid -> version as last seen, fields.
        self._of: BoundedDict[str, tuple[str, set[str]]] = BoundedDict(_UNSEEN_KEPT)

    def of(self, pod: PodInfo) -> Collection[str]:
        """Return the unseen fields of a pod, if this version of it is the one last seen when they were written."""
        version, fields = self._of.get(pod.uid, ("", ()))
        return fields if version == pod.resource_version else ()

    def add(self, pod: PodInfo, fields: Collection[str]) -> None:
        """Record written fields of a pod whose last seen version this is."""
        if fields:
            self._of[pod.uid] = pod.resource_version, {*self.of(pod), *fields}

    def remove(self, pod: PodInfo, fields: Collection[str]) -> None:
        """Record that fields have the values of this version of the pod again."""
        left = {*self.of(pod)}.difference(fields)
        if left:
            self._of[pod.uid] = pod.resource_version, left
        else:
            self._of.pop(pod.uid, None)


def _identity_and_status(pod: PodInfo) -> PodInfo:
    """Return what a patch reads of a pod: thousands of patches may wait, and a pod may have a megabyte."""
    metadata = pod.pod.metadata
    identity = ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        generation=metadata.generation,
    )
    return PodInfo(Pod(metadata=identity, spec=PodSpec(node_name=pod.node_name), status=pod.pod.status))


class StatusPatch(_StatusJob):
    """The wanted status of one pod.

    Args:
        clock: gives the time of transitions.
        pod: the pod as last seen.
        condition: the wanted condition, None for none.
        nominated_node_name: wanted; "" to clear it, None to leave it.
        newest: `namespace/name` -> the pod's last readable version, None if there is none.
        unseen: written fields that the watch has not shown.
    """

    def __init__(
        self,
        clock: Clock,
        pod: PodInfo,
        condition: PodCondition | None,
        nominated_node_name: str | None,
        newest: Newest,
        unseen: UnseenChanges,
    ) -> None:
        super().__init__(pod.key, pod.uid)
        self.pod = _identity_and_status(pod)
        self.conditions = {} if condition is None else {condition.type: condition}
        self.nominated_node_name = nominated_node_name
        self._clock = clock
        self._newest = newest
        self._unseen = unseen

    def body(self) -> bytes | None:
        """Return the patch, None if there is nothing to change."""
        return status_patch(
            self.pod,
            self.conditions.values(),
            self.nominated_node_name,
            self._clock.utc_now(),
            again=self._unseen.of(self.pod),
        )

    def replace(self, older: _StatusJob) -> None:
        """Add the fields of an older patch that this one leaves open.

        Source:
            kube-scheduler v1.36, framework/api_calls/pod_status_patch.go, Merge.
        """
        assert isinstance(older, StatusPatch), "a uid belongs to one object"
        self.conditions = older.conditions | self.conditions
        if self.nominated_node_name is None:
            self.nominated_node_name = older.nominated_node_name
        self.waiters = older.waiters + self.waiters

    async def send(self, connection: Requests) -> None:
        body = self.body()
        if body is not None and not self._is_outdated():
            path = PODS.path(self.pod.namespace, self.pod.name, "status")
            changed = changed_fields(self.pod, self.conditions.values(), self.nominated_node_name)
            self._unseen.add(self.pod, changed)
            answer = await connection.send(Request("PATCH", path, body, STRATEGIC_MERGE_PATCH))
            if self.waiters:
                self.written = decode_object(answer.body)
            self._unseen.remove(self.pod, self._fields - changed)

    @property
    def _fields(self) -> set[str]:
        return {*self.conditions, *(() if self.nominated_node_name is None else (NOMINATED_NODE_NAME,))}

    def _is_outdated(self) -> bool:
        """Return whether the patch is for another pod of that name, or for a pod that was bound meanwhile."""
        newest = self._newest(self.about)
        if newest is None:  # unreadable, or deleted, which does no harm
            return False
        return newest.uid != self.pod.uid or bool(newest.node_name and not self.pod.node_name)


if TYPE_CHECKING:
    StatusJob = StatusPatch | ObjectStatus


class StatusQueue(JobQueue["StatusJob"]):
    """Status patches by object; at most one patch of an object is in flight.

    Attributes:
        unseen: written fields that the watch has not shown.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__("status", capacity)
        self.unseen = UnseenChanges()
        self._by_uid: OrderedDict[str, StatusJob] = OrderedDict()  # uid -> waiting patch
        self._sent: dict[str, asyncio.Event] = {}  # uid -> set at the end of the patch in flight

    def __len__(self) -> int:
        return len(self._by_uid)

    def put(self, job: StatusJob) -> bool:
        older = self._by_uid.get(job.uid)
        if older is None:
            return super().put(job)
        job.replace(older)
        self._append(job)
        return True

    def put_back(self, job: StatusJob) -> None:
        super().put_back(job)
        self._sent.pop(job.uid).set()

    def done(self, job: StatusJob) -> None:
        super().done(job)
        self._sent.pop(job.uid).set()

    def is_pending(self, uid: str) -> bool:
        """Return whether a patch of a pod waits or is in flight."""
        return uid in self._by_uid or uid in self._sent

    async def withdraw(self, uid: str) -> None:
        """Drop the waiting patch of a pod, and wait for the end of the one in flight."""
        while True:
            job = self._by_uid.pop(uid, None)
            if job is not None:
                self.observer.withdrawn(uid)
                job.finished(None)
                self._note_if_idle()
            sent = self._sent.get(uid)
            if sent is None:
                return
            await sent.wait()

    def _key(self, job: StatusJob) -> str:
        return job.uid

    def _append(self, job: StatusJob) -> None:
        self._by_uid[job.uid] = job

    def _pop(self) -> StatusJob | None:
        if not self._by_uid:
            return None
        uid = next((uid for uid in self._by_uid if uid not in self._sent), None)
        if uid is None:
            return None
        self._sent[uid] = asyncio.Event()
        return self._by_uid.pop(uid)

    def _push_front(self, job: StatusJob) -> None:
        newer = self._by_uid.get(job.uid)
        if newer is not None:
            newer.replace(job)
        else:
            self._by_uid[job.uid] = job
            self._by_uid.move_to_end(job.uid, last=False)
