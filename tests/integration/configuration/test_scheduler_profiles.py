"""SchedulerProfiles beside a configuration in a running daemon, in virtual time and with simulated events of kopf."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from scheduler.daemon.app.profile_objects.profiles import ClusterProfiles, ProfileListener
from scheduler.daemon.app.profile_objects.version_selection import ProfileStatusWriter
from scheduler.daemon.config_watch.config_objects import SchedulerProfile
from scheduler.engine.cycle import time_slices
from scheduler.engine.runtime import profiles as runtime_profiles
from scheduler.framework import Needs, ScorePlugin
from scheduler.kube.client.events import CONTROLLER
from scheduler.kube.http.request import Response
from scheduler.tools.simulator.apimachinery.status import StatusError
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS
from tests.support.reloads import offer_of, reloader_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from scheduler.kube.http.request import Request
    from tests.support.daemon_harness import Cluster

DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "schedulerprofiles.yaml").read_text())
CRDS, PROFILES = "customresourcedefinitions.apiextensions.k8s.io", "schedulerprofiles.custom-scheduler.io"
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
BROKEN = {"plugins": {"score": {"enabled": [{"name": "Nonsense", "weight": 2}]}}}
BROKEN_TEXT = "spec.plugins.score.enabled[0].name: Nonsense: no plugin of that name, in-tree or installed"


def profile(name: str, scheduler_name: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "custom-scheduler.io/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler_name or name, **spec},
    }


class Followed:
    """A daemon that follows profiles, and who tells it of them as kopf does."""

    def __init__(self, it: Cluster, daemon: Daemon) -> None:
        self.it = it
        self.daemon = daemon
        self.begun_again = 0
        statuses = ProfileStatusWriter(daemon.writer, is_leading=daemon.leadership.is_leading)
        self.profiles = ClusterProfiles(daemon, recorder=daemon.recorder(CONTROLLER), on_change=statuses.look)
        watch_up = daemon.metrics.configuration.watch_up
        self.listener = ProfileListener(self.profiles, daemon.connection, watch_up, self._begin_again)
        self.tasks = [
            asyncio.create_task(self.profiles.run()),
            asyncio.create_task(statuses.run(lambda: self.profiles.choices)),
        ]

    def _begin_again(self) -> None:
        self.begun_again += 1
        self.listener.began()

    def apply(self, obj: dict[str, Any]) -> None:
        """Write an object; kopf tells of it."""
        name = obj["metadata"]["name"]
        if name in {each["metadata"]["name"] for each in self.it.server.store.list(PROFILES)}:
            found = self.it.server.store.get(PROFILES, name)
            self.it.server.store.update(PROFILES, {**found, "spec": obj["spec"]})
        else:
            self.it.server.store.create(PROFILES, obj)
        self.tell()

    def delete(self, name: str) -> None:
        self.it.server.store.delete(PROFILES, name)
        self.listener.deleted(name)

    def tell(self) -> None:
        """Tell what there is, statuses too."""
        for obj in self.it.server.store.list(PROFILES):
            self.listener.changed(SchedulerProfile.of(obj))

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.it.server.store.get(PROFILES, name).get("status", {})
        return found

    def said(self, name: str) -> tuple[str, str, str]:
        """Accepted, Active and the message, as `kubectl get` shows them."""
        conditions = {each["type"]: each for each in self.status(name).get("conditions", ())}
        if not conditions:
            return "", "", ""
        accepted = conditions["Accepted"]
        return accepted["status"], conditions["Active"]["status"], accepted["message"]

    async def until_said(self, name: str, *expected: str) -> None:
        await self.it.until(lambda: self.said(name) == expected)

    async def place(self, name: str, scheduler_name: str) -> bool:
        """Whether a pod of a name gets a node."""
        self.it.add_pods(pod_object(name, scheduler_name=scheduler_name))
        await asyncio.sleep(5)
        return bool(self.it.node_of(name))


@asynccontextmanager
async def following(folder: Path, *, no_kind: bool = False) -> AsyncIterator[Cluster]:
    async with cluster(folder) as it:
        if not no_kind:
            await it.define(DEFINITION)
        it.add_nodes(node_object("n"))
        yield it


@asynccontextmanager
async def daemon_of(it: Cluster, **options: Any) -> AsyncIterator[Followed]:
    async with it.daemon(scheduler_profiles=True, **options) as daemon:
        followed = Followed(it, daemon)
        followed.listener.began()
        try:
            yield followed
        finally:
            followed.listener.stop()
            for task in followed.tasks:
                task.cancel()
            await asyncio.gather(*followed.tasks, return_exceptions=True)


async def test_an_object_serves_pods_of_its_name_until_it_is_deleted(tmp_path: Path) -> None:
    async with following(tmp_path) as it, daemon_of(it) as followed:
        assert not await followed.place("before", "team-a")
        followed.apply(profile("team-a"))

        await it.until(lambda: it.node_of("before"))
        await followed.until_said("team-a", "True", "True", "")
        assert await followed.place("own", "custom-scheduler")
        assert it.notes("team-a", "ProfileAccepted") == ["Active now"]

        followed.delete("team-a")
        await it.until(lambda: "team-a" not in followed.daemon.frameworks)
        assert not await followed.place("after", "team-a")


async def test_an_invalid_version_is_reported_and_the_last_valid_one_stays(tmp_path: Path) -> None:
    async with following(tmp_path) as it:
        async with daemon_of(it) as followed:
            followed.apply(profile("team-a", percentageOfNodesToScore=7))
            await followed.until_said("team-a", "True", "True", "")
            followed.apply(profile("team-a", **BROKEN))

            await followed.until_said("team-a", "False", "True", BROKEN_TEXT)
            assert await followed.place("one", "team-a")
            [note] = it.notes("team-a", "ProfileRejected")
            assert note == f"{BROKEN_TEXT}; generation 1 stays active"
            status = followed.status("team-a")
            assert status["observedGeneration"] == 2
            assert status["lastGood"]["spec"]["percentageOfNodesToScore"] == 7

        async with daemon_of(it) as followed:
            await it.until(lambda: "team-a" in followed.daemon.frameworks)
            [_, kept] = followed.daemon.configuration.settings.profiles
            assert kept.percentage_of_nodes_to_score == 7
            assert await followed.place("two", "team-a")
            assert followed.status("team-a") == status
            assert len(it.notes("team-a", "ProfileRejected")) == 1

            followed.apply(profile("team-a", percentageOfNodesToScore=8))
            await followed.until_said("team-a", "True", "True", "")
            assert followed.status("team-a")["lastGood"]["spec"] == {
                "schedulerName": "team-a",
                "percentageOfNodesToScore": 8,
            }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (BROKEN, BROKEN_TEXT),
        (
            {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "Mad"}}}]},
            (
                "spec.pluginConfig[0].args.scoringStrategy.type: must be one of LeastAllocated, MostAllocated, "
                "RequestedToCapacityRatio, was 'Mad'"
            ),
        ),
        (
            {"pluginConfig": [{"name": "NodeResourceFit"}]},
            'spec.pluginConfig[0].name: no plugin is called "NodeResourceFit", did you mean "NodeResourcesFit"?',
        ),
        # A real API server refuses these two by rules that the simulated one does not evaluate.
        (
            {"plugins": {"score": {"enabled": [{"name": "*"}]}}},
            'spec.plugins.score.enabled[0].name: "*" can only be disabled',
        ),
        (
            {"schedulerName": "default-scheduler"},
            'spec.schedulerName: "default-scheduler" can be replaced by the scheduler\'s configuration only',
        ),
    ],
    ids=["plugin", "argument", "arguments without a name", "every plugin", "default-scheduler"],
)
async def test_an_invalid_object_does_not_affect_the_others(tmp_path: Path, spec: Any, message: str) -> None:
    async with following(tmp_path) as it:
        for name in ("a", "c"):
            it.server.store.create(PROFILES, profile(name))
        it.server.store.create(PROFILES, profile("b", **spec))
        async with daemon_of(it) as followed:
            await followed.until_said("b", "False", "False", message)
            for name in ("a", "c"):
                await followed.until_said(name, "True", "True", "")
            assert set(followed.daemon.frameworks) == {"custom-scheduler", "a", "c"}
            assert "lastGood" not in followed.status("b")


async def test_for_one_name_the_configuration_wins_and_then_the_oldest_object(tmp_path: Path) -> None:
    async with following(tmp_path) as it, daemon_of(it) as followed:
        followed.apply(profile("z-first", "shared"))
        await asyncio.sleep(2)
        followed.apply(profile("a-second", "shared"))
        followed.apply(profile("own", "custom-scheduler"))

        await followed.until_said("z-first", "True", "True", "")
        await followed.until_said(
            "a-second",
            "False",
            "False",
            'spec.schedulerName: "shared" is the name of SchedulerProfile z-first, which is older',
        )
        taken = 'spec.schedulerName: "{}" is the name of a profile of the scheduler\'s configuration'
        await followed.until_said("own", "False", "False", taken.format("custom-scheduler"))

        followed.delete("z-first")
        await followed.until_said("a-second", "True", "True", "")


async def test_a_name_in_the_configuration_belongs_to_it_until_it_is_removed_there(tmp_path: Path) -> None:
    async with following(tmp_path) as it, daemon_of(it) as followed:
        followed.apply(profile("team-a", percentageOfNodesToScore=7))
        await followed.until_said("team-a", "True", "True", "")
        reloader = reloader_of(followed.daemon, put=followed.profiles.put)

        assert await reloader.take(
            offer_of(f"{HEAD}profiles: [{{schedulerName: team-a, percentageOfNodesToScore: 9}}]")
        )
        await it.until(lambda: followed.said("team-a")[:2] == ("False", "False"))
        [only] = followed.daemon.configuration.settings.profiles
        assert only.percentage_of_nodes_to_score == 9

        assert await reloader.take(offer_of(HEAD))
        await followed.until_said("team-a", "True", "True", "")
        assert await followed.place("one", "team-a")


async def test_a_reload_keeps_the_active_objects_and_a_rejected_one_changes_nothing(tmp_path: Path) -> None:
    async with following(tmp_path) as it, daemon_of(it) as followed:
        followed.apply(profile("team-a"))
        await followed.until_said("team-a", "True", "True", "")
        reloader = reloader_of(followed.daemon, put=followed.profiles.put)
        assert not await reloader.take(
            offer_of(f"{HEAD}profiles: [{{plugins: {{score: {{enabled: [{{name: No}}]}}}}}}]")
        )
        assert set(followed.daemon.frameworks) == {"custom-scheduler", "team-a"}
        assert await reloader.take(offer_of(f"{HEAD}podMaxBackoffSeconds: 20"))
        assert set(followed.daemon.frameworks) == {"custom-scheduler", "team-a"}
        assert followed.daemon.configuration.settings.pod_max_backoff_seconds == 20


async def test_many_objects_are_applied_at_once_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(tmp_path) as it:
        for number in range(30):
            it.server.store.create(PROFILES, profile(f"team-{number}"))
        async with daemon_of(it) as followed:
            reload, reloads = followed.daemon.reload, []

            async def counted(configuration: Any) -> Any:
                reloads.append(configuration)
                return await reload(configuration)

            monkeypatch.setattr(followed.daemon, "reload", counted)
            await it.until(lambda: all(followed.said(f"team-{n}")[0] == "True" for n in range(30)))
            writes = [each for each in it.server.requests if each.path.endswith("/status")]
            followed.tell()
            await asyncio.sleep(60)
            assert len(reloads) == 1
            assert len(writes) == 30
            assert len([each for each in it.server.requests if each.path.endswith("/status")]) == 30

            followed.apply(profile("wrong", **BROKEN))
            await followed.until_said("wrong", "False", "False", BROKEN_TEXT)
            followed.delete("wrong")
            await asyncio.sleep(60)
            assert len(reloads) == 2  # one that was tried in vain, and none to go on with what is active


async def test_only_the_leader_writes_statuses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with following(tmp_path) as it, AsyncExitStack() as leading:
        leader = await leading.enter_async_context(it.daemon(leader_elect=True))
        await it.until(leader.leadership.is_leading)
        async with daemon_of(it, leader_elect=True) as followed:
            followed.apply(profile("team-a"))
            await it.until(lambda: "team-a" in followed.daemon.frameworks)
            await asyncio.sleep(30)
            assert followed.status("team-a") == {}
            assert "could not be written" not in caplog.text  # it is not even tried
            await leading.aclose()
            await followed.until_said("team-a", "True", "True", "")


async def test_deletions_while_kopf_is_down_and_late_kinds_are_noticed(tmp_path: Path) -> None:
    async with following(tmp_path, no_kind=True) as it, daemon_of(it) as followed:
        await asyncio.sleep(45)
        up = followed.daemon.metrics.configuration.watch_up
        assert up["schedulerprofiles"] is False
        await it.define(DEFINITION)
        it.server.store.create(PROFILES, profile("team-a"))
        await followed.until_said("team-a", "True", "True", "")
        assert followed.begun_again == 1
        assert up["schedulerprofiles"] is True

        followed.listener.ended()
        assert up["schedulerprofiles"] is False
        it.server.store.delete(PROFILES, "team-a")
        followed.listener.began()
        await it.until(lambda: "team-a" not in followed.daemon.frameworks)


class NeedsConfigMaps(ScorePlugin):
    """Reads a kind that nobody else does."""

    name = "NeedsConfigMaps"
    api_version = 1
    needs = Needs(kinds=frozenset({"v1/configmaps"}))

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        return 1


async def test_a_profile_that_failed_during_an_outage_is_retried_after_it(tmp_path: Path) -> None:
    plugins = {"NeedsConfigMaps": NeedsConfigMaps}
    async with following(tmp_path) as it, daemon_of(it, plugins=plugins) as followed:
        away = it.server.faults.refuse(
            503, lambda info: info.path.endswith("/configmaps") or info.path == "/readyz"
        )
        enabled = [{"name": "NeedsConfigMaps", "weight": 1}]
        followed.apply(profile("team-a", plugins={"score": {"enabled": enabled}}))
        await it.until(lambda: "not read within" in followed.said("team-a")[2], seconds=300)
        await asyncio.sleep(300)
        assert followed.said("team-a")[0] == "False"

        it.server.faults.remove(away)
        await followed.until_said("team-a", "True", "True", "")
        assert await followed.place("web", "team-a")


@pytest.mark.parametrize(
    "body", [b'{"items": null}', b"<html>not now</html>"], ids=["of none", "that is none"]
)
async def test_a_malformed_list_is_decoded_or_requested_again(
    tmp_path: Path, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with following(tmp_path) as it, daemon_of(it) as followed:
        up = followed.daemon.metrics.configuration.watch_up
        await it.until(lambda: up["schedulerprofiles"])
        followed.listener.ended()
        connection = followed.daemon.connection
        answers = [Response(200, body)]

        async def send(request: Request, **options: Any) -> Response:
            if answers and request.path.endswith("/schedulerprofiles"):
                return answers.pop()
            return await type(connection).send(connection, request, **options)

        monkeypatch.setattr(connection, "send", send)
        followed.listener.began()
        await it.until(lambda: up["schedulerprofiles"])


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"schedulerName": ""}, "spec.schedulerName"),
        ({}, "spec.schedulerName"),
        ({"schedulerName": "a", "percentageOfNodesToScore": 101}, "spec.percentageOfNodesToScore"),
        (
            {"schedulerName": "a", "plugins": {"queueSort": {"enabled": [{"name": "A"}, {"name": "B"}]}}},
            "spec.plugins.queueSort.enabled",
        ),
        ({"schedulerName": "a", "pluginConfig": [{"name": "A"}, {"name": "A"}]}, r"spec.pluginConfig\[1\]"),
    ],
    ids=["empty name", "no name", "percentage", "two orders", "twice"],
)
async def test_the_api_server_enforces_the_schema(tmp_path: Path, spec: Any, field: str) -> None:
    async with following(tmp_path) as it:
        with pytest.raises(StatusError, match=field):
            it.server.store.create(PROFILES, {**profile("a"), "spec": spec})


async def test_no_more_than_one_profile_is_built_in_one_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, built_in = 0, Counter[int]()
    monkeypatch.setattr(time_slices, "SLICE_SECONDS", 0.0)
    build = runtime_profiles._build

    def next_turn() -> None:
        nonlocal turn
        turn += 1

    def counting(*arguments: Any) -> Any:
        built_in[turn] += 1
        asyncio.get_running_loop().call_soon(next_turn)
        return build(*arguments)

    async with following(tmp_path) as it, daemon_of(it) as followed:
        for number in range(8):
            it.server.store.create(PROFILES, profile(f"team-{number}"))
        monkeypatch.setattr(runtime_profiles, "_build", counting)
        followed.tell()
        await it.until(lambda: len(followed.daemon.frameworks) == 9)
    assert built_in.total() >= 9
    assert max(built_in.values()) == 1
