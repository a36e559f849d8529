"""Run the integration tests and the benchmarks of Kubernetes' own scheduler against this one.

Needs a checkout of Kubernetes 1.36, the Go that it needs, and Linux. Nothing is downloaded, and the checkout stays as it is.
Tests that cannot pass with a process are left out; `left_out.yaml` has the reason of each.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from scheduler.configuration.feature_gates import DEFAULT_VERSION, EFFECTS, stages_at
from tests.upstream import floor as floor_program
from tests.upstream.checkout import Checkout, CheckoutError
from tests.upstream.results import read, table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEFT_OUT = Path(__file__).with_name("left_out.yaml")
_COMMAND = (
    str(Path(sys.executable).with_name("custom-scheduler")),
    "run",
    "--secure-port=0",
    "--replace-default-scheduler",
)
_READY = '"message": "Scheduling"'
_KUBE_SCHEDULER_READY = "Starting Kubernetes Scheduler"
_PERF = "scheduler_perf/"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_intermixed_args(arguments)
    known = packages()
    chosen = options.packages or [package for package, left_out in known.items() if "" not in left_out]
    checkout = Checkout(options.kubernetes, options.folder)
    environment = {} if options.in_test else process_environment(options.kube_scheduler, floor=options.floor)
    found = []
    try:
        checkout.prepare()
        for package in chosen:
            left_out = known.get(package, {})
            results = read(
                checkout.run(package, flags(package, left_out, options), environment), package, left_out
            )
            sys.stdout.write(f"{table([results])}\n\n")
            sys.stdout.flush()
            found.append(results)
    except CheckoutError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    if len(found) > 1:
        sys.stdout.write(f"{table(found)}\n")
    failed = any(it.having("failed") or it.without_process for it in found)
    return 1 if failed or not any(it.ends for it in found) else 0


def packages() -> Mapping[str, Mapping[str, str]]:
    """Return package -> pattern of tests -> why they are left out; the pattern "" stands for the whole package."""
    read_file = yaml.safe_load(_LEFT_OUT.read_text())
    return {
        package: {"": value}
        if isinstance(value, str)
        else {test: reason for reason, tests in value.items() for test in tests}
        for package, value in read_file.items()
    }


def process_environment(kube_scheduler: Path | None = None, *, floor: bool = False) -> Mapping[str, str]:
    """Return what `scheduler_process.go` reads, with the gates that change decisions and are not locked.

    Args:
        kube_scheduler: this program is the scheduler process; None is the scheduler of this project.
        floor: the scheduler process is the one that decides nothing.
    """
    command: Sequence[str] = _COMMAND
    ready = _READY
    if floor:
        command, ready = (sys.executable, floor_program.__file__), floor_program.READY
    elif kube_scheduler:
        command, ready = (str(kube_scheduler.resolve()), "--secure-port=0"), _KUBE_SCHEDULER_READY
    stages = stages_at(DEFAULT_VERSION)
    gates = sorted(gate for gate in EFFECTS if gate in stages and not stages[gate].locked)
    return {
        "SCHEDULER_COMMAND": "\n".join(command),
        "SCHEDULER_GATES": ",".join(gates),
        "SCHEDULER_READY": ready,
    }


def flags(package: str, left_out: Mapping[str, str], options: argparse.Namespace) -> Sequence[str]:
    """Return the flags for the tests of a package, or for its workloads."""
    given = ["-test.timeout=2h"]
    if package.startswith(_PERF):
        given += [
            "-test.run=^$",
            f"-test.bench={options.run or 'BenchmarkPerfScheduling'}",
            "-test.benchtime=1ns",
            f"-perf-scheduling-label-filter={options.labels}",
            f"-data-items-dir={options.folder.resolve() / 'results' / package.replace('/', '_')}",
        ]
    elif options.run:
        given.append(f"-test.run={options.run}")
    skipped = ["/".join(f"^{level}$" for level in tests.split("/")) for tests in left_out if tests]
    if skipped:
        given.append(f"-test.skip={'|'.join(skipped)}")
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make upstream KUBERNETES=PATH", description=__doc__)
    parser.add_argument("kubernetes", type=Path, help="the checkout")
    parser.add_argument(
        "packages",
        nargs="*",
        help="below test/integration, such as scheduler/filters or scheduler_perf/misc; all with tests if not given",
    )
    parser.add_argument("--run", help="the tests or workloads that match, as for `go test -run` or `-bench`")
    parser.add_argument("--labels", default="performance", help="of the workloads of scheduler_perf")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--kube-scheduler",
        type=Path,
        metavar="PROGRAM",
        help="run the same tests with this kube-scheduler, a process too, to compare",
    )
    other.add_argument(
        "--floor",
        action="store_true",
        help="run the workloads with a scheduler that decides nothing: the most that any scheduler can reach here",
    )
    other.add_argument(
        "--in-test", action="store_true", help="the same with the scheduler in the test's process"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("build/upstream"), help="compiled tests, logs and results"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
