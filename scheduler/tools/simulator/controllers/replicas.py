"""Simulates the controllers that keep a number of replicas: of ReplicaSets, ReplicationControllers, Deployments, StatefulSets.

Source:
    kube-controller-manager v1.36, pkg/controller/replicaset/replica_set.go.
    kube-controller-manager v1.36, pkg/controller/deployment.
    kube-controller-manager v1.36, pkg/controller/statefulset/{stateful_pod_control,stateful_set_utils}.go.
    kube-controller-manager v1.36, pkg/controller/statefulset/stateful_set_control.go.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.objects.created_pods import (
    DEPLOYMENT_REVISION,
    REVISION_LABEL,
    copied_annotations,
    owned_by,
    replica_pod,
    replica_set_of,
    stateful_claims,
    stateful_pod,
    template_hash,
)
from scheduler.tools.simulator.apimachinery.objects import is_terminating, key_of, labels_of, with_condition
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.controllers.controller import RETRY_SECONDS, WorkloadController
from scheduler.tools.simulator.kinds.pods import has_ended, is_active, is_ready
from scheduler.tools.simulator.kinds.workloads import scaled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.registry.store import Store

_BURST: Final = 100
"""Number of pods that one run creates; the event loop has other work between runs."""


class ReplicaSetController(WorkloadController):
    """Creates and deletes the pods of ReplicaSets, and counts them."""

    resources = ("replicasets.apps", "pods")
    component = "replicaset-controller"

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        pods = list(filter(is_active, owned.values()))
        if not is_terminating(workload):
            missing = workload["spec"].get("replicas", 0) - len(pods)
            for _ in range(min(missing, _BURST)):
                if not self.create_pod(workload, replica_pod(workload)):
                    break
            for pod in sorted(pods, key=_least_missed)[: max(0, -missing)]:
                self.delete_pod(pod)
        ready = sum(map(is_ready, pods))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": workload["metadata"].get("generation", 0),
        }
        self.store.change(workload, {"status": status}, "status")


class ReplicationControllerController(ReplicaSetController):
    """Does the same for ReplicationControllers.

    Source:
        kube-controller-manager v1.36, pkg/controller/replication/replication_controller.go.
    """

    resources = ("replicationcontrollers", "pods")
    component = "replication-controller"


def _least_missed(pod: Object) -> tuple[bool, bool, bool, int, str]:
    """Sort key for deletion: pods without a node, then not running, then not ready; then by deletion cost and name.

    Source:
        kube-controller-manager v1.36, pkg/controller/controller_utils.go, ActivePodsWithRanks.
    """
    return (
        bool(pod["spec"].get("nodeName")),
        pod["status"].get("phase") == "Running",
        is_ready(pod),
        deletion_cost(pod["metadata"].get("annotations", {})),
        pod["metadata"]["name"],
    )


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """Return the deletion cost in a pod's annotations; an invalid one counts as 0, the default."""
    text = annotations.get(_DELETION_COST, "")
    return int(text) if _INTEGER.fullmatch(text) else 0


_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]{0,9}")


_REPLICA_SETS: Final = "replicasets.apps"
_AVAILABLE: Final = {
    True: ("True", "MinimumReplicasAvailable", "Deployment has minimum availability."),
    False: ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability."),
}


