from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from scheduler.cli.simulate import simulate as command
from scheduler.configuration.load import default, parse
from scheduler.errors import ConfigurationError
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.cluster_file import ClusterFile, ClusterFileError
from scheduler.tools.whatif.simulation.parallel_simulations import SimulationJob, play, simulate
from scheduler.tools.whatif.simulation.results_table import show
from scheduler.tools.whatif.simulation.simulation_measures import (
    Measures,
    PartFigures,
    QueueShares,
    Result,
    Sample,
)
from scheduler.tools.whatif.simulation.trace import TraceError, read_trace
from scheduler.tools.whatif.simulation.workload import (
    Arrival,
    Workload,
    drawn,
    gpu_milli,
    inflated,
    part_ends,
    typical_pods,
)
from scheduler.tools.whatif.sources import read_source
from tests.support.builders import node, node_object, pod, pod_object

NODES = """sn,cpu_milli,memory_mib,gpu,model
n-0,32000,65536,0,
n-1,32000,65536,2,T4
n-2,32000,65536,2,G2
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,4000,1024,1,500,,LS,Running,0,100,0
b,4000,1024,1,500,T4,LS,Running,10,110,10
c,8000,1024,2,1000,,LS,Running,20,80,30
d,8000,1024,0,0,,LS,Running,25,,
"""
CONFIG = default("custom-scheduler")
GPU_SHARING = Path(__file__).parents[5] / "manifests" / "examples" / "gpu-sharing"


def written(folder: Path) -> tuple[Path, Path]:
    nodes, pods = folder / "nodes.csv.gz", folder / "pods.csv"
    nodes.write_bytes(gzip.compress(NODES.encode()))
    pods.write_text(PODS)
    return nodes, pods


def simulated(folder: Path, items: list[Any], *edits: str) -> Any:
    """Simulate a cluster from kubectl output, and return the result."""
    cluster, config = folder / "cluster.json", folder / "config.yaml"
    cluster.write_bytes(msgspec.json.encode({"kind": "List", "apiVersion": "v1", "items": items}))
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    answer = CliRunner().invoke(command, [str(cluster), *edits, "--config", str(config), "-o", "json"])
    assert answer.exit_code == 0, answer.output
    (reported,) = msgspec.json.decode(answer.stdout)
    return reported


@pytest.mark.parametrize(("gates", "placed"), [("", 0), ("TaintTolerationComparisonOperators=true", 1)])
def test_a_simulation_decides_by_the_given_feature_gates(tmp_path: Path, gates: str, placed: int):
    above = {"key": "level", "operator": "Gt", "value": "3", "effect": "NoSchedule"}
    tainted = node_object("n", taints=[{"key": "level", "value": "5", "effect": "NoSchedule"}])
    result = simulated(tmp_path, [tainted, pod_object("p", tolerations=[above])], "--feature-gates", gates)

    assert result["placed"] == placed


