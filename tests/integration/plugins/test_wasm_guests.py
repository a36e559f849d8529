"""WebAssembly guests in a running daemon: ones that filter, score, wait, trap, loop and grow."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from scheduler.configuration.load import parse
from scheduler.errors import ConfigurationError
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.guests import EVEN_NODES, GROWS, LAST_DIGIT, LOOPS, TRAPS, waits, wat

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from scheduler.daemon.app.daemon import Daemon
    from tests.support.daemon_harness import Cluster


def profile(args: str, *, other: bool = True) -> str:
    plain = "\n- schedulerName: plain" if other else ""
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 2
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint: {{enabled: [{{name: wasmplugin1, weight: 100}}]}}
  pluginConfig: [{{name: wasmplugin1, args: {{{args}}}}}]{plain}
"""


@asynccontextmanager
async def running(folder: Path, guest: bytes, *, args: str = "") -> AsyncIterator[tuple[Cluster, Daemon]]:
    path = folder / "guest.wasm"
    path.write_bytes(guest)
    url = f"guestURL: 'file://{path}'" + (f", {args}" if args else "")
    async with cluster(folder) as it, it.daemon(profile(url)) as daemon:
        it.add_nodes(*(node_object(f"n{number}", cpu="8") for number in range(4)))
        yield it, daemon


async def bound(it: Cluster, *names: str) -> None:
    await it.until(lambda: all(it.node_of(name) for name in names))


async def test_a_guest_that_filters_keeps_pods_off_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, EVEN_NODES) as (it, _):
        names = [f"pod-{number}" for number in range(8)]
        it.add_pods(*(pod_object(name, cpu="100m") for name in names))
        await bound(it, *names)
        assert {it.node_of(name) for name in names} == {"n0", "n2"}


async def test_the_reason_of_a_guest_is_in_the_event_of_the_pod(tmp_path: Path) -> None:
    async with running(tmp_path, EVEN_NODES) as (it, _):
        it.add_pods(pod_object("large", cpu="100m", nodeSelector={"kubernetes.io/hostname": "n1"}))
        await it.until(lambda: it.notes("large", "FailedScheduling"))
        assert "1 odd node" in it.notes("large", "FailedScheduling")[0]


async def test_a_guest_that_scores_decides_where_pods_go(tmp_path: Path) -> None:
    async with running(tmp_path, LAST_DIGIT) as (it, _):
        names = [f"pod-{number}" for number in range(4)]
        it.add_pods(*(pod_object(name, cpu="100m") for name in names))
        await bound(it, *names)
        assert {it.node_of(name) for name in names} == {"n3"}


async def test_a_guest_that_waits_at_permit_holds_the_pod_until_its_timeout(tmp_path: Path) -> None:
    async with running(tmp_path, waits(1500)) as (it, _):
        it.add_pods(pod_object("held", cpu="100m"), pod_object("free", cpu="100m", scheduler_name="plain"))
        await bound(it, "free")
        await it.until(lambda: it.notes("held", "FailedScheduling"))
        [note, *_] = it.notes("held", "FailedScheduling")
        assert "rejected due to timeout after waiting 1.5s at plugin wasmplugin1" in note
        assert not it.node_of("held")


async def test_a_waiting_pod_is_bound_after_a_plugin_allows_it(tmp_path: Path) -> None:
    async with running(tmp_path, waits(60_000)) as (it, daemon):
        it.add_pods(pod_object("held", cpu="100m"))
        waiting = daemon.parts.waiting_pods
        await it.until(lambda: list(waiting.waiting()))
        [held] = waiting.waiting()
        assert not it.node_of("held")
        waiting.allow(held.uid, "wasmplugin1")
        await bound(it, "held")


@pytest.mark.parametrize(
    ("content", "expected", "args"),
    [
        pytest.param(TRAPS, "wasm: filter error: panic: bug", "", id="traps"),
        pytest.param(LOOPS, "wasm: filter error: stopped: it took", "timeLimit: 30ms", id="loops for ever"),
    ],
)
async def test_a_guest_that_fails_affects_only_its_own_pods(
    tmp_path: Path, content: bytes, expected: str, args: str
) -> None:
    async with running(tmp_path, content, args=args) as (it, _):
        others = [f"other-{number}" for number in range(4)]
        it.add_pods(pod_object("bad", cpu="100m"))
        it.add_pods(*(pod_object(name, cpu="100m", scheduler_name="plain") for name in others))
        await bound(it, *others)
        await it.until(lambda: it.notes("bad", "FailedScheduling"))
        assert 'running "wasmplugin1" filter plugin' in it.notes("bad", "FailedScheduling")[0]
        assert expected in it.notes("bad", "FailedScheduling")[0]
        assert not it.node_of("bad")


async def test_a_guest_that_uses_all_its_memory_only_rejects_nodes(tmp_path: Path) -> None:
    async with running(tmp_path, GROWS, args="memoryLimit: 4Mi") as (it, _):
        it.add_pods(pod_object("greedy", cpu="100m"))
        await it.until(lambda: it.notes("greedy", "FailedScheduling"))
        assert "4 no memory" in it.notes("greedy", "FailedScheduling")[0]


