"""CustomResourceDefinitions to define kinds with, and a store that serves them."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from scheduler.tools.simulator.external_controllers import KubeletOptions, simulated_controllers
from tests.support.virtual_time import LoopClock
from tests.unit.tools.simulator.a_store import AStore, node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Object = dict[str, Any]


def definition(*, schema: Object | None = None, scope: str = "Namespaced", **version: Any) -> Object:
    """Return the definition of Widgets, in one version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": scope,
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema or anything()},
                    **version,
                }
            ],
        },
    }


def anything() -> Object:
    return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def with_spec(**properties: Object) -> Object:
    spec = {"type": "object", "properties": properties}
    status = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {"type": "object", "properties": {"spec": spec, "status": status}}


def widget(name: str, **fields: Any) -> Object:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, **fields}


@asynccontextmanager
async def running(
    store: AStore,
    *nodes: Object,
    kubelet: bool | KubeletOptions = True,
    controllers: bool = True,
    **others: Any,
):
    """Let all who live in a cluster work on a store, after some nodes were added."""
    for each in nodes:
        store.create("nodes", each)
    there = simulated_controllers(store, kubelet=kubelet, controllers=controllers, **others)
    for controller in there:
        controller.start()
    try:
        yield
    finally:
        for controller in there:
            controller.stop()


@asynccontextmanager
async def one_node() -> AsyncIterator[AStore]:
    """Let all who live in a cluster of the node n1 work on its store, in the time of the loop."""
    store = AStore(clock=LoopClock())
    async with running(store, node("n1")):
        yield store