def test_a_simulation_validates_the_gates_of_the_given_version(tmp_path: Path):
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    written(tmp_path)
    flags = ["--emulated-version", "1.37", "--feature-gates", "GangScheduling=true"]
    trace = [str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv.gz")]
    answer = CliRunner().invoke(command, [*trace, "--config", str(config), *flags])

    assert isinstance(answer.exception, ConfigurationError)
    assert "unrecognized feature gate: GangScheduling" in str(answer.exception)


def one_node(*arrivals: Arrival) -> Workload:
    return Workload(ClusterFile(nodes=[node("n", cpu="4")]), arrivals)


def test_a_trace_is_read(tmp_path: Path):
    workload = read_trace(*written(tmp_path))

    assert [(each.pod.name, each.at, each.runs) for each in workload.arrivals] == [
        ("a", 0, 100),
        ("b", 10, 100),
        ("c", 20, 50),
        ("d", 25, 1),
    ]
    assert [gpu_milli(each.pod) for each in workload.arrivals] == [500, 500, 2000, 0]
    assert len(read_trace(*written(tmp_path), gpu_nodes_only=True).cluster.nodes) == 2


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        pytest.param(
            "e,many,1,0,0,,LS,Running,0,1,0",
            "pods.csv:6: cpu_milli must be a number, was 'many'",
            id="no number",
        ),
        pytest.param("e,1,1,0,0,,LS,Running,,1,0", "pods.csv:6: creation_time is missing", id="missing"),
        pytest.param("\ne,1,1,0,0,,LS,Running,,1,0", "pods.csv:7: creation_time is missing", id="blank line"),
        pytest.param(
            "e,-5,1,0,0,,LS,Running,0,1,0",
            "pods.csv:6: cpu_milli must not be negative, was -5",
            id="negative",
        ),
        pytest.param("b,1,1,0,0,,LS,Running,0,1,0", "pods.csv:6: name 'b' is already in line 3", id="twice"),
        pytest.param(f"{'e' * 200_000},1", "pods.csv:6: field larger than field limit", id="too long"),
    ],
)
def test_an_unreadable_line_is_reported_with_its_number(tmp_path: Path, line: str, fault: str):
    nodes, pods = written(tmp_path)
    pods.write_text(f"{PODS}{line}\n")

    with pytest.raises(TraceError, match=fault):
        read_trace(nodes, pods)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        pytest.param(
            b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 20, "cannot be read: Error -3", id="damaged gzip"
        ),
        pytest.param(b"", "pods.csv: is empty", id="empty"),
    ],
)
def test_an_invalid_table_is_refused(tmp_path: Path, content: bytes, fault: str):
    nodes, pods = written(tmp_path)
    pods.write_bytes(content)

    with pytest.raises(TraceError, match=fault):
        read_trace(nodes, pods)


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_a_trace_saved_by_a_spreadsheet_is_read(tmp_path: Path, end: str):
    nodes, pods = written(tmp_path)
    pods.write_bytes(PODS.replace("\n", end).encode("utf-8-sig"))

    assert [each.pod.name for each in read_trace(nodes, pods).arrivals] == ["a", "b", "c", "d"]


def test_a_pod_that_does_not_fit_waits_until_another_ends():
    result = simulate(
        one_node(
            Arrival(pod("first", cpu="3"), 0.0, 100.0),
            Arrival(pod("second", cpu="3"), 10.0, 50.0),
            Arrival(pod("too-large", cpu="9"), 20.0),
        ),
        CONFIG,
        seed=1,
    )

    assert (result.placed, result.waiting, result.failed) == (2, 1, 0)
    assert result.wait_seconds["p100"] == 90.0
    assert result.rejected == {
        "InsufficientCPU": result.attempts - 2,
        "NoPreemptionVictims": 1,
        "PreemptionNotHelpful": result.attempts - 3,
    }
    assert result.seconds == 150.0


def test_without_waiting_pods_fail():
    workload = one_node(Arrival(pod("a", cpu="3"), 0.0), Arrival(pod("b", cpu="3"), 1.0))

    result = simulate(replace(workload, gives_up=True), CONFIG, seed=1)

    assert (result.placed, result.waiting, result.failed) == (1, 0, 1)


def test_the_first_of_equal_nodes_is_chosen_on_request():
    nodes = [node(name, cpu="4") for name in ("c", "a", "b")]
    workload = Workload(ClusterFile(nodes=nodes), [Arrival(pod("p", cpu="1"), 0.0)])
    tried = Workload(
        ClusterFile(nodes=nodes), [Arrival(pod(f"p-{place}", cpu="4"), float(place)) for place in range(3)]
    )

    def order(of: Workload, **options: Any) -> list[str]:
        placed: list[str] = []
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Measures, "placed", lambda _self, pod, _waited: placed.append(pod.node_name))
            simulate(of, CONFIG, **options)
        return placed

    assert order(tried, seed=1, first_of_equals=True) == ["a", "b", "c"]
    assert {tuple(order(workload, seed=seed)) for seed in range(12)} == {("a",), ("b",), ("c",)}
    assert {tuple(order(workload, seed=seed, first_of_equals=True)) for seed in range(3)} == {("a",)}


