"""Guests that fail, loop or grow: their cost is limited, and the next pod is scheduled."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import ref

import pytest
import wasmtime

from scheduler.configuration.types import KubeSchedulerConfiguration
from scheduler.errors import PluginLoadError
from scheduler.extensions.wasm import guest_pool
from scheduler.extensions.wasm.guest import GuestError, GuestTimeError, _forget, compile_guest
from scheduler.extensions.wasm.guest_source import GuestArgs, MemorySize
from scheduler.extensions.wasm.instance import Instance
from scheduler.framework import Code, CycleState
from scheduler.objects.wording import Duration
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.guests import EVEN_NODES, GROWS, LOOPS, TRAPS, guest, wat

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.extensions.wasm.call_context import CallContext

SNAPSHOT = cluster(node("n0")).snapshot()
POD = pod("web", cpu="1")
SHORT, LONG = Duration(50_000_000), Duration(10_000_000_000)
LOOP = "(loop $ever (br $ever))"


def ask(plugin: Any, state: CycleState | None = None) -> Any:
    return plugin.filter_node(state or CycleState(), POD, SNAPSHOT.node_info(0))


def test_a_trap_is_reported_with_the_output_of_the_guest_and_the_cause() -> None:
    with pytest.raises(GuestError) as reported:
        ask(guest(TRAPS))

    assert str(reported.value) == (
        "wasm: filter error: panic: bug\nwasm trap: wasm `unreachable` instruction executed"
    )


ONCE = wat(
    """(global $calls (mut i32) (i32.const 0))
    (func (export "filter") (result i32)
      (global.set $calls (i32.add (global.get $calls) (i32.const 1)))
      (if (i32.eq (global.get $calls) (i32.const 2)) (then unreachable))
      (i32.const 0))"""
)
"""Filter: the second call of every instance traps."""


def test_an_instance_that_trapped_is_replaced_for_the_next_pod() -> None:
    plugin, state = guest(ONCE), CycleState()
    assert ask(plugin, state).is_success
    with pytest.raises(GuestError, match="unreachable"):
        ask(plugin, state)

    with pytest.raises(GuestError, match="failed earlier in this attempt"):
        ask(plugin, state)
    assert ask(plugin).is_success


def test_an_endless_guest_is_stopped_in_time() -> None:
    plugin = guest(LOOPS, time_limit=SHORT)
    begin, cpu_begin = time.perf_counter(), time.thread_time()

    with pytest.raises(GuestError, match="wasm: filter error: stopped: it took "):
        ask(plugin)

    assert time.perf_counter() - begin > 0.02
    assert time.thread_time() - cpu_begin < 2  # other processes take no CPU time of this thread


def calls_of_four_seconds(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Have each call of a guest take four seconds; return a list that gets the longest time of each call."""
    now, longest = 0.0, []
    really = Instance.call

    def call(self: Instance, export: str, scene: CallContext, seconds: float) -> int:
        nonlocal now
        longest.append(seconds)
        now += 4.0
        return really(self, export, scene, LONG.seconds)

    monkeypatch.setattr(Instance, "call", call)
    monkeypatch.setattr(guest_pool, "time", SimpleNamespace(perf_counter=lambda: now))
    return longest


def test_the_time_limit_covers_all_calls_of_a_cycle_together(monkeypatch: pytest.MonkeyPatch) -> None:
    plugin, state = guest(EVEN_NODES, time_limit=LONG), CycleState()
    longest = calls_of_four_seconds(monkeypatch)
    for _ in range(3):
        assert ask(plugin, state).is_success

    with pytest.raises(GuestTimeError, match=r"wasm: filter error: stopped: its calls took 12\.0s together"):
        ask(plugin, state)
    assert longest == [10.0, 6.0, 2.0]


LOOPING_LATER = [
    pytest.param("permit", "i64", lambda plugin, state: plugin.permit(state, POD, "n0"), id="permit"),
    pytest.param(
        "prebind", "i32", lambda plugin, state: asyncio.run(plugin.pre_bind(state, POD, "n0")), id="prebind"
    ),
    pytest.param("bind", "i32", lambda plugin, state: asyncio.run(plugin.bind(state, POD, "n0")), id="bind"),
]


@pytest.mark.parametrize(("export", "result", "call"), LOOPING_LATER)
def test_an_endless_guest_after_the_choice_is_stopped_too(
    export: str, result: str, call: Callable[[Any, CycleState], object]
) -> None:
    lead = "" if export != "prebind" else '(func (export "reserve") (result i32) (i32.const 0))'
    content = wat(f'{lead}(func (export "{export}") (result {result}) {LOOP} ({result}.const 0))')

    with pytest.raises(GuestError, match=f"wasm: {export} error: stopped: it took"):
        call(guest(content, time_limit=SHORT), CycleState())


