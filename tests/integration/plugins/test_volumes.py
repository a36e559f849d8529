"""Claims of pods in a running daemon, beside a PV controller and provisioners: binding, provisioning, failures."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.daemon.app.live_explain import live_explanation
from scheduler.testing.samples import DRIVER, claim, mounted, only_on, storage_class, volume
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.node_agents.volume_drivers import ProvisionerOptions, ProvisioningFault
from tests.integration.groups.gangs import add_gang
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import Cluster, cluster
from tests.support.virtual_time import LoopClock, now

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

HOST = "kubernetes.io/hostname"
VOLUMES, CLAIMS = "persistentvolumes", "persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
PUTS_VOLUME = requests(verb="update", resource=VOLUMES)
PUTS_CLAIM = requests(verb="update", resource=CLAIMS)
SHORT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 5}
"""


def local(name: str, node: str, size: str = "10Gi") -> dict[str, Any]:
    """Return a volume that only one node reaches."""
    return volume(
        name, nodeAffinity=only_on(HOST, node), storageClassName="local", capacity={"storage": size}
    )


def using(name: str, *claims: str, **spec: Any) -> dict[str, Any]:
    return pod_object(name, volumes=mounted(*claims), **spec)


@asynccontextmanager
async def storage_cluster(folder: Path, **options: Any) -> AsyncIterator[Cluster]:
    """Two nodes, a class of local volumes, and one whose volumes are made on demand, within a second."""
    async with cluster(folder, controllers=True, **options) as it:
        it.add_nodes(node_object("n1"), node_object("n2"))
        create(it, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
        create(it, storage_class("made", topologies=[{HOST: ["n1", "n2"]}]))
        yield it


def create(it: Cluster, *objects: dict[str, Any]) -> None:
    resources = {
        "PersistentVolume": VOLUMES,
        "PersistentVolumeClaim": CLAIMS,
        "StorageClass": "storageclasses.storage.k8s.io",
    }
    for each in objects:
        metadata = {field: value for field, value in each["metadata"].items() if field != "uid"}
        it.server.store.create(resources[each["kind"]], {**each, "metadata": metadata})


def bound_to(it: Cluster, name: str) -> str:
    """The volume of a claim, once both say so."""
    found = it.server.store.get(CLAIMS, name, "default")
    return str(found["spec"].get("volumeName", "")) if found["status"].get("phase") == "Bound" else ""


def failures(it: Cluster, pod: str) -> list[str]:
    return it.notes(pod, "FailedScheduling")


async def placed(it: Cluster, name: str, *, seconds: float = 60.0) -> str:
    await it.until(lambda: it.node_of(name), seconds=seconds)
    return it.node_of(name)


async def test_a_pod_goes_where_a_volume_is_ready_and_both_are_bound_first(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        create(it, local("on-n2", "n2"), claim("data", class_name="local"))
        async with it.daemon():
            it.add_pods(using("db", "data"))

            assert await placed(it, "db") == "n2"
            assert bound_to(it, "data") == "on-n2"
            found = it.server.store.get(VOLUMES, "on-n2")
            assert found["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"
            reference = found["spec"]["claimRef"]
            assert (reference["kind"], reference["apiVersion"]) == ("PersistentVolumeClaim", "v1")
            assert reference["uid"] == it.server.store.get(CLAIMS, "data", "default")["metadata"]["uid"]
            assert not failures(it, "db")


async def test_a_volume_is_provisioned_at_the_node_of_the_pod_while_others_are_placed(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=100)) as it:
        create(it, claim("data", class_name="made"))
        async with it.daemon():
            it.add_pods(using("db", "data", nodeSelector={HOST: "n2"}), pod_object("plain"))
            await placed(it, "plain")
            assert now() < 10
            await it.until(lambda: SELECTED_NODE in annotations(it, "data"))
            assert annotations(it, "data")[SELECTED_NODE] == "n2"
            assert not it.node_of("db")

            assert await placed(it, "db", seconds=200) == "n2"
            assert 100 <= now() < 110
            assert bound_to(it, "data").startswith("pvc-")


@pytest.mark.parametrize("class_name", ["local", "made"])
async def test_members_of_a_gang_share_an_unbound_claim(tmp_path: Path, class_name: str) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=3)) as it:
        it.add_nodes(node_object("n3", cpu="32"))
        create(it, local("on-n3", "n3"), claim("data", class_name=class_name))
        where = {"n3"} if class_name == "local" else {"n1", "n2", "n3"}
        async with it.daemon():
            add_gang(it, "g", 6, cpu="100m", volumes=mounted("data"))
            nodes = {await placed(it, f"g-{number}", seconds=30) for number in range(6)}

            assert len(nodes) == 1
            assert nodes <= where
            assert not any(failures(it, f"g-{number}") for number in range(6))