def test_another_hash_seed_gives_the_same_output(tmp_path: Path):
    nodes, pods = written(tmp_path)
    arguments = [
        str(pods),
        "--nodes",
        str(nodes),
        "--arrivals",
        "40",
        "--config",
        str(GPU_SHARING / "random.yaml"),
    ]
    command_line = [sys.executable, "-m", "scheduler", "simulate", *arguments, "-o", "json"]

    answers = [
        subprocess.run(
            command_line, env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]

    assert answers[0] == answers[1]
    assert len(answers[0]) > 1000


def test_pods_of_other_schedulers_are_placed_too():
    result = simulate(one_node(Arrival(pod("a", scheduler_name="volcano"), 0.0)), CONFIG, seed=1)

    assert result.placed == 1


def test_inflation_ends_below_the_requested_demand(tmp_path: Path):
    workload = read_trace(*written(tmp_path))

    more = inflated(workload, 1.3, seed=3)

    assert 3.2 <= sum(gpu_milli(each.pod) for each in more.arrivals) / 1000 <= 5.2
    assert len({each.pod.uid for each in more.arrivals}) == len(more.arrivals)
    assert [each.pod.name for each in inflated(workload, 1.3, seed=3).arrivals] == [
        each.pod.name for each in more.arrivals
    ]


def test_more_pods_are_drawn_at_the_same_load(tmp_path: Path):
    more = drawn(read_trace(*written(tmp_path)), 400, seed=1)

    assert len(more.arrivals) == 400
    assert max(each.runs for each in more.arrivals) == pytest.approx(1.0)
    assert all(one.at <= other.at for one, other in zip(more.arrivals, more.arrivals[1:], strict=False))


def test_the_most_frequent_kinds_are_typical(tmp_path: Path):
    workload = read_trace(*written(tmp_path))
    many = replace(workload, arrivals=[*workload.arrivals, workload.arrivals[0]])

    assert next(typical_pods(many)) == {"milliCpu": 4000, "gpuMilli": 500, "gpuCount": 1, "share": 2}
    assert sum(kind["share"] for kind in typical_pods(many, 60.0)) == 3


def test_the_output_is_the_same_for_any_number_of_processes(tmp_path: Path):
    nodes, pods = written(tmp_path)
    configs = [str(GPU_SHARING / name) for name in ("fgd.yaml", "random.yaml")]
    arguments = [str(pods), "--nodes", str(nodes), "--seeds", "2", "--inflate", "1.3", "-o", "json"]
    for config in configs:
        arguments += ["--config", config]

    answers = [
        CliRunner().invoke(command, [*arguments, "--processes", processes]) for processes in ("1", "2")
    ]

    assert [answer.exit_code for answer in answers] == [0, 0], answers[0].output
    assert answers[0].stdout == answers[1].stdout
    reported = msgspec.json.decode(answers[0].stdout)
    assert [(each["config"], each["seed"]) for each in reported] == [
        (config, seed) for config in configs for seed in (1, 2)
    ]
    assert all(each["placed"] + each["failed"] == each["arrived"] for each in reported)


def test_a_cluster_from_kubectl_is_simulated(tmp_path: Path):
    items = [node_object("n", cpu="2"), pod_object("a", cpu="1500m"), pod_object("b", cpu="1500m")]

    reported = simulated(tmp_path, items)

    assert (reported["placed"], reported["waiting"]) == (1, 1)


def test_a_cluster_is_read_from_a_pipe():
    out, into = os.pipe()  # as bash's <(kubectl get nodes,pods -A -o json)
    os.write(into, msgspec.json.encode({"kind": "List", "items": [node_object("n"), pod_object("a")]}))
    os.close(into)

    workload = read_source(f"/dev/fd/{out}")

    os.close(out)
    assert [each.pod.name for each in workload.arrivals] == ["a"]


def test_a_configuration_is_read_from_a_pipe(tmp_path: Path):
    nodes, pods = written(tmp_path)
    out, into = os.pipe()
    os.write(into, b"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    os.close(into)

    answer = CliRunner().invoke(
        command, [str(pods), "--nodes", str(nodes), "--config", f"/dev/fd/{out}", "--seeds", "2"]
    )

    os.close(out)
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("source", ["x" * 5000, "/proc/self/mem"], ids=["name too long", "unreadable"])
def test_an_unreadable_source_is_refused(source: str):
    with pytest.raises(ClusterFileError, match="cannot be read"):
        read_source(source)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--scale", "deployment/web=2x", "--config", "x.yaml"],
            "error: --add-nodes, --without and --scale apply only to a cluster",
            id="an edit of a trace",
        ),
        pytest.param(
            ["--inflate", "1.3", "--arrivals", "3"],
            "error: --inflate and --arrivals cannot be combined",
            id="both",
        ),
    ],
)
def test_conflicting_options_are_refused(tmp_path: Path, arguments: list[str], message: str):
    nodes, pods = written(tmp_path)

    answer = CliRunner().invoke(command, [str(pods), "--nodes", str(nodes), *arguments])

    assert answer.exit_code == 2
    assert message in answer.stderr


