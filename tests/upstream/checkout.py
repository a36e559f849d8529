"""A checkout of Kubernetes whose integration tests run their scheduler as a process.

The checkout stays as it is: Go reads the changed and the added files from another folder (`go build -overlay`).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HERE = Path(__file__).parent
_SCHEDULER = "pkg/scheduler/scheduler.go"
_NEW = "\tsched.NextPod = podQueue.Pop\n"
"""A line of `New` in `_SCHEDULER`, after the options of the test are known."""
_RUN = re.compile(r"^(\s*)go (testCtx\.Scheduler|sched)\.Run\(", re.MULTILINE)
"""The start of a scheduler in a test."""
_ADDED = {
    "pkg/scheduler/scheduler_process.go": "scheduler_process.go",
    "cmd/etcd-of-tests/main.go": "etcd.go",
}
"""Path in the checkout -> file in this folder."""
_NO_ETCD = "http://127.0.0.1:1"
"""An address where no etcd is, so that the tests start one."""


class CheckoutError(Exception):
    """The checkout is not what the tests expect, or does not compile."""


class Checkout:
    """A checkout of Kubernetes, and a folder for everything that is built from it.

    Args:
        source: the checkout, with its `vendor` folder.
        folder: compiled tests, logs and results; what is up to date there is not built again.

    Raises:
        CheckoutError: there is no Go.
    """

    def __init__(self, source: Path, folder: Path) -> None:
        self._source, self._folder = source.resolve(), folder.resolve()
        self._overlay = self._folder / "overlay.json"
        self._go = shutil.which("go") or ""
        if not self._go:
            raise CheckoutError("go is not in PATH")

    def prepare(self) -> None:
        """Write the changed files and compile etcd.

        Raises:
            CheckoutError: the source lacks a line that is changed, or does not compile.
        """
        replaced = {self._source / path: _HERE / file for path, file in _ADDED.items()}
        for path, text in self._changed().items():
            copy = self._folder / "overlay" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)
            replaced[self._source / path] = copy
        self._overlay.write_text(json.dumps({"Replace": {str(k): str(v) for k, v in replaced.items()}}))
        self._build("build", "-o", self._folder / "bin" / "etcd", "./cmd/etcd-of-tests")

    def _changed(self) -> Mapping[str, str]:
        """Return path -> text of each file that is changed."""
        scheduler = self._source / _SCHEDULER
        text = scheduler.read_text() if scheduler.is_file() else ""
        if text.count(_NEW) != 1:
            raise CheckoutError(f"{scheduler} does not have the line {_NEW.strip()!r} once")
        changed = {_SCHEDULER: text.replace(_NEW, f"{_NEW}\toptionsOf.Store(sched, options)\n")}
        for path in sorted((self._source / "test/integration").rglob("*.go")):
            text = path.read_text()
            if _RUN.search(text):
                changed[str(path.relative_to(self._source))] = _RUN.sub(r"\1\2.RunProcess(", text)
        return changed

    def run(self, package: str, flags: Sequence[str], environment: Mapping[str, str]) -> Path:
        """Run the tests of a package below test/integration, and return a folder with what they reported.

        `events.jsonl` has an event of test2json on each line, and `*.log` is of the scheduler processes. Programs that the
        tests leave are killed.

        Raises:
            CheckoutError: the package does not compile.
        """
        binary = self._folder / "tests" / f"{package.replace('/', '_')}.test"
        self._build("test", "-c", "-vet=off", "-o", binary, f"./test/integration/{package}")
        results = self._folder / "results" / package.replace("/", "_")
        results.mkdir(parents=True, exist_ok=True)
        for old in results.iterdir():
            old.unlink()
        path = f"{self._folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        with (results / "events.jsonl").open("w") as events:
            process = subprocess.Popen(
                [self._go, "tool", "test2json", "-t", str(binary), "-test.v=test2json", *flags],
                cwd=self._source / "test/integration" / package,
                env={
                    **os.environ,
                    "PATH": path,
                    "KUBE_INTEGRATION_ETCD_URL": _NO_ETCD,
                    "SCHEDULER_FOLDER": str(results),
                    **environment,
                },
                stdout=events,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return results

    def _build(self, command: str, *arguments: str | Path) -> None:
        line = [self._go, command, "-overlay", str(self._overlay), *map(str, arguments)]
        if subprocess.run(line, cwd=self._source, check=False).returncode:
            raise CheckoutError(f"{' '.join(line)} failed in {self._source}")
