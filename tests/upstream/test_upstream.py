"""The runner, with a program in place of Go that reports what a test wants."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import scheduler.daemon.app.daemon
from scheduler.configuration.feature_gates import DEFAULT_VERSION, stages_at
from scheduler.tools.simulator.faults import requests
from scheduler.tools.simulator.server import ApiServer
from tests.support.builders import node_object, pod_object
from tests.upstream.__main__ import main, packages, process_environment
from tests.upstream.checkout import Checkout, CheckoutError
from tests.upstream.results import BY_ITSELF, Figures, Results, read, table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_GO = """#!/bin/sh
printf '%s\\n' "$*" >> "$CALLS"
case "$1" in
build|test) exit "${BUILD_STATUS:-0}" ;;
tool) eval "$MEANWHILE"; cat "$EVENTS" ;;
esac
"""
_NEW = "package scheduler\n\nfunc New() {\n\tsched.NextPod = podQueue.Pop\n\treturn sched\n}\n"
_TEST = "package taint\n\nfunc TestTaint() {\n\tgo testCtx.Scheduler.Run(testCtx.SchedulerCtx)\n\tgo nc.Run(testCtx.Ctx)\n}\n"
_TAINT = "test/integration/scheduler/taint/taint_test.go"


@pytest.fixture
def kubernetes(tmp_path: Path) -> Path:
    """A checkout with the lines that are changed."""
    folder = tmp_path / "kubernetes"
    for path, text in {"pkg/scheduler/scheduler.go": _NEW, _TAINT: _TEST}.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(text)
    return folder


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a `go` into PATH whose tests report these events; returns the file with its arguments, a call on each line."""

    def put(*events: Mapping[str, Any], **environment: str) -> Path:
        program = tmp_path / "go" / "go"
        program.parent.mkdir()
        program.write_text(_GO)
        program.chmod(0o700)
        (tmp_path / "events").write_text("".join(f"{json.dumps(event)}\n" for event in events))
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        for name, value in {
            "CALLS": str(tmp_path / "calls"),
            "EVENTS": str(tmp_path / "events"),
            "MEANWHILE": "",
            **environment,
        }.items():
            monkeypatch.setenv(name, value)
        return tmp_path / "calls"

    return put


def ran(test: str, end: str, *outputs: str) -> list[Mapping[str, Any]]:
    """Return the events of a test."""
    output = [{"Action": "output", "Test": test, "Output": f"{each}\n"} for each in outputs]
    return [{"Action": "run", "Test": test}, *output, {"Action": end, "Test": test}]


STARTED = "scheduler process 001 started without the plugins []"


def results(
    folder: Path, *events: Mapping[str, Any], items: list[Any] | None = None, end: str = "pass"
) -> Results:
    lines = [*events, {"Action": end}]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in lines))
    if items is not None:
        (folder / "BenchmarkPerfScheduling_benchmark_misc.json").write_text(json.dumps({"dataItems": items}))
    return read(folder, "scheduler/taint", {})


