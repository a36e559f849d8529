"""A replay of a recording makes the same decisions."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml
from click.testing import CliRunner

from plugins.node_resource_topology.pod_fingerprint import fingerprint
from scheduler.cli.board import board
from scheduler.cli.recording import recording
from scheduler.cli.replay import replay
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording import RecordingWriter
from scheduler.daemon.recording.recording_files import Header, Note, RecordingError
from scheduler.engine.cycle import group_pauses
from scheduler.testing.samples import node_topology
from scheduler.tools.board.recorded import of_recording
from scheduler.tools.whatif.replay.script import stretches, summary
from tests.faults.campaign import run
from tests.recording.memory_recording import Taped
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.manifests import MANIFESTS
from tests.support.virtual_time import LoopClock
from tests.unit.plugins.node_resource_topology.numa_cluster import with_placement

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping
    from pathlib import Path

    from scheduler.daemon.app.ports import Ports
    from scheduler.tools.whatif.replay.script import Stretch
    from tests.support.daemon_harness import Cluster

QUEUE_DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "queues.yaml").read_text())
TOPOLOGY_DEFINITION = yaml.safe_load((MANIFESTS / "crds" / "noderesourcetopologies.yaml").read_text())
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
BIG, SMALL = {"cpu": "3"}, {"cpu": "100m"}


async def churn(it: Cluster) -> None:
    """Add and delete pods, preempt some, delete and add a node, change labels."""
    it.add_nodes(*(node_object(f"n{number}") for number in range(4)))
    for number in range(12):
        it.add_pods(pod_object(f"p{number}", requests=SMALL if number % 3 else BIG))
        await asyncio.sleep(0.01)
    await it.until(lambda: all(it.node_of(f"p{number}") for number in range(12)))
    it.add_pods(pod_object("urgent", requests=BIG, priority=100))
    await it.until(lambda: it.node_of("urgent"))
    it.server.store.delete("nodes", "n1")
    it.label_pod("p1", tier="web")
    it.add_pods(pod_object("late", requests={"cpu": "6"}))
    await asyncio.sleep(1.0)
    it.add_nodes(node_object("n9", cpu="8"))
    await it.until(lambda: it.node_of("late"))


async def lives(folder: Path, *ports: Ports) -> None:
    """The same cluster with several daemons, one after another."""
    async with cluster(folder, kubelet=True) as it:
        for number, each in enumerate(ports):
            async with it.daemon(ports=each) as daemon:
                if isinstance(each, Recorder):
                    each.daemon = daemon
                if number == 0:
                    await churn(it)
                else:
                    it.add_pods(pod_object(f"again-{number}", requests=SMALL))
                    await it.until(lambda number=number: it.node_of(f"again-{number}"))


def taped(folder: Path) -> Taped:
    async def story() -> Taped:
        made = Taped(LoopClock())
        await lives(folder, made.recorder)
        return made

    return virtual_time.run(story())


def first(tape: Taped, is_it: Callable[[Any], object]) -> tuple[int, Any]:
    """Return the index of a note, and the note."""
    return next((place, note) for place, note in enumerate(tape.tape.notes) if is_it(note))


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return a folder with the recording of two runs."""

    async def story() -> None:
        folder, recorders, tapes = tmp_path / "recording", [], []
        for number in range(2):
            header = Header.fresh(LoopClock(), Random(number))
            tapes.append(RecordingWriter(RecordingLimits(folder), header))
            recorders.append(Recorder(LoopClock(), tapes[-1], header))
        await lives(tmp_path, *recorders)
        for tape in tapes:
            tape.close()

    virtual_time.run(story())
    return tmp_path / "recording"


def test_every_decision_is_replayed(tmp_path: Path) -> None:
    made = taped(tmp_path).replay()
    assert made.difference is None
    assert made.ended == ""
    assert made.decisions > 14


def test_a_different_decision_is_found(tmp_path: Path) -> None:
    tape = taped(tmp_path)
    place, note = first(tape, lambda note: note[0] is Note.DECIDED and note[2])
    tape.tape.notes[place] = (*note[:2], "elsewhere", *note[3:])
    made = tape.replay()
    assert made.difference is not None
    assert made.difference.recorded == [Note.DECIDED, note[1], "elsewhere", "", None]
    assert made.difference.here == [Note.DECIDED, note[1], note[2], "", None]