class DeploymentController(WorkloadController):
    """Creates and scales the ReplicaSets of Deployments, and sums up their pods."""

    resources = ("deployments.apps", _REPLICA_SETS)
    component = "deployment-controller"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._due: set[str] = set()  # uids of Deployments with a timer for their deadline

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        if not is_terminating(workload):
            self._roll(workload, owned)

    def _roll(self, deployment: Object, sets: dict[str, Object]) -> None:
        name = f"{deployment['metadata']['name']}-{template_hash(deployment['spec']['template'])}"
        new = sets.get(name)
        old = [one for key, one in sets.items() if key != name]
        if deployment["spec"].get("paused"):
            self._report(deployment, new, old)
            return
        if new is None:
            if deployment["spec"]["strategy"]["type"] != "Recreate" or not any(map(_pods, old)):
                self._create_set(deployment, name, old)
        elif _revision(new) <= max(map(_revision, old), default=0):
            # An old template is active again: its ReplicaSet gets the newest revision, which rollout history shows.
            new = self._number(new, 1 + max(map(_revision, old)))
        if (
            new is not None
            and copied_annotations(deployment).items() - new["metadata"].get("annotations", {}).items()
        ):
            new = self.store.change(new, {"metadata": {"annotations": copied_annotations(deployment)}})
        for replica_set, replicas in _wanted_replicas(deployment, new, old):
            before = replica_set["spec"].get("replicas", 0)
            if before != replicas:
                namespace, set_name = key_of(replica_set)
                self.store.scale(_REPLICA_SETS, set_name, replicas, namespace)
                self._record_scaling(deployment, set_name, before, replicas)
        self._forget(deployment, old)
        self._report(deployment, new, old)

    def _record_scaling(self, deployment: Object, replica_set: str, before: int, after: int) -> None:
        direction = "up" if after > before else "down"
        message = f"Scaled {direction} replica set {replica_set} from {before} to {after}"
        self.record(deployment, "ScalingReplicaSet", message)

    def _number(self, obj: Object, revision: int) -> Object:
        """Set an object's revision annotation, which rollout history reads."""
        return self.store.change(obj, {"metadata": {"annotations": {DEPLOYMENT_REVISION: str(revision)}}})

    def _forget(self, deployment: Object, old: Sequence[Object]) -> None:
        """Delete the oldest ReplicaSets without pods, beyond the history limit."""
        idle = [one for one in old if not one["spec"].get("replicas", 0) and not _pods(one)]
        excess = len(idle) - deployment["spec"].get("revisionHistoryLimit", 10)
        for replica_set in sorted(idle, key=_revision)[: max(0, excess)]:
            if not is_terminating(replica_set):
                self.store.remove(replica_set)

    def _progress(
        self,
        deployment: Object,
        new: Object | None,
        before: dict[str, Object],
        now: str,
        *,
        counts: Object | None,
    ) -> Object:
        """Return the condition Progressing; a rollout without progress for too long has failed.

        Source:
            pkg/controller/deployment/progress.go, syncRolloutStatus.
        """
        known = before.get("Progressing", {})
        name = f'ReplicaSet "{new["metadata"]["name"] if new else ""}"'
        if counts is None:
            done = f"{name} has successfully progressed."
            return _condition(before, now, "Progressing", "True", "NewReplicaSetAvailable", done)
        status = deployment.get("status", {})
        moved = any(
            counts[field] != status.get(field, 0)
            for field in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        )
        fresh = moved or not known or known.get("reason") == "NewReplicaSetAvailable"
        updated = known.get("lastUpdateTime", now)
        deadline = deployment["spec"].get("progressDeadlineSeconds", 600)
        left = deadline - _seconds_between(updated, now)
        uid = deployment["metadata"]["uid"]
        if not fresh and (left <= 0 or known.get("reason") == "ProgressDeadlineExceeded"):
            late = f"{name} has timed out progressing."
            return _condition(before, now, "Progressing", "False", "ProgressDeadlineExceeded", late)
        if uid not in self._due:
            self._due.add(uid)
            self.later(float(deadline) if fresh else left, self._check_deadline, uid)
        condition = _condition(
            before, now, "Progressing", "True", "ReplicaSetUpdated", f"{name} is progressing."
        )
        return condition | {"lastUpdateTime": now if fresh else updated}

    def _check_deadline(self, uid: str) -> None:
        self._due.discard(uid)
        self.look_again(uid)

    def _create_set(self, deployment: Object, name: str, old: Sequence[Object]) -> None:
        revision = 1 + max(map(_revision, old), default=0)
        replicas = 0 if old else deployment["spec"].get("replicas", 0)
        new = replica_set_of(
            deployment, replicas, copied_annotations(deployment) | {DEPLOYMENT_REVISION: str(revision)}
        )
        self.store.create(_REPLICA_SETS, new, namespace=deployment["metadata"]["namespace"])
        if replicas:
            self._record_scaling(deployment, name, 0, replicas)

    def _report(self, deployment: Object, new: Object | None, old: Sequence[Object]) -> None:
        sets = [*old, *([new] if new else [])]
        total, available = sum(map(_pods, sets)), sum(map(_available, sets))
        wanted = deployment["spec"].get("replicas", 0)
        updated = _pods(new) if new else 0
        done = updated == wanted == available == total
        _, unavailable = _rolling_limits(deployment)
        status: Object = {
            "observedGeneration": deployment["metadata"].get("generation", 0),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(_pods(one, "readyReplicas") for one in sets),
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(total, wanted) - available),
        }
        before = {one["type"]: one for one in deployment.get("status", {}).get("conditions", ())}
        now = self.store.timestamp()
        enough = available >= wanted - unavailable
        status["conditions"] = [
            _condition(before, now, "Available", *_AVAILABLE[enough]),
            self._progress(deployment, new, before, now, counts=status if not done else None),
        ]
        self.store.change(deployment, {"status": status}, "status")
        if new and deployment["metadata"].get("annotations", {}).get(DEPLOYMENT_REVISION) != str(
            _revision(new)
        ):
            self._number(deployment, _revision(new))