def annotations(it: Cluster, name: str) -> dict[str, str]:
    found: dict[str, str] = it.server.store.get(CLAIMS, name, "default")["metadata"].get("annotations", {})
    return found


async def test_each_replica_of_a_stateful_set_gets_a_volume_of_its_own(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, kubelet=True) as it:
        create(it, *(local(f"v{number}", f"n{1 + number % 2}") for number in range(4)))
        template = {"metadata": {"name": "data"}, "spec": claim("", class_name="local")["spec"]}
        container = {"name": "c", "image": "nginx", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        spec = {
            "serviceName": "db",
            "replicas": 4,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"schedulerName": "custom-scheduler", "containers": [container]},
            },
            "volumeClaimTemplates": [template],
        }
        async with it.daemon():
            metadata = {"name": "db", "namespace": "default"}
            it.server.store.create("statefulsets.apps", {"metadata": metadata, "spec": spec})
            await it.until(lambda: len(it.pods()) == 4 and all(it.node_of(f"db-{n}") for n in range(4)))

        volumes = {bound_to(it, f"data-db-{number}"): it.node_of(f"db-{number}") for number in range(4)}
        assert volumes == {"v0": "n1", "v1": "n2", "v2": "n1", "v3": "n2"}


async def test_two_pods_for_one_volume_get_one_each_when_there_is_another(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        create(it, local("v1", "n1"), claim("a", class_name="local"), claim("b", class_name="local"))
        async with it.daemon():
            it.add_pods(using("first", "a"), using("second", "b"))
            await placed(it, "first")
            await it.until(lambda: failures(it, "second"))
            assert failures(it, "second")[0].startswith(
                "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
            )

            create(it, local("v2", "n2"))
            assert await placed(it, "second") == "n2"
            assert (bound_to(it, "a"), bound_to(it, "b")) == ("v1", "v2")


async def test_a_pod_goes_elsewhere_when_its_volume_cannot_be_provisioned(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        it.server.provisioning_faults.add(ProvisioningFault(provisioner=DRIVER, times=1))
        create(it, claim("data", class_name="made"))
        async with it.daemon() as daemon:
            it.add_pods(using("db", "data"))
            await placed(it, "db")

            reported = (
                'running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data"'
            )
            assert failures(it, "db") == [reported]
            text = daemon.metrics.text()[0].decode()
            assert 'scheduler_volume_scheduling_stage_error_total{operation="bind"} 1.0' in text


async def test_a_pod_stops_waiting_at_its_timeout_and_gets_its_volume_later(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=30)) as it:
        create(it, claim("data", class_name="made"))
        async with it.daemon(SHORT):
            it.add_pods(using("db", "data"))
            await it.until(lambda: failures(it, "db"))
            reported = 'running PreBind plugin "VolumeBinding": binding volumes: context deadline exceeded'
            assert failures(it, "db")[0] == reported
            assert 5 <= now() < 6

            assert await placed(it, "db") == annotations(it, "data")[SELECTED_NODE]


TROUBLES: list[Any] = [
    pytest.param(lambda it: it.server.faults.refuse(409, PUTS_VOLUME, times=1), id="a conflict"),
    pytest.param(lambda it: it.server.faults.refuse(500, PUTS_VOLUME, times=1), id="a server that fails"),
    pytest.param(lambda it: it.server.faults.lose_answers(PUTS_VOLUME, times=1), id="a lost answer"),
    pytest.param(lambda it: it.server.faults.refuse(409, PUTS_CLAIM, times=1), id="a conflict of a claim"),
    pytest.param(
        lambda it: it.server.faults.lose_answers(PUTS_CLAIM, times=1), id="a lost answer of a claim"
    ),
]


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_a_failed_write_is_repaired(trouble: Callable[[Cluster], object], tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        create(it, local("v1", "n1"), claim("old", class_name="local"), claim("new", class_name="made"))
        async with it.daemon():
            trouble(it)
            it.add_pods(using("db", "old", "new"))

            assert await placed(it, "db") == "n1"
            assert bound_to(it, "old") == "v1"
            assert bound_to(it, "new").startswith("pvc-")


@pytest.mark.parametrize("silent", [VOLUMES, CLAIMS])
async def test_a_slow_watch_causes_a_delay_and_no_error(silent: str, tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        create(it, local("v1", "n1"), local("v2", "n2"))
        create(it, claim("a", class_name="local"), claim("b", class_name="local"))
        async with it.daemon():
            await asyncio.sleep(1)
            stall = it.server.faults.stall_watches(requests(verb="watch", resource=silent))
            it.add_pods(using("first", "a"), using("second", "b"))
            await asyncio.sleep(20)
            it.server.faults.remove(stall)
            await placed(it, "first")
            await placed(it, "second")

            assert {bound_to(it, "a"), bound_to(it, "b")} == {"v1", "v2"}


async def test_a_pod_deleted_during_provisioning_releases_its_capacity(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=300)) as it:
        create(it, claim("data", class_name="made"))
        async with it.daemon() as daemon:
            it.add_pods(using("db", "data", cpu="3", nodeSelector={HOST: "n1"}))
            await it.until(lambda: SELECTED_NODE in annotations(it, "data"))
            it.server.store.delete("pods", "db", grace_period_seconds=0)
            it.add_pods(pod_object("next", cpu="3", nodeSelector={HOST: "n1"}))

            assert await placed(it, "next") == "n1"
            assert now() < 10
            await it.until(lambda: not daemon.cycles.binding.under_way)
            assert now() < 10


async def test_the_next_daemon_continues_the_wait_of_the_last_one(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=100)) as it:
        create(it, local("v1", "n1"), claim("old", class_name="local"), claim("new", class_name="made"))
        async with it.daemon():
            it.add_pods(using("db", "old", "new"))
            await it.until(lambda: SELECTED_NODE in annotations(it, "new"))
        assert not it.node_of("db")

        async with it.daemon(seed=2):
            assert await placed(it, "db", seconds=200) == "n1"
            assert bound_to(it, "old") == "v1"
            assert bound_to(it, "new").startswith("pvc-")


async def test_a_pod_goes_elsewhere_when_its_node_is_deleted_before_provisioning(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path, provisioner=ProvisionerOptions(seconds=30)) as it:
        create(it, claim("data", class_name="made"))
        async with it.daemon():
            it.add_pods(using("db", "data"))
            await it.until(lambda: SELECTED_NODE in annotations(it, "data"))
            first = annotations(it, "data")[SELECTED_NODE]
            it.server.store.delete("nodes", first)
            await it.until(lambda: failures(it, "db"))
            gone = f'failed to get node "{first}": node "{first}" not found'
            assert failures(it, "db")[0] == f'running PreBind plugin "VolumeBinding": binding volumes: {gone}'

            assert await placed(it, "db", seconds=300) not in {"", first}


async def test_a_pod_waits_until_its_claim_exists_and_is_bound(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        create(it, storage_class("at-once", mode="Immediate"))
        async with it.daemon():
            it.add_pods(using("db", "data"))
            await it.until(lambda: failures(it, "db"))
            assert failures(it, "db")[0].startswith(
                '0/2 nodes are available: persistentvolumeclaim "data" not found.'
            )

            create(it, claim("data", class_name="at-once"))
            assert await placed(it, "db")
            assert bound_to(it, "data")


async def test_a_claim_of_an_ephemeral_volume_is_created_and_bound_for_its_pod(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it:
        template = {"spec": claim("", class_name="made")["spec"]}
        source = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
        async with it.daemon():
            it.add_pods(pod_object("job", volumes=[source]))

            assert await placed(it, "job")
            assert bound_to(it, "job-scratch")


async def test_a_running_daemon_shows_the_current_volume_that_rejects_a_pod(tmp_path: Path) -> None:
    async with storage_cluster(tmp_path) as it, it.daemon() as daemon:
        create(it, claim("data", class_name="local", storage="10Gi"), local("small", "n1", "5Gi"))
        it.add_pods(using("web", "data", nodeSelector={HOST: "n1"}))
        await it.until(lambda: it.condition("web"))

        reported = live_explanation(daemon, "default/web", LoopClock())

        assert reported is not None
        nodes = reported["attempt"]["nodes"]
        assert nodes["n1"]["details"] == [
            'claim data needs a ReadWriteOnce volume of 10Gi or more; of the 1 volumes of class "local":',
            "  small has only 5Gi",
            'what would help: such a volume of class "local" that this node reaches; its class has no provisioner',
        ]
        assert nodes["n2"]["details"] == [f"nodeSelector {HOST}=n1; the node has {HOST}=n2"]

        it.server.store.delete(VOLUMES, "small")
        await it.until(lambda: not daemon.parts.cache.snapshot().objects("v1/persistentvolumes"))
        reported = live_explanation(daemon, "default/web", LoopClock())

        assert reported is not None
        assert reported["attempt"]["nodes"]["n1"]["details"][0].endswith("; there is none"), "as of now"