def test_a_different_request_is_found(tmp_path: Path) -> None:
    tape = taped(tmp_path)
    place, note = first(tape, lambda note: note[0] is Note.ASKED)
    tape.tape.notes[place] = (*note[:2], "bind default/p0 to elsewhere")
    made = tape.replay()
    assert made.difference is not None
    assert made.difference.here == [Note.ASKED, 0, note[2]]


def test_a_missing_event_is_found(tmp_path: Path) -> None:
    tape = taped(tmp_path)
    place, _ = first(tape, lambda note: note[0] is Note.TOLD and note[4] == "default/p3")
    del tape.tape.notes[place]
    assert tape.replay().difference is not None


def in_several_files(folder: Path) -> Taped:
    async def story() -> Taped:
        made = Taped(LoopClock())
        made.tape.notes_of_a_file = 60
        await lives(folder, made.recorder)
        return made

    tape = virtual_time.run(story())
    assert len(tape.tape.files) > 2
    return tape


def test_records_in_several_files_are_counted_once(tmp_path: Path) -> None:
    tape = in_several_files(tmp_path)

    reported = summary(
        cast("Stretch", SimpleNamespace(header=tape.header, notes=tape.notes, files=[], torn=[]))
    )

    assert (reported.objects["v1/nodes"], reported.objects["v1/pods"]) == (4, 13)  # without n1 and the victim
    assert (reported.configurations, reported.profiles) == (1, ["custom-scheduler"])


def test_each_file_can_be_replayed_by_itself(tmp_path: Path) -> None:
    tape = in_several_files(tmp_path)
    for begin in tape.tape.files:
        made = tape.replay(begin=begin)
        assert made.difference is None, begin


def into_files(tape: Taped, folder: Path, *what_breaks: tuple[str, object]) -> None:
    """Write the notes to files; a third of the second file is corrupted."""
    files = RecordingWriter(RecordingLimits(folder), tape.header)
    for number, (begin, end) in enumerate(pairwise([0, *tape.tape.files, None])):
        notes = tape.tape.notes[begin:end]
        state = list(takewhile(lambda note: note[0] in {Note.STATE, Note.OBJECT}, notes))
        if state:
            files.begin_file(state)
        rest = iter(notes[len(state) :])
        third = (len(notes) - len(state)) // 3
        put(files, islice(rest, third))
        with pytest.MonkeyPatch.context() as patch:
            for name, value in what_breaks if number == 1 else ():
                patch.setattr(name, value)
            put(files, islice(rest, third))
        put(files, rest)
    files.close()


def put(files: RecordingWriter, notes: Iterable[Any]) -> None:
    for note in notes:
        files.put(note)
    files.flush()
    while files._n_done < files._n_put:
        time.sleep(0.001)


def disk_is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    "breaks",
    [
        pytest.param(("scheduler.daemon.recording.recording._MOST_WAITING", -1), id="they come too fast"),
        pytest.param(
            ("scheduler.daemon.recording.recording_files.FileWriter.put", disk_is_full), id="the disk is full"
        ),
    ],
)
def test_the_part_after_lost_records_is_replayed_by_itself(
    tmp_path: Path, breaks: tuple[str, object]
) -> None:
    into_files(in_several_files(tmp_path), tmp_path / "recording", breaks)

    reported = CliRunner().invoke(replay, [str(tmp_path / "recording")])

    assert (reported.exit_code, reported.output.count("identical to the recording")) == (0, 2), (
        reported.output
    )


def test_the_part_after_a_damaged_file_is_replayed_by_itself(tmp_path: Path) -> None:
    folder = tmp_path / "recording"
    into_files(in_several_files(tmp_path), folder)
    second = sorted(folder.iterdir())[1]
    second.write_bytes(second.read_bytes()[:-300])

    reported = CliRunner().invoke(replay, [str(folder)])

    assert (reported.exit_code, reported.output.count("identical to the recording")) == (0, 2), (
        reported.output
    )
    assert "until some entries are missing" in reported.output


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("pods", 7),
        ("pods", 45),
        ("pods", 60),
        ("groups", 3),
        ("groups", 4),
        ("groups", 70),
        ("shards", 5054),
        ("shards", 13),
    ],
)
def test_every_daemon_of_a_campaign_decides_as_it_did(kind: str, seed: int) -> None:
    assert not run(seed, kind, is_taped=True).findings