def _seconds_between(first: str, second: str) -> float:
    return (datetime.fromisoformat(second) - datetime.fromisoformat(first)).total_seconds()


def _wanted_replicas(
    deployment: Object, new: Object | None, old: Sequence[Object]
) -> list[tuple[Object, int]]:
    """Return how many replicas each ReplicaSet should have now."""
    wanted = deployment["spec"].get("replicas", 0)
    if deployment["spec"]["strategy"]["type"] == "Recreate":
        gone = not any(map(_pods, old))
        return [*((one, 0) for one in old), *([(new, wanted)] if new and gone else [])]

    surge, unavailable = _rolling_limits(deployment)
    old_total = sum(one["spec"].get("replicas", 0) for one in old)
    present = new["spec"].get("replicas", 0) if new else 0
    found: list[tuple[Object, int]] = []
    if new:
        room = max(0, wanted + surge - old_total - present)
        found.append((new, min(wanted, present + room)))
    # Old pods are removed while the available pods, without those that the new set lacks, stay above the minimum.
    lacking = max(0, present - (_available(new) if new else 0))
    excess = max(0, old_total + present - (wanted - unavailable) - lacking)
    for replica_set in sorted(old, key=_revision):
        replicas = replica_set["spec"].get("replicas", 0)
        taken = min(replicas, excess)
        excess -= taken
        found.append((replica_set, replicas - taken))
    return found


def _rolling_limits(deployment: Object) -> tuple[int, int]:
    """Return the maximum numbers of additional and of unavailable pods."""
    rolling = deployment["spec"]["strategy"].get("rollingUpdate", {})
    wanted = deployment["spec"].get("replicas", 0)
    surge = scaled(rolling.get("maxSurge", 0), wanted)
    unavailable = scaled(rolling.get("maxUnavailable", 0), wanted, round_up=False)
    return surge, unavailable if surge or unavailable else 1


def _condition(
    before: dict[str, Object], now: str, type_: str, status: str, reason: str, message: str
) -> Object:
    """Return a condition; its times change only when it changes."""
    condition = {"type": type_, "status": status, "reason": reason, "message": message}
    known = before.get(type_, {})
    if known.get("status") == status and known.get("reason") == reason:
        return {**known, **condition}
    return with_condition([known] if known else (), condition | {"lastUpdateTime": now}, now)[0]


def _pods(replica_set: Object, field: str = "replicas") -> int:
    """Return a count of a ReplicaSet's status."""
    count: int = replica_set.get("status", {}).get(field, 0)
    return count


def _available(replica_set: Object) -> int:
    return _pods(replica_set, "availableReplicas")


def _revision(replica_set: Object) -> int:
    return int(replica_set["metadata"].get("annotations", {}).get(DEPLOYMENT_REVISION, "0"))


_CLAIMS: Final = "persistentvolumeclaims"
_STATEFUL_SETS: Final = "statefulset-controller"


