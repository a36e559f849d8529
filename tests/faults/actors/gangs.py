"""Groups of pods: made at once or bit by bit, of many shapes; members and groups go, and come again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import yaml

from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.faults.actors.actor import Actor
from tests.faults.actors.nodes import HOSTNAME, ZONES
from tests.faults.pod_facts import is_pending
from tests.support.builders import node_object, pod_object
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from scheduler.tools.simulator.apimachinery.objects import Object
    from tests.faults.stage import Stage

POD_GROUPS = "podgroups.scheduling.k8s.io"
CRDS, QUOTAS = "customresourcedefinitions.apiextensions.k8s.io", "elasticquotas.scheduling.x-k8s.io"
GATES = ("WorkloadAwarePreemption", "TopologyAwareWorkloadScheduling")
TEAMS = ("team-a", "team-b")

_DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "elasticquotas.yaml").read_text())
_CPU = ("100m", "500m", "1", "1500m", "2", "3")
_PRIORITIES = (0, 0, 0, 10, 1000)
_SIZES = (1, 2, 2, 3, 3, 4, 6, 8)
_MOST_PODS = 70
_FOR_ALL = 4
"""So many nodes of a zone, each large enough for several gangs, are more than all that wait need."""


class Gangs(Actor):
    """Whoever trains models."""

    name = "gangs"
    pause_seconds: ClassVar[tuple[float, float]] = (0.5, 5.0)

    def begin(self) -> None:
        # (namespace, group) -> what its pods are like
        self._fields: dict[tuple[str, str], dict[str, Any]] = {}
        if self.stage.plan.quotas:
            self.stage.store.create(CRDS, _DEFINITION)
            for team in TEAMS:
                self.stage.store.create("namespaces", {"metadata": {"name": team}})
            self.stage.later(0.5, self._make_quotas)
        for _ in range(self.random.randint(1, 3)):
            self.stage.later(self.random.uniform(0.6, 3.0), self._start)

    async def act(self) -> None:
        self.weighted(
            (6, self._start),
            (3, self._delete_member),
            (3, self._add_member),
            (2, self._end),
            (2, self._recreate_group),
            (2, self._change_quota),
        )()

    def _start(self) -> None:
        """Make a group and its pods, in any order, some of them later."""
        draw = self.random
        self._count += 1
        name, namespace = f"gang{self._count}", "default"
        if self.stage.plan.quotas and draw.random() < 0.7:
            namespace = draw.choice(TEAMS)
        size = draw.choice(_SIZES)
        group = self._group(name, namespace, size)
        fields = self._fields[namespace, name] = self._draw_fields()
        self.tell(f"start {namespace}/{name} of {size}: {group['spec']}")
        late = draw.choice((0.0, 0.0, 0.0, 0.1, 5.0))
        if late:
            self.stage.later(late, self._create_group, group)
        else:
            self._create_group(group)
        leader = self._draw_fields() if draw.random() < 0.4 else fields
        for number in range(size):
            wait = draw.choice((0.0, 0.0, 0.0, 0.0, 0.5, 8.0))
            each = {**(leader if number == 0 else fields), "scheduler_name": fields["scheduler_name"]}
            act = (f"{name}-{number}", namespace, name, each)
            if wait:
                self.stage.later(wait, self._create_member, *act)
            else:
                self._create_member(*act)

    def _group(self, name: str, namespace: str, size: int) -> dict[str, Any]:
        draw = self.random
        least = draw.choice((size, size, size, draw.randint(1, size)))
        policy: dict[str, Any] = {"gang": {"minCount": least}} if draw.random() < 0.85 else {"basic": {}}
        spec: dict[str, Any] = {"schedulingPolicy": policy}
        if draw.random() < 0.3:
            spec["schedulingConstraints"] = {"topology": [{"key": "zone"}]}
        if draw.random() < 0.5:
            spec["disruptionMode"] = draw.choice(("Pod", "PodGroup"))
        if draw.random() < 0.3:
            spec["priorityClassName"] = self.stage.cluster.priority_class(draw.choice((10, 1000)))
        return {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }

    def _draw_fields(self) -> dict[str, Any]:
        draw = self.random
        fields: dict[str, Any] = {
            "cpu": draw.choice(_CPU),
            "memory": draw.choice(("64Mi", "1Gi")),
            "priority": draw.choice(_PRIORITIES),
            "scheduler_name": draw.choice(self.stage.plan.scheduler_names),
        }
        if draw.random() < 0.15:
            fields["node_selector"] = {"zone": draw.choice(ZONES)}
        return fields

    def _create_group(self, group: dict[str, Any]) -> None:
        if self._find(group["metadata"]["namespace"], group["metadata"]["name"]) is None:
            self.stage.store.create(POD_GROUPS, group)

    def _create_member(self, name: str, namespace: str, group: str, fields: dict[str, Any]) -> None:
        pods = self.stage.store.list("pods")
        if len(pods) >= _MOST_PODS or self.stage.store.find("pods", name, namespace) is not None:
            return
        pod = pod_object(name, namespace=namespace, **fields)
        pod["spec"]["schedulingGroup"] = {"podGroupName": group}
        self.stage.cluster.add_pods(pod)

    def _delete_member(self) -> None:
        pod = self.one_of(self._members())
        if pod is None:
            return
        metadata = pod["metadata"]
        self.tell(f"delete {'pending' if is_pending(pod) else 'running'} member {metadata['name']}")
        self._delete(pod)
        if self.random.random() < 0.6:  # as its Job would
            group = pod["spec"]["schedulingGroup"]["podGroupName"]
            fields = self._fields[metadata["namespace"], group]
            self._count += 1
            self.stage.later(
                self.random.choice((0.0, 2.0)),
                self._create_member,
                f"{group}-again-{self._count}",
                metadata["namespace"],
                group,
                fields,
            )

    def _add_member(self) -> None:
        group = self.one_of(self.stage.store.list(POD_GROUPS))
        if group is None:
            return
        name, namespace = group["metadata"]["name"], group["metadata"]["namespace"]
        self._count += 1
        self.tell(f"add a member to {name}")
        self._create_member(f"{name}-more-{self._count}", namespace, name, self._fields[namespace, name])

    def _end(self) -> None:
        """Delete a group with all its pods, in either order."""
        group = self.one_of(self.stage.store.list(POD_GROUPS))
        if group is None:
            return
        name, namespace = group["metadata"]["name"], group["metadata"]["namespace"]
        self.tell(f"end {name}")
        pods = [
            pod
            for pod in self._members()
            if pod["metadata"]["namespace"] == namespace
            and pod["spec"]["schedulingGroup"]["podGroupName"] == name
        ]
        if self.random.random() < 0.5:
            self.stage.store.delete(POD_GROUPS, name, namespace)
            pods.reverse()
        else:
            self.stage.later(1.0, self._delete_group, namespace, name)
        for pod in pods:
            self._delete(pod)

    def _recreate_group(self) -> None:
        """Delete a group's object alone, and make another by its name, which may say something else."""
        group = self.one_of(self.stage.store.list(POD_GROUPS))
        if group is None:
            return
        name, namespace = group["metadata"]["name"], group["metadata"]["namespace"]
        self.tell(f"recreate the object of {name}")
        self._delete_group(namespace, name)
        other = {key: group[key] for key in ("apiVersion", "kind", "spec")}
        other["metadata"] = {"name": name, "namespace": namespace}
        if self.random.random() < 0.3:
            other = self._group(name, namespace, self.random.choice((1, 2, 3)))
        self.stage.later(self.random.choice((0.0, 0.2, 6.0)), self._create_group, other)

    def _delete_group(self, namespace: str, name: str) -> None:
        if self._find(namespace, name) is not None:
            self.stage.store.delete(POD_GROUPS, name, namespace)
        if self._find(namespace, name) is not None and self.random.random() < 0.5:
            # It waits for its pods to end.
            patch = {"metadata": {"finalizers": None}}
            self.stage.store.patch(POD_GROUPS, name, patch, namespace)

    def _delete(self, pod: Object) -> None:
        metadata = pod["metadata"]
        grace = self.random.choice((None, 0))
        try:
            self.stage.store.delete(
                "pods", metadata["name"], metadata["namespace"], grace_period_seconds=grace
            )
        except StatusError:
            return  # it is gone already

    def _make_quotas(self) -> None:
        for team in TEAMS:
            self.stage.store.create(
                QUOTAS,
                {
                    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
                    "kind": "ElasticQuota",
                    "metadata": {"name": team, "namespace": team},
                    "spec": self._limits(self.random.choice((2, 4)), self.random.choice((4, 6, 10))),
                },
            )

    def _change_quota(self) -> None:
        if not self.stage.plan.quotas:
            return
        team = self.random.choice(TEAMS)
        if self.stage.store.find(QUOTAS, team, team) is None:
            return
        limits = self._limits(self.random.choice((1, 3, 5)), self.random.choice((5, 8)))
        self.tell(f"{team} may have {limits}")
        self.stage.store.patch(QUOTAS, team, {"spec": limits}, team)

    def _limits(self, least: int, most: int) -> dict[str, Any]:
        return {"min": {"cpu": least, "memory": "500Gi"}, "max": {"cpu": most, "memory": "900Gi"}}

    def _members(self) -> list[Object]:
        return [
            pod
            for pod in self.stage.our_pods()
            if "schedulingGroup" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
        ]

    def _find(self, namespace: str, name: str) -> Object | None:
        return self.stage.store.find(POD_GROUPS, name, namespace)


def make_room(stage: Stage) -> None:
    """Add room for all that wait: nodes of each zone, and larger quotas; pods of nodes that are lost go."""
    nodes = {each["metadata"]["name"] for each in stage.store.list("nodes")}
    for pod in stage.store.list("pods"):
        if pod["spec"].get("nodeName") and pod["spec"]["nodeName"] not in nodes:
            metadata = pod["metadata"]
            stage.store.delete("pods", metadata["name"], metadata["namespace"], grace_period_seconds=0)
    if stage.plan.quotas:
        limits = {"cpu": 10000, "memory": "10000Gi"}
        for quota in stage.store.list(QUOTAS):
            metadata = quota["metadata"]
            patch = {"spec": {"min": limits, "max": limits}}
            stage.store.patch(QUOTAS, metadata["name"], patch, metadata["namespace"])
    for zone in ZONES:
        for number in range(_FOR_ALL):
            name = f"large-{zone}-{number}"
            labels = {"zone": zone, HOSTNAME: name}
            stage.cluster.add_nodes(node_object(name, cpu="100", memory="500Gi", labels=labels))
