"""Stands in for the Job controller: pods until enough of them have ended well.

Source:
    kube-controller-manager v1.36, pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.simulator.apimachinery.objects import key_of, owned_by, owner_uid
from scheduler.simulator.apimachinery.status import StatusError
from scheduler.simulator.controllers.controller import Controller
from scheduler.simulator.kinds.jobs import COMPLETION_INDEX
from scheduler.simulator.kinds.pods import is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store

_JOBS: Final = "jobs.batch"
_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 600.0
_RETRY_SECONDS: Final = 1.0
_FINISHED: Final = frozenset({"Complete", "Failed"})


class JobController(Controller):
    """Makes the pods of Jobs, counts how they end, and says when a Job is done."""

    resources: ClassVar[Sequence[str]] = (_JOBS, "pods")

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._jobs: dict[str, Object] = {}  # uid -> Job
        self._pods: dict[str, dict[str, Object]] = {}  # uid of the Job -> uid -> pod
        self._ended: dict[str, dict[str, Object]] = {}  # uid of the Job -> uid -> last state of an ended pod
        self._changed: dict[str, None] = {}  # uids of Jobs

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        uid = obj["metadata"]["uid"]
        if resource == _JOBS:
            if type_ == "DELETED":
                self._jobs.pop(uid, None)
            else:
                self._jobs[uid] = obj
            self._changed[uid] = None
            return
        owner = owner_uid(obj)
        if not owner:
            return
        if obj["status"].get("phase") in {"Succeeded", "Failed"}:
            self._ended.setdefault(owner, {})[uid] = obj
        if type_ == "DELETED":
            self._pods.get(owner, {}).pop(uid, None)
        else:
            self._pods.setdefault(owner, {})[uid] = obj
        self._changed[owner] = None

    def act(self) -> None:
        changed, self._changed = self._changed, {}
        for uid in changed:
            job = self._jobs.get(uid)
            if job is None:
                self._ended.pop(uid, None)
                if not self._pods.get(uid):
                    self._pods.pop(uid, None)
            elif "deletionTimestamp" not in job["metadata"]:
                self._reconcile(job)

    def _reconcile(self, job: Object) -> None:
        uid, spec = job["metadata"]["uid"], job["spec"]
        if _finished(job):
            self._clean_up(job)
            return
        ended = self._ended.get(uid, {}).values()
        succeeded = [pod for pod in ended if pod["status"]["phase"] == "Succeeded"]
        failed = [pod for pod in ended if pod["status"]["phase"] == "Failed"]
        active = [pod for pod in self._pods.get(uid, {}).values() if _is_active(pod)]
        if spec.get("completionMode") == "Indexed":
            done = len({_index(pod) for pod in succeeded})
        else:
            done = len(succeeded)
        status = self._status(job, active, done, len(failed))
        status |= {"completedIndexes": _ranges(map(_index, succeeded))} if _is_indexed(spec) else {}

        verdict = self._verdict(job, status, active)
        if verdict is not None:
            type_, reason, message = verdict
            self._delete(active)
            status |= {"active": 0, "ready": 0}
            first = "SuccessCriteriaMet" if type_ == "Complete" else "FailureTarget"
            if type_ == "Complete":
                status["completionTime"] = self.store.timestamp()
            for one in (first, type_):
                _set_condition(status, one, "True", reason, message, self.store.timestamp())
        elif spec.get("suspend"):
            self._delete(active)
            _set_condition(
                status, "Suspended", "True", "JobSuspended", "Job suspended", self.store.timestamp()
            )
            status |= {"active": 0, "ready": 0}
            status.pop("startTime", None)
        else:
            if any(one["type"] == "Suspended" and one["status"] == "True" for one in status["conditions"]):
                _set_condition(
                    status, "Suspended", "False", "JobResumed", "Job resumed", self.store.timestamp()
                )
            self._manage(job, active, succeeded, failed)
        self._write(job, status)
        if verdict is not None:
            self._clean_up(self.store.get(_JOBS, job["metadata"]["name"], job["metadata"]["namespace"]))

    def _status(self, job: Object, active: Sequence[Object], succeeded: int, failed: int) -> Object:
        status = dict(job.get("status", {}))
        if not job["spec"].get("suspend"):
            status.setdefault("startTime", self.store.timestamp())
        terminating = [
            pod
            for pod in self._pods.get(job["metadata"]["uid"], {}).values()
            if "deletionTimestamp" in pod["metadata"] and pod["status"].get("phase") in {"Pending", "Running"}
        ]
        return status | {
            "active": len(active),
            "ready": sum(map(is_ready, active)),
            "succeeded": succeeded,
            "failed": failed,
            "terminating": len(terminating),
            "uncountedTerminatedPods": {},
            "conditions": list(status.get("conditions", ())),
        }

    def _verdict(self, job: Object, status: Object, active: Sequence[Object]) -> tuple[str, str, str] | None:
        """Return the condition, reason and message of a Job that is done; None while it is not."""
        spec = job["spec"]
        restarts = 0
        if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
            restarts = sum(map(_restarts, active))
        limit = spec.get("backoffLimit", 6)
        if status["failed"] > limit or (restarts and restarts >= max(limit, 1)):
            return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        deadline = spec.get("activeDeadlineSeconds")
        if deadline is not None and "startTime" in status:
            left = deadline - self._seconds_since(status["startTime"])
            if left <= 0:
                return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
            self.later(left, self._look_again, job["metadata"]["uid"])
        completions = spec.get("completions")
        if completions is None:
            done = status["succeeded"] > 0 and not active
        else:
            done = status["succeeded"] >= completions
        if done and not (completions is None and spec.get("suspend")):
            return "Complete", "CompletionsReached", "Reached expected number of succeeded pods"
        return None

    def _manage(
        self, job: Object, active: Sequence[Object], succeeded: Sequence[Object], failed: Sequence[Object]
    ) -> None:
        """Make or delete pods until as many are active as should be."""
        spec, uid = job["spec"], job["metadata"]["uid"]
        parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
        if completions is None:
            wanted = len(active) if succeeded else parallelism
        else:
            wanted = min(parallelism, max(0, completions - len(succeeded)))
        if len(active) > wanted:
            self._delete(sorted(active, key=lambda pod: (is_ready(pod), pod["metadata"]["name"]))[wanted:])
        elif len(active) < wanted:
            wait = self._backoff(failed, succeeded)
            if wait > 0:
                self.later(wait, self._look_again, uid)
                return
            self._create(job, wanted - len(active), {_index(pod) for pod in (*active, *succeeded)})

    def _backoff(self, failed: Sequence[Object], succeeded: Sequence[Object]) -> float:
        """Return how many seconds are to pass before the next pod: more with each failure since a success."""
        last_success = max(map(_end_of, succeeded), default="")
        since = [pod for pod in failed if _end_of(pod) > last_success]
        if not since:
            return 0.0
        wait: float = min(_FIRST_BACKOFF_SECONDS * 2 ** min(len(since) - 1, 10), _LONGEST_BACKOFF_SECONDS)
        return wait - self._seconds_since(max(map(_end_of, since)))

    def _create(self, job: Object, count: int, taken: set[int]) -> None:
        spec, template = job["spec"], job["spec"]["template"]
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        indexes = (index for index in range(spec.get("completions") or 0) if index not in taken)
        try:
            for _ in range(count):
                metadata = template.get("metadata", {}) | {
                    "generateName": f"{name}-",
                    "ownerReferences": owned_by(job),
                }
                pod_spec = template["spec"]
                if _is_indexed(spec):
                    mark = {COMPLETION_INDEX: str(next(indexes))}
                    metadata |= {
                        "generateName": f"{name}-{mark[COMPLETION_INDEX]}-",
                        "labels": metadata.get("labels", {}) | mark,
                        "annotations": metadata.get("annotations", {}) | mark,
                    }
                    pod_spec = pod_spec | {"hostname": f"{name}-{mark[COMPLETION_INDEX]}"}
                self.store.create("pods", {"metadata": metadata, "spec": pod_spec}, namespace=namespace)
        except StopIteration:
            return  # every index that is left has a pod that is on its way out
        except StatusError:
            # As upstream: try again later, for the reason may pass.
            self.later(_RETRY_SECONDS, self._look_again, job["metadata"]["uid"])

    def _delete(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            namespace, name = key_of(pod)
            self.store.delete("pods", name, namespace)

    def _write(self, job: Object, status: Object) -> None:
        shown = {name: value for name, value in status.items() if value not in (0, "", []) or name == "ready"}
        if shown != job.get("status", {}):
            self.store.update(_JOBS, job | {"status": shown}, subresource="status")

    def _clean_up(self, job: Object) -> None:
        """Delete a finished Job when it has been finished for as long as it asks."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        finished = _finished(job)
        if ttl is None or finished is None:
            return
        left = ttl - self._seconds_since(finished["lastTransitionTime"])
        if left > 0:
            self.later(left, self._look_again, job["metadata"]["uid"])
            return
        namespace, name = key_of(job)
        self.store.delete(_JOBS, name, namespace, propagation_policy="Foreground")

    def _seconds_since(self, moment: str) -> float:
        now = datetime.fromisoformat(self.store.timestamp())
        return (now - datetime.fromisoformat(moment)).total_seconds()

    def _look_again(self, uid: str) -> None:
        self._changed[uid] = None
        self.wake()


