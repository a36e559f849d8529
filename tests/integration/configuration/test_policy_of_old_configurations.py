"""`run` with a policy: from a ConfigMap, once at the start, and from a file, which is followed."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import load
from scheduler.configuration.types import LeaderElection
from scheduler.configuration.versions.algorithm_source import PolicyConfigMap
from scheduler.daemon.app.config_file import POLL_SECONDS, ConfigFile, lease_of
from scheduler.errors import ConfigurationError
from scheduler.tools.simulator.server import ApiServer
from tests.integration.configuration.test_reload_processes import running, serving
from tests.support.builders import pod_object
from tests.support.commands import forked_program
from tests.support.processes import until

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.reloader import Offer

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1alpha1\nkind: KubeSchedulerConfiguration\n"
BY_CONFIG_MAP = f"{HEAD}algorithmSource: {{policy: {{configMap: {{namespace: default, name: rules}}}}}}\n"
BY_FILE = f"{HEAD}algorithmSource: {{policy: {{file: {{path: policy.json}}}}}}\n"


def policy(weight: int) -> str:
    return json.dumps({"predicates": [], "priorities": [{"name": "MostRequestedPriority", "weight": weight}]})


def weight_in(configuration: Configuration) -> int:
    plugins = configuration.settings.profiles[0].plugins.multi_point.enabled
    return next(plugin.weight for plugin in plugins if plugin.name == "NodeResourcesFit")


async def run(*flags: str | Path) -> tuple[int, str]:
    """Run `custom-scheduler run` to its end."""
    process = await asyncio.create_subprocess_exec(
        forked_program(), "run", *map(str, flags), stderr=asyncio.subprocess.PIPE
    )  # fmt: skip
    async with asyncio.timeout(60):
        _, reported = await process.communicate()
    assert process.returncode is not None
    return process.returncode, reported.decode()


def config_map(name: str, data: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default"}, "data": data}


@pytest.mark.run(by=asyncio.run)
@pytest.mark.parametrize("source", ["file", "file that names a kubeconfig", "config map"])
async def test_a_policy_in_a_config_map_is_read_from_the_cluster(tmp_path: Path, source: str) -> None:
    async with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        server.store.create("configmaps", config_map("rules", {"policy.cfg": policy(7)}))
        text = BY_CONFIG_MAP
        connecting: list[str | Path] = ["--kubeconfig", kubeconfig]
        if source == "file that names a kubeconfig":
            text += f"clientConnection: {{kubeconfig: {kubeconfig}}}\n"
            connecting = []
        if source == "config map":
            server.store.create("configmaps", config_map("cs", {"config.yaml": text}))
            where: list[str | Path] = ["--config-map", "default/cs"]
        else:
            (tmp_path / "config.yaml").write_text(text)
            where = ["--config", tmp_path / "config.yaml"]

        code, reported = await run(*where, *connecting, "--write-config-to", tmp_path / "out.yaml")

        assert code == 0, reported
        assert weight_in(load(tmp_path / "out.yaml")) == 7
        assert [each.method for each in server.requests if "configmaps/rules" in each.path] == ["GET"]


@pytest.mark.run(by=asyncio.run)
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, "ConfigMap default/rules: does not exist"),
        ({"policy.yaml": policy(1)}, "ConfigMap default/rules: has no key policy.cfg; it has policy.yaml"),
        ({"policy.cfg": '{"predicate": []}'}, 'predicate: unknown field, did you mean "predicates"?'),
    ],
)
async def test_a_config_map_without_a_policy_ends_the_start(
    tmp_path: Path, data: dict[str, str] | None, expected: str
) -> None:
    async with ApiServer() as server:
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        if data is not None:
            server.store.create("configmaps", config_map("rules", data))
        (tmp_path / "config.yaml").write_text(BY_CONFIG_MAP)

        code, reported = await run("--config", tmp_path / "config.yaml", "--kubeconfig", kubeconfig)

        assert code == 2
        assert expected in reported


async def test_a_policy_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BY_FILE)
    (tmp_path / "policy.json").write_text(policy(3))
    file = ConfigFile(tmp_path / "config.yaml")
    assert weight_in(file.load()) == 3
    offers: list[Offer] = []
    following = asyncio.ensure_future(file.follow(offers.append, lease_of(LeaderElection())))

    (tmp_path / "policy.json").write_text(policy(12))
    await asyncio.sleep(POLL_SECONDS * 3)
    following.cancel()

    (offer,) = offers
    assert weight_in(offer.read()) == 12


def test_another_config_map_takes_a_restart(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BY_CONFIG_MAP)
    file = ConfigFile(tmp_path / "config.yaml", {PolicyConfigMap("default", "rules"): policy(2)})
    assert weight_in(file.load()) == 2

    (tmp_path / "config.yaml").write_text(BY_CONFIG_MAP.replace("rules", "others"))

    with pytest.raises(
        ConfigurationError, match="ConfigMap default/others was not read: that needs the cluster"
    ):
        file.load()


@pytest.mark.run(by=asyncio.run)
async def test_a_daemon_schedules_by_a_policy_and_takes_a_changed_one(tmp_path: Path) -> None:
    """Two nodes, of which b has a pod: most requested is b, least requested is a."""

    def write(priority: str) -> None:
        priorities = [{"name": priority, "weight": 1}]
        (tmp_path / "policy.json").write_text(json.dumps({"kind": "Policy", "priorities": priorities}))

    async with serving(tmp_path) as (kubeconfig, it):
        it.store.create("pods", pod_object("there", cpu="32", node="b", scheduler_name="other"))
        (tmp_path / "config.yaml").write_text(f"{BY_FILE}leaderElection: {{lockObjectNamespace: default}}\n")
        write("MostRequestedPriority")
        async with running(
            kubeconfig, tmp_path / "log", "--config", str(tmp_path / "config.yaml")
        ) as started:
            assert await it.place("first") == "b"
            (reported,) = started.said(
                "Configuration has an old apiVersion; `custom-scheduler check --convert` converts it"
            )
            assert reported["api_version"] == "kubescheduler.config.k8s.io/v1alpha1"

            write("LeastRequestedPriority")
            await until(lambda: it.notes("ConfigurationReloaded"))
            assert await it.place("second") == "a"
