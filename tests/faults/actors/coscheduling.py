"""Groups of scheduler-plugins and of Volcano: classes come and go, and pods flip from group to group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import yaml

from scheduler.objects.decode import decode_node, decode_pod
from scheduler.objects.pod_group import COSCHEDULING_LABEL, VOLCANO_ANNOTATIONS
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.faults.actors.actor import Actor
from tests.faults.group_checks import fit
from tests.faults.pod_facts import has_ended, is_pending
from tests.support.builders import pod_object
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.daemon_runs import Life

CRDS, CLASSES = "customresourcedefinitions.apiextensions.k8s.io", "priorityclasses.scheduling.k8s.io"
_GROUPS = {
    "podgroups.scheduling.x-k8s.io": "scheduling.x-k8s.io/v1alpha1",
    "podgroups.scheduling.volcano.sh": "scheduling.volcano.sh/v1beta1",
}
_COSCHEDULING, _VOLCANO = _GROUPS
_DEFINITIONS = [
    yaml.safe_load((MANIFESTS / "crds" / f"{name}.yaml").read_text())
    for name in ("podgroups.scheduling.x-k8s.io", "podgroups.scheduling.volcano.sh")
]
_CPU = ("100m", "500m", "1", "2")
_CLASS_NAMES = ("low", "middle", "high")
_MOST_PODS = 60


class CoschedulingGroups(Actor):
    """Whoever came from another group scheduler."""

    name = "coscheduling"
    pause_seconds: ClassVar[tuple[float, float]] = (0.5, 4.0)

    def begin(self) -> None:
        for definition in _DEFINITIONS:
            self.stage.store.create(CRDS, definition)
        self.stage.judges.append(self._judge)
        for _ in range(3):
            self.stage.later(self.random.uniform(0.5, 3.0), self._start)

    async def act(self) -> None:
        self.weighted(
            (6, self._start),
            (4, self._flip),
            (3, self._toggle_class),
            (2, self._change_group),
            (2, self._recreate_group),
            (3, self._delete_member),
        )()

    def _judge(
        self, life: Life, pod: PodInfo, node_name: str, there: Mapping[str, Mapping[str, PodInfo]]
    ) -> None:
        """No choice leaves a group with fewer pods on nodes than its minMember, by what the daemon's watches have shown.

        Pods count although their node was deleted, as in scheduler-plugins.
        """
        if pod.group is None:
            return
        group = (life.daemon.parts.cache.table.objects(pod.group.kind) or {}).get(pod.group.key)
        placed = {uid for pods in there.values() for uid, each in pods.items() if each.group == pod.group}
        placed |= {
            each.uid
            for each in life.pods.values()
            if each.group == pod.group
            and each.node_name
            and each.node_name not in there
            and not each.is_terminal
        }
        if group is None or len(placed | {pod.uid}) < group["spec"]["minMember"]:
            told = "no group" if group is None else f"{group['spec']['minMember']} have to be"
            self.stage.find(
                f"{pod.key} goes to {node_name}: {len(placed)} of {pod.group.key} are on nodes, {told}",
                pod.uid,
            )

    def check(self, life: Life) -> None:
        """A group that has enough pods and would fit does not wait."""
        if life.daemon.parts.nominator._nodes:
            return
        nodes = {
            each["metadata"]["name"]: decode_node(msgspec.json.encode(each))
            for each in self.stage.store.list("nodes")
        }
        there: dict[str, list[PodInfo]] = {name: [] for name in nodes}
        for pod in self.stage.store.list("pods"):
            if pod["spec"].get("nodeName") in there and not has_ended(pod):
                there[pod["spec"]["nodeName"]].append(_decoded(pod))
        for resource, group in self._all():
            name = group["metadata"]["name"]
            pods = [pod for pod in self._members() if _group_of(pod) == (resource, name)]
            waiting = [
                _decoded(pod) for pod in pods if is_pending(pod) and not pod["spec"].get("schedulingGates")
            ]
            placed = [pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")]
            needed = max(1, group["spec"]["minMember"] - len(placed))
            if (
                waiting
                and len({pod.scheduler_name for pod in waiting}) == 1
                and len(pods) >= group["spec"]["minMember"]
                and (placed or _has_min_resources(group, nodes, there))
                and fit(waiting, needed, nodes, there, "", placed)
            ):
                self.stage.find(f"{resource} {name} would fit, and waits", waiting[0].uid)

    def _start(self) -> None:
        """Make a group and its pods, in either order; its class may not be there."""
        draw = self.random
        self._count += 1
        resource, name = draw.choice(list(_GROUPS)), f"old{self._count}"
        size = draw.choice((1, 2, 3, 3, 4))
        spec: dict[str, Any] = {"minMember": draw.choice((size, size, max(1, size - 1)))}
        if resource == _VOLCANO and draw.random() < 0.7:
            spec["priorityClassName"] = draw.choice(_CLASS_NAMES)
        if draw.random() < 0.2:
            spec["minResources"] = {"cpu": draw.choice(("1", "3"))}
        self.tell(f"start {resource} {name} of {size}: {spec}")
        self.stage.later(draw.choice((0.0, 0.0, 3.0)), self._create_group, resource, name, spec)
        cpu, scheduler = draw.choice(_CPU), draw.choice(self.stage.plan.scheduler_names)
        for number in range(size):
            pod = pod_object(
                f"{name}-{number}", cpu=cpu, priority=draw.choice((0, 0, 10)), scheduler_name=scheduler
            )
            _join(pod["metadata"], resource, name)
            self.stage.later(draw.choice((0.0, 0.0, 0.0, 5.0)), self._create_pod, pod)

    def _create_group(self, resource: str, name: str, spec: dict[str, Any]) -> None:
        if self.stage.store.find(resource, name) is None:
            made = {"apiVersion": _GROUPS[resource], "kind": "PodGroup", "spec": spec}
            self.stage.store.create(resource, {**made, "metadata": {"name": name, "namespace": "default"}})

    def _create_pod(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        if len(self._members()) < _MOST_PODS and self.stage.store.find("pods", name) is None:
            self.stage.cluster.add_pods(pod)

    def _flip(self) -> None:
        """Move a pod to another group, also of the other kind, or to none."""
        pod, group = self.one_of(self._members()), self.one_of(list(self._all()))
        if pod is None or group is None:
            return
        metadata: dict[str, Any] = {
            "labels": {COSCHEDULING_LABEL: None},
            "annotations": {VOLCANO_ANNOTATIONS[0]: None},
        }
        if self.random.random() < 0.8:
            _join(metadata, group[0], group[1]["metadata"]["name"])
        self.tell(f"flip {pod['metadata']['name']}, {'pending' if is_pending(pod) else 'placed'}: {metadata}")
        self.stage.store.patch("pods", pod["metadata"]["name"], {"metadata": metadata})

    def _toggle_class(self) -> None:
        name = self.random.choice(_CLASS_NAMES)
        if self.stage.store.find(CLASSES, name) is not None:
            self.tell(f"remove the class {name}")
            self.stage.store.delete(CLASSES, name)
            return
        value = self.random.choice((-5, 0, 5, 100))
        self.tell(f"add the class {name} of {value}")
        self.stage.store.create(CLASSES, {"metadata": {"name": name}, "value": value})

    def _change_group(self) -> None:
        found = self.one_of(list(self._all()))
        if found is None:
            return
        spec: dict[str, Any] = {"minMember": self.random.choice((1, 2, 3))}
        if found[0] == _VOLCANO:
            spec["priorityClassName"] = self.random.choice((None, *_CLASS_NAMES))
        self.tell(f"change {found[1]['metadata']['name']} to {spec}")
        self.stage.store.patch(found[0], found[1]["metadata"]["name"], {"spec": spec})

    def _recreate_group(self) -> None:
        found = self.one_of(list(self._all()))
        if found is None:
            return
        resource, group = found
        name = group["metadata"]["name"]
        self.tell(f"recreate the object of {name}")
        self.stage.store.delete(resource, name)
        self.stage.later(
            self.random.choice((0.0, 0.2, 6.0)), self._create_group, resource, name, group["spec"]
        )

    def _delete_member(self) -> None:
        pod = self.one_of(self._members())
        if pod is None:
            return
        self.tell(f"delete {pod['metadata']['name']}")
        try:
            self.stage.store.delete("pods", pod["metadata"]["name"], grace_period_seconds=0)
        except StatusError:
            return  # it is gone already

    def _members(self) -> list[Object]:
        return [
            pod
            for pod in self.stage.our_pods()
            if pod["metadata"]["name"].startswith("old") and "deletionTimestamp" not in pod["metadata"]
        ]

    def _all(self) -> list[tuple[str, Object]]:
        return [(resource, group) for resource in _GROUPS for group in self.stage.store.list(resource)]


def _join(metadata: dict[str, Any], resource: str, name: str) -> None:
    if resource == _COSCHEDULING:
        metadata.setdefault("labels", {})[COSCHEDULING_LABEL] = name
    else:
        metadata.setdefault("annotations", {})[VOLCANO_ANNOTATIONS[0]] = name


def _group_of(pod: Object) -> tuple[str, str]:
    """Return the kind and the name of a pod's group; the label comes first."""
    label = pod["metadata"].get("labels", {}).get(COSCHEDULING_LABEL)
    if label:
        return _COSCHEDULING, label
    return _VOLCANO, pod["metadata"].get("annotations", {}).get(VOLCANO_ANNOTATIONS[0], "")


def _has_min_resources(
    group: Object, nodes: Mapping[str, NodeObject], there: Mapping[str, Sequence[PodInfo]]
) -> bool:
    """Whether all nodes together have the CPU that a group without placed pods asks for."""
    asked = 1000 * int(group["spec"].get("minResources", {}).get("cpu", "0"))
    used = sum(pod.resources.requests.get("cpu", 0) for pods in there.values() for pod in pods)
    return asked <= sum(node.allocatable.get("cpu", 0) for node in nodes.values()) - used


def _decoded(pod: Object) -> PodInfo:
    return decode_pod(msgspec.json.encode(pod))
