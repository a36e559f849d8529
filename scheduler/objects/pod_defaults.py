"""Defaults of pods and pod templates.

Source:
    kube-apiserver v1.36, pkg/apis/core/v1/defaults.go, and for the quality-of-service class
    pkg/apis/core/v1/helper/qos/qos.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import Quantity, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from scheduler.objects.meta import ResourceList
    from scheduler.objects.v1 import PodSpec

    Object = dict[str, Any]

_COMPUTE: Final = ("cpu", "memory")
_WITH_MODES: Final = ("configMap", "downwardAPI", "projected", "secret")
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def default_pod_spec(spec: Object) -> None:
    """Set the defaults that pods and pod templates share."""
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            _default_container(container)
            if spec.get("hostNetwork"):
                for port in container.get("ports", ()):
                    port.setdefault("hostPort", port.get("containerPort", 0))
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of the spec of a claim, or of a template of claims."""
    spec.setdefault("volumeMode", "Filesystem")


def default_pod(pod: Object) -> None:
    """Set the defaults of a pod, also of one that no server has read."""
    spec = pod.setdefault("spec", {})
    default_pod_spec(spec)
    for field in ("containers", "initContainers"):
        for container in spec.get(field, ()):
            resources = container.setdefault("resources", {})
            limits = resources.get("limits")
            if limits:
                resources["requests"] = limits | resources.get("requests", {})
    if "resources" in spec:
        _default_pod_level_requests(spec)
    spec.setdefault("enableServiceLinks", True)


def qos_class(spec: Object) -> str:
    """Return the quality of service class from a pod's requests and limits.

    Source:
        kube-apiserver v1.36, pkg/apis/core/helper/qos/qos.go, ComputePodQOS.
    """
    if spec.get("resources"):
        holders = [spec["resources"]]
    else:
        containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
        holders = [container.get("resources", {}) for container in containers]
    return _class_of((holder.get("requests", {}), holder.get("limits", {})) for holder in holders)


def qos_class_of(spec: PodSpec) -> str:
    """Return the same for a decoded pod."""
    if spec.resources is not None and (spec.resources.requests or spec.resources.limits):
        holders = [spec.resources]
    else:
        holders = [container.resources for container in (*spec.containers, *spec.init_containers)]
    return _class_of((holder.requests, holder.limits) for holder in holders)


def _class_of(written: Iterable[tuple[ResourceList, ResourceList]]) -> str:
    """Return the class for the requests and limits of each container, or of the pod as a whole."""
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for requested, limited in written:
        _add_positive(requests, requested)
        if _add_positive(limits, limited) < len(_COMPUTE):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _add_positive(total: dict[str, Quantity], quantities: ResourceList) -> int:
    """Add positive amounts of cpu and memory; return how many there were."""
    found = 0
    for name in _COMPUTE:
        quantity = parse_quantity(quantities.get(name, 0))
        if quantity.unscaled > 0:
            total[name] = total[name] + quantity if name in total else quantity
            found += 1
    return found


def _default_container(container: Object) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in container:
        container["imagePullPolicy"] = "Always" if _is_latest(container.get("image", "")) else "IfNotPresent"
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            container[field] = _PROBE | container[field]


def _is_latest(image: str) -> bool:
    """Return whether an image has no tag and no digest, or the tag latest."""
    last = image.rpartition("/")[2]
    if "@" in last:
        return False
    return last.partition(":")[2] in {"", "latest"}


def _default_volume(volume: Object) -> None:
    if not set(volume) - {"name"}:
        volume["emptyDir"] = {}
    for source in _WITH_MODES:
        if source in volume:
            volume[source].setdefault("defaultMode", 0o644)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    for item in volume.get("downwardAPI", {}).get("items", ()):
        item.get("fieldRef", {}).setdefault("apiVersion", "v1")
    for source in volume.get("projected", {}).get("sources", ()):
        source.get("serviceAccountToken", {}).setdefault("expirationSeconds", 3600)
    template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
    if template is not None:
        default_claim_spec(template["spec"])


def _default_pod_level_requests(spec: Object) -> None:
    """Set the pod-level requests: from the containers, else from the pod-level limits.

    Source:
        kube-apiserver v1.36, pkg/apis/core/v1/defaults.go, defaultPodRequests.
    """
    resources = spec["resources"]
    limits = resources.get("limits", {})
    if not limits:
        return
    requests = resources.setdefault("requests", {})
    containers = spec.get("containers", ())
    for name in _COMPUTE:
        if name in requests or name not in limits:
            continue
        asked = [container["resources"].get("requests", {}).get(name) for container in containers]
        given = [text for text in asked if text is not None]
        if len(given) == 1:
            requests[name] = given[0]
        elif not given:
            requests[name] = limits[name]
