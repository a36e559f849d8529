"""The objects that the controllers of Kubernetes create: pods of templates, ReplicaSets of Deployments, and claims of pods.

Source:
    kube-controller-manager v1.36, pkg/controller/controller_utils.go, daemon/util/daemonset_util.go,
    daemon/daemon_controller.go, deployment/sync.go, job/job_controller.go, resourceclaim/controller.go,
    statefulset/stateful_set_utils.go and volume/ephemeral/controller.go.
    kube-apiserver v1.36, staging/src/k8s.io/apiserver/pkg/storage/names/generate.go, and for the labels of Jobs
    pkg/registry/batch/job/strategy.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.objects.decode import decode_pod
from scheduler.objects.selectors import required_node_affinity
from scheduler.objects.v1 import NO_EXECUTE, NO_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

    from scheduler.objects.node import NodeObject

    Object = dict[str, Any]


REVISION_LABEL: Final = "controller-revision-hash"
HASH_LABEL: Final = "pod-template-hash"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
POD_CLAIM_NAME: Final = "resource.kubernetes.io/pod-claim-name"
DEPLOYMENT_REVISION: Final = "deployment.kubernetes.io/revision"

_GENERATION_LABEL: Final = "pod-template-generation"
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_OLD_CONTROLLER_UID: Final = "controller-uid"
_OLD_JOB_NAME: Final = "job-name"
_POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
_TOLERATED_ON_HOST_NETWORK: Final = (("node.kubernetes.io/network-unavailable", NO_SCHEDULE),)
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deployment.kubernetes.io/desired-replicas",
        "deployment.kubernetes.io/max-replicas",
        "deployment.kubernetes.io/revision-history",
        DEPLOYMENT_REVISION,
    }
)
"""The annotations of a Deployment that its ReplicaSets do not get."""
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # without vowels, so that it forms no words
_HASH_LENGTH: Final = 10
_LONGEST_GENERATED_BASE: Final = 58
_LONGEST_CLAIM_BASE: Final = 57


def generated_name(base: str, random: Random) -> str:
    """Return a name that begins with `base` and ends in five random characters."""
    return base[:_LONGEST_GENERATED_BASE] + "".join(random.choices(_ALPHABET, k=5))


def template_hash(template: Object) -> str:
    """Return a hash of a template; equal templates have the same hash."""
    digest = hashlib.sha256(msgspec.json.encode(template, order="deterministic")).digest()
    return "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in digest[:_HASH_LENGTH])


def owned_by(owner: Object) -> list[Object]:
    """Return the ownerReferences of an object's dependents."""
    metadata = owner["metadata"]
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def replica_pod(workload: Object) -> Object:
    """Return a pod of a ReplicaSet, or of another workload whose pods differ only in their names."""
    return _pod(workload, {"generateName": f"{workload['metadata']['name']}-"})


def _pod(workload: Object, metadata: Object, spec: Object | None = None) -> Object:
    """Return a pod from a workload's template.

    Args:
        workload: its owner.
        metadata: metadata that overrides the template's.
        spec: fields that override the template's spec.
    """
    template = workload["spec"]["template"]
    return {
        "metadata": template.get("metadata", {}) | {"ownerReferences": owned_by(workload)} | metadata,
        "spec": template["spec"] | (spec or {}),
    }


def _template_labels(workload: Object) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"].get("metadata", {}).get("labels", {})
    return labels


def copied_annotations(deployment: Object) -> dict[str, str]:
    """Return the annotations of a Deployment that its newest ReplicaSet gets.

    Source:
        pkg/controller/deployment/util/deployment_util.go, SetNewReplicaSetAnnotations.
    """
    annotations = deployment["metadata"].get("annotations", {})
    return {name: text for name, text in annotations.items() if name not in _NOT_COPIED}


