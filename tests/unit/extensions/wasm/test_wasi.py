"""This host's WASI functions: output is kept, sleeps end at once, and neither blocks the loop."""

from __future__ import annotations

import time

import pytest
import wasmtime

from scheduler.extensions.wasm.guest import GuestError
from scheduler.framework import CycleState, Status
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.guests import guest, wat

SNAPSHOT = cluster(node("n0")).snapshot()
_WASI = "wasi_snapshot_preview1"


def ask(content: bytes) -> Status:
    status: Status = guest(content).filter_node(CycleState(), pod("web"), SNAPSHOT.node_info(0))
    return status


def writing(call: str, *, store: str = "") -> bytes:
    """Return a guest that returns fd_write's result as its status, and traps if that is 0."""
    return wat(
        f"""(func (export "filter") (result i32) {store}
          (if (i32.eqz (call $fd_write {call})) (then unreachable))
          (i32.const 2))""",
        data="hello",
    )


def test_output_in_several_pieces_is_joined() -> None:
    store = """
      (i32.store (i32.const 1000) (i32.const 16)) (i32.store (i32.const 1004) (i32.const 3))
      (i32.store (i32.const 1008) (i32.const 19)) (i32.store (i32.const 1012) (i32.const 2))"""

    with pytest.raises(GuestError, match="filter error: hello\n"):
        ask(writing("(i32.const 2) (i32.const 1000) (i32.const 2) (i32.const 1020)", store=store))


def test_long_output_is_truncated() -> None:
    store = "(i32.store (i32.const 1000) (i32.const 0)) (i32.store (i32.const 1004) (i32.const 131072))"

    with pytest.raises(GuestError) as reported:
        ask(writing("(i32.const 1) (i32.const 1000) (i32.const 1) (i32.const 1020)", store=store))

    assert 60_000 < len(str(reported.value)) < 70_000


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("(i32.const 0) (i32.const 1000) (i32.const 1) (i32.const 1020)", id="standard input"),
        pytest.param("(i32.const 7) (i32.const 1000) (i32.const 1) (i32.const 1020)", id="a file"),
        pytest.param("(i32.const 1) (i32.const 1000) (i32.const 1025) (i32.const 1020)", id="many pieces"),
    ],
)
def test_a_failed_write_returns_an_error_number_and_no_trap(call: str) -> None:
    assert ask(writing(call)).is_rejected


def polling(kind: int, result: str) -> bytes:
    """Return a guest that waits an hour, for a clock or for its input, and returns the result."""
    return bytes(
        wasmtime.wat2wasm(
            f"""(module
              (import "{_WASI}" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
              (memory (export "memory") 1)
              (func (export "filter") (result i32)
                (i64.store (i32.const 0) (i64.const 77))
                (i32.store8 (i32.const 8) (i32.const {kind}))
                (i64.store (i32.const 24) (i64.const 3600000000000))
                (if (call $poll (i32.const 0) (i32.const 96) (i32.const 1) (i32.const 192)) (then unreachable))
                (i32.eqz {result})))"""
        )
    )


@pytest.mark.parametrize(
    "result",
    [
        pytest.param("(i32.eq (i32.load (i32.const 192)) (i32.const 1))", id="one event"),
        pytest.param("(i64.eq (i64.load (i32.const 96)) (i64.const 77))", id="of that subscription"),
        pytest.param("(i32.eqz (i32.load16_u (i32.const 104)))", id="without an error"),
    ],
)
def test_a_sleep_returns_at_once(result: str) -> None:
    begin = time.perf_counter()

    assert ask(polling(0, result)).is_success
    assert time.perf_counter() - begin < 60  # of an hour


def test_there_is_no_input() -> None:
    assert ask(polling(1, "(i32.eq (i32.load16_u (i32.const 104)) (i32.const 58))")).is_success


@pytest.mark.parametrize("count", [0, 1025])
def test_an_invalid_number_of_subscriptions_returns_an_error_number(count: int) -> None:
    content = f"""(module
      (import "{_WASI}" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 2)
      (func (export "filter") (result i32)
        (i32.ne (i32.const 28)
          (call $poll (i32.const 0) (i32.const 0) (i32.const {count}) (i32.const 0)))))"""

    assert ask(bytes(wasmtime.wat2wasm(content))).is_success
