"""The functions that a guest imports: the plugin ABI with memory, log and handle, and WASI.

A time limit stops a guest in its own code, but not within a host function that does not return.

Source:
    kube-scheduler-wasm-extension, scheduler/plugin/host.go.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING
from weakref import proxy

import msgspec
import wasmtime

from scheduler.extensions.wasm.call_context import CallContext, NodeMessages, pod_bytes
from scheduler.extensions.wasm.guest import GuestError, engine
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.extensions.wasm.guest import Guest
    from scheduler.framework.capabilities import PodEvents, WaitingPods

logger = logging.getLogger(__name__)


class GuestMemory:
    """The memory of one instance; pointers and lengths are unsigned. An access out of bounds raises GuestError."""

    def __init__(self, store: wasmtime.Store, memory: wasmtime.Memory) -> None:
        self._store = store
        self._memory = memory

    def read(self, pointer: int, length: int) -> bytes:
        """Copy bytes from the memory."""
        self.check(pointer, length)
        return bytes(self._memory.read(self._store, pointer, pointer + length)) if length else b""

    def write(self, pointer: int, content: bytes) -> None:
        """Copy bytes into the memory."""
        self.check(pointer, len(content))
        if content:
            self._memory.write(self._store, content, pointer)

    def give(self, content: bytes, buffer: int, limit: int) -> int:
        """Write content to a guest's buffer if all of it fits, and return its length in any case.

        A guest with too small a buffer calls again with a larger one.
        """
        if len(content) <= limit:
            self.write(buffer, content)
        return len(content)

    def check(self, pointer: int, length: int) -> None:
        """Check bounds; an empty range is valid at any position."""
        size = self._memory.data_len(self._store)
        if length and pointer + length > size:
            raise GuestError(f"out of memory: {length} bytes at {pointer}, of {size}")


def null_terminated(content: bytes) -> tuple[str, ...]:
    """Split NUL-terminated texts; empty ones and an unterminated rest are ignored.

    Source:
        kube-scheduler-wasm-extension, scheduler/plugin/cstring.go.
    """
    whole = content.split(b"\0")[:-1]
    return tuple(text(part) for part in whole if part)


def text(content: bytes) -> str:
    """Decode UTF-8; invalid bytes are replaced."""
    return content.decode(errors="replace")


_LEVELS = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # by klog's severity


class GuestLog:
    """Logs the lines of one guest.

    Args:
        plugin: the guest's name.
        severity: the lowest severity that is logged. Upstream reverses the comparison in one of the two functions by
            mistake, and so loses errors.
    """

    def __init__(self, plugin: str, severity: int) -> None:
        self._plugin = plugin
        self.severity = severity

    def write(self, severity: int, message: bytes, pairs: bytes = b"") -> None:
        """Log one line with klog's severity; `pairs` are NUL-terminated keys and values in turn."""
        if severity < self.severity:
            return
        level = _LEVELS[min(severity, len(_LEVELS) - 1)]
        logger.log(
            level,
            "Guest: %s",
            text(message).rstrip("\n"),
            extra={"plugin": self._plugin, "guest_fields": dict(_pairs(pairs))},
        )


def _pairs(content: bytes) -> Mapping[str, str]:
    # Values may be empty, so memory.null_terminated does not fit.
    words = [text(word) for word in content.split(b"\0")[:-1]]
    if len(words) % 2:
        words.append("")
    return dict(zip(words[::2], words[1::2], strict=True))


_NO = bytes(8)
_YES = b"\x01" + bytes(7)


class _Reference(msgspec.Struct, frozen=True, rename="pascal"):
    kind: str = ""
    api_version: str = msgspec.field(default="", name="APIVersion")
    name: str = ""
    namespace: str = ""
    uid: str = msgspec.field(default="", name="UID")
    resource_version: str = ""


class _Event(msgspec.Struct, frozen=True, rename="pascal"):
    regarding_reference: _Reference = _Reference()
    eventtype: str = ""
    reason: str = ""
    action: str = ""
    note: str = ""