FIRST_TRAPS = wat(
    """(func (export "filter") (result i32) (local $n i32)
      (local.set $n (call $pod (i32.const 4096) (i32.const 60000)))
      ;; the name of the pod begins behind four bytes of tags and lengths, or five, so it has two x
      (if (i32.eq (i32.load8_u (i32.const 4101)) (i32.const 120)) (then unreachable))
      (i32.const 0))"""
)
"""Filter: traps for pods whose name begins with xx."""


async def test_the_pod_after_a_trap_gets_a_new_instance(tmp_path: Path) -> None:
    async with running(tmp_path, FIRST_TRAPS) as (it, _):
        it.add_pods(pod_object("xx-bad", cpu="100m"))
        await it.until(lambda: it.notes("xx-bad", "FailedScheduling"))
        it.add_pods(*(pod_object(f"good-{number}", cpu="100m") for number in range(3)))
        await bound(it, "good-0", "good-1", "good-2")


EVERYTHING = wat(
    """(func (export "prefilter") (result i32) (i32.const 0))
    (func (export "addpod") (result i32) (i32.const 0))
    (func (export "removepod") (result i32) (i32.const 0))
    (func (export "filter") (result i32) (i32.const 0))
    (func (export "postfilter") (result i64) (i64.const 0))
    (func (export "prescore") (result i32) (i32.const 0))
    (func (export "score") (result i64) (i64.const 0))
    (func (export "normalizescore") (result i32) (i32.const 0))
    (func (export "reserve") (result i32) (i32.const 0))
    (func (export "unreserve"))
    (func (export "permit") (result i64) (i64.const 0))
    (func (export "prebind") (result i32) (i32.const 0))
    (func (export "bind") (result i32) (i32.const 0))
    (func (export "postbind"))
    (func (export "enqueue"))"""
)
"""What the SDK makes of an empty guest: it says of all that it went well, the binding too."""


@pytest.mark.parametrize("first", [False, True], ids=["behind the real binder", "in front of it"])
async def test_an_empty_bind_of_a_guest_does_not_keep_a_pod_from_being_bound(
    tmp_path: Path, first: bool
) -> None:
    path = tmp_path / "guest.wasm"
    path.write_bytes(EVERYTHING)
    configuration = profile(f"guestURL: '{path}'")
    if first:
        configuration = configuration.replace(
            "  plugins:\n", "  plugins:\n    bind: {enabled: [{name: wasmplugin1}, {name: DefaultBinder}]}\n"
        )

    async with cluster(tmp_path) as it, it.daemon(configuration) as daemon:
        bind = [plugin.name for plugin in daemon.frameworks["custom-scheduler"]._bind]
        assert bind == (["wasmplugin1", "DefaultBinder"] if first else ["DefaultBinder", "wasmplugin1"])
        it.add_nodes(node_object("n0"))
        it.add_pods(pod_object("pod", cpu="100m"))
        await bound(it, "pod")


async def test_the_cost_of_a_guest_is_in_the_metric_of_node_loops(tmp_path: Path) -> None:
    async with running(tmp_path, EVEN_NODES) as (it, daemon):
        it.add_pods(pod_object("pod", cpu="100m"))
        await bound(it, "pod")
        counted = daemon.metrics._node_loop_nodes
        seconds = daemon.metrics._node_loop_seconds
        key = ("wasmplugin1", "Filter")
        assert counted[key].value == 4
        assert 0 < seconds[key].value < 1


@pytest.mark.run(by=asyncio.run)
async def test_a_reload_accepts_another_guest_and_rejects_a_broken_one(tmp_path: Path) -> None:
    """In real time: guests are read in a thread."""
    path = tmp_path / "guest.wasm"
    path.write_bytes(EVEN_NODES)
    text = profile(f"guestURL: '{path}'", other=False)

    async def until(holds: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not holds():  # noqa: ASYNC110 - the cluster does not tell
                await asyncio.sleep(0.01)

    async with cluster(tmp_path) as it, it.daemon(text) as daemon:
        it.add_nodes(*(node_object(f"n{number}") for number in range(4)))
        it.add_pods(pod_object("before", cpu="100m"))
        await until(lambda: it.node_of("before"))
        path.write_bytes(b"broken")
        with pytest.raises(ConfigurationError, match="wasm: cannot be compiled"):
            await daemon.reload(parse(text))
        path.write_bytes(LAST_DIGIT)
        await daemon.reload(parse(text))
        it.add_pods(pod_object("after", cpu="100m"))
        await until(lambda: it.node_of("after"))
        assert it.node_of("before") in {"n0", "n2"}
        assert it.node_of("after") == "n3"


LONG_PREFILTER = wat(
    """(func (export "prefilter") (result i32) (local $n i64)
      (loop $on
        (local.set $n (i64.add (local.get $n) (i64.const 1)))
        (br_if $on (i64.ne (local.get $n) (i64.const 600000000))))
      (i32.const 0))
    (func (export "filter") (result i32) (i32.const 0))"""
)
"""PreFilter: more than a tenth of a second of work."""


async def test_a_guest_with_calls_longer_than_a_slice_places_its_pods(tmp_path: Path) -> None:
    async with running(tmp_path, LONG_PREFILTER, args="timeLimit: 5s") as (it, _):
        names = [f"pod-{number}" for number in range(3)]
        it.add_pods(*(pod_object(name, cpu="100m") for name in names))
        await bound(it, *names)
        assert all(not it.notes(name, "FailedScheduling") for name in names)