class TestCheckout:
    def test_tests_start_a_process_and_the_checkout_stays_as_it_is(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        go()
        Checkout(kubernetes, tmp_path / "out").prepare()
        replaced = json.loads((tmp_path / "out" / "overlay.json").read_text())["Replace"]
        changed = {path: Path(copy).read_text() for path, copy in replaced.items()}

        assert changed[str(kubernetes / _TAINT)] == _TEST.replace(
            "go testCtx.Scheduler.Run(", "testCtx.Scheduler.RunProcess("
        )
        assert (
            "Pop\n\toptionsOf.Store(sched, options)\n"
            in changed[str(kubernetes / "pkg/scheduler/scheduler.go")]
        )
        assert "RunProcess(ctx" in changed[str(kubernetes / "pkg/scheduler/scheduler_process.go")]
        assert (kubernetes / "pkg/scheduler/scheduler.go").read_text() == _NEW
        assert (kubernetes / _TAINT).read_text() == _TEST

    def test_a_checkout_without_the_changed_line_is_an_error(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        go()
        (kubernetes / "pkg/scheduler/scheduler.go").write_text("package scheduler\n")

        with pytest.raises(CheckoutError, match="does not have the line"):
            Checkout(kubernetes, tmp_path / "out").prepare()

    def test_the_programs_that_tests_leave_are_killed(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        go(MEANWHILE=f"exec 9> {pipe}; (sleep 20; echo still here) >&9 &")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(reader, True)
        checkout = Checkout(kubernetes, tmp_path / "out")
        checkout.prepare()
        checkout.run("scheduler/taint", [], {})

        with os.fdopen(reader) as left:
            assert left.read() == ""

    def test_results_of_an_earlier_run_are_removed(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        go()
        checkout = Checkout(kubernetes, tmp_path / "out")
        checkout.prepare()
        (checkout.run("scheduler/taint", [], {}) / "001.log").write_text("old")
        folder = checkout.run("scheduler/taint", [], {})

        assert [file.name for file in folder.iterdir()] == ["events.jsonl"]


class TestRead:
    def test_subtests_are_counted_and_not_what_contains_them(self, tmp_path: Path) -> None:
        it = results(
            tmp_path,
            *ran("TestTaint/a", "pass"),
            *ran("TestTaint/b/c", "fail"),
            *ran("TestTaint/b", "fail"),
            *ran("TestTaint", "fail"),
            *ran("TestTaints", "skip"),
            end="fail",
        )

        assert it.ends == {"TestTaint/a": "passed", "TestTaint/b/c": "failed", "TestTaints": "skipped"}

    def test_a_test_that_fails_after_its_subtests_passed_has_failed(self, tmp_path: Path) -> None:
        it = results(tmp_path, *ran("TestTaint/a", "pass"), *ran("TestTaint", "fail"), end="fail")

        assert it.having("failed") == ["TestTaint"]

    def test_a_test_that_does_not_end_has_failed(self, tmp_path: Path) -> None:
        it = results(tmp_path, {"Action": "run", "Test": "TestTaint"}, end="fail")

        assert it.having("failed") == ["TestTaint"]

    def test_a_package_that_fails_without_a_failed_test_has_failed(self, tmp_path: Path) -> None:
        it = results(tmp_path, *ran("TestTaint", "pass"), end="fail")

        assert it.having("failed") == [BY_ITSELF]

    def test_a_test_without_a_scheduler_process_is_named(self, tmp_path: Path) -> None:
        it = results(
            tmp_path,
            *ran("TestA/a", "pass", STARTED),
            *ran("TestA", "pass"),
            *ran("TestB", "pass"),
            *ran("TestC", "skip"),
        )

        assert it.without_process == ["TestB"]

    def test_no_test_is_named_if_kube_schedulers_own_ran(self, tmp_path: Path) -> None:
        assert results(tmp_path, *ran("TestA", "pass")).without_process == ()

    def test_figures_come_from_the_items_and_the_last_line_of_the_process(self, tmp_path: Path) -> None:
        workload = "BenchmarkPerfScheduling/Basic/500Nodes"
        name = {"Name": f"{workload}/namespace-2"}
        items = [
            {
                "labels": {**name, "Metric": "SchedulingThroughput"},
                "data": {"Average": 200.5, "AverageThreshold": 90},
            },
            {"labels": {**name, "Metric": "SchedulingDuration"}, "data": {"Duration": 2.5}},
        ]
        it = results(
            tmp_path,
            *ran(workload, "pass", STARTED),
            {
                "Action": "output",
                "Test": "BenchmarkPerfScheduling",
                "Output": "scheduler process 001 used 1.25 s of CPU, 80 MB",
            },
            items=items,
        )

        assert it.figures == {"Basic/500Nodes": Figures(200.5, 90, 2.5, 1.25, 80)}

    def test_a_workload_below_its_threshold_has_a_figure(self, tmp_path: Path) -> None:
        workload = "BenchmarkPerfScheduling/Basic/500Nodes"
        message = 'expected "SchedulingThroughput" "Average" to be higher: got 80.5, want 90'
        it = results(tmp_path, *ran(workload, "fail", f"op 2: {workload}/namespace-2: {message}"), end="fail")

        assert it.figures == {"Basic/500Nodes": Figures(80.5, 90)}

    def test_a_workload_of_two_benchmarks_has_the_figures_of_each(self, tmp_path: Path) -> None:
        benchmarks = ("BenchmarkPerfScheduling/Basic", "BenchmarkPerfSchedulingExperimental/Basic")
        message = 'expected "SchedulingThroughput" "Average" to be higher: got %s, want 90'
        lines = [
            line
            for number, name in enumerate(benchmarks)
            for line in ran(name, "fail", message % (80 + number))
        ]

        assert results(tmp_path, *lines, end="fail").figures == {
            "Basic": Figures(80, 90),
            "Experimental/Basic": Figures(81, 90),
        }

    def test_lines_of_the_go_file_are_understood(self, tmp_path: Path) -> None:
        text = (Path(__file__).parent / "scheduler_process.go").read_text()
        (used,) = re.findall(r'Sprintf\("(.* s of CPU.*)"', text)
        used_line, started = re.findall(r'Printf\("(scheduler process %s (?:started|used).*)\\n"', text)
        lines = started.replace("%v", "[]") % "001", used_line % ("001", used % (1.5, 70))
        message = 'expected "SchedulingThroughput" "Average" to be higher: got 1, want 2'
        it = results(
            tmp_path, *ran("BenchmarkPerfScheduling/Basic/5Nodes", "fail", *lines, message), end="fail"
        )

        assert it.figures == {"Basic/5Nodes": Figures(1, 2, None, 1.5, 70)}
        assert it.without_process == []


class TestMain:
    def test_a_failed_test_is_printed_and_is_the_exit_status(
        self,
        kubernetes: Path,
        tmp_path: Path,
        go: Callable[..., Path],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        go(*ran("TestTaint/a", "pass", STARTED), *ran("TestTaint/b", "fail"), *ran("TestTaint", "fail"))
        status = main([str(kubernetes), "scheduler/taint", "--folder", str(tmp_path / "out")])

        assert status == 1
        assert capsys.readouterr().out.splitlines() == [
            "| package | tests | passed | failed | skipped |",
            "|---|---|---|---|---|",
            "| scheduler/taint | 2 | 1 | 1 | 0 |",
            "failed: scheduler/taint TestTaint/b",
            "",
        ]

    def test_the_exit_status_is_zero_if_all_tests_pass(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        go(*ran("TestTaint", "pass", STARTED), {"Action": "pass"})

        assert main([str(kubernetes), "scheduler/taint", "--folder", str(tmp_path / "out")]) == 0

    def test_the_exit_status_is_one_if_no_test_ran(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        go({"Action": "pass"})

        assert main([str(kubernetes), "scheduler/taint", "--folder", str(tmp_path / "out")]) == 1

    def test_a_checkout_that_does_not_compile_is_told(
        self,
        kubernetes: Path,
        tmp_path: Path,
        go: Callable[..., Path],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        go(BUILD_STATUS="1")

        assert main([str(kubernetes), "--folder", str(tmp_path / "out")]) == 2
        assert "cmd/etcd-of-tests failed in" in capsys.readouterr().err

    def test_all_packages_run_but_those_that_are_left_out(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        (kubernetes / "test/integration").mkdir(exist_ok=True)
        for package in packages():
            (kubernetes / "test/integration" / package).mkdir(parents=True, exist_ok=True)
        calls = go(*ran("TestTaint", "pass", STARTED), {"Action": "pass"})
        main([str(kubernetes), "--folder", str(tmp_path / "out")])
        compiled = re.findall(r"^test .*\./test/integration/(\S+)$", calls.read_text(), re.MULTILINE)

        assert compiled == [package for package, left_out in packages().items() if "" not in left_out]
        assert "scheduler/plugins" not in compiled

    def test_tests_that_are_left_out_are_skipped(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        (kubernetes / "test/integration/scheduler/podgroup").mkdir()
        calls = go({"Action": "pass"})
        main([str(kubernetes), "scheduler/podgroup", "--folder", str(tmp_path / "out")])

        assert "-test.skip=^TestPostFilterInvocationCount$" in calls.read_text()

    def test_workloads_run_with_the_labels_and_without_tests(
        self, kubernetes: Path, tmp_path: Path, go: Callable[..., Path]
    ) -> None:
        (kubernetes / "test/integration/scheduler_perf/misc").mkdir(parents=True)
        calls = go({"Action": "pass"})
        arguments = ["--labels", "short", "--run", "Perf/Basic", "scheduler_perf/misc"]
        main([str(kubernetes), "--folder", str(tmp_path / "out"), *arguments])
        folder = tmp_path / "out/results/scheduler_perf_misc"

        assert calls.read_text().endswith(
            "-test.timeout=2h -test.run=^$ -test.bench=Perf/Basic -test.benchtime=1ns "
            f"-perf-scheduling-label-filter=short -data-items-dir={folder}\n"
        )


def test_what_was_left_out_is_printed_with_the_reason() -> None:
    it = Results("dra/all", {"TestDRA/all/A": "it is Go code of the test"}, {}, (), {})

    assert table([it]).splitlines()[-1] == "left out: dra/all TestDRA/all/A: it is Go code of the test"


def test_each_level_of_a_left_out_test_is_a_regular_expression() -> None:
    for left_out in packages().values():
        for tests in filter(None, left_out):
            for level in tests.split("/"):
                re.compile(level)


def test_the_process_gets_the_gates_that_can_be_changed() -> None:
    gates = process_environment()["SCHEDULER_GATES"].split(",")

    assert {"GangScheduling", "DRADeviceTaints"} <= set(gates)
    assert not any(stages_at(DEFAULT_VERSION)[gate].locked for gate in gates)


def test_the_tests_wait_for_a_message_of_the_daemon() -> None:
    ready = process_environment()["SCHEDULER_READY"].removeprefix('"message": ')

    assert f"            {ready}," in Path(scheduler.daemon.app.daemon.__file__).read_text()


def test_the_floor_binds_each_pending_pod_and_writes_its_event(tmp_path: Path) -> None:
    environment = process_environment(floor=True)

    async def nodes_of_pods() -> Mapping[str, str]:
        async with ApiServer() as server:
            config = tmp_path / "config.yaml"
            config.write_text(
                f"clientConnection: {{kubeconfig: {server.write_kubeconfig(tmp_path / 'kubeconfig')}}}\n"
            )
            server.store.create("pods", pod_object("before"))
            process = await asyncio.create_subprocess_exec(
                *environment["SCHEDULER_COMMAND"].split("\n"), "--config", str(config), "--feature-gates", "A=true",
                stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert process.stderr is not None
            try:
                async with asyncio.timeout(60):
                    assert environment["SCHEDULER_READY"] in (await process.stderr.readline()).decode()
                    for number in range(2):
                        server.store.create("nodes", node_object(f"n{number}"))
                    while not server.faults.drop_watches(requests(resource="pods")):  # noqa: ASYNC110 - of a process
                        await asyncio.sleep(0.05)
                    server.store.create("pods", pod_object("gated", gates=["a"]))
                    server.store.create("pods", pod_object("after"))
                    while len(server.store.list("events.events.k8s.io")) < 2:  # noqa: ASYNC110 - of a process
                        await asyncio.sleep(0.05)
            finally:
                process.kill()
                await process.wait()
            return {
                pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in server.store.list("pods")
            }

    found = asyncio.run(nodes_of_pods())

    assert found["gated"] == ""
    assert sorted((found["before"], found["after"])) == ["n0", "n1"]
