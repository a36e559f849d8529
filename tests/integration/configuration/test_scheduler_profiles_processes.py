"""SchedulerProfiles in processes of their own, over real HTTP, with RBAC: kopf follows them with the rights that are printed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import parse
from scheduler.daemon.app.rights import Named, rights_of
from scheduler.tools.simulator.server import ApiServer
from scheduler.tools.whatif.cluster_file import ClusterFile
from scheduler.tools.whatif.offline import OfflineScheduler
from tests.integration.configuration.test_reload_processes import end, running
from tests.integration.configuration.test_scheduler_profiles import (
    BROKEN,
    BROKEN_TEXT,
    CRDS,
    DEFINITION,
    PROFILES,
    profile,
)
from tests.support.builders import node_object, pod_object
from tests.support.daemon_accounts import Account, token_users
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

TEXT = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaseDuration: 3s, renewDeadline: 2s, retryPeriod: 500ms}
"""


def conditions(server: ApiServer, name: str) -> dict[str, tuple[str, str]]:
    """Type -> status and message."""
    status = server.store.get(PROFILES, name).get("status", {})
    return {each["type"]: (each["status"], each["message"]) for each in status.get("conditions", ())}


def rights() -> Any:
    configuration = parse(TEXT)
    profiles = OfflineScheduler(ClusterFile(), configuration, refresh=False).frameworks.values()
    followed = Named("kube-system", "cs")
    return rights_of(profiles, configuration.settings, config_map=followed, scheduler_profiles=True)


async def test_kopf_follows_profiles_and_a_config_map_in_one_thread(tmp_path: Path) -> None:
    async with ApiServer(tls=True, rbac=True, users=token_users()) as server:
        account = Account(server, 0)
        account.grant(rights())
        kubeconfig = server.write_kubeconfig(
            tmp_path / "kubeconfig", token="token of daemon-0", user="daemon"
        )
        store = server.store
        store.create("nodes", node_object("a"))
        store.create(
            "configmaps", {"metadata": {"name": "cs", "namespace": "kube-system"}, "data": {"c": TEXT}}
        )
        store.create(CRDS, DEFINITION)
        flags = ("--config-map", "kube-system/cs", "--scheduler-profiles")

        async with running(kubeconfig, tmp_path / "first", *flags) as run:
            await until(lambda: run.said("SchedulerProfiles are watched"))
            await until(lambda: run.said("Configuration is followed"))
            store.create(PROFILES, profile("team-a"))
            store.create("pods", pod_object("one", scheduler_name="team-a"))
            await until(lambda: store.get("pods", "one", "default")["spec"].get("nodeName"))
            await until(lambda: conditions(server, "team-a").get("Accepted") == ("True", ""))
            assert (await run.metrics())['watch_up{source="schedulerprofiles"}'] == 1

            store.update(
                PROFILES, {**store.get(PROFILES, "team-a"), "spec": {"schedulerName": "team-a", **BROKEN}}
            )
            await until(lambda: conditions(server, "team-a")["Accepted"] == ("False", BROKEN_TEXT))
            assert conditions(server, "team-a")["Active"] == ("True", "generation 1 stays active")
            assert await end(run) == 0

        async with running(kubeconfig, tmp_path / "second", *flags) as run:
            store.create("pods", pod_object("two", scheduler_name="team-a"))
            await until(lambda: store.get("pods", "two", "default")["spec"].get("nodeName"))
            store.delete(PROFILES, "team-a")
            await until(lambda: "team-a" not in _profiles(run.said("Active profiles")))
            assert await end(run) == 0
        account.settle()


def _profiles(said: list[dict[str, Any]]) -> list[str]:
    return list(said[-1]["profiles"]) if said else ["team-a"]
