"""A profile called default-scheduler, with and without a kube-scheduler at work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import default
from scheduler.daemon.app.default_scheduler import DEFAULT_LEASE, refuse_beside_default_scheduler
from scheduler.daemon.app.rights import Right
from scheduler.errors import ConfigurationError
from scheduler.kube.client.connection import ApiConnection
from tests.support import virtual_time
from tests.support.daemon_harness import Cluster, cluster

if TYPE_CHECKING:
    from pathlib import Path

LEASES = "leases.coordination.k8s.io"


def hold_lease(it: Cluster, holder: str) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"}
    lease = {"metadata": {"name": "kube-scheduler", "namespace": "kube-system"}, "spec": spec}
    it.server.store.create(LEASES, lease, namespace="kube-system")


async def renew(it: Cluster) -> None:
    for second in range(3600):
        await asyncio.sleep(2)
        patch = {"spec": {"renewTime": f"2020-01-01T00:{second // 60:02}:{second % 60:02}.000001Z"}}
        it.server.store.patch(LEASES, "kube-scheduler", patch, "kube-system")


def start(folder: Path, *, holder: str | None, renewed: bool, name: str = "default-scheduler") -> float:
    """Return after how many seconds a start with that profile goes on."""

    async def scenario() -> float:
        async with cluster(folder) as it:
            if holder is not None:
                hold_lease(it, holder)
            renewing = asyncio.create_task(renew(it)) if renewed else None
            account = it.account()
            account.grant(
                {Right("get", "coordination.k8s.io", "leases", *DEFAULT_LEASE): "whether it is at work"}
            )
            try:
                async with ApiConnection(it.endpoint, authorization=account) as connection:
                    begin = asyncio.get_running_loop().time()
                    await refuse_beside_default_scheduler(connection, default(name))
                    return asyncio.get_running_loop().time() - begin
            finally:
                if renewing is not None:
                    renewing.cancel()

    return virtual_time.run(scenario())


def test_it_is_refused_beside_a_live_kube_scheduler_with_any_clock(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        start(tmp_path, holder="node-1_abc", renewed=True)

    assert str(refused.value) == (
        "profiles[0].schedulerName: default-scheduler is placed by a live scheduler, node-1_abc, which holds the "
        "lease kube-system/kube-scheduler; choose another name, or replace it and say --replace-default-scheduler"
    )


def test_it_starts_if_the_lease_has_no_holder(tmp_path: Path) -> None:
    assert start(tmp_path, holder=None, renewed=False) < 1


def test_it_starts_at_once_after_a_release_of_the_lease(tmp_path: Path) -> None:
    assert start(tmp_path, holder="", renewed=False) < 1


def test_it_waits_for_an_abandoned_lease_to_expire(tmp_path: Path) -> None:
    assert 15 <= start(tmp_path, holder="node-1_abc", renewed=False) <= 17


def test_it_does_not_check_the_lease_for_a_profile_of_another_name(tmp_path: Path) -> None:
    assert start(tmp_path, holder="node-1_abc", renewed=True, name="custom-scheduler") < 1
