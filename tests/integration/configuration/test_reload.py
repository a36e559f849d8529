"""Another configuration in the running daemon, in virtual time."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from scheduler.configuration.load import parse
from scheduler.engine.queue.pod_places import Place
from scheduler.errors import ConfigurationError
from scheduler.framework import (
    FilterPlugin,
    Needs,
    Outcomes,
    PermitPlugin,
    PreEnqueuePlugin,
    ScorePlugin,
    Status,
    Wait,
    WaitingPods,
)
from scheduler.tools.simulator.faults import binds
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.reloads import offer_of, reloader_of
from tests.support.replicas import replica

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.configuration.load import Configuration
    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster


class PreferA(ScorePlugin):
    name = "PreferA"
    api_version = 1
    node = "a"

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        return 100 if node.name == self.node else 0


class PreferB(PreferA):
    name = "PreferB"
    api_version = 1
    node = "b"


class Nowhere(FilterPlugin):
    name = "Nowhere"
    api_version = 1

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        return Outcomes.reject(np.ones(snapshot.n_nodes, dtype=bool), "nowhere")


class Curfew(PreEnqueuePlugin):
    name = "Curfew"
    api_version = 1

    def pre_enqueue(self, pod: Any) -> Status:
        return Status.unschedulable("curfew")


class Hold(PermitPlugin):
    name = "Hold"
    api_version = 1

    def __init__(self, *, waiting: WaitingPods) -> None:
        self._waiting = waiting

    def permit(self, state: Any, pod: Any, node_name: str) -> Wait:
        return Wait(60.0)


PLUGINS = {each.name: each for each in (PreferA, PreferB, Nowhere, Curfew, Hold)}


def profile(name: str = "custom-scheduler", score: str = "", **points: str) -> str:
    """One profile of YAML; a point names one plugin."""
    scorers = f"score: {{disabled: [{{name: '*'}}], enabled: [{score}]}}" if score else ""
    others = "\n".join(f"      {point}: {{enabled: [{{name: {each}}}]}}" for point, each in points.items())
    body = f"\n      {scorers}\n{others}" if scorers or others else " {}"
    return f"  - schedulerName: {name}\n    plugins:{body}"


def configuration(*profiles: str, more: str = "") -> str:
    listed = "\n".join(profiles or (profile(),))
    return (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        f"{more}\nprofiles:\n{listed}\n"
    )


def prefer(node: str, name: str = "custom-scheduler") -> str:
    a, b = (10, 1) if node == "a" else (1, 10)
    return profile(name, f"{{name: PreferA, weight: {a}}}, {{name: PreferB, weight: {b}}}")


async def two_nodes(it: Cluster, daemon: Daemon) -> None:
    it.add_nodes(node_object("a", cpu="64", pods=1000), node_object("b", cpu="64", pods=1000))
    await it.until(lambda: daemon.parts.cache.table.n_nodes == 2)


async def place(it: Cluster, name: str, **fields: Any) -> str:
    it.add_pods(pod_object(name, cpu="10m", **fields))
    await it.until(lambda: it.node_of(name))
    return it.node_of(name)


def metric(daemon: Daemon, name: str, **labels: str) -> float | None:
    return daemon.metrics.registry.get_sample_value(name, labels)


async def test_a_changed_weight_counts_from_the_next_pod_on(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(prefer("a")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        assert await place(it, "first") == "a"

        await daemon.reload(parse(configuration(prefer("b"))))

        assert await place(it, "second") == "b"


BROKEN = {
    "yaml that is none": ("profiles: [", "line"),
    "nothing": ("", "is empty"),
    "an unknown field": (configuration(more="profile: []"), "profile: unknown field"),
    "an unknown plugin": (configuration(profile(filter="Nowhare")), "Nowhare"),
    "a plugin that is twice there": (
        configuration(profile(score="{name: PreferA}, {name: PreferA}")),
        "profiles[0].plugins.score.enabled[1]",
    ),
    "a plugin that cannot be built": (configuration(profile(filter="broken.py")), "no licence server"),
    "a plugin file with a syntax error": (configuration(profile(filter="syntax.py")), "SyntaxError"),
    "a plugin file that is not there": (configuration(profile(filter="gone.py")), "no such file"),
    "the plugin of the third of four profiles cannot be built": (
        configuration(
            prefer("b"), prefer("b", "two"), profile("three", filter="broken.py"), prefer("b", "four")
        ),
        "profiles[2].plugins: plugin broken.py: cannot be built: RuntimeError: no licence server",
    ),
    "a constructor that wants to end the process": (
        configuration(profile(filter="leaving.py")),
        "cannot be built: SystemExit: 3",
    ),
    "a file that wants to end the task": (
        configuration(profile(filter="cancelling.py")),
        "cannot be imported: CancelledError",
    ),
    "an extender whose certificate is not there": (
        configuration(
            prefer("b"),
            more="extenders: [{urlPrefix: 'https://x', filterVerb: f, tlsConfig: {caFile: /gone.pem}}]",
        ),
        "extenders[0].tlsConfig: cannot be used",
    ),
    "a guest that does not compile": (
        configuration(profile(filter="broken.wasm")),
        "wasm",
    ),
    "needs that are no kind": (configuration(profile(filter="needy.py")), "nonsense"),
}

BROKEN_FILES = {
    "broken.py": """\
