"""The functions that a guest imports.

Source:
    kube-scheduler-wasm-extension, scheduler/plugin/host.go.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import proxy

import wasmtime

from scheduler.extensions.wasm import wasi
from scheduler.extensions.wasm.call_context import CallContext, NodeMessages, pod_bytes
from scheduler.extensions.wasm.engine import engine
from scheduler.extensions.wasm.guest import GuestError
from scheduler.extensions.wasm.guest_memory import null_terminated, text

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.extensions.wasm.guest import Guest
    from scheduler.extensions.wasm.guest_memory import GuestMemory
    from scheduler.extensions.wasm.handle import Handle
    from scheduler.extensions.wasm.klog import GuestLog

    HostFunction = Callable[..., int | None]

_LOW_32_BITS = 2**32 - 1


class CallUnderWay(threading.local):
    """The current call of a thread.

    Attributes:
        failure: the error of a host function in this call; wasmtime stores it in a place that all threads share.
        output: the guest's standard output and error in this call.
        scene: input and output of the call.
        memory: memory of the called instance; None while it is created.
    """

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.output = bytearray()
        self.scene = CallContext()
        self.memory: GuestMemory | None = None


class Host:
    """Provides the imports of one guest for the current call.

    Attributes:
        config: the guestConfig.
        log: receives its log lines.
        linker: creates instances.
        call: the calling thread's current call.
    """

    def __init__(self, guest: Guest, config: str, log: GuestLog, handle: Handle) -> None:
        self.config = config.encode()
        self.log = log
        self._handle = handle
        self._nodes = NodeMessages()
        self.call = CallUnderWay()
        self.linker = wasmtime.Linker(engine())
        self.linker.allow_shadowing = True
        if guest.wants_wasi:
            self.linker.define_wasi()
            # wasmtime's own capture of output prints a panic when Python ends; and its poll would really sleep.
            self._define("wasi_snapshot_preview1", "fd_write", 4, 1, Host._fd_write)
            self._define("wasi_snapshot_preview1", "poll_oneoff", 4, 1, Host._poll_oneoff)
        self._define_inputs()
        self._define_outputs()

    def _define_inputs(self) -> None:
        api, scheduler = "k8s.io/api", "k8s.io/scheduler"
        self._define(api, "node", 4, 1, Host._node)
        self._define(api, "nodeList", 2, 1, _give(Host._node_list))
        self._define(scheduler, "nodeImageStates", 4, 1, Host._image_states)
        self._define(scheduler, "get_config", 2, 1, _give(lambda host: host.config))
        self._define(scheduler, "currentPod", 2, 1, _give(lambda host: host.scene.pod_bytes()))
        self._define(scheduler, "currentNodeName", 2, 1, _give(lambda host: host.scene.node_name.encode()))
        self._define(scheduler, "targetPod", 2, 1, _give(Host._target_pod))
        self._define(scheduler, "filteredNodeList", 2, 1, _give(lambda host: host.scene.filtered_nodes()))
        self._define(scheduler, "nodeToStatusMap", 2, 1, _give(lambda host: host.scene.statuses()))
        self._define(scheduler, "nodeScoreList", 2, 1, _give(lambda host: host.scene.scores()))

    def _define_outputs(self) -> None:
        scheduler, klog = "k8s.io/scheduler", "k8s.io/klog"
        self._define(scheduler, "result.status_reason", 2, 0, Host._status_reason)
        self._define(scheduler, "result.node_names", 2, 0, Host._node_names)
        self._define(scheduler, "result.nominated_node_name", 2, 0, Host._nominated_node_name)
        self._define(scheduler, "result.cluster_events", 2, 0, Host._cluster_events)
        self._define(scheduler, "result.normalized_score_list", 2, 0, Host._normalized_scores)
        self._define(scheduler, "handle.eventrecorder.eventf", 2, 0, Host._eventf)
        self._define(scheduler, "handle.reject_waiting_pod", 4, 0, Host._reject_waiting_pod)
        self._define(scheduler, "handle.get_waiting_pod", 4, 0, Host._get_waiting_pod)
        self._define(klog, "severity", 0, 1, lambda host: host.log.severity)
        self._define(klog, "log", 3, 0, Host._write_log)
        self._define(klog, "logs", 5, 0, Host._write_log)

    def _define(self, module: str, name: str, params: int, results: int, function: HostFunction) -> None:
        # wasmtime keeps functions in a global place, which must not keep this object alive.
        host = proxy(self)

        def guarded(*args: int) -> int | None:
            try:
                # Arguments arrive as signed numbers.
                return function(host, *(arg & _LOW_32_BITS for arg in args))
            except Exception as error:
                host.call.failure = error
                raise

        kind = wasmtime.FuncType(_i32s(params), _i32s(results))
        self.linker.define_func(module, name, kind, guarded)

    @property
    def scene(self) -> CallContext:
        """Input and output of the current call."""
        return self.call.scene

    @property
    def _memory(self) -> GuestMemory:
        if self.call.memory is None:
            raise GuestError("a function was called before the memory exists")
        return self.call.memory

    # Functions that return data to guests.

    def _node(self, name: int, name_length: int, buffer: int, limit: int) -> int:
        snapshot = self.scene.snapshot
        wanted = text(self._memory.read(name, name_length))
        found = b"" if snapshot is None else self._nodes.one(snapshot, wanted)
        return self._memory.give(found, buffer, limit)

    def _node_list(self) -> bytes:
        scene = self.scene
        return b"" if scene.snapshot is None else self._nodes.all(scene.snapshot, scene.until)

    def _image_states(self, name: int, name_length: int, buffer: int, limit: int) -> int:
        snapshot = self.scene.snapshot
        wanted = text(self._memory.read(name, name_length))
        found = b"null" if snapshot is None else self._nodes.images(snapshot, wanted)
        return self._memory.give(found, buffer, limit)

    def _target_pod(self) -> bytes:
        return b"" if self.scene.target is None else pod_bytes(self.scene.target)

    # Functions that receive data from guests.

    def _status_reason(self, pointer: int, length: int) -> None:
        try:
            self.scene.reason = text(self._memory.read(pointer, length))
        except GuestError:
            self.scene.reason = "BUG: out of memory reading message"  # as upstream: the status still counts

    def _node_names(self, pointer: int, length: int) -> None:
        self.scene.node_names = null_terminated(self._memory.read(pointer, length))

    def _nominated_node_name(self, pointer: int, length: int) -> None:
        self.scene.nominated_node_name = text(self._memory.read(pointer, length))

    def _cluster_events(self, pointer: int, length: int) -> None:
        self.scene.cluster_events = self._memory.read(pointer, length)

    def _normalized_scores(self, pointer: int, length: int) -> None:
        self.scene.normalized_scores = self._memory.read(pointer, length)

    def _eventf(self, pointer: int, length: int) -> None:
        content, scene = self._memory.read(pointer, length), self.scene
        scene.in_loop(lambda: self._handle.record(content, scene))

    def _reject_waiting_pod(self, uid: int, uid_length: int, out: int, limit: int) -> None:
        rejected = text(self._memory.read(uid, uid_length))
        self._memory.give(self.scene.in_loop(lambda: self._handle.reject(rejected)), out, limit)

    def _get_waiting_pod(self, uid: int, uid_length: int, out: int, limit: int) -> None:
        wanted = text(self._memory.read(uid, uid_length))
        self._memory.give(self.scene.in_loop(lambda: self._handle.waiting_pod(wanted)), out, limit)

    def _write_log(
        self, severity: int, message: int, length: int, pairs: int = 0, pairs_length: int = 0
    ) -> None:
        try:
            content = self._memory.read(message, length), self._memory.read(pairs, pairs_length)
        except GuestError:
            return  # as upstream: a log line must not fail a pod
        self.log.write(severity, *content)

    def _fd_write(self, *args: int) -> int:
        return wasi.fd_write(self._memory, self.call.output, *args)

    def _poll_oneoff(self, *args: int) -> int:
        return wasi.poll_oneoff(self._memory, *args)


def _give(content: Callable[[Host], bytes]) -> HostFunction:
    """Return a function that passes bytes by the protocol of buffer and limit."""
    return lambda host, buffer, limit: host._memory.give(content(host), buffer, limit)  # noqa: SLF001 - of this class


def _i32s(count: int) -> list[wasmtime.ValType]:
    return [wasmtime.ValType.i32() for _ in range(count)]
