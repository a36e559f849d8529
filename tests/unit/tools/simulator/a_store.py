"""A store without a server, and the smallest objects to put in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scheduler.configuration.feature_gates import DEFAULT_VERSION, features_of
from scheduler.tools.simulator.kinds.builtin_kinds import builtin_kinds
from scheduler.tools.simulator.registry.registry import Registry
from scheduler.tools.simulator.registry.store import Store
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from scheduler.clock import Clock

Object = dict[str, Any]


class AStore(Store):
    """A store that shows what it is made of."""

    def __init__(
        self,
        *,
        history: int = 1000,
        clock: Clock | None = None,
        version: str = DEFAULT_VERSION,
        normal_events: bool = False,
        **gates: bool,
    ) -> None:
        self.clock = ManualClock()
        kinds = builtin_kinds(features_of(gates, version))
        self.registry = Registry(clock=clock or self.clock, kinds=kinds, seed=0, history=history)
        super().__init__(self.registry, normal_events=normal_events)
        self.bootstrap()


def pod(name: str, *, requests: dict[str, str] | None = None, **spec: Any) -> Object:
    container = {"name": "c", "image": "nginx", "resources": {"requests": requests} if requests else {}}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def node(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
        "status": {"capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}},
    }


def deployment(name: str, replicas: int, **pod_spec: Any) -> Object:
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "nginx:1"}], **pod_spec},
            },
        },
    }
