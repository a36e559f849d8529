"""`custom-scheduler explain` as a process: its output and exit status."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scheduler.cli.command import COMMANDS
from tests.conformance import events
from tests.conformance.comparison import compare, report
from tests.conformance.corpus import CASES, load
from tests.support.builders import node_object, pod_object
from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]


def explain(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run_command("explain", *arguments, stdin=stdin)


def answer(*arguments: str | Path, stdin: bytes = b"") -> list[dict[str, Any]]:
    done = explain(*arguments, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr.decode()
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def a_cluster(*objects: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}).encode()


def default_pod(name: str, **fields: Any) -> dict[str, Any]:
    return pod_object(name, scheduler_name="default-scheduler", **fields)


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.json"
    path.write_bytes(
        a_cluster(
            node_object("n1", cpu="4"),
            node_object("n2", cpu="1", taints=["k=v:NoSchedule"]),
            default_pod("web", cpu="3"),
            default_pod("db", cpu="3", priority=10),
            pod_object("ours", cpu="1"),
            default_pod("runs", node="n1"),
        )
    )
    return path


def test_explain_shows_the_current_choice_for_a_pod_on_a_node(cluster: Path) -> None:
    (runs,) = answer("--cluster", cluster, "--pod", "runs")
    text = explain("--cluster", cluster, "--pod", "runs").stdout.decode()

    assert (runs["node"], runs["best"]) == ("n1", ["n1"])
    assert text.startswith(
        "Pod default/runs is on node n1; if it were pending, it fits on 1 of 2 nodes; best: n1, the only one.\n"
    )
    assert "Chosen node: n1.\nIts current node n1 is the same.\n" in text


def test_explain_shows_possible_victims_and_the_missing_amount() -> None:
    stdin = a_cluster(
        node_object("n1", cpu="4"), default_pod("low", cpu="2500m", node="n1"), default_pod("vip", cpu="2", priority=9)
    )  # fmt: skip
    text = explain("--cluster", "-", stdin=stdin).stdout.decode()

    assert "0/1 nodes are available: 1 Insufficient cpu.\n" in text
    assert "Preemption could use n1, evicting default/low.\n" in text
    assert "n1: needs 2 cpu, 1.5 free of 4\n" in text


def test_without_a_configuration_pods_of_default_scheduler_are_evaluated(cluster: Path) -> None:
    web, db = answer("--cluster", cluster)

    assert (web["pod"], db["pod"]) == ("default/web", "default/db")
    assert web["result"] == db["result"] == "schedulable"
    assert web["nodes"]["n1"]["total"] == sum(web["nodes"]["n1"]["scores"].values())
    assert web["nodes"]["n2"]["plugin"] == "TaintToleration"


def test_a_sequence_fills_the_cluster_by_priority(cluster: Path) -> None:
    db, web = answer("--cluster", cluster, "--sequence")

    assert (db["pod"], db["best"], db["chosen"]) == ("default/db", ["n1"], "n1")
    assert (web["pod"], web["result"]) == ("default/web", "unschedulable")


def test_one_pod_of_a_sequence_can_be_shown_alone(cluster: Path) -> None:
    (web,) = answer("--cluster", cluster, "--sequence", "--pod", "default/web")

    assert web["result"] == "unschedulable", "db, which is not shown, goes first"


def test_a_pod_is_found_by_its_name_alone_in_the_default_namespace(cluster: Path) -> None:
    (web,) = answer("--cluster", cluster, "--pod", "web")

    assert web["pod"] == "default/web"


def test_pods_of_another_scheduler_can_be_evaluated_with_the_default_plugins(cluster: Path) -> None:
    (ours,) = answer("--cluster", cluster, "--scheduler-name", "custom-scheduler")

    assert ours["pod"] == "default/ours"


def test_the_profiles_of_a_configuration_select_the_pods_and_their_plugins(
    cluster: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- plugins: {score: {disabled: [{name: '*'}], enabled: [{name: NodeResourcesFit, weight: 7}]}}\n"
    )

    (ours,) = answer("--cluster", cluster, "--config", config)

    assert ours["pod"] == "default/ours"
    assert list(ours["nodes"]["n1"]["scores"]) == ["NodeResourcesFit"]
    assert ours["nodes"]["n1"]["total"] % 7 == 0


def test_a_plugin_file_beside_the_configuration_is_used(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "from scheduler.framework import FilterPlugin, Status\n"
        "class OddNodes(FilterPlugin):\n"
        "    name = 'OddNodes'\n"
        "    api_version = 1\n"
        "    def filter_node(self, state, pod, node):\n"
        "        return None if node.name == 'n9' else Status.unschedulable('not n9')\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        "- plugins: {multiPoint: {enabled: [{name: odd.py}]}}\n"
    )

    (ours,) = answer("--cluster", cluster, "--config", config)

    head = "0/2 nodes are available: 1 node(s) had untolerated taint(s), 1 not n9. "
    assert ours["message"].startswith(head)


def test_the_cluster_can_come_from_standard_input() -> None:
    found = answer("--cluster", "-", stdin=a_cluster(node_object("n1"), default_pod("web")))

    assert [each["pod"] for each in found] == ["default/web"]


def an_event(type_: str, obj: dict[str, Any]) -> bytes:
    return json.dumps({"type": type_, "object": obj, "oldObject": None}).encode()


def test_an_event_is_evaluated_for_every_pending_pod(cluster: Path) -> None:
    event = an_event("ADDED", node_object("n3", cpu="4"))
    web, db = answer("--cluster", cluster, "--event", "-", stdin=event)
    first, second = answer("--cluster", cluster, "--event", "-", "--sequence", stdin=event)

    assert not any("requeued" in each for each in (web, db, first)), "they fit"
    assert (second["pod"], second["requeued"]) == ("default/web", True)


def test_the_effect_of_an_event_is_printed_as_text(cluster: Path, tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_bytes(an_event("ADDED", node_object("n3", cpu="2", taints=["k=v:NoSchedule"])))

    done = explain("--cluster", cluster, "--sequence", "--pod", "web", "--event", event)

    assert done.returncode == 0, done.stderr.decode()
    assert "The event does not requeue it." in done.stdout.decode()


def test_events_requeue_the_pods_that_they_requeue_in_kube_scheduler(tmp_path: Path) -> None:
    case = events.load(events.CASES / "gates" / "gates-000.json.gz")
    cluster, event = tmp_path / "cluster.json", tmp_path / "event.json"
    cluster.write_text(json.dumps(case.cluster))
    recorded = next(each for each in case.events if each["wakes"])
    event.write_text(json.dumps(recorded["event"]))
    config: list[str | Path] = []
    if case.config is not None:
        (tmp_path / "config.yaml").write_text(case.config)
        config = ["--config", tmp_path / "config.yaml"]

    found = answer("--cluster", cluster, "--event", event, *config)

    assert {each["pod"] for each in found if each.get("requeued")} == set(recorded["wakes"])
    assert {each["pod"] for each in found if each.get("requeued") is False} == set(recorded["sleeps"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["--server", "https://localhost", "--pod", "web", "--event", "-"],
            "--event needs --cluster FILE",
            id="a running daemon",
        ),
        pytest.param(
            ["--cluster", "-", "--event", "-"],
            "--cluster and --event cannot both be standard input",
            id="twice standard input",
        ),
        pytest.param(
            ["--cluster", "CLUSTER", "--event", "none.json"],
            "none.json: cannot be read: No such file or directory",
            id="no such file",
        ),
        pytest.param(
            ["--cluster", "CLUSTER", "--event", "-"],
            "standard input: oldObject: must be the previous object",
            id="an event without its old object",
        ),
    ],
)
def test_an_event_that_cannot_be_evaluated_ends_with_status_2(
    cluster: Path, arguments: list[str], message: str
) -> None:
    arguments = [str(cluster) if argument == "CLUSTER" else argument for argument in arguments]

    done = explain(*arguments, stdin=an_event("MODIFIED", node_object("n1")))

    assert done.returncode == 2
    assert message in done.stderr.decode()
    assert done.stdout == b""


def test_explain_prints_tables_by_default(cluster: Path) -> None:
    done = explain("--cluster", cluster)

    text = done.stdout.decode()
    assert done.returncode == 0
    assert text.startswith("Pod default/web fits on 1 of 2 nodes; best: n1, the only one.\n")
    assert "node(s) had untolerated taint(s)" in text


@pytest.mark.parametrize("name", ["taints/taints-002", "sequence/sequence-resources-000"])
def test_explain_prints_the_verdicts_of_kube_scheduler(name: str, tmp_path: Path) -> None:
    path = CASES / f"{name}.json.gz"
    case = load(path)
    arguments: list[str | Path] = ["--cluster", "-"]
    if case.mode == "sequence":
        arguments.append("--sequence")
    if case.config is not None:
        (tmp_path / "config.yaml").write_text(case.config)
        arguments += ["--config", tmp_path / "config.yaml"]

    cluster = json.dumps(json.loads(gzip.decompress(path.read_bytes()))["cluster"]).encode()
    mismatches = compare(case, answer(*arguments, stdin=cluster))

    assert not mismatches, report(mismatches)


# Nothing to judge.


def test_without_pods_of_the_profile_the_others_are_named() -> None:
    done = explain(
        "--cluster", "-", "-o", "json", stdin=a_cluster(node_object("n1"), pod_object("a"), pod_object("b"))
    )

    assert done.returncode == 0
    assert json.loads(done.stdout) == []
    assert "no pending pod whose spec.schedulerName is default-scheduler" in done.stderr.decode()
    assert (
        "Pending pods of other schedulers: 2 with custom-scheduler. --scheduler-name NAME"
        in done.stderr.decode()
    )


def test_a_group_of_another_scheduler_is_reported_as_waiting() -> None:
    members = [pod_object(f"train-{each}", scheduling_group={"podGroupName": "train"}) for each in range(2)]
    file = a_cluster(*members)

    done = explain("--cluster", "-", "--group", "train", stdin=file)
    shown = explain("--cluster", "-", "--group", "train", "--scheduler-name", "custom-scheduler", stdin=file)

    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"error: pods of group default/train have schedulerName custom-scheduler; "
        b"the profiles are default-scheduler\n"
    )
    assert b"group default/train" in shown.stdout


def test_without_pending_pods_the_flag_for_other_schedulers_is_named() -> None:
    done = explain("--cluster", "-", stdin=a_cluster(node_object("n1"), default_pod("a", node="n1")))

    assert "--pod NS/NAME evaluates a pod on a node" in done.stderr.decode()


# Bad input: status 2, and what is wrong in a line each.


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        pytest.param(
            ["--cluster", "/no/such/file"],
            b"",
            "/no/such/file: cannot be read: No such file or directory\n",
            id="no file",
        ),
        pytest.param(
            ["--cluster", "-"],
            b'{"items": [',
            "standard input: line 1, column 12: not JSON: Expecting value\n",
            id="no JSON",
        ),
        pytest.param(
            ["--cluster", "-"],
            a_cluster(node_object("n1", cpu="x"), default_pod("web", cpu="y")),
            "standard input: items[0] (Node n1): status.allocatable.cpu: 'x' is not a quantity",
            id="bad objects",
        ),
        pytest.param(
            ["--cluster", "-", "--pod", "shop/web"],
            a_cluster(default_pod("web")),
            "pod shop/web is not in the file\n",
            id="no such pod",
        ),
        pytest.param(
            ["--cluster", "-", "--pod", "web", "--sequence"],
            a_cluster(default_pod("web", node="n1")),
            "pod default/web is already on node n1: --sequence and --event are for pending pods\n",
            id="a pod that has been placed, in a sequence",
        ),
        pytest.param(
            ["--cluster", "-", "--pod", "web"],
            a_cluster(pod_object("web")),
            "pod default/web has schedulerName custom-scheduler; the profiles are default-scheduler\n",
            id="a pod of another scheduler",
        ),
        pytest.param(
            ["--cluster", "-", "--config", "/no/such/config"],
            a_cluster(),
            "/no/such/config: cannot be read: No such file or directory\n",
            id="no configuration",
        ),
    ],
)
def test_bad_input_is_reported_and_ends_with_status_2(
    arguments: list[str], stdin: bytes, message: str
) -> None:
    done = explain(*arguments, stdin=stdin)

    assert done.returncode == 2
    assert done.stdout == b""
    assert done.stderr.decode().startswith(f"error: {message}")
    assert "Traceback" not in done.stderr.decode()


def test_every_invalid_object_is_named() -> None:
    stdin = a_cluster(node_object("n1", cpu="x"), default_pod("web", cpu="y"), {"kind": "Pod"})

    lines = explain("--cluster", "-", stdin=stdin).stderr.decode().splitlines()

    assert [line.split(": ")[2] for line in lines] == [
        "items[0] (Node n1)",
        "items[1] (Pod default/web)",
        "items[2] (Pod)",
    ]


def test_a_scheduler_name_and_a_configuration_exclude_each_other(cluster: Path, tmp_path: Path) -> None:
    done = explain("--cluster", cluster, "--config", tmp_path / "c.yaml", "--scheduler-name", "x")

    assert done.returncode == 2
    assert "with --config, the profiles define the names" in done.stderr.decode()


# Start.


def test_help_names_every_command_and_imports_only_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scheduler", "--help"], capture_output=True, cwd=ROOT, timeout=60, check=True
    )

    for command in COMMANDS:
        assert f" {command} " in done.stdout.decode()


def test_a_closed_output_pipe_is_no_error(cluster: Path) -> None:
    command = f"{sys.executable} -m scheduler explain --cluster {cluster} -o json | head -c 1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, cwd=ROOT, timeout=60, check=True)

    assert done.stdout == b"["
    assert b"Traceback" not in done.stderr


def test_no_network_code_of_the_daemon_is_imported() -> None:
    script = (
        "import sys, scheduler.cli.explain\n"
        "print([name for name in ('aiohttp', 'kubernetes_asyncio', 'kopf', 'rich') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, cwd=ROOT, timeout=60, check=True
    )

    assert done.stdout.decode().strip() == "[]"
