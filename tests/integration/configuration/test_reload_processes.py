"""Hot reload in processes of their own, over real HTTP: kopf follows a ConfigMap, and a mounted file is followed."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.support.commands import forked_program
from tests.support.ports import free_port
from tests.support.processes import started, until
from tests.support.replicas import LEASES

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

pytestmark = pytest.mark.run(by=asyncio.run)

PATIENCE_SECONDS = 60.0
ENDS_SECONDS = 10.0
FLAGS = ("--secure-port", "0", "--bind-address", "127.0.0.1", "--logging-format", "json")
KEY = "config.yaml"


def profile(a: int, b: int) -> str:
    """A configuration that weighs who prefers node a against who prefers node b."""
    return f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{resourceNamespace: default}}
profiles:
- schedulerName: custom-scheduler
  plugins:
    score:
      disabled: [{{name: "*"}}]
      enabled: [{{name: prefer_a.py, weight: {a}}}, {{name: prefer_b.py, weight: {b}}}]
"""


def preferring(node: str, name: str) -> str:
    return f"""\
from scheduler.framework import ScorePlugin


class Prefer(ScorePlugin):
    name = "{name}"
    api_version = 1

    def score_node(self, state, pod, node):
        return 100 if node.name == "{node}" else 0
"""


PLUGINS = {"prefer_a.py": preferring("a", "PreferA"), "prefer_b.py": preferring("b", "PreferB")}


class Run:
    """A scheduler at work."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, port: int) -> None:
        self.process = process
        self._log = log
        self._port = port

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]

    def said(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["message"] == message]

    async def page(self, path: str) -> str:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._port}{path}") as answer,
        ):
            return await answer.text()

    async def beginning_of(self, path: str) -> str:
        """What a page that does not end says first."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{self._port}{path}") as answer,
        ):
            return (await answer.content.readany()).decode()

    async def metrics(self) -> dict[str, float]:
        """The series of hot reload, without their prefix."""
        prefix = "custom_scheduler_config_"
        lines = (await self.page("/metrics")).splitlines()
        series = (line.removeprefix(prefix).rsplit(" ", 1) for line in lines if line.startswith(prefix))
        return {name: float(value) for name, value in series}


@asynccontextmanager
async def running(
    kubeconfig: Path, log: Path, *flags: str, program: Sequence[str | Path] = ()
) -> AsyncIterator[Run]:
    """Run `custom-scheduler run`, forked or by another program; what is left of it at the end is killed."""
    port = free_port()
    command = (*(program or [forked_program()]), "run", "--kubeconfig", kubeconfig, "--http-port", port)
    with log.open("wb") as stderr:
        async with started(*command, *FLAGS, *flags, stderr=stderr) as process:
            yield Run(process, log, port)


async def end(run: Run) -> int:
    """Send SIGTERM; return the exit status."""
    run.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(ENDS_SECONDS):
        return await run.process.wait()


