"""Events of simulated controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.apimachinery.objects import key_of
from scheduler.simulator.apimachinery.status import StatusError

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object
    from scheduler.simulator.registry.store import Store


def record_event(
    store: Store,
    obj: Object,
    reason: str,
    message: str,
    *,
    component: str,
    host: str = "",
    warning: bool = False,
) -> None:
    """Record an event about an object."""
    namespace, name = key_of(obj)
    now = store.timestamp()
    event = {
        "metadata": {"generateName": f"{name}."},
        "involvedObject": {
            "kind": obj["kind"],
            "apiVersion": obj["apiVersion"],
            "name": name,
            "uid": obj["metadata"]["uid"],
            **({"namespace": namespace} if namespace else {}),
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": component, **({"host": host} if host else {})},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        store.create("events", event, namespace=namespace or "default")
    except StatusError as error:
        if error.reason != "Forbidden":  # a terminating namespace accepts no events
            raise
