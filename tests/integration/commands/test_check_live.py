"""`custom-scheduler check --live`: rights that are missing, and schedulers that have the lease or the name."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from scheduler.cli.check import tell_shards
from scheduler.configuration.load import default, parse
from scheduler.daemon.app.live_names import LiveNames, NameCheck
from scheduler.daemon.app.rights import Named, Right, missing_rights, rights_of
from scheduler.daemon.sharding.assignment_object import encode
from scheduler.kube.client.connection import ApiConnection
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.support.builders import node_object, pod_object
from tests.support.daemon_accounts import Account
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.kube.client.login import Headers
    from scheduler.tools.simulator.server import ApiServer
    from tests.support.daemon_harness import Cluster

ACCOUNT = Named("kube-system", "custom-scheduler")
LEASES = "leases.coordination.k8s.io"
EVENTS = "events.events.k8s.io"


class Administrator:
    """Who may do everything."""

    def headers(self) -> Headers:
        return (("Authorization", "Bearer root"),)

    def rejected(self) -> None:
        raise AssertionError("the administrator is not known")


@asynccontextmanager
async def administered(folder: Path) -> AsyncIterator[tuple[Cluster, ApiConnection]]:
    async with (
        cluster(folder, token="root") as it,
        ApiConnection(it.endpoint, authorization=Administrator()) as connection,
    ):
        yield it, connection


def taken(configuration: Configuration | None = None) -> dict[Right, str]:
    configuration = configuration or default()
    profiles = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values()
    return rights_of(profiles, configuration.settings, config_map=ACCOUNT)


def scheduler_pod(name: str, *, account: str) -> dict[str, Any]:
    pod = pod_object(name, namespace="kube-system")
    pod["spec"]["serviceAccountName"] = account
    return pod


async def look(connection: ApiConnection, configuration: Configuration | None = None) -> list[NameCheck]:
    names = LiveNames(connection, ACCOUNT)
    return [reported async for reported in names.look(configuration or default())]


def hold(it: Cluster, holder: str, name: str = "custom-scheduler") -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    lease = {"metadata": {"name": name, "namespace": "kube-system"}, "spec": spec}
    it.server.store.create(LEASES, lease, namespace="kube-system")


async def renew(it: Cluster, name: str = "custom-scheduler") -> None:
    for second in range(60):
        await asyncio.sleep(2)
        patch = {"spec": {"renewTime": f"2020-01-01T00:00:{second:02}.000001Z"}}
        it.server.store.patch(LEASES, name, patch, "kube-system")


def placed_by(server: ApiServer, controller: str, host: str) -> None:
    event = {
        "metadata": {"name": f"placed-by-{host}", "namespace": "default"},
        "eventTime": "2020-01-01T00:00:00.000000Z",
        "reportingController": controller,
        "reportingInstance": f"{controller}-{host}",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {"kind": "Pod", "namespace": "default", "name": "web"},
        "note": "placed",
        "type": "Normal",
    }
    server.store.create(EVENTS, event)


async def test_an_account_with_all_rights_lacks_none_and_one_without_rights_lacks_all(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, connection):
        rights = taken()
        assert await missing_rights(connection, rights) == []
        user = "system:serviceaccount:kube-system:daemon-0"
        assert await missing_rights(connection, rights, user=user) == [*rights]

        account = Account(it.server, 0)
        account.grant(rights)
        assert await missing_rights(connection, rights, user=user) == []
        async with ApiConnection(it.endpoint, authorization=account) as own:
            assert await missing_rights(own, rights) == []


@pytest.mark.parametrize(
    "group", ["system:authenticated", "system:serviceaccounts", "system:serviceaccounts:kube-system"]
)
async def test_a_service_account_has_the_rights_of_its_groups(tmp_path: Path, group: str) -> None:
    async with administered(tmp_path) as (it, connection):
        rbac = "rbac.authorization.k8s.io"
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
        subject = {"kind": "Group", "name": group, "apiGroup": rbac}
        role = {"kind": "ClusterRole", "name": "readers", "apiGroup": rbac}
        metadata = {"name": "readers"}
        it.server.store.create(f"clusterroles.{rbac}", {"metadata": metadata, "rules": [rule]})
        binding = {"metadata": metadata, "roleRef": role, "subjects": [subject]}
        it.server.store.create(f"clusterrolebindings.{rbac}", binding)
        both = [Right("get", "", "pods"), Right("get", "", "secrets")]
        user = "system:serviceaccount:kube-system:custom-scheduler"

        assert await missing_rights(connection, both, user=user) == both[1:]


@pytest.mark.parametrize("lacking", sorted(taken()), ids=str)
async def test_each_missing_right_is_named(tmp_path: Path, lacking: Right) -> None:
    async with administered(tmp_path) as (it, connection):
        rights = taken()
        account = Account(it.server, 0)
        account.grant({right: reason for right, reason in rights.items() if right != lacking})
        user = "system:serviceaccount:kube-system:daemon-0"
        assert await missing_rights(connection, rights, user=user) == [lacking]


async def test_without_another_scheduler_nothing_is_reported(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, connection):
        assert await look(connection) == []
        hold(it, "")
        assert await look(connection) == []


async def test_our_own_replica_may_hold_the_lease_and_place_pods(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, connection):
        it.add_pods(scheduler_pod("custom-scheduler-1", account="custom-scheduler"))
        hold(it, "custom-scheduler-1_0000")
        placed_by(it.server, "custom-scheduler", "custom-scheduler-1")
        begun = asyncio.get_running_loop().time()

        assert await look(connection) == []
        assert asyncio.get_running_loop().time() - begun < 1


@pytest.mark.parametrize("is_pod", [True, False], ids=["a pod", "a process elsewhere"])
async def test_another_holder_that_renews_the_lease_has_taken_it(tmp_path: Path, is_pod: bool) -> None:
    async with administered(tmp_path) as (it, connection):
        if is_pod:
            it.add_pods(scheduler_pod("other", account="other"))
        hold(it, "other_0000")
        renewing = asyncio.create_task(renew(it))
        (reported,) = await look(connection)
        renewing.cancel()

        who = ", the pod kube-system/other of ServiceAccount other" if is_pod else ""
        assert reported.is_taken
        assert reported.text == (
            f"lease kube-system/custom-scheduler is held by other_0000{who}, which renews it and is none of "
            "kube-system/custom-scheduler: as long as it does, nothing here places a pod; give "
            "leaderElection.resourceName another value, or end that one"
        )


async def test_a_lease_that_nobody_renews_is_reported_and_free(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, connection):
        hold(it, "other_0000")
        (reported,) = await look(connection)
        assert reported == NameCheck(
            "lease kube-system/custom-scheduler is held by other_0000, which renews it no more: it will be taken over"
        )


@pytest.mark.parametrize(
    ("host", "who"),
    [
        ("other", "the pod kube-system/other of ServiceAccount other"),
        ("n1", "a scheduler on the node n1"),
        ("gone", ""),
    ],
)
async def test_another_scheduler_of_the_same_name_is_reported(tmp_path: Path, host: str, who: str) -> None:
    async with administered(tmp_path) as (it, connection):
        it.add_nodes(node_object("n1"))
        it.add_pods(scheduler_pod("other", account="other"))
        placed_by(it.server, "custom-scheduler", host)
        placed_by(it.server, "another-scheduler", "n2")
        reported = await look(connection)

        assert [one.text.partition(" places")[0] for one in reported] == (
            [f"schedulerName custom-scheduler: {who}"] if who else []
        )
        assert all(one.is_taken for one in reported)


def deployment(account: str, *, replicas: int = 1) -> dict[str, Any]:
    labels = {"app.kubernetes.io/name": "custom-scheduler"}
    container = {"name": "it", "image": "it", "args": ["run", "--config-map", "team/scheduler"]}
    template = {
        "metadata": {"labels": labels},
        "spec": {"serviceAccountName": account, "containers": [container]},
    }
    return {
        "metadata": {"name": "scheduler", "namespace": "kube-system", "labels": labels},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template},
    }


@pytest.mark.parametrize(
    ("account", "replicas", "name", "is_told"),
    [
        pytest.param("other", 1, "custom-scheduler", True, id="same name"),
        pytest.param("other", 1, "another", False, id="another name"),
        pytest.param("other", 0, "custom-scheduler", False, id="no replicas"),
        pytest.param("custom-scheduler", 1, "custom-scheduler", False, id="our own"),
    ],
)
async def test_another_installation_is_found_by_its_configuration(
    tmp_path: Path, account: str, replicas: int, name: str, is_told: bool
) -> None:
    async with administered(tmp_path) as (it, connection):
        it.server.store.create("namespaces", {"metadata": {"name": "team"}})
        text = yaml.safe_dump(
            {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [{"schedulerName": name}],
            }
        )
        metadata = {"name": "scheduler", "namespace": "team"}
        data = {"config.yaml": text, "mine.py": "x = 1"}
        it.server.store.create("configmaps", {"metadata": metadata, "data": data}, namespace="team")
        it.server.store.create(
            "deployments.apps", deployment(account, replicas=replicas), namespace="kube-system"
        )
        reported = await look(connection)

        assert [one.is_taken for one in reported] == ([True] if is_told else [])
        if is_told:
            assert reported[0].text.startswith(
                "schedulerName custom-scheduler: the Deployment kube-system/scheduler has it too, by ConfigMap "
                "team/scheduler;"
            )


async def test_a_profile_named_default_scheduler_beside_kube_scheduler_is_reported(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, connection):
        text = (
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "profiles: [{schedulerName: default-scheduler}]"
        )
        hold(it, "n1_0000", "kube-scheduler")
        renewing = asyncio.create_task(renew(it, "kube-scheduler"))
        (reported,) = await look(connection, parse(text))
        renewing.cancel()

        assert reported.is_taken
        assert reported.text.startswith(
            "profiles[0].schedulerName: default-scheduler is placed by a live scheduler, n1_0000"
        )


async def test_unreadable_kinds_are_reported_and_the_others_are_checked(tmp_path: Path) -> None:
    async with administered(tmp_path) as (it, _):
        account = Account(it.server, 0)
        account.grant(taken())
        hold(it, "other_0000")
        renewing = asyncio.create_task(renew(it))
        async with ApiConnection(it.endpoint, authorization=account) as own:
            reported = await look(own)
        renewing.cancel()

        assert [one.is_taken for one in reported] == [True, False, False]
        assert all(one.text.startswith("not looked at: ") for one in reported[1:])


async def test_the_buckets_of_each_replica_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with administered(tmp_path) as (it, connection):
        sharded = parse(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nsharding: {enabled: true}\n"
        )

        assert not await tell_shards(connection, "custom-scheduler")
        definition = yaml.safe_load((MANIFESTS / "crds" / "shardassignments.yaml").read_text())
        it.server.store.create("customresourcedefinitions.apiextensions.k8s.io", definition)
        assert await tell_shards(connection, "custom-scheduler")
        body = msgspec.json.decode(
            encode("custom-scheduler", "kube-system", [""] * 256, ["a-1"] * 250 + [""] * 6)
        )
        it.server.store.create("shardassignments.custom-scheduler.io", body)
        assert await tell_shards(connection, "custom-scheduler")

        assert capsys.readouterr().out.splitlines() == [
            (
                "sharding: the API server does not serve shardassignments.custom-scheduler.io: "
                "apply manifests/crds/shardassignments.yaml"
            ),
            "sharding: no replica has run yet",
            "sharding: nobody has 6 of 256 buckets",
            "sharding: a-1 has 250 of 256 buckets",
        ]
        hold(it, "a-1")
        hold(it, "leader", name="a-1")
        assert await look(connection, sharded) == [], (
            "a replica with a Lease of its own is no other scheduler"
        )