@pytest.mark.parametrize("seed", [3, 50])
def test_a_daemon_with_paused_group_attempts_decides_as_it_did(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_pauses, "_UNIT_SECONDS", -1.0)
    monkeypatch.setattr(group_pauses, "_PASS_SECONDS", -1.0)
    assert not run(seed, "groups", is_taped=True).findings


def test_a_recording_is_summarized(recorded: Path) -> None:
    reported = CliRunner().invoke(recording, [str(recorded)])
    assert reported.exit_code == 0
    assert reported.output.count(" run ") == 2
    assert "placed" in reported.output


def test_runs_are_replayed_one_after_another(recorded: Path) -> None:
    reported = CliRunner().invoke(replay, [str(recorded)])
    assert reported.exit_code == 0
    assert reported.output.count("identical to the recording") == 2


def test_a_decision_is_explained_at_its_time(recorded: Path) -> None:
    reported = CliRunner().invoke(replay, [str(recorded), "--pod", "late", "--attempt", "1"])
    assert reported.exit_code == 0
    assert "attempt 1" in reported.output
    assert "Insufficient cpu" in reported.output


@pytest.mark.parametrize("command", ["recording", "replay", "replay --pod again-1"])
def test_it_ends_when_its_output_is_closed(recorded: Path, command: str) -> None:
    name, *options = command.split()
    to_nobody, closed = os.pipe()
    os.close(to_nobody)

    done = subprocess.run(
        [sys.executable, "-m", "scheduler", name, recorded, *options],
        stdout=closed,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )

    os.close(closed)
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_unknown_pod_is_an_error(recorded: Path) -> None:
    reported = CliRunner().invoke(replay, [str(recorded), "--pod", "nobody"])
    assert reported.exit_code == 1
    assert "no such decision about pod default/nobody" in reported.output


def test_a_truncated_recording_is_replayed_up_to_the_last_whole_record(recorded: Path) -> None:
    first = min(recorded.iterdir())
    first.write_bytes(first.read_bytes()[:-200])
    reported = CliRunner().invoke(replay, [str(recorded)])
    assert reported.exit_code == 0
    assert "its end is missing; replayed up to there" in reported.output


def test_a_folder_without_a_recording_is_refused(tmp_path: Path) -> None:
    for asked in (recording, replay):
        reported = CliRunner().invoke(asked, [str(tmp_path)])
        assert reported.exit_code == 2
        assert "there is no recording" in reported.output


def test_no_secret_is_in_a_recording(tmp_path: Path) -> None:
    async def story() -> list[Any]:
        made = Taped(LoopClock())
        async with cluster(tmp_path) as it, it.daemon(ports=made.recorder):
            it.add_nodes(node_object("n1"))
            secret = pod_object("p1")
            secret["spec"]["containers"][0] |= {
                "env": [{"name": "PASSWORD", "value": "hunter2"}],
                "args": ["--token=hunter2"],
            }
            secret["metadata"]["annotations"] = {
                "kubectl.kubernetes.io/last-applied-configuration": '{"password": "hunter2"}'
            }
            it.add_pods(secret)
            await it.until(lambda: it.node_of("p1"))
        return list(made.notes())

    assert "hunter2" not in str(virtual_time.run(story()))


def test_the_board_shows_a_point_in_time_of_a_recording(recorded: Path) -> None:
    first = stretches(recorded)[0].header
    at = datetime.fromtimestamp(first.wall + 0.1, UTC)
    subject, moment = of_recording(recorded, at)
    assert 0 <= (moment - at).total_seconds() < 10
    assert 0 < subject.parts.cache.counts()["pods"] < 13
    later, end = of_recording(recorded, None)
    assert end > moment
    assert later.parts.cache.counts()["pods"] > 12


def test_the_board_has_nothing_from_before_a_recording(recorded: Path) -> None:
    reported = CliRunner().invoke(board, ["--recording", str(recorded), "--at", "2020-01-01T00:00:00Z"])
    assert isinstance(reported.exception, RecordingError)
    assert "the recording begins after" in str(reported.exception)


PROTECTION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args:
      protection: {minRunTime: {preemption: 30s}, delay: 5s, evictionsPerHour: {total: 2}}