class Handle:
    """Implements the imports of a guest that begin with `handle`."""

    def __init__(self, plugin: str, events: PodEvents, waiting_pods: WaitingPods) -> None:
        self._plugin = plugin
        self._events = events
        self._waiting_pods = waiting_pods

    def record(self, content: bytes, scene: CallContext) -> bytes:
        """Write an event about a pod; returns nothing.

        Raises:
            GuestError: it cannot be decoded.
        """
        try:
            event = msgspec.json.decode(content, type=_Event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise GuestError(f"eventf: {error}") from error
        about = event.regarding_reference
        if scene.pod is not None and about.uid == scene.pod.uid:
            pod = scene.pod
        elif about.kind in {"Pod", ""} and about.name:
            pod = PodInfo(Pod(metadata=ObjectMeta(name=about.name, namespace=about.namespace, uid=about.uid)))
        else:
            logger.warning(
                "Event of a guest is not about a pod and is not written",
                extra={"plugin": self._plugin, "kind": about.kind, "object": about.name, "note": event.note},
            )
            return b""
        # Some guests use another type, which the API server would reject.
        type_ = event.eventtype if event.eventtype in {"Normal", "Warning"} else "Normal"
        self._events.record(pod, type_=type_, reason=event.reason, action=event.action, note=event.note)
        return b""

    def reject(self, uid: str) -> bytes:
        """Reject a pod that waits at Permit; return 1 as a number of 8 bytes if it did wait, else 0."""
        if self._waiting(uid) is None:
            return _NO
        self._waiting_pods.reject(uid, self._plugin, "removed")
        return _YES

    def waiting_pod(self, uid: str) -> bytes:
        """Return a pod that waits at Permit as protobuf, else 0 as a number of 8 bytes."""
        pod = self._waiting(uid)
        return _NO if pod is None else pod_bytes(pod)

    def _waiting(self, uid: str) -> PodInfo | None:
        return next((pod for pod in self._waiting_pods.waiting() if pod.uid == uid), None)


MAX_OUTPUT_BYTES = 64 * 1024
"""The limit of the output that is kept of one call."""
_MOST_ITEMS = 1024  # as Linux limits one call
_SUCCESS, _BAD_FILE, _INVALID, _NOT_SUPPORTED = 0, 8, 28, 58  # WASI's errno
_VECTOR_BYTES, _SUBSCRIPTION_BYTES, _EVENT_BYTES = 8, 48, 32
_CLOCK = 0


def fd_write(
    memory: GuestMemory, output: bytearray, file: int, vectors: int, count: int, written: int
) -> int:
    """Keep what a guest writes to its standard output and error."""
    if file not in {1, 2}:
        return _BAD_FILE
    if count > _MOST_ITEMS:
        return _INVALID
    total = 0
    for number in range(count):
        vector = memory.read(vectors + _VECTOR_BYTES * number, _VECTOR_BYTES)
        pointer, length = (int.from_bytes(vector[at : at + 4], "little") for at in (0, 4))
        memory.check(pointer, length)
        output += memory.read(pointer, min(length, MAX_OUTPUT_BYTES - len(output)))
        total += length
    memory.write(written, (total & 0xFFFFFFFF).to_bytes(4, "little"))
    return _SUCCESS


def poll_oneoff(memory: GuestMemory, subscriptions: int, events: int, count: int, happened: int) -> int:
    """End every sleep at once, as upstream does for its guests; there are no files to wait for."""
    if not 0 < count <= _MOST_ITEMS:
        return _INVALID
    for number in range(count):
        subscription = memory.read(subscriptions + _SUBSCRIPTION_BYTES * number, _SUBSCRIPTION_BYTES)
        kind = subscription[8]
        error = _SUCCESS if kind == _CLOCK else _NOT_SUPPORTED
        event = subscription[:8] + error.to_bytes(2, "little") + bytes((kind,))
        memory.write(events + _EVENT_BYTES * number, event.ljust(_EVENT_BYTES, b"\0"))
    memory.write(happened, count.to_bytes(4, "little"))
    return _SUCCESS


if TYPE_CHECKING:
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
        return fd_write(self._memory, self.call.output, *args)

    def _poll_oneoff(self, *args: int) -> int:
        return poll_oneoff(self._memory, *args)


def _give(content: Callable[[Host], bytes]) -> HostFunction:
    """Return a function that passes bytes by the protocol of buffer and limit."""
    return lambda host, buffer, limit: host._memory.give(content(host), buffer, limit)  # noqa: SLF001 - of this class


def _i32s(count: int) -> list[wasmtime.ValType]:
    return [wasmtime.ValType.i32() for _ in range(count)]
