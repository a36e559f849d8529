"""`python -m tests.bench.pod_path`: the functions that a pod passes from the bytes of its watch event to its Binding.

A daemon runs beside a simulated API server. Two pods of a Deployment are bound first, so that the third finds the caches
that a pod of a known class uses. The table has each function of the daemon and its plugins once, in the order of the
first call, and marks those that call no other function. Lambdas and expressions are not counted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from types import CodeType, FrameType

_ROOT: Final = Path(__file__).parents[2]
_COUNTED: Final = (f"{_ROOT / 'scheduler'}/", f"{_ROOT / 'plugins'}/")
_NOT_COUNTED: Final = f"{_ROOT / 'scheduler' / 'tools'}/"
_BINDING: Final = b"/binding HTTP/1.1"


class Step(NamedTuple):
    """One function of the path: its name, its file and its line, and whether it calls another one of the path."""

    function: str
    file: str
    line: int
    calls_others: bool


class _Trace:
    """Records functions in the order of their first call, from the watch event of a pod to the write of its Binding."""

    def __init__(self, pod: str) -> None:
        self._pod = pod.encode()
        self._codes: dict[CodeType, None] = {}
        self._callers: set[CodeType] = set()
        self._has_begun = self._has_ended = False

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Record a call; the interpreter calls this (`sys.setprofile`)."""
        code = frame.f_code
        if event != "call" or self._has_ended or code.co_name.startswith("<"):
            return
        if not code.co_filename.startswith(_COUNTED) or code.co_filename.startswith(_NOT_COUNTED):
            return
        local = frame.f_locals if code.co_name in {"data_received", "_write"} else {}
        if code.co_name == "data_received" and self._pod in bytes(local["data"]):
            self._has_begun = True
        if self._has_begun:
            self._codes.setdefault(code)
            if frame.f_back is not None:
                self._callers.add(frame.f_back.f_code)
        self._has_ended = self._has_begun and any(
            isinstance(value, bytes) and _BINDING in value for value in local.values()
        )

    def steps(self) -> list[Step]:
        assert self._has_ended, "the Binding was not written"
        return [
            Step(
                code.co_qualname,
                str(Path(code.co_filename).relative_to(_ROOT)),
                code.co_firstlineno,
                code in self._callers,
            )
            for code in self._codes
        ]


async def _traced(folder: Path) -> list[Step]:
    async with cluster(folder) as it:
        it.add_nodes(*(node_object(f"node-{number}", cpu="8", memory="32Gi") for number in range(5)))
        async with it.daemon():
            trace = _Trace("third")
            for name in ("first", "second", "third"):
                if name == "third":
                    sys.setprofile(trace.profile)
                it.add_pods(pod_object(name, cpu="100m", memory="100Mi", schedulerName="custom-scheduler"))
                try:
                    await it.until(lambda name=name: it.node_of(name))  # type: ignore[misc]
                finally:
                    sys.setprofile(None)
            return trace.steps()


def path() -> list[Step]:
    """Return the functions that a plain pod passes."""
    with TemporaryDirectory() as folder:
        return virtual_time.run(_traced(Path(folder)))


def main() -> None:
    """Print the path and its size."""
    steps = path()
    for number, step in enumerate(steps, 1):
        print(f"{number:4} {' ' if step.calls_others else '-'} {step.function:60} {step.file}:{step.line}")
    for label, counted in (
        ("in all", steps),
        ("that call others", [step for step in steps if step.calls_others]),
        (
            "of them outside of plugins",
            [step for step in steps if step.calls_others and step.file.startswith("s")],
        ),
    ):
        print(f"{label}: {len(counted)} functions in {len({step.file for step in counted})} files")


if __name__ == "__main__":
    main()