class Server:
    """What the tests do with the API server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.store = server.store

    async def place(self, name: str, scheduler_name: str = "custom-scheduler") -> str:
        """Create a pod; return its node once it has one."""
        self.store.create("pods", pod_object(name, cpu="10m", scheduler_name=scheduler_name))
        await until(lambda: self.node_of(name))
        return self.node_of(name)

    def node_of(self, name: str) -> str:
        return str(self.store.get("pods", name, "default")["spec"].get("nodeName", ""))

    def put(self, configuration: str | None, **plugins: str) -> None:
        """Write the ConfigMap; a key with None is left out."""
        data = {**PLUGINS, **{name.replace("_py", ".py"): text for name, text in plugins.items()}}
        if configuration is not None:
            data[KEY] = configuration
        config_map: Mapping[str, Any] = {"metadata": {"name": "cs", "namespace": "default"}, "data": data}
        names = {each["metadata"]["name"] for each in self.store.list("configmaps")}
        if "cs" in names:
            found = self.store.get("configmaps", "cs", "default")
            self.store.update("configmaps", {**found, "data": data})
        else:
            self.store.create("configmaps", dict(config_map))

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [each for each in self.store.list("events.events.k8s.io") if each["reason"] == reason]

    def notes(self, reason: str) -> list[str]:
        return [each["note"] for each in self.events(reason)]


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Path, Server]]:
    """A server with two nodes, and its kubeconfig."""
    async with ApiServer() as server:
        for name in ("a", "b"):
            server.store.create("nodes", node_object(name, cpu="64", pods=1000))
        yield server.write_kubeconfig(folder / "kubeconfig"), Server(server)


async def test_a_config_map_is_followed_and_a_broken_one_is_rejected(tmp_path: Path) -> None:
    async with serving(tmp_path) as (kubeconfig, it):
        it.put(profile(10, 1))
        async with running(kubeconfig, tmp_path / "log", "--config-map", f"default/cs:{KEY}") as run:
            assert await it.place("first") == "a"
            await until(lambda: run.said("Configuration is followed"))
            assert (await run.metrics())['watch_up{source="configmap"}'] == 1

            it.put(profile(1, 10))
            await until(lambda: it.notes("ConfigurationReloaded"))
            assert await it.place("second") == "b"
            after = await run.metrics()
            assert after["last_reload_successful"] == 1
            assert after['reloads_total{result="reloaded"}'] == 1
            shown = json.loads(await run.page("/configz"))["componentconfig"]
            weights = {
                each["name"]: each["weight"] for each in shown["profiles"][0]["plugins"]["score"]["enabled"]
            }
            assert weights == {"prefer_a.py": 1, "prefer_b.py": 10}

            it.put(profile(10, -1))
            await until(lambda: it.notes("ConfigurationRejected"))
            assert "profiles[0].plugins.score.enabled[1].weight" in it.notes("ConfigurationRejected")[0]
            assert it.events("ConfigurationRejected")[0]["regarding"]["kind"] == "ConfigMap"
            refused = await run.metrics()
            assert refused["last_reload_successful"] == 0
            assert refused['reloads_total{result="rejected"}'] == 1
            assert refused["hash"] == after["hash"]
            assert await it.place("third") == "b"

            it.store.delete("configmaps", "cs", "default")
            await until(lambda: any("is deleted" in note for note in it.notes("ConfigurationRejected")))
            assert await it.place("fourth") == "b"

            it.put(profile(10, 1), prefer_a_py=preferring("b", "PreferA"))
            await until(lambda: len(it.notes("ConfigurationReloaded")) == 2)
            assert await it.place("fifth") == "b"
            assert run.process.returncode is None
            held = it.store.list(LEASES)[0]["spec"]["leaseTransitions"]
            assert await end(run) == 0
            assert held == 0

        found = [each for each in it.server.requests if "configmaps" in each.path or "kopf" in each.path]
        assert {each.method for each in found} == {"GET"}


async def test_a_mounted_configuration_is_followed_when_kubelet_swaps_its_link(tmp_path: Path) -> None:
    mount = tmp_path / "mount"
    mount.mkdir()

    def project(version: str, files: Mapping[str, str]) -> None:
        """Write a version and swap the link to it, as kubelet does for a ConfigMap volume."""
        folder = mount / f"..{version}"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
            if not (mount / name).is_symlink():
                (mount / name).symlink_to(f"..data/{name}")
        (mount / "..data_tmp").symlink_to(folder.name)
        (mount / "..data_tmp").rename(mount / "..data")

    project("one", {KEY: profile(10, 1), **PLUGINS})
    async with (
        serving(tmp_path) as (kubeconfig, it),
        running(kubeconfig, tmp_path / "log", "--config", str(mount / KEY)) as run,
    ):
        assert await it.place("first") == "a"

        project("two", {KEY: profile(10, 1), **PLUGINS, "prefer_a.py": preferring("b", "PreferA")})
        await until(lambda: it.notes("ConfigurationReloaded"))
        assert await it.place("second") == "b"

        project("three", {KEY: profile(1, 10), **PLUGINS, "prefer_b.py": "class Prefer(:"})
        await until(lambda: it.notes("ConfigurationRejected"))
        assert "SyntaxError" in it.notes("ConfigurationRejected")[0]
        assert it.events("ConfigurationRejected")[0]["regarding"]["kind"] == "Lease"

        project("four", {KEY: profile(10, 1), **PLUGINS})
        await until(lambda: len(it.notes("ConfigurationReloaded")) == 2)
        assert await it.place("third") == "a"
        assert (await run.metrics())['watch_up{source="file"}'] == 1
        assert await end(run) == 0


async def test_sources_without_the_follow_flag_are_not_followed(tmp_path: Path) -> None:
    async with serving(tmp_path) as (kubeconfig, it):
        it.put(profile(10, 1))
        flags = ("--config-map", f"default/cs:{KEY}", "--no-follow-config")
        async with running(kubeconfig, tmp_path / "log", *flags) as run:
            assert await it.place("first") == "a"
            assert not [name for name in await run.metrics() if name.startswith("watch_up")]
            assert await end(run) == 0
        watched = [each for each in it.server.requests if "configmaps" in each.path]
        assert [each.path for each in watched] == ["/api/v1/namespaces/default/configmaps/cs"]


async def test_the_start_needs_an_existing_and_valid_config_map(tmp_path: Path) -> None:
    async with serving(tmp_path) as (kubeconfig, it):
        for expected in ("ConfigMap default/cs: does not exist", "has no key config.yaml; it has none"):
            async with (
                running(kubeconfig, tmp_path / "log", "--config-map", f"default/cs:{KEY}") as run,
                asyncio.timeout(PATIENCE_SECONDS),
            ):
                assert await run.process.wait() == 2
            assert expected in (tmp_path / "log").read_text()
            it.put(None)


def ending_the_process(began: Path, may_end: Path) -> str:
    """Return a plugin file whose import creates a file, waits for another one, and exits the process."""
    return (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(began)!r}).touch()\n"
        f"while not os.path.exists({str(may_end)!r}):\n"
        "    time.sleep(0.01)\n"
        "os._exit(3)\n"
    )


async def test_a_plugin_file_that_exits_the_process_stops_neither_scheduler_nor_restart(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (kubeconfig, it):
        it.put(profile(1, 10))
        kept = tmp_path / "kept.json"
        flags = ("--config-map", f"default/cs:{KEY}", "--last-good-config", str(kept))
        async with running(kubeconfig, tmp_path / "log", *flags) as run:
            assert await it.place("first") == "b"
            await until(lambda: run.said("Configuration is followed"))
            began, may_end = tmp_path / "began", tmp_path / "may_end"
            it.put(profile(10, 1), prefer_a_py=ending_the_process(began, may_end))
            await until(began.exists)
            assert await run.page("/healthz") == "ok"
            may_end.touch()
            await until(lambda: it.notes("ConfigurationRejected"))
            assert (
                "importing prefer_a.py ends the process (status 3), in a dry run in another one"
                in it.notes("ConfigurationRejected")[0]
            )
            assert await it.place("second") == "b"
            assert await end(run) == 0

        for event in it.events("ConfigurationRejected"):
            it.store.delete("events.events.k8s.io", event["metadata"]["name"], "default")
        async with running(kubeconfig, tmp_path / "log", *flags) as run:
            assert await it.place("third") == "b"
            (reported,) = run.said("Configuration is invalid; using the last good one")
            assert "prefer_a.py" in reported["error"]
            await until(lambda: it.notes("ConfigurationRejected"))
            assert (await run.metrics())["last_reload_successful"] == 0

            it.put(profile(10, 1))
            await until(lambda: it.notes("ConfigurationReloaded"))
            assert await it.place("fourth") == "a"
            assert await end(run) == 0


async def test_a_signal_starts_a_cache_check_and_a_dump(tmp_path: Path) -> None:
    async with serving(tmp_path) as (kubeconfig, it):
        config = tmp_path / "config.yaml"
        config.write_text(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
            "leaderElection: {resourceNamespace: default}\n"
        )
        async with running(kubeconfig, tmp_path / "log", "--config", str(config)) as run:
            assert await it.place("first")
            run.process.send_signal(signal.SIGUSR2)
            await until(lambda: run.said("Dump of scheduling queue"))
            (compared,) = run.said("Cache was compared")
            assert (compared["result"], compared["nodes"], compared["pods"]) == ("clean", 2, 1)
            assert len(run.said("Dump of cached NodeInfo")) == 2

            page = json.loads(await run.page("/debug/cache"))
            assert page["comparison"]["result"] == "clean"
            assert [len(node["pods"]) for node in page["nodes"]].count(1) == 1
            assert "Dump of scheduling queue: activeQ:0; backoffQ:0; " in await run.page(
                "/debug/cache?output=text"
            )
            assert await end(run) == 0