def test_an_error_in_a_simulation_process_is_reported(tmp_path: Path):
    nodes, pods = written(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- plugins: {filter: {enabled: [{name: NoSuchPlugin}]}}\n"
    )

    answer = CliRunner().invoke(command, [str(pods), "--nodes", str(nodes), "--config", str(config)])

    assert answer.exit_code == 2
    assert "error:" in answer.stderr
    assert "NoSuchPlugin" in answer.stderr


def test_a_cluster_is_simulated_with_more_nodes_and_pods(tmp_path: Path):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "j", "controller": True}
    member = pod_object("job-a", cpu="1500m")
    member["metadata"]["ownerReferences"] = [owner]

    reported = simulated(
        tmp_path, [node_object("n", cpu="2"), member], "--add-nodes", "2:like=n", "--scale", "job/job=4"
    )

    assert (reported["placed"], reported["waiting"]) == (3, 1)


def test_without_a_configuration_the_default_plugins_are_simulated(tmp_path: Path):
    nodes, pods = written(tmp_path)

    answer = CliRunner().invoke(command, [str(pods), "--nodes", str(nodes)])

    assert answer.exit_code == 0, answer.output
    assert "default plugins" in answer.stdout


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_the_pods_of_a_trace_without_its_nodes_are_refused(tmp_path: Path, compress: Any):
    _, pods = written(tmp_path)
    table = tmp_path / "table"
    table.write_bytes(compress(pods.read_bytes()))

    answer = CliRunner().invoke(command, [str(table)])

    assert answer.exit_code == 2
    assert answer.stderr == (
        f"error: {table} is the table of a trace's pods: a trace needs --nodes FILE, the table of its nodes\n"
    )


def result_of(placed: int, wait: float, fragmentation: float) -> Result:
    return Result(
        arrived=9, placed=placed, failed=0, waiting=9 - placed, evicted=0, preemptions=0, mean_in_use=2.0, attempts=9, errors=0, seconds=60.0,
        wait_seconds={"p50": 0.0, "p99": wait}, mean_utilisation={"cpu": 0.5},
        mean_fragmentation={"cpu": fragmentation}, samples=[], unallocated_gpu={}, failed_at={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("second", "headline"),
    [
        ((8, 9.0, 0.1), "Best: b: it places 8 pods, a 7."),
        ((7, 2.0, 0.1), "Best: b: its pods wait 2 s (p99), those of a 5 s."),
        ((7, 5.0, 0.05), "Best: b: its fragmentation is 5.0%, that of a 10.0%."),
        (
            (7, 5.0, 0.1),
            "The best configurations do not differ in placed pods, waiting times and fragmentation.",
        ),
    ],
)
def test_the_table_begins_with_the_best_configuration(second: Any, headline: str):
    console = Console(file=io.StringIO(), width=120)

    show(console, [("x/a.yaml", result_of(7, 5.0, 0.1)), ("x/b.yaml", result_of(*second))])

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == headline
    assert any(line.startswith("used: ") for line in lines)


def test_the_table_has_the_rejected_attempts_of_all_seeds_by_reason_code():
    console = Console(file=io.StringIO(), width=120)
    first, second = result_of(7, 5.0, 0.1), result_of(7, 5.0, 0.1)
    first.rejected = {"InsufficientCPU": 3, "HostPortInUse": 1}
    second.rejected = {"HostPortInUse": 4}

    show(console, [("x/a.yaml", first), ("x/a.yaml", second), ("x/b.yaml", result_of(9, 0.0, 0.1))])

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line for line in lines if line.startswith("rejected")] == [
        "rejected attempts of a: HostPortInUse 5, InsufficientCPU 3"
    ]


