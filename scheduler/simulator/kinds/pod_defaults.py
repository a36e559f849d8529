"""What the API server fills in when it reads a pod or a pod template.

Source:
    kube-apiserver v1.36, pkg/apis/core/v1/defaults.go, and for the quality-of-service class
    pkg/apis/core/v1/helper/qos/qos.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scheduler.objects.quantity import Quantity, parse_quantity

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object

_COMPUTE: Final = ("cpu", "memory")
_PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}


def default_pod_spec(spec: Object) -> None:
    """Fill in what pods and pod templates have in common."""
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
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def default_pod(pod: Object) -> None:
    """Fill in what a pod has that a template lacks; it may be one that no server has read."""
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
    """Return the quality of service a pod's requests and limits make.

    Source:
        kube-apiserver v1.36, pkg/apis/core/helper/qos/qos.go, ComputePodQOS.
    """
    if spec.get("resources"):
        holders = [spec["resources"]]
    else:
        containers = (*spec.get("containers", ()), *spec.get("initContainers", ()))
        holders = [container.get("resources", {}) for container in containers]
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    guaranteed = True
    for holder in holders:
        _add_positive(requests, holder.get("requests", {}))
        if _add_positive(limits, holder.get("limits", {})) < len(_COMPUTE):
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if guaranteed and requests == limits else "Burstable"


def _add_positive(total: dict[str, Quantity], quantities: dict[str, str]) -> int:
    """Add what is above zero of cpu and memory; returns how many were."""
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
    """Whether an image is named without a tag or digest, or with the tag latest."""
    last = image.rpartition("/")[2]
    if "@" in last:
        return False
    return last.partition(":")[2] in {"", "latest"}


def _default_pod_level_requests(spec: Object) -> None:
    """Fill in the requests of the pod as a whole: from the containers, else from its own limits.

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
