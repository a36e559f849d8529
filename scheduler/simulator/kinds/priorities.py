"""The PriorityClass of a pod or pod group, as in admission.

Source:
    kube-apiserver v1.36, plugin/pkg/admission/priority/admission.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.apimachinery.status import StatusError
    from scheduler.simulator.apimachinery.strategy import Cluster


def priority_class(spec: Object, cluster: Cluster, refused: Callable[[str], StatusError]) -> Object:
    """Return the class of a spec, or the global default, whose name is set in the spec; empty if there is none.

    Args:
        spec: spec of a pod or group, with `priorityClassName`.
        cluster: the store with the classes.
        refused: creates the error from a message.

    Raises:
        StatusError: there is no class of that name.
    """
    name = spec.get("priorityClassName")
    if name:
        found = cluster.find("priorityclasses", name)
        if found is None:
            raise refused(f"no PriorityClass with name {name} was found")
        return found
    defaults = [class_ for class_ in cluster.each("priorityclasses") if class_.get("globalDefault")]
    if not defaults:
        return {}
    chosen = min(defaults, key=lambda class_: int(class_.get("value", 0)))
    spec["priorityClassName"] = chosen["metadata"]["name"]
    return chosen