def replica_set_of(deployment: Object, replicas: int, annotations: Object) -> Object:
    """Return the ReplicaSet of a Deployment's template."""
    spec, template = deployment["spec"], deployment["spec"]["template"]
    revision = template_hash(template)
    labels = _template_labels(deployment) | {HASH_LABEL: revision}
    match = spec["selector"].get("matchLabels", {}) | {HASH_LABEL: revision}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": f"{deployment['metadata']['name']}-{revision}",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": owned_by(deployment),
        },
        "spec": {
            "replicas": replicas,
            "selector": spec["selector"] | {"matchLabels": match},
            "template": template | {"metadata": template.get("metadata", {}) | {"labels": labels}},
        },
    }


def daemon_pod(daemon_set: Object, node_name: str) -> Object:
    """Return the pod of a DaemonSet for a node: a required node affinity on metadata.name pins it to the node."""
    own, spec = daemon_set["metadata"], daemon_set["spec"]["template"]["spec"]
    marks = {
        REVISION_LABEL: template_hash(daemon_set["spec"]["template"]),
        _GENERATION_LABEL: own.get("annotations", {}).get(TEMPLATE_GENERATION, "1"),
    }
    metadata = {"labels": _template_labels(daemon_set) | marks, "generateName": f"{own['name']}-"}
    placed = {"affinity": _pinned(spec.get("affinity", {}), node_name), "tolerations": _tolerations(spec)}
    return _pod(daemon_set, metadata, placed)


def daemon_nodes(daemon_set: Object, nodes: Iterable[NodeObject]) -> tuple[list[str], set[str]]:
    """Return the nodes that should have a pod of a DaemonSet, and the nodes whose pod may stay.

    Source:
        NodeShouldRunDaemonPod: NoSchedule taints prevent new pods, only NoExecute taints remove one.
    """
    template = daemon_set["spec"]["template"]
    spec = template["spec"] | {"tolerations": _tolerations(template["spec"])}
    metadata = {"name": "any", "uid": "any", "namespace": daemon_set["metadata"]["namespace"]}
    pod = decode_pod(msgspec.json.encode({"metadata": metadata, "spec": spec}))
    affinity = required_node_affinity(pod.pod.spec.node_selector, pod.node_affinity)
    should, stay = [], set()
    for node in nodes:
        if not affinity.matches(node.name, node.labels):
            continue
        against = {taint.effect for taint in node.taints if not pod.tolerated.cover(taint, compares=False)}
        if NO_EXECUTE not in against:
            stay.add(node.name)
            if NO_SCHEDULE not in against:
                should.append(node.name)
    return should, stay


def _pinned(affinity: Object, node_name: str) -> Object:
    """Return an affinity for one node only, which replaces its required node affinity.

    Source:
        daemon/util/daemonset_util.go, ReplaceDaemonSetPodNodeNameNodeAffinity.
    """
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return affinity | {"nodeAffinity": affinity.get("nodeAffinity", {}) | required}


def _tolerations(spec: Object) -> list[Object]:
    """Return the tolerations of a template with those of every daemon."""
    wanted = _TOLERATED + (_TOLERATED_ON_HOST_NETWORK if spec.get("hostNetwork") else ())
    own = list(spec.get("tolerations", ()))
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in wanted]
    return own + [one for one in added if one not in own]


def stateful_pod(stateful_set: Object, index: int) -> Object:
    """Return a pod of a StatefulSet, with the volumes of its claims."""
    spec, name = stateful_set["spec"], f"{stateful_set['metadata']['name']}-{index}"
    marks = {
        REVISION_LABEL: f"{stateful_set['metadata']['name']}-{template_hash(spec['template'])}",
        _POD_NAME_LABEL: name,
        _INDEX_LABEL: str(index),
    }
    named: Object = {"hostname": name, "subdomain": spec.get("serviceName", "")}
    claims = stateful_claims(stateful_set, index)
    volumes = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
        for volume, claim in claims.items()
    ]
    volumes += [one for one in spec["template"]["spec"].get("volumes", ()) if one["name"] not in claims]
    if volumes:
        named["volumes"] = volumes
    return _pod(stateful_set, {"name": name, "labels": _template_labels(stateful_set) | marks}, named)


