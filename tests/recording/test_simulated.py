"""Recordings as workloads of simulations."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from scheduler.cli.simulate import simulate
from scheduler.daemon.recording import RecordingLimits
from scheduler.daemon.recording.recorder import Recorder
from scheduler.daemon.recording.recording import RecordingWriter
from scheduler.daemon.recording.recording_files import Header
from scheduler.testing.samples import claim, mounted, storage_class
from scheduler.tools.whatif.backtest.recorded_workload import read_own_recording
from tests.integration.plugins.test_volumes import create, local
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.virtual_time import LoopClock

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.daemon_harness import Cluster

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: another-name}]
"""


def foreign(name: str) -> dict[str, object]:
    pod = pod_object(name, cpu="1")
    pod["spec"]["schedulerName"] = "another"
    return pod


async def story(it: Cluster) -> None:
    """Cause all kinds of events, one per second."""
    steps = [
        lambda: it.add_pods(foreign("theirs")),
        lambda: it.server.store.bind("theirs", "n1"),
        lambda: it.add_pods(pod_object("ours", cpu="1")),
        lambda: it.add_pods(pod_object("gated", cpu="1", schedulingGates=[{"name": "example.com/quota"}])),
        lambda: it.server.store.patch("pods", "gated", {"spec": {"schedulingGates": []}}),
        lambda: it.add_pods(pod_object("too-large", cpu="9")),
        lambda: it.server.store.delete("pods", "too-large"),
        lambda: it.server.store.delete("pods", "theirs", grace_period_seconds=0),
        lambda: it.add_pods(pod_object("with-volume", cpu="1", volumes=mounted("data"))),
        lambda: it.server.store.patch("nodes", "n1", {"spec": {"unschedulable": True}}),
        lambda: it.server.store.patch(
            "pods",
            "ours",
            {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "Drained"}]}},
            subresource="status",
        ),
        lambda: it.server.store.delete("pods", "ours"),
        lambda: it.server.store.patch("nodes", "n1", {"spec": {"unschedulable": None}}),
        lambda: it.add_nodes(node_object("n2")),
        lambda: it.server.store.delete("nodes", "n2"),
    ]
    for step in steps:
        step()
        await asyncio.sleep(1.0)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the recording of a scenario; two pods and two nodes exist before it."""
    folder = tmp_path_factory.mktemp("recorded")

    async def record() -> None:
        header = Header.fresh(LoopClock(), Random(1))
        tape = RecordingWriter(RecordingLimits(folder / "recording"), header)
        recorder = Recorder(LoopClock(), tape, header)
        async with cluster(folder, kubelet=True, controllers=True) as it:
            it.add_nodes(*(node_object(f"n{each}", cpu="4") for each in range(2)))
            create(it, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
            create(it, local("on-n0", "n0"), local("on-n1", "n1"), claim("data", class_name="local"))
            for name in ("before-0", "before-1"):
                it.add_pods(pod_object(name, cpu="1"))
                it.server.store.bind(name, "n0")
            async with it.daemon(ports=recorder) as daemon:
                recorder.daemon = daemon
                await asyncio.sleep(1.0)
                await story(it)
        tape.close()

    virtual_time.run(record())
    return folder / "recording"


def test_the_objects_and_events_of_a_recording_are_the_workload(recorded: Path) -> None:
    workload = read_own_recording(str(recorded))

    assert [node.name for node in workload.cluster.nodes] == ["n0", "n1"]
    assert [(pod.name, pod.node_name) for pod in workload.cluster.pods] == [
        ("before-0", "n0"),
        ("before-1", "n0"),
    ]
    assert {"on-n0", "on-n1"} <= workload.cluster.others["v1/persistentvolumes"].keys()
    arrivals = [(each.pod.name, round(each.at)) for each in workload.arrivals]
    assert arrivals == [("ours", 3), ("gated", 4), ("too-large", 6), ("with-volume", 9)]
    assert not any(each.pod.node_name for each in workload.arrivals)
    about = ("PodIsThere", "PodIsAnother", "PodGoes", "NodeIsDrained", "NodeGoes")
    first: dict[tuple[str, str], int] = {}
    for each in workload.events:
        first.setdefault((type(each).__name__, getattr(each, "key", "")), round(each.at))
    assert [(name, at) for (name, _), at in first.items() if name in about] == [
        ("PodIsThere", 1),
        ("PodIsAnother", 5),
        ("PodGoes", 7),
        ("PodGoes", 8),
        ("NodeIsDrained", 12),
        ("NodeGoes", 15),
    ]


def test_volume_bindings_of_the_recording_are_left_out(recorded: Path) -> None:
    reported = [
        each for each in read_own_recording(str(recorded)).events if "volume" in getattr(each, "kind", "")
    ]

    assert not [
        each for each in reported if each.obj["spec"].get("volumeName") or each.obj["spec"].get("claimRef")
    ]


def test_a_recording_is_simulated_under_profiles_of_any_name(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(CONFIGURATION)

    reported = CliRunner().invoke(simulate, [str(recorded), "--config", str(tmp_path / "other.yaml")])

    assert reported.exit_code == 0, reported.output
    figures = next(line.split() for line in reported.output.splitlines() if line.strip().startswith("other "))
    assert figures[:5] == ["other", "4", "3", "1", "0"]


def test_a_cluster_of_a_recording_is_not_edited(recorded: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(CONFIGURATION)

    reported = CliRunner().invoke(
        simulate, [str(recorded), "--config", str(tmp_path / "other.yaml"), "--add-nodes", "1:like=n0"]
    )

    assert reported.exit_code == 2
    assert "apply only to a cluster from kubectl" in reported.output
