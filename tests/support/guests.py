"""WebAssembly guests for tests, in text format; each is the shortest that does one thing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import wasmtime

from scheduler.engine.runtime.profiles import build_plugin
from scheduler.extensions.wasm.guest import compile_guest
from scheduler.extensions.wasm.guest_plugin import guest_class
from scheduler.extensions.wasm.guest_source import GuestArgs
from scheduler.framework import PodEvents, TimeSlice, WaitingPods
from scheduler.testing.fakes import FakeTimeSlice

if TYPE_CHECKING:
    from scheduler.extensions.wasm.guest_plugin import GuestPlugin
    from scheduler.objects.pod import PodInfo

IMPORTS = """
  (import "k8s.io/api" "node" (func $node (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/api" "nodeList" (func $node_list (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "get_config" (func $config (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "currentPod" (func $pod (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "currentNodeName" (func $node_name (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "targetPod" (func $target_pod (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "filteredNodeList" (func $filtered (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "nodeToStatusMap" (func $statuses (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "nodeScoreList" (func $scores (param i32 i32) (result i32)))
  (import "k8s.io/scheduler" "nodeImageStates" (func $images (param i32 i32 i32 i32) (result i32)))
  (import "k8s.io/scheduler" "result.status_reason" (func $reason (param i32 i32)))
  (import "k8s.io/scheduler" "result.node_names" (func $node_names (param i32 i32)))
  (import "k8s.io/scheduler" "result.nominated_node_name" (func $nominate (param i32 i32)))
  (import "k8s.io/scheduler" "result.cluster_events" (func $register (param i32 i32)))
  (import "k8s.io/scheduler" "result.normalized_score_list" (func $normalized (param i32 i32)))
  (import "k8s.io/scheduler" "handle.eventrecorder.eventf" (func $eventf (param i32 i32)))
  (import "k8s.io/scheduler" "handle.reject_waiting_pod" (func $reject (param i32 i32 i32 i32)))
  (import "k8s.io/scheduler" "handle.get_waiting_pod" (func $waiting (param i32 i32 i32 i32)))
  (import "k8s.io/klog" "severity" (func $severity (result i32)))
  (import "k8s.io/klog" "log" (func $log (param i32 i32 i32)))
  (import "k8s.io/klog" "logs" (func $logs (param i32 i32 i32 i32 i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
"""


def wat(body: str, *, data: str = "") -> bytes:
    """Return a module with two pages of memory; `data` stands at address 16, buffers may begin at 1024."""
    written = data.encode().decode("unicode_escape") if "\\" in data else data
    text = "".join(f"\\{byte:02x}" for byte in written.encode())
    module = f'(module {IMPORTS} (memory (export "memory") 2) (data (i32.const 16) "{text}") {body})'
    return bytes(wasmtime.wat2wasm(module))


_LAST_BYTE = """
    (local $n i32)
    (local.set $n (call $node_name (i32.const 1024) (i32.const 1024)))
    (local.set $n (i32.sub (i32.load8_u (i32.add (i32.const 1023) (local.get $n))) (i32.const 48)))
"""

EVEN_NODES = wat(
    f"""(func (export "filter") (result i32) {_LAST_BYTE}
      (if (i32.and (local.get $n) (i32.const 1)) (then
        (call $reason (i32.const 16) (i32.const 8))
        (return (i32.const 2))))
      (i32.const 0))""",
    data="odd node",
)
"""Filter: lets pods on nodes whose name ends in an even digit."""

LAST_DIGIT = wat(
    f"""(func (export "score") (result i64) {_LAST_BYTE}
      (i64.shl (i64.extend_i32_u (i32.mul (local.get $n) (i32.const 10))) (i64.const 32)))"""
)
"""Score: ten times the last digit of the node's name."""


def waits(milliseconds: int) -> bytes:
    """Permit: holds every pod for so long."""
    return wat(f'(func (export "permit") (result i64) (i64.const {4 << 32 | milliseconds}))')


TRAPS = wat(
    """(func (export "filter") (result i32)
      (i32.store (i32.const 1000) (i32.const 16))
      (i32.store (i32.const 1004) (i32.const 10))
      (drop (call $fd_write (i32.const 1) (i32.const 1000) (i32.const 1) (i32.const 1020)))
      unreachable)""",
    data="panic: bug",
)
"""Filter: says why on its standard output, and traps, as TinyGo's panic does."""

LOOPS = wat('(func (export "filter") (result i32) (loop $ever (br $ever)) (i32.const 0))')
"""Filter: never answers."""

GROWS = wat(
    """(func (export "filter") (result i32)
      (loop $more (br_if $more (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
      (call $reason (i32.const 16) (i32.const 9))
      (i32.const 2))""",
    data="no memory",
)
"""Filter: takes memory until it gets no more."""


class NoWaitingPods:
    """Fulfils WaitingPods where nobody waits, and keeps who was rejected."""

    def __init__(self, *pods: PodInfo) -> None:
        self.pods = list(pods)
        self.rejected: list[tuple[str, str, str]] = []

    def waiting(self) -> list[PodInfo]:
        return self.pods

    def allow(self, uid: str, plugin: str) -> None: ...

    def reject(self, uid: str, plugin: str, reason: str) -> None:
        self.rejected.append((uid, plugin, reason))


class KeptEvents:
    """Fulfils PodEvents, and keeps what was written."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str, str, str]] = []

    def record(self, regarding: PodInfo, *, type_: str, reason: str, action: str, note: str) -> None:
        self.events.append((regarding.key, type_, reason, action, note))


def guest(
    content: bytes,
    *,
    name: str = "guest",
    events: KeptEvents | None = None,
    waiting_pods: NoWaitingPods | None = None,
    time_slice: TimeSlice | None = None,
    **args: Any,
) -> Any:
    """Return a built guest plugin; the keywords are fields of GuestArgs."""
    plugin: type[GuestPlugin] = guest_class(name, compile_guest(content))
    given = {
        PodEvents: events or KeptEvents(),
        TimeSlice: time_slice or FakeTimeSlice(),
        WaitingPods: waiting_pods or NoWaitingPods(),
    }
    return build_plugin(plugin, GuestArgs(**args), given)