def stateful_claims(stateful_set: Object, index: int) -> dict[str, Object]:
    """Return the claims of a pod of a StatefulSet, by the names of their volumes."""
    spec = stateful_set["spec"]
    retention = spec.get("persistentVolumeClaimRetentionPolicy", {})
    owners = {"ownerReferences": owned_by(stateful_set)} if retention.get("whenDeleted") == "Delete" else {}
    found = {}
    for template in spec.get("volumeClaimTemplates", ()):
        volume = template["metadata"]["name"]
        labels = template["metadata"].get("labels", {}) | spec["selector"].get("matchLabels", {})
        named = {"name": f"{volume}-{stateful_set['metadata']['name']}-{index}", "labels": labels}
        found[volume] = {"metadata": template["metadata"] | named | owners, "spec": template["spec"]}
    return found


def job_labels(job: Object) -> dict[str, str]:
    """Return the labels that the pods of a Job get, by which it selects them."""
    uid, name = job["metadata"]["uid"], job["metadata"].get("name", "")
    return {CONTROLLER_UID: uid, _OLD_CONTROLLER_UID: uid, _JOB_NAME: name, _OLD_JOB_NAME: name}


def job_pod(job: Object, index: int | None) -> Object:
    """Return a pod of a Job; `index` is its completion index, or None if the Job is not indexed."""
    if index is None:
        return replica_pod(job)
    name, template, mark = job["metadata"]["name"], job["spec"]["template"], {COMPLETION_INDEX: str(index)}
    metadata = {
        "generateName": f"{name}-{index}-",
        "labels": _template_labels(job) | mark,
        "annotations": template.get("metadata", {}).get("annotations", {}) | mark,
    }
    return _pod(job, metadata, {"hostname": f"{name}-{index}"})


def ephemeral_claim(pod: Object, volume: Object) -> Object:
    """Return the claim of an ephemeral volume; the pod owns it."""
    template = volume["ephemeral"]["volumeClaimTemplate"]
    metadata = template.get("metadata", {})
    return {
        "metadata": {
            "name": f"{pod['metadata']['name']}-{volume['name']}",
            "labels": metadata.get("labels", {}),
            "annotations": metadata.get("annotations", {}),
            "ownerReferences": owned_by({"apiVersion": "v1", "kind": "Pod", **pod}),
        },
        "spec": template["spec"],
    }


def claim_from_template(owner: Object, name: str, template: Object) -> Object:
    """Return the ResourceClaim for a pod or PodGroup.

    Args:
        owner: the pod or PodGroup, with its kind.
        name: the name of the claim in the owner.
        template: the ResourceClaimTemplate.
    """
    base, metadata = f"{owner['metadata']['name']}-{name}-", template["spec"].get("metadata", {})
    if len(base) > _LONGEST_CLAIM_BASE:
        share, owner_name = _LONGEST_CLAIM_BASE / len(base), owner["metadata"]["name"]
        base = f"{owner_name[: int(len(owner_name) * share)]}-{name[: int(len(name) * share)]}"
    (reference,) = owned_by({"apiVersion": "v1", **owner})
    del reference["blockOwnerDeletion"]
    return {
        "metadata": {
            "generateName": base,
            "labels": metadata.get("labels", {}),
            "annotations": metadata.get("annotations", {}) | {POD_CLAIM_NAME: name},
            "ownerReferences": [reference],
        },
        "spec": template["spec"]["spec"],
    }


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of the requests of a ResourceClaim, or of the claim in a template.

    Source:
        kube-apiserver v1.36, pkg/apis/resource/v1/defaults.go.
    """
    for request in spec["devices"].get("requests", ()):
        for asked in (*([request["exactly"]] if "exactly" in request else ()), *alternatives_of(request)):
            if asked.setdefault("allocationMode", "ExactCount") == "ExactCount":
                asked["count"] = asked.get("count") or 1
            for toleration in asked.get("tolerations", ()):
                toleration.setdefault("operator", "Equal")


def alternatives_of(request: Object) -> Sequence[Object]:
    """Return the alternatives of a request; empty if it has none."""
    found: Sequence[Object] = request.get("firstAvailable", ())
    return found