"""


async def protect(folder: Path, recorder: Recorder) -> None:
    """A pod waits for the delay, then for protected pods, and the last one for the limit of evictions."""
    async with cluster(folder, kubelet=True) as it, it.daemon(PROTECTION, ports=recorder) as daemon:
        recorder.daemon = daemon
        it.add_nodes(*(node_object(f"n{number}", cpu="2") for number in range(3)))
        for number in range(3):
            it.add_pods(pod_object(f"p{number}", cpu="2"))
            await it.until(lambda number=number: it.node_of(f"p{number}"))
            await asyncio.sleep(3.0)
        for number in range(3):
            it.add_pods(pod_object(f"urgent-{number}", cpu="2", priority=100))
            await asyncio.sleep(1.0)
        await it.until(lambda: sum(bool(it.node_of(f"urgent-{number}")) for number in range(3)) == 2)
        await asyncio.sleep(3000.0)
        assert sum(bool(it.node_of(f"urgent-{number}")) for number in range(3)) == 2
        await asyncio.sleep(900.0)
        assert all(it.node_of(f"urgent-{number}") for number in range(3))


NODE_SETS = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: NodePreference, weight: 100}]}}
  pluginConfig:
  - name: NodePreference
    args:
      writeDeletionCost: true
      preferences:
      - sets:
        - {name: spot, matchLabels: {capacity: spot}, maxReplicas: 30%}
        - {name: on-demand, matchLabels: {capacity: on-demand}, minReplicas: 2}
"""


async def fill_sets(folder: Path, recorder: Recorder) -> None:
    """A Deployment fills node sets and is scaled; meanwhile its on-demand node is cordoned."""
    async with (
        cluster(folder, kubelet=True, controllers=True) as it,
        it.daemon(NODE_SETS, ports=recorder) as daemon,
    ):
        recorder.daemon = daemon
        it.add_nodes(*(node_object(name, labels={"capacity": name}) for name in ("spot", "on-demand")))
        template = {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"schedulerName": "custom-scheduler", "containers": [{"name": "c", "image": "c"}]},
        }
        spec = {"replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        it.server.store.create("deployments", {"metadata": {"name": "web"}, "spec": spec})

        def on(name: str) -> int:
            return sum(pod["spec"].get("nodeName") == name for pod in it.pods())

        await it.until(lambda: (on("spot"), on("on-demand")) == (3, 7))
        await asyncio.sleep(10.0)
        it.server.store.scale("deployments", "web", 5)
        await it.until(lambda: (on("spot"), on("on-demand")) == (1, 4), seconds=120.0)
        it.server.store.patch("nodes", "on-demand", {"spec": {"unschedulable": True}})
        it.server.store.scale("deployments", "web", 8)
        await asyncio.sleep(30.0)
        assert (on("spot"), on("on-demand"), len(it.pods())) == (2, 4, 8)
        it.server.store.patch("nodes", "on-demand", {"spec": {"unschedulable": False}})
        await it.until(lambda: (on("spot"), on("on-demand")) == (2, 6))
        await asyncio.sleep(5.0)


NUMA = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins: {multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}}
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args: {cacheResyncPeriodSeconds: 5, preemptionMode: Enabled}
"""


async def fill_zones(folder: Path, recorder: Recorder) -> None:
    """Pods fill zones before the objects show them, and one preempts the pods of a zone; an agent writes the objects late."""
    amounts = {"cpu": "2", "memory": "1Gi"}

    def exclusive(name: str, cpu: str, **fields: Any) -> dict[str, Any]:
        resources = {"limits": {**amounts, "cpu": cpu}, "requests": {**amounts, "cpu": cpu}}
        return pod_object(name, containers=[{"name": "c", "image": "c", "resources": resources}], **fields)

    def observed(node_name: str, zones: Mapping[str, int]) -> dict[str, Any]:
        """The object of an agent; pod -> its zone."""
        zone, pods = {"cpu": "4", "memory": "16Gi"}, fingerprint(("default", name) for name in zones)
        obj = node_topology(node_name, zone, zone, attributes={"nodeTopologyPodsFingerprint": pods})
        for number, each in enumerate(obj["zones"]):
            each["resources"][0]["available"] = str(4 - 2 * list(zones.values()).count(number))
            each["resources"][1]["available"] = "8Gi"
        return with_placement(obj, {("default", name, "c"): number for name, number in zones.items()})

    async with cluster(folder, kubelet=True) as it:
        it.server.store.create(DEFINITIONS, TOPOLOGY_DEFINITION)
        await asyncio.sleep(0.1)
        for node_name in ("n", "m"):
            it.add_nodes(node_object(node_name, cpu="32", memory="64Gi"))
            it.server.store.create(TOPOLOGIES, observed(node_name, {}))

        def observe() -> None:
            """Write both objects: the first two pods of a node are in its first zone."""
            for node_name in ("n", "m"):
                there = [name for name in sorted(names()) if it.node_of(name) == node_name]
                zones = {name: int(place >= 2) for place, name in enumerate(there)}
                metadata = it.server.store.get(TOPOLOGIES, node_name)["metadata"]
                it.server.store.update(TOPOLOGIES, observed(node_name, zones) | {"metadata": metadata})

        def names() -> list[str]:
            return [pod["metadata"]["name"] for pod in it.pods()]

        async with it.daemon(NUMA, ports=recorder) as daemon:
            recorder.daemon = daemon
            for number in range(8):
                it.add_pods(exclusive(f"p{number}", "2", priority=1))
                await it.until(lambda number=number: it.node_of(f"p{number}"), seconds=120.0)
                await asyncio.sleep(8.0)
                if number % 2:
                    observe()
                    await asyncio.sleep(15.0)
            it.add_pods(exclusive("waits", "2"), exclusive("high", "4", priority=100))
            await it.until(lambda: it.node_of("high"), seconds=120.0)
            await asyncio.sleep(60.0)
            assert not it.node_of("waits")
            assert len(names()) == 8
            it.server.store.delete("pods", "high", "default")
            await asyncio.sleep(5.0)
            observe()
            await it.until(lambda: it.node_of("waits"), seconds=120.0)
            await asyncio.sleep(5.0)


QUEUES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint: {enabled: [{name: FairQueues}]}
    postFilter: {enabled: [{name: FairQueues}], disabled: [{name: "*"}]}
  pluginConfig:
  - name: FairQueues
    args: {longestWaitSeconds: 20, history: {halfLife: 1m}}
"""


