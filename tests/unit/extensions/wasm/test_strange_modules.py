"""Modules that no compiler creates: cut, mutated, or greedy. Each is rejected or run, in bounded time and memory."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import wasmtime
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler.errors import PluginLoadError
from scheduler.extensions.wasm.guest import GuestError
from scheduler.extensions.wasm.guest_source import MemorySize
from scheduler.framework import CycleState, Status
from scheduler.objects.wording import Duration
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.support.guests import EVEN_NODES, GROWS, LAST_DIGIT, LOOPS, TRAPS, guest

SNAPSHOT = cluster(node("n0")).snapshot()
POD = pod("web", cpu="1")
LIMIT_SECONDS = 0.05
MEMORY = 1 << 20
MOST_SECONDS = 10.0  # a large margin for other processes
MOST_GROWTH = 128 << 20
SEEDS = (EVEN_NODES, LAST_DIGIT, TRAPS, LOOPS, GROWS)


def resident_bytes() -> int:
    (line,) = [
        each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS")
    ]
    return int(line.split()[1]) * 1024


def try_it(content: bytes) -> object:
    """Return a guest's result, or the error that rejects it; no other outcome is allowed."""
    try:
        plugin = guest(
            content, time_limit=Duration(int(LIMIT_SECONDS * 1e9)), memory_limit=MemorySize(MEMORY)
        )
        ask = getattr(plugin, "filter_node", None) or plugin.score_node
        return ask(CycleState(), POD, SNAPSHOT.node_info(0))
    except (GuestError, PluginLoadError) as error:
        return error


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid module with some bytes changed, removed or repeated."""
    content = bytearray(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(content) - 1))
        match draw(st.sampled_from(("change", "cut", "repeat", "insert"))):
            case "change":
                content[at] = draw(st.integers(0, 255))
            case "cut":
                del content[at : at + draw(st.integers(1, 8))]
            case "repeat":
                content[at:at] = content[at : at + draw(st.integers(1, 64))]
            case _:
                content[at:at] = draw(st.binary(max_size=8))
        if not content:
            break
    return bytes(content)


@given(mutated())
@example(b"")
@example(b"\0asm")
@example(b"\0asm\1\0\0\0")
@settings(max_examples=400)
def test_a_mutated_module_is_refused_or_evaluates_in_bounded_time(content: bytes) -> None:
    begin = time.perf_counter()
    said = try_it(content)

    assert time.perf_counter() - begin < MOST_SECONDS
    assert isinstance(said, GuestError | PluginLoadError | Status | int | float)
    assert not isinstance(said, Exception) or "wasm: " in str(said)


FILTER = '(func (export "filter") (result i32) (i32.const 0))'
MEMORY_PAGES = '(memory (export "memory") 1)'


def text(body: str, memory: str = MEMORY_PAGES) -> bytes:
    return f"(module {memory} {body})".encode()


GREEDY = {
    "more memory than allowed at once": text(FILTER, '(memory (export "memory") 1000)'),
    "shared memory": text(FILTER, '(memory (export "memory") 1 65536 shared)'),
    "memory of 64 bits": text(FILTER, '(memory (export "memory") i64 1 16777216)'),
    "a second memory": text(f"(memory 1) {FILTER}"),
    "a table of four thousand million": text(f"(table 4294967295 funcref) {FILTER}"),
    "many tables": text("(table 1000 funcref) " * 50 + FILTER),
    "a start function that never ends": text(f"(start $s) (func $s (loop $l (br $l))) {FILTER}"),
    "recursion without end": text('(func $f (export "filter") (result i32) (i32.add (call $f) (i32.const 1)))'),
    "fifty thousand locals": text(f'(func (export "filter") (result i32) (local {"i64 " * 50_000}) (i32.const 0))'),
    "blocks within blocks": text(f'(func (export "filter") (result i32) {"(block " * 20_000}{")" * 20_000} (i32.const 0))'),
    "ten thousand functions": text("".join(f"(func (result i32) (i32.const {i}))" for i in range(10_000)) + FILTER),
    "data beyond the memory": text(f'(data (i32.const 100000) "x") {FILTER}'),
    "arrays of the garbage collector": text(
        """(type $a (array (mut i64))) (type $all (array (mut (ref null $a))))
        (func (export "filter") (result i32) (local $keep (ref null $all)) (local $i i32)
          (local.set $keep (array.new_default $all (i32.const 4096)))
          (loop $on
            (array.set $all (local.get $keep) (local.get $i) (array.new_default $a (i32.const 65536)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $on (i32.lt_u (local.get $i) (i32.const 4096))))
          (i32.const 0))"""
    ),
    "filling its memory again and again": text(
        """(func (export "filter") (result i32)
          (loop $l (memory.fill (i32.const 0) (i32.const 1) (i32.const 65536)) (br $l)) (i32.const 0))"""
    ),
    "an import nobody has": text(FILTER, f'(import "env" "fork" (func)) {MEMORY_PAGES}'),
}  # fmt: skip


@pytest.mark.parametrize("content", GREEDY.values(), ids=GREEDY.keys())
def test_the_resources_of_a_greedy_module_are_limited(content: bytes) -> None:
    before, begin = resident_bytes(), time.perf_counter()
    said = try_it(content)

    assert time.perf_counter() - begin < MOST_SECONDS
    assert resident_bytes() - before < MOST_GROWTH
    assert isinstance(said, GuestError | PluginLoadError | Status)
    if isinstance(said, Exception):
        assert "wasm: " in str(said)
        assert len(str(said)) < 4096


def test_the_next_guest_runs_after_any_module() -> None:
    for content in GREEDY.values():
        try_it(content)

    assert isinstance(try_it(bytes(wasmtime.wat2wasm(text(FILTER)))), Status)