def _is_indexed(spec: Object) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def _is_active(pod: Object) -> bool:
    ended = pod["status"].get("phase") in {"Succeeded", "Failed"}
    return not ended and "deletionTimestamp" not in pod["metadata"]


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("annotations", {}).get(COMPLETION_INDEX, "-1"))


def _ranges(indexes: Iterable[int]) -> str:
    """Write numbers as `0-2,5`."""
    spans: list[list[int]] = []
    for index in sorted(set(indexes)):
        if spans and spans[-1][1] == index - 1:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)


def _restarts(pod: Object) -> int:
    return sum(one.get("restartCount", 0) for one in pod["status"].get("containerStatuses", ()))


def _end_of(pod: Object) -> str:
    """Return when an ended pod did."""
    ends = [
        one["state"]["terminated"]["finishedAt"]
        for one in pod["status"].get("containerStatuses", ())
        if "terminated" in one.get("state", {})
    ]
    return max(ends, default=str(pod["metadata"]["creationTimestamp"]))


def _finished(job: Object) -> Object | None:
    """Return the condition that says that a Job is done."""
    conditions = job.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] in _FINISHED and one["status"] == "True"), None)


def _set_condition(status: Object, type_: str, value: str, reason: str, message: str, now: str) -> None:
    others = [one for one in status["conditions"] if one["type"] != type_]
    known = next((one for one in status["conditions"] if one["type"] == type_), None)
    if known is not None and known["status"] == value:
        return
    condition = {
        "type": type_,
        "status": value,
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    status["conditions"] = [*others, condition]