from scheduler.framework import FilterPlugin
class Broken(FilterPlugin):
    name = "Broken"
    api_version = 1
    def __init__(self):
        raise RuntimeError("no licence server")
    def filter_node(self, state, pod, node):
        ...
""",
    "syntax.py": "class Broken(:\n",
    "leaving.py": """\
from scheduler.framework import FilterPlugin
class Leaving(FilterPlugin):
    name = "Leaving"
    api_version = 1
    def __init__(self):
        raise SystemExit(3)
    def filter_node(self, state, pod, node):
        ...
""",
    "cancelling.py": "import asyncio\nraise asyncio.CancelledError\n",
    "broken.wasm": "\0asm and no more",
    "needy.py": """\
from scheduler.framework import FilterPlugin, Needs
class Needy(FilterPlugin):
    name = "Needy"
    api_version = 1
    needs = Needs(kinds=frozenset({"nonsense"}))
    def filter_node(self, state, pod, node):
        ...
""",
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.values(), ids=BROKEN)
async def test_an_invalid_configuration_is_rejected_with_an_event_and_the_old_one_stays(
    tmp_path: Path, text: str, expected: str
) -> None:
    for name, content in BROKEN_FILES.items():
        (tmp_path / name).write_text(content)
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(prefer("a")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        reloader, before = reloader_of(daemon), daemon.configuration
        reloader.started_with(dataclasses.replace(offer_of(""), digest=b"beginning"))

        taken = await reloader.take(offer_of(text, tmp_path))

        assert not taken
        assert daemon.configuration is before
        assert await place(it, "web") == "a"
        await it.until(lambda: it.notes("cs", "ConfigurationRejected"))
        (note,) = it.notes("cs", "ConfigurationRejected")
        assert note.startswith("The previous configuration stays active: ")
        assert expected in note
        assert metric(daemon, "custom_scheduler_config_last_reload_successful") == 0
        assert metric(daemon, "custom_scheduler_config_reloads_total", result="rejected") == 1


async def test_each_rejection_is_an_event_of_its_own_with_its_own_message(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        reloader = reloader_of(daemon)

        for text in ("profiles: [", configuration(more="profile: []"), configuration(more="profile: []")):
            await reloader.take(offer_of(text))

        await it.until(lambda: len(it.notes("cs", "ConfigurationRejected")) == 3)
        first, second, third = it.notes("cs", "ConfigurationRejected")
        assert first != second == third


def no_space_left() -> Configuration:
    raise OSError("no space left on device")


async def test_a_plugin_that_fails_on_import_only_fails_the_reload(
    tmp_path: Path,
) -> None:
    (tmp_path / "odd.py").write_text("from scheduler.framework import FilterPlugin\nraise SystemExit(3)\n")
    async with cluster(tmp_path) as it, it.daemon() as daemon:
        await two_nodes(it, daemon)

        assert not await reloader_of(daemon).take(offer_of(configuration(profile(filter="odd.py")), tmp_path))
        full = dataclasses.replace(offer_of(""), read=no_space_left)
        assert not await reloader_of(daemon).take(full)

        assert await place(it, "web")


async def test_pods_of_an_added_profile_are_placed_and_of_a_removed_one_are_not(
    tmp_path: Path,
) -> None:
    both = {"filter": "Nowhere"}
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile("one", **both)), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(
            pod_object("first", scheduler_name="one"),
            pod_object("second", scheduler_name="two"),
            pod_object("theirs", scheduler_name="default-scheduler"),
        )
        await it.until(lambda: it.condition("first"))

        await daemon.reload(parse(configuration(prefer("b", "two"))))

        await it.until(lambda: it.node_of("second"))
        assert it.node_of("second") == "b"
        await it.until(lambda: it.notes("second", "Scheduled"))
        assert [queued.pod.name for queued in daemon.parts.queue.pods()] == []
        uid = it.pod("first")["metadata"]["uid"]
        assert daemon.parts.queue.history(uid)[-1].why == "served by no profile any more"
        assert await place(it, "third", scheduler_name="two") == "b"
        assert not it.node_of("first")

        await daemon.reload(parse(configuration(prefer("a", "one"), prefer("a", "two"))))

        await it.until(lambda: it.node_of("first") == "a")
        assert not it.node_of("theirs")
        daemon.parts.queue.check()
        daemon.parts.cache.check()


@pytest.mark.parametrize("fate", ["allowed", "rejected", "deleted", "going"])
async def test_a_pod_held_at_permit_ends_under_its_removed_profile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fate: str
) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile("one", permit="Hold")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        pod = pod_object("web", cpu="1", scheduler_name="one")
        finalizers = ["example.com/wait"] if fate == "going" else []
        it.add_pods({**pod, "metadata": {**pod["metadata"], "finalizers": finalizers}})
        uid = it.pod("web")["metadata"]["uid"]
        await it.until(lambda: daemon.parts.waiting_pods.holds(uid))

        await daemon.reload(parse(configuration(profile("two"))))
        it.add_nodes(node_object("c"))  # an event that nobody has a hint for, for a profile that is none
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 3)
        if fate == "allowed":
            daemon.parts.waiting_pods.allow(uid, "Hold")
            await it.until(lambda: it.node_of("web") and it.notes("web", "Scheduled"))
        elif fate == "rejected":
            daemon.parts.waiting_pods.reject(uid, "Hold", "no")
        else:
            it.server.store.delete("pods", "web")

        await it.until(lambda: daemon.parts.cache.counts()["assumed_pods"] == 0, seconds=5)
        await it.until(lambda: not daemon.generations.retiring, seconds=5)
        assert daemon.parts.queue.place_of(uid) is Place.OUTSIDE
        assert daemon.parts.queue.count(Place.IN_FLIGHT) == 0
        assert "Event handler failed" not in caplog.messages
        daemon.parts.queue.check()
        daemon.parts.cache.check()


async def test_an_undecodable_pod_is_not_tried_by_its_earlier_version_after_a_reload(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, it.daemon(configuration(profile("one"))) as daemon:
        await two_nodes(it, daemon)
        it.add_pods(pod_object("web", scheduler_name="two"))
        await it.until(lambda: daemon.parts.pods.get("default/web"))
        it.garbled[b'"garbled"'] = b"7"
        it.label_pod("web", odd="garbled")
        await it.until(lambda: daemon.watches.pods.is_outdated("default/web"))

        await daemon.reload(parse(configuration(profile("two"))))
        await asyncio.sleep(30)
        assert not it.node_of("web")

        it.label_pod("web", odd="fine")
        await it.until(lambda: it.node_of("web"))


async def test_unschedulable_pods_are_tried_again_because_the_configuration_changed(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile(filter="Nowhere")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(pod_object("web", cpu="1"))
        await it.until(lambda: it.condition("web"))
        await asyncio.sleep(30.0)  # its backoff is over
        uid = it.pod("web")["metadata"]["uid"]
        assert daemon.parts.queue.place_of(uid) is Place.UNSCHEDULABLE

        await daemon.reload(parse(configuration()))

        await it.until(lambda: it.node_of("web"), seconds=1)
        assert "ConfigurationReloaded" in [move.why for move in daemon.parts.queue.history(uid)]
        moved = {"queue": "active", "event": "ConfigurationReloaded"}
        assert metric(daemon, "scheduler_queue_incoming_pods_total", **moved) == 1


async def test_a_pod_that_is_rejected_by_the_old_profile_during_the_reload_is_tried_again(
    tmp_path: Path,
) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile(permit="Hold")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(pod_object("web", cpu="1"))
        uid = it.pod("web")["metadata"]["uid"]
        await it.until(lambda: daemon.parts.waiting_pods.holds(uid))

        await daemon.reload(parse(configuration()))
        daemon.parts.waiting_pods.reject(uid, "Hold", "no")

        await it.until(lambda: it.node_of("web"), seconds=5)


async def test_after_a_reload_all_pending_pods_pass_the_new_gates(
    tmp_path: Path,
) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile(preEnqueue="Curfew")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(pod_object("web", cpu="1"), pod_object("nap", gates=["later"]))
        uid = it.pod("web")["metadata"]["uid"]
        await it.until(lambda: daemon.parts.queue.count(Place.GATED) == 2)

        await daemon.reload(parse(configuration(profile(filter="Nowhere"))))
        await it.until(lambda: it.condition("web"))
        assert daemon.parts.queue.count(Place.GATED) == 1

        it.add_nodes(node_object("c"))  # to backoffQ with it
        await it.until(lambda: daemon.parts.queue.place_of(uid) is Place.UNSCHEDULABLE)
        await daemon.reload(parse(configuration(profile(preEnqueue="Curfew"))))
        assert daemon.parts.queue.count(Place.GATED) == 2

        await daemon.reload(parse(configuration()))
        await it.until(lambda: it.node_of("web"))
        assert daemon.parts.queue.count(Place.GATED) == 1
        daemon.parts.queue.check()


class NeedsConfigMaps(FilterPlugin):
    """Passes nodes and remembers what it saw."""

    name = "NeedsConfigMaps"
    api_version = 1
    needs = Needs(kinds=frozenset({"v1/configmaps"}), bound_pod_annotations=True)
    seen: ClassVar[list[tuple[bool, str]]] = []

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        notes = [
            bound.pod.metadata.annotations.get("note", "")
            for row in range(snapshot.n_nodes)
            for bound in snapshot.pods_on(row)
        ]
        self.seen.append(("default/prices" in snapshot.objects("v1/configmaps"), "".join(notes)))
        return Outcomes.all_pass(snapshot.n_nodes)


async def test_kinds_of_new_plugins_are_listed_before_their_first_pod_and_dropped_later(
    tmp_path: Path,
) -> None:
    NeedsConfigMaps.seen.clear()
    plugins = {**PLUGINS, "NeedsConfigMaps": NeedsConfigMaps}
    async with cluster(tmp_path) as it, it.daemon(configuration(), plugins=plugins) as daemon:
        it.server.store.create("configmaps", {"metadata": {"name": "prices"}})
        await two_nodes(it, daemon)
        before = len(list(daemon.watches))
        it.add_pods(pod_object("bound", node="a", annotations={"note": "kept"}))
        await it.until(lambda: daemon.parts.cache.counts()["pods"] == 1)

        await daemon.reload(parse(configuration(profile(filter="NeedsConfigMaps"))))
        await place(it, "web")

        assert NeedsConfigMaps.seen == [(True, "kept")]

        await daemon.reload(parse(configuration()))
        await it.until(lambda: len(list(daemon.watches)) == before)
        asked = len(it.server.requests)
        it.add_pods(pod_object("later", node="b", annotations={"note": "not kept"}))
        await asyncio.sleep(1200)
        later = [each for each in list(it.server.requests)[asked:] if each.path.endswith("/configmaps")]
        assert later == []
        assert not daemon.parts.cache.table.watch_kind("v1/configmaps")
        known = daemon.parts.pods.get("default/later")
        assert known is not None
        assert known.pod.metadata.annotations == {}


async def test_a_configuration_whose_kind_cannot_be_read_is_rejected(tmp_path: Path) -> None:
    plugins = {**PLUGINS, "NeedsConfigMaps": NeedsConfigMaps}
    async with cluster(tmp_path) as it, it.daemon(configuration(prefer("a")), plugins=plugins) as daemon:
        await two_nodes(it, daemon)
        before = len(list(daemon.watches))
        it.server.faults.refuse(403, lambda info: info.path.endswith("/configmaps"))

        with pytest.raises(ConfigurationError, match="need v1/configmaps, not read within 60 seconds"):
            await daemon.reload(parse(configuration(profile(filter="NeedsConfigMaps"))))

        assert len(list(daemon.watches)) == before
        assert daemon.has_synced
        assert await place(it, "web") == "a"


async def test_a_configuration_that_failed_during_an_outage_is_retried_after_it(tmp_path: Path) -> None:
    plugins = {**PLUGINS, "NeedsConfigMaps": NeedsConfigMaps}
    async with cluster(tmp_path) as it, it.daemon(configuration(prefer("a")), plugins=plugins) as daemon:
        await two_nodes(it, daemon)
        reloader = reloader_of(daemon)
        running = asyncio.create_task(reloader.run())
        away = it.server.faults.refuse(503, lambda info: info.path.endswith("/configmaps"))

        reloader.offer(offer_of(configuration(profile(filter="NeedsConfigMaps"))))
        await asyncio.sleep(400)
        (note,) = it.notes("cs", "ConfigurationRejected")
        assert note.endswith("not read within 60 seconds; it is tried again every minute")
        assert metric(daemon, "custom_scheduler_config_reloads_total", result="rejected") == 1

        it.server.faults.remove(away)
        await it.until(lambda: it.notes("cs", "ConfigurationReloaded"), seconds=130)
        running.cancel()


async def test_a_failed_configuration_is_not_retried_after_a_newer_one(tmp_path: Path) -> None:
    plugins = {**PLUGINS, "NeedsConfigMaps": NeedsConfigMaps}
    async with cluster(tmp_path) as it, it.daemon(configuration(prefer("a")), plugins=plugins) as daemon:
        await two_nodes(it, daemon)
        reloader = reloader_of(daemon)
        running = asyncio.create_task(reloader.run())
        it.server.faults.refuse(503, lambda info: info.path.endswith("/configmaps"))

        reloader.offer(offer_of(configuration(profile(filter="NeedsConfigMaps"))))
        await it.until(lambda: it.notes("cs", "ConfigurationRejected"), seconds=70)
        reloader.offer(offer_of(configuration(prefer("b"))))
        await it.until(lambda: it.notes("cs", "ConfigurationReloaded"))
        it.server.faults.clear()
        await asyncio.sleep(300)
        assert len(it.notes("cs", "ConfigurationReloaded")) == 1
        assert await place(it, "web") == "b"
        running.cancel()


class Fresh(ScorePlugin):
    """Counts how often it was refreshed, by its arguments' name."""

    name = "Fresh"
    api_version = 1
    refresh_seconds = 1.0
    times: ClassVar[Counter[int]] = Counter()  # plugin's number -> refreshes
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number = type(self).made

    async def refresh(self) -> None:
        self.times[self.number] += 1

    def score_node(self, state: Any, pod: Any, node: Any) -> int:
        assert self.times[self.number], "asked before its data were read"
        return 1


