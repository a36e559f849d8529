"""Plays a scenario on a running server."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from scheduler.tools.simulator.apimachinery.objects import with_condition
from scheduler.tools.simulator.apimachinery.status import StatusError
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.node_agents.volume_drivers import ProvisioningFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from scheduler.tools.simulator.apimachinery.objects import Object
    from scheduler.tools.simulator.faults import Fault
    from scheduler.tools.simulator.scenarios.scenario import (
        DevicesOfNode,
        FaultStep,
        NodeGroup,
        Resizing,
        Scaling,
        Scenario,
        Step,
        Tainting,
        Target,
        VolumeFailure,
        WatchDrop,
        WorkloadPart,
    )
    from scheduler.tools.simulator.server import ApiServer

logger = logging.getLogger(__name__)

_UNREACHABLE_SECONDS: Final = 300.0
"""How long the pods of a dead node stay: as long as their default tolerations."""

_SERVED_SECONDS: Final = 5.0
_SERVED_POLL_SECONDS: Final = 0.01


class ScenarioPlayer:
    """One run of one scenario.

    Attributes:
        failures: the failed steps, with their errors; the remaining steps are run nevertheless.
    """

    def __init__(self, server: ApiServer, scenario: Scenario) -> None:
        self._server = server
        self._store = server.store
        self._scenario = scenario
        self._down: dict[str, asyncio.TimerHandle] = {}  # node name -> timer of the deletion of its pods
        self._timers: list[asyncio.TimerHandle] = []
        self.failures: list[str] = []
        self._actions: Mapping[str, Callable[[Any], None]] = {
            "add_nodes": self._add_nodes,
            "remove_node": self._remove_node,
            "drain": self._drain,
            "delete": self._delete,
            "scale": self._scale,
            "resize": self._resize,
            "cordon": partial(self._set_unschedulable, wanted=True),
            "uncordon": partial(self._set_unschedulable, wanted=False),
            "taint": partial(self._set_taint, wanted=True),
            "untaint": partial(self._set_taint, wanted=False),
            "kill_node": self._kill,
            "restore_node": self._restore,
            "fault": self._fault,
            "drop_watches": self._drop_watches,
            "compact": self._compact,
            "fail_volumes": self._fail_volumes,
            "withdraw_devices": self._withdraw_devices,
            "restore_devices": self._restore_devices,
        }

    async def set_up(self) -> None:
        """Create the initial objects.

        Raises:
            StatusError: the server rejects an object.
        """
        drivers = self._server.provisioner
        drivers.of_driver |= {name: wait.seconds for name, wait in self._scenario.provisioners.items()}
        for group in self._scenario.nodes:
            self._add_nodes(group)
        await self._apply(self._scenario.objects)

    async def play(self) -> None:
        """Run every arrival and step at its time; returns after the last."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            for at, action, work in self._timeline():
                await asyncio.sleep(max(0.0, start + at - loop.time()))
                fields = {"at": f"{at:g}s", "action": action}
                try:
                    await work()
                except (StatusError, KeyError) as error:
                    problem = error.message if isinstance(error, StatusError) else str(error.args[0])
                    self.failures.append(f"{fields['at']} {action}: {problem}")
                    logger.warning("Step of the scenario failed", extra={**fields, "error": problem})
                else:
                    logger.info("Step of the scenario done", extra=fields)
        except asyncio.CancelledError:
            self.stop()
            raise

    def _timeline(self) -> list[tuple[float, str, Callable[[], Awaitable[None]]]]:
        """Return (seconds since the start, name, work) of all arrivals and steps, in their order."""
        arrivals = [
            (at, f"workload {part.name}", partial(self._arrive, part, number))
            for part in self._scenario.workloads
            for number, at in enumerate(part.times())
        ]
        steps = [
            (step.at.seconds, step.action_field, partial(self._do, step, objects))
            for step, objects in self._scenario.steps
        ]
        return sorted([*arrivals, *steps], key=itemgetter(0))

    async def _do(self, step: Step, objects: Iterable[Object]) -> None:
        if step.apply is not None:
            await self._apply(objects)
        else:
            self._actions[step.action](getattr(step, step.action))

    async def _arrive(self, part: WorkloadPart, number: int) -> None:
        if number and part.kind != "Job":
            known = self._store.get(part.resource, part.name, part.namespace)["spec"]["replicas"]
            self._store.scale(part.resource, part.name, known + part.replicas, part.namespace)
        else:
            await self._apply(part.objects(number, self._scenario.kubernetes_version))

    def _add_nodes(self, group: NodeGroup) -> None:
        for node in group.node_objects():
            self._store.create("nodes", node)
        for csi_node in group.csi_nodes():
            self._store.create("csinodes.storage.k8s.io", csi_node)
        for name in group.node_names:
            for driver, devices in group.devices_by_driver.items():
                self._server.devices.publish(name, driver, devices)

    def _remove_node(self, name: str) -> None:
        self._store.delete("nodes", name)
        self._give_up(name)

    def _drain(self, name: str) -> None:
        self._set_unschedulable(name, wanted=True)
        for pod in self._store.list("pods", fields=f"spec.nodeName={name}"):
            if all(owner["kind"] != "DaemonSet" for owner in pod["metadata"].get("ownerReferences", ())):
                self._store.remove(pod)

    def stop(self) -> None:
        """Cancel all pending actions."""
        for timer in (*self._down.values(), *self._timers):
            timer.cancel()

    async def _apply(self, objects: Iterable[Object]) -> None:
        for obj in objects:
            # A definition's kind is served a moment after the definition exists.
            waited = 0.0
            while not self._store.serves(obj) and waited < _SERVED_SECONDS and self._store.defines(obj):
                await asyncio.sleep(_SERVED_POLL_SECONDS)
                waited += _SERVED_POLL_SECONDS
            self._store.apply(obj)

    def _delete(self, target: Target) -> None:
        grace = target.grace_period_seconds
        self._store.delete(target.resource, target.name, target.namespace, grace_period_seconds=grace)

    def _scale(self, scaling: Scaling) -> None:
        self._store.scale(scaling.resource, scaling.name, scaling.replicas, scaling.namespace)

    def _resize(self, resizing: Resizing) -> None:
        pod = self._store.get("pods", resizing.name, resizing.namespace)
        containers = [dict(each) for each in pod["spec"]["containers"]]
        names = [each["name"] for each in containers]
        wanted = resizing.container or names[0]
        if wanted not in names:
            raise KeyError(f"pod {resizing.namespace}/{resizing.name} has no container {wanted}")
        resized = containers[names.index(wanted)]
        resources = resized.get("resources", {})
        resized["resources"] = {**resources, "requests": resources.get("requests", {}) | resizing.requests}
        patch = {"spec": {"containers": containers}}
        self._store.patch("pods", resizing.name, patch, resizing.namespace, subresource="resize")

    def _set_unschedulable(self, node: str, *, wanted: bool) -> None:
        self._store.patch("nodes", node, {"spec": {"unschedulable": wanted or None}})

    def _set_taint(self, tainting: Tainting, *, wanted: bool) -> None:
        """Set a taint, replacing the one of that key and effect, or remove it."""
        present = self._store.get("nodes", tainting.node)["spec"].get("taints", [])
        taints = [one for one in present if (one["key"], one["effect"]) != (tainting.key, tainting.effect)]
        if wanted:
            value = {"value": tainting.value} if tainting.value else {}
            taints.append({"key": tainting.key, "effect": tainting.effect, **value})
        self._store.patch("nodes", tainting.node, {"spec": {"taints": taints or None}})

    def _kill(self, name: str) -> None:
        """Simulate the death of a node's kubelet; after five minutes its pods are deleted."""
        self._set_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        self._set_pods_ready(f"spec.nodeName={name}", "False")
        loop = asyncio.get_running_loop()
        if name in self._down:
            self._down[name].cancel()
        self._down[name] = loop.call_later(_UNREACHABLE_SECONDS, self._give_up, name)

    def _restore(self, name: str) -> None:
        self._set_ready(name, "True", "KubeletReady", "kubelet is posting ready status")
        timer = self._down.pop(name, None)
        if timer is not None:
            timer.cancel()
        self._set_pods_ready(f"spec.nodeName={name},status.phase=Running", "True")

    def _set_pods_ready(self, fields: str, status: str) -> None:
        """Set the readiness of the selected pods."""
        for pod in self._store.list("pods", fields=fields):
            conditions = [
                one | {"status": status} if one["type"] == "Ready" else one
                for one in pod["status"].get("conditions", ())
            ]
            self._store.change(pod, {"status": {"conditions": conditions}}, "status")

    def _give_up(self, name: str) -> None:
        for pod in self._store.list("pods", fields=f"spec.nodeName={name}"):
            self._store.remove(pod, grace_period_seconds=0)

    def _set_ready(self, name: str, status: str, reason: str, message: str) -> None:
        node = self._store.get("nodes", name)
        ready = {"type": "Ready", "status": status, "reason": reason, "message": message}
        conditions = with_condition(node["status"].get("conditions"), ready, self._store.timestamp())
        self._store.change(node, {"status": {"conditions": conditions}}, "status")

    def _fault(self, asked: FaultStep) -> None:
        fault = self._made(asked)
        if asked.for_ is not None:
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(asked.for_.seconds, self._server.faults.remove, fault))

    def _made(self, asked: FaultStep) -> Fault:
        faults = self._server.faults
        match = requests(
            verb=asked.verb,
            resource=asked.resource,
            subresource=asked.subresource,
            namespace=asked.namespace,
            name=asked.name,
        )
        if asked.delay is not None:
            return faults.delay(asked.delay.seconds, match, times=asked.times, probability=asked.probability)
        if asked.refuse is not None:
            after = None if asked.retry_after is None else round(asked.retry_after.seconds)
            return faults.refuse(
                asked.refuse,
                match,
                times=asked.times,
                probability=asked.probability,
                retry_after_seconds=after,
            )
        if asked.lose_answers:
            return faults.lose_answers(match, times=asked.times, probability=asked.probability)
        return faults.stall_watches(match)

    def _drop_watches(self, drop: WatchDrop) -> None:
        self._server.faults.drop_watches(requests(resource=drop.resource, namespace=drop.namespace))

    def _compact(self, resource: str) -> None:
        self._server.faults.compact("" if resource == "all" else resource)

    def _fail_volumes(self, failure: VolumeFailure) -> None:
        faults = self._server.provisioning_faults
        fault = faults.add(
            ProvisioningFault(
                failure.provisioner, failure.node, failure.claim, failure.times, failure.message
            )
        )
        if failure.for_ is not None:
            loop = asyncio.get_running_loop()
            self._timers.append(loop.call_later(failure.for_.seconds, faults.remove, fault))

    def _withdraw_devices(self, devices: DevicesOfNode) -> None:
        self._server.devices.withdraw(devices.node, devices.driver)

    def _restore_devices(self, devices: DevicesOfNode) -> None:
        self._server.devices.restore(devices.node, devices.driver)