async def share(folder: Path, recorder: Recorder) -> None:
    """A queue uses the cluster alone; then another one takes back more than its half, and pods wait for their shares."""
    async with cluster(folder, kubelet=True) as it:
        store = it.server.store
        store.create(DEFINITIONS, QUEUE_DEFINITION)
        await asyncio.sleep(0.1)
        for name in ("a", "b"):
            store.create("namespaces", {"metadata": {"name": name}})
            queue = {"metadata": {"name": name}, "spec": {"namespaces": [name]}}
            store.create("queues.custom-scheduler.io", queue)
        it.add_nodes(*(node_object(f"n{number}", cpu="4") for number in range(3)))
        async with it.daemon(QUEUES, ports=recorder) as daemon:
            recorder.daemon = daemon
            for namespace, cpu in (("a", "1"), ("b", "700m")):
                it.add_pods(*(pod_object(f"{namespace}{n}", namespace=namespace, cpu=cpu) for n in range(13)))
                await asyncio.sleep(45.0)
            it.add_pods(
                pod_object("large", namespace="a", cpu="3"), pod_object("endless", namespace="b", cpu="9")
            )
            await asyncio.sleep(60.0)
            for number in range(4):
                store.delete("pods", f"b{number}", "b")
                await asyncio.sleep(10.0)


async def recorded_story(
    story: Callable[[Path, Recorder], Coroutine[Any, Any, None]], folder: Path, notes_of_a_file: int
) -> Taped:
    made = Taped(LoopClock())
    made.tape.notes_of_a_file = notes_of_a_file
    await story(folder, made.recorder)
    return made


@pytest.mark.parametrize(
    ("story", "notes_of_a_file"),
    [
        pytest.param(protect, 60, id="the evictions of the last hour"),
        pytest.param(fill_sets, 40, id="node sets"),
        pytest.param(share, 150, id="averages, waiting pods and reservations of queues"),
        pytest.param(fill_zones, 60, id="what pods take of NUMA zones"),
    ],
)
def test_decisions_are_replayed_from_every_file(
    story: Callable[[Path, Recorder], Coroutine[Any, Any, None]], notes_of_a_file: int, tmp_path: Path
) -> None:
    tape = virtual_time.run(recorded_story(story, tmp_path, notes_of_a_file))
    assert len(tape.tape.files) > 2
    for begin in (0, *tape.tape.files):
        made = tape.replay(begin=begin)
        assert (made.difference, made.ended) == (None, ""), begin
