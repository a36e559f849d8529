"""Plans are carried out in a running cluster, one eviction after another, and stop at the first surprise."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import default, parse
from scheduler.kube.client.connection import ApiConnection
from scheduler.tools.simulator.faults import requests
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.eviction_budgets import BUDGETS
from scheduler.tools.whatif.live_cluster import read_cluster
from scheduler.tools.whatif.offline import OfflineScheduler
from scheduler.tools.whatif.rebalancing.evictable_pods import Wanted
from scheduler.tools.whatif.rebalancing.execution import Execution, SurpriseError
from scheduler.tools.whatif.rebalancing.rebalancer import Rebalancer
from tests.support.builders import node_object
from tests.support.daemon_accounts import Account
from tests.support.daemon_harness import cluster
from tests.support.helm import templated
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.framework.preemption import RecentEvictions
    from scheduler.tools.whatif.rebalancing.execution import CarriedOut
    from scheduler.tools.whatif.rebalancing.rebalancer import Step
    from tests.support.daemon_harness import Cluster

PACKING = (MANIFESTS / "examples" / "rebalance" / "scheduler.yaml").read_text()
ROLE = "custom-scheduler-rebalance"
USER = "system:serviceaccount:kube-system:daemon-8"
RBAC = "rbac.authorization.k8s.io"
OF_OTHER_VERSIONS = {("devicetaintrules", "list"), ("workloads", "list")}
"""Rights that plugins use with gates, or in another version of Kubernetes."""
DEPLOYMENTS, PDBS = "deployments.apps", "poddisruptionbudgets.policy"


class World:
    """A cluster with a rebalancing of it."""

    def __init__(self, it: Cluster, connection: ApiConnection) -> None:
        self.it = it
        self._connection = connection

    async def now(self) -> Rebalancer:
        scheduler = OfflineScheduler(ClusterFile(), parse(PACKING))
        given = await read_cluster(self._connection, scheduler.needs.kinds | {BUDGETS})
        scheduler.fill(given)
        return Rebalancer(scheduler, given, "nodes", Wanted())

    async def read_for_default_plugins(self) -> None:
        """Read the cluster as a profile with the default plugins, which the role of the chart is for."""
        await read_cluster(self._connection, OfflineScheduler(ClusterFile(), default()).needs.kinds)

    async def steps(self) -> list[Step]:
        return (await self.now()).plan(most_evictions=20, most_tries=2000).steps

    def execution(self, patience_seconds: float = 300.0) -> Execution:
        return Execution(self._connection, self.now, patience_seconds=patience_seconds)

    async def carried_out(self, steps: list[Step]) -> list[CarriedOut]:
        return [each async for each in self.execution().run(steps)]

    def deployment(self, name: str, replicas: int, cpu: str = "1", **spec: Any) -> None:
        container = {
            "name": "main",
            "image": "registry.k8s.io/pause:3.10",
            "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}},
        }
        pod = {"schedulerName": "custom-scheduler", "containers": [container], **spec}
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": pod}
        workload = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.it.server.store.create(
            DEPLOYMENTS, {"metadata": {"name": name, "namespace": "default"}, "spec": workload}
        )

    def nodes_of(self, app: str) -> list[str]:
        """The nodes of the ready pods of an app."""
        return sorted(
            pod["spec"]["nodeName"]
            for pod in self.it.pods()
            if pod["metadata"]["labels"].get("app") == app
            and "deletionTimestamp" not in pod["metadata"]
            and any(each["type"] == "Ready" for each in pod["status"].get("conditions", ()))
        )

    def evictions(self) -> int:
        """The number of evictions that the API server was asked for."""
        return len(self.it.server.requests.matching(method="POST", path="/eviction"))


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[World]:
    """Run a cluster in which a node has two pods of `web` and another node has one; the account has the role of the chart."""
    async with (
        cluster(folder, kubelet=True, controllers=True) as it,
        it.daemon(PACKING),
        ApiConnection(it.endpoint, authorization=Account(it.server, 8)) as connection,
    ):
        (role,) = [
            each for each in templated({"rebalance": {"enabled": True}}) if each["metadata"]["name"] == ROLE
        ]
        it.server.store.create(f"clusterroles.{RBAC}", role)
        subject = {"kind": "User", "name": USER, "apiGroup": RBAC}
        reference = {"kind": "ClusterRole", "name": ROLE, "apiGroup": RBAC}
        binding = {"metadata": {"name": ROLE}, "roleRef": reference, "subjects": [subject]}
        it.server.store.create(f"clusterrolebindings.{RBAC}", binding)
        world = World(it, connection)
        it.add_nodes(node_object("n1"), node_object("n2"))
        world.deployment("night", 2)
        await it.until(lambda: len(world.nodes_of("night")) == 2)
        world.deployment("web", 3)
        await it.until(lambda: len(world.nodes_of("web")) == 3)
        it.server.store.delete(DEPLOYMENTS, "night", "default")
        await it.until(lambda: not [pod for pod in it.pods() if pod["metadata"]["labels"]["app"] == "night"])
        assert len(set(world.nodes_of("web"))) == 2
        yield world


async def test_a_plan_is_carried_out_by_the_daemon_that_places_the_replacements(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        (done,) = await world.carried_out(steps)

        assert (done.pod, done.node) == (steps[0].pod, steps[0].to_node)
        assert done.node == done.expected_node
        assert done.replacement != done.pod
        assert world.nodes_of("web") == [done.node] * 3
        assert await world.steps() == [], "nothing is left to improve"
        grants = world.it.server.grants
        await world.read_for_default_plugins()
        unused = grants.unused(f"ClusterRole/{ROLE}", USER)
        assert {(each.resource, each.verb) for each in unused} == OF_OTHER_VERSIONS
        assert grants.refused_to(USER) == []


async def test_the_execution_stops_when_a_budget_refuses_an_eviction(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        execution = world.execution()
        allowed = await world.now()
        selector = {"matchLabels": {"app": "web"}}
        world.it.server.store.create(
            PDBS,
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"minAvailable": 3, "selector": selector},
            },
        )
        await asyncio.sleep(1.0)

        with pytest.raises(SurpriseError, match=r"PodDisruptionBudget .web. that allows 0 evictions now"):
            await anext(execution.run(steps))
        assert world.evictions() == 0, "the budget is known before the eviction"

        # The same if the budget is used up between the look at the cluster and the eviction.
        execution._now = _always(allowed)
        with pytest.raises(SurpriseError, match=r"the eviction of pod .* is refused: .*disruption budget"):
            await anext(execution.run(steps))
        assert len(world.nodes_of("web")) == 3


def _always(known: Rebalancer) -> Any:
    async def now() -> Rebalancer:
        return known

    return now


async def test_evictions_that_were_carried_out_count_for_the_limits(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        execution = world.execution()
        (step,) = await world.steps()
        seen: list[int] = []
        execution._now = _counting(world, seen)

        await anext(execution.run([step]))
        with pytest.raises(SurpriseError):
            await anext(execution.run([step]))

        assert seen == [0, 1]


def _counting(world: World, seen: list[int]) -> Any:
    async def now() -> Rebalancer:
        rebalancer = await world.now()
        count = rebalancer.count

        def noted(evictions: RecentEvictions) -> None:
            seen.append(len(evictions))
            count(evictions)

        rebalancer.count = noted  # type: ignore[method-assign]
        return rebalancer

    return now


async def test_the_execution_stops_when_a_replacement_stays_pending(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        gate = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/wait"}]}}}}
        replica_set = next(
            each["metadata"]["name"]
            for each in world.it.server.store.list("replicasets.apps")
            if each["metadata"]["labels"]["app"] == "web"
        )
        world.it.server.store.patch("replicasets.apps", replica_set, gate)
        began = asyncio.get_running_loop().time()

        with pytest.raises(SurpriseError, match="is pending 120 s after its eviction"):
            await anext(world.execution(patience_seconds=120.0).run(steps))
        assert 119.0 <= asyncio.get_running_loop().time() - began <= 125.0


async def test_the_execution_stops_when_a_replacement_is_on_a_worse_node(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        execution, known = world.execution(), await world.now()
        execution._now = _always(known)
        # For this profile a node that is full afterwards is the best one.
        world.it.add_nodes(node_object("n3", cpu="1", memory="1Gi"))

        with pytest.raises(
            SurpriseError,
            match=f"is on node n3, expected on {steps[0].to_node}, and that is worse .nodes in use 1 -> ",
        ):
            await anext(execution.run(steps))


async def test_the_execution_stops_before_an_eviction_that_is_no_gain_any_more(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        here = {"kubernetes.io/hostname": steps[0].from_node}
        world.deployment("late", 1, cpu="100m", nodeSelector=here)
        await world.it.until(lambda: world.nodes_of("late"))

        with pytest.raises(
            SurpriseError, match="makes the plan void: the rest of the plan gains nothing any more"
        ):
            await anext(world.execution().run(steps))
        assert world.evictions() == 0


async def test_the_execution_stops_when_the_pod_is_gone(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        world.it.server.store.delete("pods", steps[0].pod.partition("/")[2], "default")
        await asyncio.sleep(60.0)

        with pytest.raises(SurpriseError, match=f"pod {steps[0].pod} does not exist any more"):
            await anext(world.execution().run(steps))
        assert world.evictions() == 0


async def test_the_execution_stops_when_it_is_not_clear_which_pod_is_the_replacement(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        execution = world.execution()
        execution._now = _always(await world.now())
        world.it.server.store.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 4}})

        with pytest.raises(SurpriseError, match=r"ReplicaSet web-\w+ has several new pods: default/web-"):
            await anext(execution.run(steps))


async def test_the_execution_waits_while_the_api_server_does_not_answer(tmp_path: Path) -> None:
    async with running(tmp_path) as world:
        steps = await world.steps()
        execution = world.execution()
        execution._now = _always(await world.now())
        listed = requests(verb="list", resource="pods", namespace="default")
        fault = world.it.server.faults.refuse(503, listed, times=3)

        assert (await anext(execution.run(steps))).node == steps[0].to_node
        assert fault.times == 0, "it was met"