@pytest.mark.parametrize("export", ["unreserve", "postbind"])
def test_a_guest_that_fails_after_the_attempt_is_logged(
    export: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = wat(
        f"""(func (export "reserve") (result i32) (i32.const 0))
        (func (export "{export}") unreachable)"""
    )
    plugin = guest(content)
    if export == "unreserve":
        plugin.unreserve(CycleState(), POD, "n0")
    else:
        asyncio.run(plugin.post_bind(CycleState(), POD, "n0"))

    assert [record.getMessage() for record in caplog.records] == ["Guest failed after the end of the attempt"]
    assert f"wasm: {export} error: " in caplog.records[0].__dict__["error"]


def test_the_memory_of_a_guest_is_limited() -> None:
    content = wat(
        """(func (export "filter") (result i32)
          (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
          (memory.size))"""
    )

    status = ask(guest(content, memory_limit=MemorySize(5 * 65536)))

    assert status.code is Code.SKIP  # its result is its number of pages, five
    assert ask(guest(GROWS, memory_limit=MemorySize(2**20))).message == "no memory"


def test_the_tables_of_a_guest_are_limited() -> None:
    content = wat(
        """(table $t 1 funcref)
        (func (export "filter") (result i32)
          (loop $more
            (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
          (i32.gt_u (table.size $t) (i32.const 262144)))"""
    )

    assert ask(guest(content)).is_success


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param("(memory 1)", "memory count too high", id="a second memory"),
        pytest.param("(table 300000 funcref)", "table minimum size", id="a large table"),
        pytest.param("(table 1 funcref)" * 5, "table count too high", id="many tables"),
        pytest.param(f"(func $s {LOOP}) (start $s)", "stopped: it took", id="a start section that loops"),
        pytest.param("(func $s unreachable) (start $s)", "unreachable", id="a start section that traps"),
    ],
)
def test_a_guest_that_cannot_start_is_refused_when_it_is_built(more: str, expected: str) -> None:
    with pytest.raises(PluginLoadError, match=f"wasm: instantiate error: .*{expected}"):
        guest(
            wat(f'{more} (func (export "filter") (result i32) (i32.const 0))'),
            time_limit=SHORT if LOOP in more else LONG,
        )


def test_an_endless_registration_is_refused_when_it_is_built() -> None:
    content = wat(f'(func (export "enqueue") {LOOP}) (func (export "filter") (result i32) (i32.const 0))')

    with pytest.raises(PluginLoadError, match="wasm: enqueue error: stopped"):
        guest(content, time_limit=SHORT)


def test_a_guest_whose_initial_memory_exceeds_its_limit_is_refused_when_built() -> None:
    with pytest.raises(PluginLoadError, match=r"wasm: instantiate error: .*memory"):
        guest(GROWS, memory_limit=MemorySize(65536))


def test_endless_recursion_of_a_guest_fails_the_call() -> None:
    with pytest.raises(GuestError, match="call stack exhausted"):
        ask(guest(wat('(func $f (export "filter") (result i32) (i32.add (call $f) (i32.const 1)))')))


def test_a_guest_whose_start_fails_is_refused_when_it_is_built() -> None:
    content = wat('(func (export "_start") unreachable) (func (export "filter") (result i32) (i32.const 0))')

    with pytest.raises(PluginLoadError, match="cannot be built: GuestError: wasm: _start error: "):
        guest(content)


def test_an_endless_start_is_stopped() -> None:
    content = wat(f'(func (export "_start") {LOOP}) (func (export "filter") (result i32) (i32.const 0))')

    with pytest.raises(PluginLoadError, match="_start error: stopped"):
        guest(content, time_limit=SHORT)


@pytest.mark.parametrize(("code", "runs"), [(0, True), (3, False)])
def test_a_start_that_exits_the_program_is_accepted_with_status_0(code: int, runs: bool) -> None:
    content = bytes(
        wasmtime.wat2wasm(
            f"""(module
              (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
              (memory (export "memory") 1)
              (func (export "_start") (call $exit (i32.const {code})))
              (func (export "filter") (result i32) (i32.const 0)))"""
        )
    )
    if runs:
        assert ask(guest(content)).is_success
    else:
        with pytest.raises(PluginLoadError, match="_start error"):
            guest(content)


def test_an_unknown_import_is_refused_when_it_is_built() -> None:
    content = bytes(
        wasmtime.wat2wasm(
            """(module (import "k8s.io/api" "secrets" (func)) (memory (export "memory") 1)
            (func (export "filter") (result i32) (i32.const 0)))"""
        )
    )

    with pytest.raises(PluginLoadError, match=r"unknown import: `k8s\.io/api::secrets`"):
        guest(content)


def test_other_threads_continue_while_a_guest_is_compiled() -> None:
    functions = "".join(f"(func (result i32) (i32.const {number}))" for number in range(3000))
    content = wat(f'{functions} (func (export "filter") (result i32) (i32.const 0))')
    turns = 0

    compiling = threading.Thread(target=compile_guest, args=(content,))
    compiling.start()
    while compiling.is_alive():
        turns += 1

    assert turns > 1000


def test_a_guest_is_stopped_before_the_budget_of_its_attempt_is_spent() -> None:
    assert GuestArgs().time_limit.seconds < KubeSchedulerConfiguration().attempt_budget.seconds


def test_the_time_limit_covers_reserve_and_permit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    content = """(func (export "reserve") (result i32) (i32.const 0))
    (func (export "permit") (result i64) (i64.const 0))"""
    plugin, state = guest(wat(content), time_limit=LONG), CycleState()
    calls_of_four_seconds(monkeypatch)
    assert plugin.reserve(state, POD, "n0").is_success
    for _ in range(2):
        plugin.permit(state, POD, "n0")

    with pytest.raises(GuestTimeError, match=r"wasm: permit error: stopped: its calls took 12\.0s together"):
        plugin.permit(state, POD, "n0")


def test_the_start_of_an_instance_is_charged_to_the_attempt_that_needs_it() -> None:
    plugin = guest(wat('(func (export "filter") (result i32) (i32.const 0))'), time_limit=SHORT)
    pool = plugin._pool
    asked: list[float] = []

    def make(seconds: float) -> Any:
        asked.append(seconds)
        time.sleep(seconds)
        return object()

    pool._idle.clear()
    pool._make = make
    with pytest.raises(GuestTimeError, match="its calls took"):
        ask(plugin)
    assert asked == [SHORT.seconds]


def test_frozen_guests_are_freed_at_the_end_of_the_process() -> None:
    plugin = guest(EVEN_NODES)
    plugin.itself = plugin
    freed = ref(plugin)
    gc.freeze()
    del plugin

    _forget()

    assert freed() is None