class ClaimsOfPods:
    """Creates claims, and releases them as the retention policy requires."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(self, stateful_set: Object, ordinal: int) -> bool:
        """Create the missing claims of a pod; return whether all of them exist."""
        namespace, name = key_of(stateful_set)
        pod, events = f"{name}-{ordinal}", self._store.events
        for claim in stateful_claims(stateful_set, ordinal).values():
            claim_name = key_of(claim)[1]
            if self._store.find(_CLAIMS, claim_name, namespace) is not None:
                continue
            try:
                self._store.create(_CLAIMS, claim, namespace=namespace)
            except StatusError as error:
                problem = f"Create Claim {claim_name} for Pod {pod} in StatefulSet {name} failed error: {error.message}"
                events.record(stateful_set, "FailedCreate", problem, component=_STATEFUL_SETS, warning=True)
                return False
            created = f"Create Claim {claim_name} Pod {pod} in StatefulSet {name} success"
            events.record(stateful_set, "SuccessfulCreate", created, component=_STATEFUL_SETS)
        return True

    def release(self, stateful_set: Object, pod: Object) -> None:
        """Make a pod that is scaled down the owner of its claims, if that is the policy."""
        spec = stateful_set["spec"]
        if spec["persistentVolumeClaimRetentionPolicy"]["whenScaled"] != "Delete":
            return
        templates = {one["metadata"]["name"] for one in spec.get("volumeClaimTemplates", ())}
        namespace = key_of(pod)[0]
        for volume in pod["spec"].get("volumes", ()):
            name = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            claim = self._store.find(_CLAIMS, name, namespace) if volume["name"] in templates else None
            if claim is not None:
                self._store.change(claim, {"metadata": {"ownerReferences": owned_by(pod)}})


class StatefulSetController(WorkloadController):
    """Creates, replaces and deletes the pods of StatefulSets in order."""

    resources = ("statefulsets.apps", "pods")
    component = _STATEFUL_SETS
    messages: ClassVar[Mapping[str, str]] = {
        "SuccessfulCreate": "Create Pod {pod} in StatefulSet {owner} successful",
        "FailedCreate": "Create Pod {pod} in StatefulSet {owner} failed error: {error}",
        "SuccessfulDelete": "Delete Pod {pod} in StatefulSet {owner} successful",
    }

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._volumes = ClaimsOfPods(store)

    def sync(self, workload: Object, owned: dict[str, Object]) -> None:
        if is_terminating(workload):
            return
        revision = f"{workload['metadata']['name']}-{template_hash(workload['spec']['template'])}"
        self._step(workload, owned, revision)
        self._report(workload, owned, revision)

    def _step(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        spec, name = stateful_set["spec"], stateful_set["metadata"]["name"]
        wanted = [f"{name}-{index}" for index in range(spec.get("replicas", 0))]
        at_once = spec.get("podManagementPolicy") == "Parallel"
        for index, pod_name in enumerate(wanted):
            pod = pods.get(pod_name)
            if pod is None:
                self._create(stateful_set, index)
            elif has_ended(pod):
                self.delete_pod(pod)
            if (pod is None or not _is_healthy(pod)) and not at_once:
                return
        for extra in sorted((one for one in pods if one not in wanted), key=_ordinal, reverse=True):
            self._volumes.release(stateful_set, pods[extra])
            self.delete_pod(pods[extra])
            if not at_once:
                return
        self._roll(spec, pods, wanted, revision)

    def _roll(self, spec: Object, pods: dict[str, Object], wanted: Sequence[str], revision: str) -> None:
        """Replace the last pod of an old template when all pods after it are healthy."""
        strategy = spec.get("updateStrategy", {})
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = strategy.get("rollingUpdate", {}).get("partition", 0)
        for pod_name in reversed(wanted[partition:]):
            pod = pods.get(pod_name)
            if pod is None or is_terminating(pod):
                return
            if labels_of(pod).get(REVISION_LABEL) != revision:
                self.delete_pod(pod)
                return
            if not _is_healthy(pod):
                return

    def _create(self, stateful_set: Object, index: int) -> None:
        if self._volumes.make(stateful_set, index):
            self.create_pod(stateful_set, stateful_pod(stateful_set, index))
        else:
            self.later(RETRY_SECONDS, self.look_again, stateful_set["metadata"]["uid"])

    def _report(self, stateful_set: Object, pods: dict[str, Object], revision: str) -> None:
        wanted = stateful_set["spec"].get("replicas", 0)
        live = [pod for pod in pods.values() if not is_terminating(pod)]
        updated = sum(labels_of(pod).get(REVISION_LABEL) == revision for pod in live)
        ready = sum(map(is_ready, live))
        before = stateful_set.get("status", {}).get("currentRevision", revision)
        done = updated == wanted == ready
        status = {
            "observedGeneration": stateful_set["metadata"].get("generation", 0),
            "replicas": len(live),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "updatedReplicas": updated,
            "currentReplicas": updated if done or before == revision else len(live) - updated,
            "currentRevision": revision if done else before,
            "updateRevision": revision,
            "collisionCount": 0,
        }
        self.store.change(stateful_set, {"status": status}, "status")


def _is_healthy(pod: Object) -> bool:
    return is_ready(pod) and not is_terminating(pod)


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])