FAIR_QUEUES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins:
    multiPoint: {enabled: [{name: FairQueues}]}
    postFilter: {enabled: [{name: FairQueues}], disabled: [{name: "*"}]}
  pluginConfig: [{name: FairQueues, args: {history: {halfLife: 10h}}}]
"""
HOUR = 3600.0


def of_two_queues(*arrivals: Arrival) -> Workload:
    """Arrivals at a node of 4 cpus that the queues `a` and `b`, of the namespaces of this name, share."""
    queues = {
        name: msgspec.json.encode({"metadata": {"name": name}, "spec": {"namespaces": [name]}})
        for name in ("a", "b")
    }
    others = {"custom-scheduler.io/v1alpha1/queues": queues}
    return Workload(ClusterFile(nodes=[node("n", cpu="4")], others=others), arrivals)


def job(namespace: str, at: float, runs: float, cpu: str = "4") -> Arrival:
    return Arrival(pod("job", namespace=namespace, cpu=cpu), at * HOUR, runs * HOUR)


def test_the_history_of_queues_counts_the_end_of_pods_when_it_happens():
    workload = of_two_queues(job("a", 0.0, 10.0), job("b", 30.0, 1.0, "1"))

    first, last = simulate(workload, parse(FAIR_QUEUES), seed=1).samples[:2]

    assert first.queues["a"] == QueueShares(used=1.0, fair=1.0, average=0.0)
    assert last.queues["a"] == QueueShares(used=0.0, fair=0.0, average=pytest.approx(0.5**3, abs=0.002)), (
        "half of the cluster on average after 10 hours, which two half-lives have reduced"
    )
    assert last.queues["b"].used == last.queues["b"].fair == 0.25


def test_the_table_has_the_shares_of_queues_over_time_as_means_of_all_seeds():
    def result(*used: float) -> Result:
        return msgspec.structs.replace(
            result_of(7, 5.0, 0.1),
            samples=[
                Sample(
                    at=86_400.0 * day,
                    waiting=0,
                    in_use=1,
                    utilisation={},
                    fragmentation={},
                    queues={
                        "labs": QueueShares(used=share, fair=0.5),
                        "idle": QueueShares(used=0.0, fair=0.0),
                    },
                )
                for day, share in zip((2, 7, 32), used, strict=True)
            ],
        )

    console = Console(file=io.StringIO(), width=80)
    show(
        console,
        [
            ("x/a.yaml", result(0.2, 0.4, 0.6)),
            ("x/a.yaml", result(0.4, 0.8, 1.0)),
            ("b", result_of(7, 5.0, 0.1)),
        ],
    )

    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    (begin,) = (number for number, line in enumerate(lines) if line.startswith("shares of queues"))
    assert [line.split() for line in lines[begin:]] == [
        [
            "shares",
            "of",
            "queues",
            "of",
            "a:",
            "the",
            "largest",
            "part",
            "of",
            "the",
            "cluster",
            "of",
            "any",
            "resource,",
            "in",
            "%",
        ],
        ["shares", "at", "day", "0", "3", "6", "9", "12", "15", "18", "21", "24", "27", "30", "mean"],
        ["labs", "used", "30", "30", "60", "60", "60", "60", "60", "60", "60", "60", "80", "57"],
        ["fair", "50", "50", "50", "50", "50", "50", "50", "50", "50", "50", "50", "50"],
    ]


def parts_of(workload: Workload, *ends: float, **options: Any) -> list[tuple[int, int, float, float]]:
    """Return arrived, placed, the longest wait and the nodes in use of each part."""
    parts = simulate(workload, CONFIG, seed=1, ends=ends, **options).parts
    return [(each.arrived, each.placed, each.wait_p99, each.in_use) for each in parts]


def test_the_parts_of_a_workload_have_the_same_number_of_pods():
    times = [0.0, 1.0, 2.0, 50.0, 90.0, 100.0]
    workload = one_node(*(Arrival(pod(f"p-{at:g}", cpu="1"), at) for at in times))

    assert part_ends(workload, 3) == [1.0, 50.0, 100.0]
    assert part_ends(workload, 100) == times
    assert part_ends(one_node(Arrival(pod("a"), 3.0), Arrival(pod("b"), 3.0)), 4) == [inf]


def test_a_pod_counts_in_the_part_of_its_arrival():
    workload = one_node(
        Arrival(pod("first", cpu="3"), 0.0, 100.0),
        Arrival(pod("second", cpu="3"), 10.0, 50.0),
        Arrival(pod("too-large", cpu="9"), 20.0),
    )

    # The second pod is placed at 100 s, and the third one is pending when everything has ended, at 150 s.
    assert parts_of(workload, 10.0, 20.0) == [(2, 2, 90.0, 1.0), (1, 0, 130.0, 1.0)]


def test_a_part_that_has_ended_is_reported_with_the_waits_until_then():
    reported: list[PartFigures] = []
    workload = one_node(
        Arrival(pod("first", cpu="3"), 0.0, 100.0),
        Arrival(pod("second", cpu="3"), 10.0, 50.0),
        Arrival(pod("third", cpu="1"), 40.0, 1.0),
    )

    parts_of(workload, 10.0, 40.0, part_ended=reported.append)

    assert [(each.end, each.placed, each.wait_p99) for each in reported] == [(10.0, 1, 30.0), (40.0, 1, 0.0)]


def test_an_exception_of_a_report_ends_the_simulation():
    def stop(_part: PartFigures) -> None:
        raise InterruptedError

    workload = one_node(Arrival(pod("a", cpu="1"), 0.0), Arrival(pod("b", cpu="1"), 9.0))

    with pytest.raises(InterruptedError):
        parts_of(workload, 0.0, 9.0, part_ended=stop)


def test_preemptions_count_in_the_part_in_which_they_are_decided():
    workload = one_node(
        Arrival(pod("low", cpu="3", priority=0), 0.0),
        Arrival(pod("small", cpu="1", priority=9), 10.0),
        Arrival(pod("high", cpu="3", priority=9), 20.0),
        Arrival(pod("large", cpu="99", priority=0), 90.0),
    )

    result = simulate(workload, CONFIG, seed=1, ends=[10.0, 90.0])

    assert [each.preemptions for each in result.parts] == [0, 1]
    assert (result.preemptions, result.evicted) == (1, 1)


def test_a_job_plays_the_first_parts_of_the_pods_that_its_seed_draws():
    workload = one_node(*(Arrival(pod(f"p-{at}", cpu="1"), float(at), 1.0) for at in range(40)))
    first, whole = (SimulationJob("", 3, arrivals=20, parts=4, played=played) for played in (3, None))

    result = play(first, CONFIG, workload)

    assert result.arrived == first.number(workload) == 15
    assert [each.arrived for each in result.parts] == [5, 5, 5]
    assert [each.arrived for each in play(whole, CONFIG, workload).parts] == [5, 5, 5, 5]
    assert [each.end for each in result.parts] == [*whole.workload(workload)[1]][:3]


def test_nodes_that_run_only_their_own_pods_are_not_in_use():
    owned = pod_object("agent", node="n-1", cpu="1")
    owned["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}
    ]
    cluster = ClusterFile(
        nodes=[node("n-0", cpu="4"), node("n-1", cpu="1")], pods=[decode_pod(msgspec.json.encode(owned))]
    )

    assert simulate(Workload(cluster, [Arrival(pod("a", cpu="2"), 0.0)]), CONFIG, seed=1).mean_in_use == 1.0
