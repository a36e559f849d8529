"""Simulates the Job controller: creates pods until enough of them have succeeded.

Source:
    kube-controller-manager v1.36, pkg/controller/job/job_controller.go.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice, repeat
from typing import TYPE_CHECKING, Final

from scheduler.objects.created_pods import COMPLETION_INDEX, job_pod
from scheduler.objects.wording import ranges_text
from scheduler.tools.simulator.apimachinery.objects import (
    controller_of,
    is_terminating,
    is_true,
    with_condition,
)
from scheduler.tools.simulator.controllers.controller import WorkloadController
from scheduler.tools.simulator.kinds.pods import has_ended, is_active, is_ready

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.store import Store

_JOBS: Final = "jobs.batch"
_FIRST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_BACKOFF_SECONDS: Final = 600.0
_FINISHED: Final = frozenset({"Complete", "Failed"})


class JobController(WorkloadController):
    """Creates the pods of Jobs, counts their results, and finishes Jobs."""

    resources = (_JOBS, "pods")
    component = "job-controller"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._ended: dict[str, dict[str, Object]] = {}  # uid of the Job -> uid -> last state of an ended pod

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        super().observe(resource, type_, obj)
        if resource == "pods" and controller_of(obj) and has_ended(obj):
            self._ended.setdefault(controller_of(obj)["uid"], {})[obj["metadata"]["uid"]] = obj

    def reconcile(self, key: str) -> None:
        super().reconcile(key)
        if key not in self.workloads:
            self._ended.pop(key, None)

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        if is_terminating(workload):
            return
        if _finished(workload):
            self._clean_up(workload)
        else:
            self._proceed(workload, list(owned.values()))

    def _proceed(self, job: Object, pods: Sequence[Object]) -> None:
        """Do one step for a Job that is not finished."""
        uid, spec = job["metadata"]["uid"], job["spec"]
        ended = self._ended.get(uid, {}).values()
        succeeded = [pod for pod in ended if pod["status"]["phase"] == "Succeeded"]
        failed = [pod for pod in ended if pod["status"]["phase"] == "Failed"]
        active = list(filter(is_active, pods))
        done = len(set(map(_index, succeeded)) if _is_indexed(spec) else succeeded)
        status = self._status(job, pods, active, done, len(failed))
        status |= (
            {"completedIndexes": ranges_text(sorted({*map(_index, succeeded)}))} if _is_indexed(spec) else {}
        )

        verdict = self._verdict(job, status, active)
        if verdict is not None:
            type_, reason, message = verdict
            self._delete(active)
            status |= {"active": 0, "ready": 0}
            first = "SuccessCriteriaMet" if type_ == "Complete" else "FailureTarget"
            if type_ == "Complete":
                status["completionTime"] = self.store.timestamp()
                self.record(job, "Completed", "Job completed")
            else:
                self.record(job, reason, message, warning=True)
            for one in (first, type_):
                self._set_condition(status, one, "True", reason, message)
        elif spec.get("suspend"):
            self._delete(active)
            if self._set_condition(status, "Suspended", "True", "JobSuspended", "Job suspended"):
                self.record(job, "Suspended", "Job suspended")
            status |= {"active": 0, "ready": 0}
            status.pop("startTime", None)
        else:
            if is_true(job, "Suspended"):
                self._set_condition(status, "Suspended", "False", "JobResumed", "Job resumed")
                self.record(job, "Resumed", "Job resumed")
            self._manage(job, active, succeeded, failed)
        self._write(job, status)
        if verdict is not None:
            self._clean_up(self.store.get(_JOBS, job["metadata"]["name"], job["metadata"]["namespace"]))

    def _status(
        self, job: Object, pods: Sequence[Object], active: Sequence[Object], succeeded: int, failed: int
    ) -> Object:
        status = dict(job.get("status", {}))
        if not job["spec"].get("suspend"):
            status.setdefault("startTime", self.store.timestamp())
        terminating = [pod for pod in pods if is_terminating(pod) and not has_ended(pod)]
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
        """Return the condition, reason and message of a finished Job; None if it is not finished."""
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
            self.later(left, self.look_again, job["metadata"]["uid"])
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
        """Create or delete pods until the right number is active."""
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
                self.later(wait, self.look_again, uid)
                return
            self._create(job, wanted - len(active), {_index(pod) for pod in (*active, *succeeded)})

    def _backoff(self, failed: Sequence[Object], succeeded: Sequence[Object]) -> float:
        """Return the seconds until the next pod is created: more with each failure since a success."""
        last_success = max(map(_end_of, succeeded), default="")
        since = [pod for pod in failed if _end_of(pod) > last_success]
        if not since:
            return 0.0
        wait: float = min(_FIRST_BACKOFF_SECONDS * 2 ** min(len(since) - 1, 10), _LONGEST_BACKOFF_SECONDS)
        return wait - self._seconds_since(max(map(_end_of, since)))

    def _create(self, job: Object, count: int, taken: set[int]) -> None:
        """Create pods; for an indexed Job only for indexes without a pod, even a terminating one."""
        indexes: Iterable[int | None] = repeat(None)
        if _is_indexed(job["spec"]):
            indexes = (each for each in range(job["spec"].get("completions") or 0) if each not in taken)
        for index in islice(indexes, count):
            if not self.create_pod(job, job_pod(job, index)):
                return

    def _delete(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            self.delete_pod(pod)

    def _write(self, job: Object, status: Object) -> None:
        shown = {name: value for name, value in status.items() if value not in (0, "", []) or name == "ready"}
        if shown != job.get("status", {}):
            self.store.update(_JOBS, job | {"status": shown}, subresource="status")

    def _clean_up(self, job: Object) -> None:
        """Delete a finished Job after its TTL."""
        ttl = job["spec"].get("ttlSecondsAfterFinished")
        finished = _finished(job)
        if ttl is None or finished is None:
            return
        left = ttl - self._seconds_since(finished["lastTransitionTime"])
        if left > 0:
            self.later(left, self.look_again, job["metadata"]["uid"])
            return
        self.store.remove(job, propagation_policy="Foreground")

    def _seconds_since(self, moment: str) -> float:
        now = datetime.fromisoformat(self.store.timestamp())
        return (now - datetime.fromisoformat(moment)).total_seconds()

    def _set_condition(self, status: Object, type_: str, value: str, reason: str, message: str) -> bool:
        """Set a condition; return whether it changed."""
        if any((one["type"], one["status"]) == (type_, value) for one in status["conditions"]):
            return False
        now = self.store.timestamp()
        new = {"type": type_, "status": value, "lastProbeTime": now, "reason": reason, "message": message}
        status["conditions"] = with_condition(status["conditions"], new, now)
        return True


def _is_indexed(spec: Object) -> bool:
    return bool(spec.get("completionMode") == "Indexed")


def _index(pod: Object) -> int:
    return int(pod["metadata"].get("annotations", {}).get(COMPLETION_INDEX, "-1"))


def _restarts(pod: Object) -> int:
    return sum(one.get("restartCount", 0) for one in pod["status"].get("containerStatuses", ()))


def _end_of(pod: Object) -> str:
    """Return when an ended pod ended."""
    ends = [
        one["state"]["terminated"]["finishedAt"]
        for one in pod["status"].get("containerStatuses", ())
        if "terminated" in one.get("state", {})
    ]
    return max(ends, default=str(pod["metadata"]["creationTimestamp"]))


def _finished(job: Object) -> Object | None:
    """Return the condition of a finished Job; None if it is not finished."""
    conditions = job.get("status", {}).get("conditions", ())
    return next((one for one in conditions if one["type"] in _FINISHED and one["status"] == "True"), None)