async def test_old_plugins_are_refreshed_until_their_last_binding_ends(
    tmp_path: Path,
) -> None:
    Fresh.times.clear()
    Fresh.made = 0
    plugins = {**PLUGINS, "Fresh": Fresh}
    text = configuration(profile(score="{name: Fresh}"))
    async with cluster(tmp_path) as it, it.daemon(text, plugins=plugins) as daemon:
        await two_nodes(it, daemon)
        it.server.faults.delay(10.0, binds)
        it.add_pods(pod_object("slow", cpu="1"))
        await it.until(lambda: daemon.parts.queue.count(Place.IN_FLIGHT) == 1)

        await daemon.reload(parse(text))
        before = Counter(Fresh.times)
        assert before[2] == 1
        await asyncio.sleep(5.0)
        assert Fresh.times[1] > before[1]
        assert Fresh.times[2] > before[2]
        await it.until(lambda: it.node_of("slow") and not daemon.generations.retiring)
        ended = Fresh.times[1]
        await asyncio.sleep(5.0)
        assert Fresh.times[1] == ended


async def test_settings_that_need_a_restart_are_named_and_the_others_are_applied(tmp_path: Path) -> None:
    more = "leaderElection: {leaseDuration: 20s}\nclientConnection: {qps: 7}"
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(prefer("a")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        reloader = reloader_of(daemon)

        assert await reloader.take(offer_of(configuration(prefer("b"), more=more)))

        await it.until(lambda: it.notes("cs", "ConfigurationNeedsRestart"))
        (note,) = it.notes("cs", "ConfigurationNeedsRestart")
        paths = ("clientConnection.qps", "leaderElection.leaseDuration")
        assert note.endswith(f"for {', '.join(paths)}")
        restart_needed = "custom_scheduler_config_restart_needed"
        assert [metric(daemon, restart_needed, field=path) for path in paths] == [1, 1]
        assert daemon.configuration.settings.client_connection.qps == 0
        assert await place(it, "web") == "b"

        assert await reloader.take(offer_of(configuration(prefer("b"))))
        assert restart_needed not in daemon.metrics.text()[0].decode()


async def test_backoffs_change_for_pods_that_back_off_already(tmp_path: Path) -> None:
    slow = "podInitialBackoffSeconds: 500\npodMaxBackoffSeconds: 1000"
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(profile(filter="Nowhere"), more=slow), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(pod_object("web", cpu="1"))
        await it.until(lambda: it.condition("web"))

        await daemon.reload(parse(configuration(profile(permit="Hold"), more=slow)))
        uid = it.pod("web")["metadata"]["uid"]
        await it.until(lambda: daemon.parts.waiting_pods.holds(uid))
        daemon.parts.waiting_pods.reject(uid, "", "an error")
        await it.until(lambda: daemon.parts.queue.place_of(uid) is Place.BACKOFF)
        await asyncio.sleep(20.0)
        assert daemon.parts.queue.place_of(uid) is Place.BACKOFF

        await daemon.reload(parse(configuration()))

        await it.until(lambda: it.node_of("web"), seconds=2)


async def test_every_replica_reloads_and_only_the_leader_writes_events(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, replica(it, "r1", plugins=PLUGINS) as leader:
        await it.until(lambda: leader.is_leading)
        async with replica(it, "r2", plugins=PLUGINS) as standby:
            await two_nodes(it, standby.daemon)
            it.add_pods(pod_object("web", scheduler_name="two"))
            await it.until(lambda: standby.daemon.parts.pods.get("default/web"))

            for each in (standby, leader):
                text = configuration(prefer("b"), prefer("b", "two"))
                assert await reloader_of(each.daemon, leader_elect=True).take(offer_of(text))

            await it.until(lambda: it.node_of("web") == "b")
            await it.until(lambda: it.notes("cs", "ConfigurationReloaded"))
            await asyncio.sleep(5.0)
            assert len(it.notes("cs", "ConfigurationReloaded")) == 1
            assert standby.writes() == []

            await leader.stop()
            await it.until(lambda: standby.is_leading)
            assert await place(it, "late", scheduler_name="two") == "b"


async def test_under_load_every_pod_is_placed_once_by_the_active_configuration(tmp_path: Path) -> None:
    names, pods = ("one", "two"), 300
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(prefer("a", "one"), prefer("a", "two")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.server.faults.delay(0.3, binds)
        reloader = reloader_of(daemon)
        wanted: dict[str, set[str]] = {}  # pod -> nodes that a active configuration while it waited prefers
        now = coming = "a", {"one", "two"}  # what is preferred, and which names are served

        async def create() -> None:
            for number in range(pods):
                name = f"p-{number}"
                # Others have their turn while a configuration is built.
                wanted[name] = {node for node, served in (now, coming) if names[number % 2] in served}
                it.add_pods(pod_object(name, cpu="10m", scheduler_name=names[number % 2]))
                await asyncio.sleep(0.05)

        creating = asyncio.create_task(create())
        for turn in range(30):
            await asyncio.sleep(0.5)
            if turn % 3 == 2:
                assert not await reloader.take(offer_of(configuration(profile(filter="Nowhare"))))
                continue
            new, new_served = "ab"[turn % 2], [{"one", "two"}, {"one"}, set(), {"two"}][turn % 4] or {"two"}
            for name, nodes in wanted.items():
                if not it.node_of(name):
                    nodes.add(new)
            coming = new, new_served
            texts = [prefer(new, each) for each in sorted(new_served)]
            assert await reloader.take(offer_of(configuration(*texts)))
            now = coming
        await creating
        for name, nodes in wanted.items():
            if not it.node_of(name):
                nodes.add("b")
        assert await reloader.take(offer_of(configuration(prefer("b", "one"), prefer("b", "two"))))

        await it.until(lambda: all(it.node_of(name) for name in wanted))
        await it.until(
            lambda: daemon.parts.cache.counts()["assumed_pods"] == 0 and not daemon.generations.retiring
        )

        astray = {name: it.node_of(name) for name in wanted if it.node_of(name) not in wanted[name]}
        assert astray == {}
        posted = Counter(each.path for each in it.server.requests if each.path.endswith("/binding"))
        assert len(posted) == pods
        assert set(posted.values()) == {1}
        assert {it.node_of(name) for name in wanted} == {"a", "b"}
        daemon.parts.queue.check()
        daemon.parts.cache.check()
        assert not list(daemon.parts.queue.pods())


async def test_a_swap_that_fails_half_way_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        cluster(tmp_path) as it,
        it.daemon(configuration(prefer("a"), prefer("a", "dropped")), plugins=PLUGINS) as daemon,
    ):
        await two_nodes(it, daemon)
        it.add_pods(pod_object("waits", scheduler_name="dropped", cpu="99"))
        await it.until(lambda: it.condition("waits"))
        before, reload = daemon.configuration, daemon.parts.queue.reload

        def fails(**_: Any) -> None:
            monkeypatch.setattr(daemon.parts.queue, "reload", reload)
            raise RuntimeError("half way")

        monkeypatch.setattr(daemon.parts.queue, "reload", fails)
        with pytest.raises(RuntimeError, match="half way"):
            await daemon.reload(parse(configuration(prefer("b"), prefer("b", "another"))))

        assert daemon.configuration is before
        assert sorted(daemon.frameworks) == ["custom-scheduler", "dropped"]
        assert daemon.parts.queue.get(it.pod("waits")["metadata"]["uid"]) is not None
        assert await place(it, "web") == "a"
        assert await place(it, "more", scheduler_name="dropped") == "a"
        assert not (await daemon.consistency.check(repair=True)).findings


GOOD_FILE = """\
from scheduler.framework import FilterPlugin
class Good(FilterPlugin):
    name = "Good"
    api_version = 1
    def filter_node(self, state, pod, node):
        ...
"""


async def test_nothing_of_rejected_configurations_is_kept(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD_FILE)
    (tmp_path / "broken.py").write_text(BROKEN_FILES["broken.py"])
    active = configuration(profile(filter="good.py"))
    async with cluster(tmp_path) as it, it.daemon(configuration(prefer("a")), plugins=PLUGINS) as daemon:
        await two_nodes(it, daemon)
        await daemon.reload(parse(active, "a test", tmp_path))
        (module,) = modules_of_files()
        text = configuration(profile(filter="good.py"), profile("two", filter="broken.py"))

        for _ in range(5):
            with pytest.raises(ConfigurationError, match="no licence server"):
                await daemon.reload(parse(text, "a test", tmp_path))
        gc.unfreeze()  # gc.get_objects leaves out frozen objects
        gc.collect()

        assert modules_of_files() == [module]
        (good,) = (
            each for each in daemon.frameworks["custom-scheduler"].plugins.all() if each.name == "Good"
        )
        assert [each for each in gc.get_objects() if type(each).__name__ == "Good"] == [good]

        await daemon.reload(parse(configuration(prefer("a"))))
        await it.until(lambda: not daemon.generations.retiring)
        assert modules_of_files() == []


def modules_of_files() -> list[Any]:
    return [module for name, module in sys.modules.items() if name.startswith("custom_scheduler_plugin_good")]
