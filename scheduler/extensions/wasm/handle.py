"""The handle of a guest: it writes events about pods, and rejects pods that wait at Permit."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from scheduler.extensions.wasm.call_context import pod_bytes
from scheduler.extensions.wasm.guest import GuestError
from scheduler.objects.meta import ObjectMeta
from scheduler.objects.pod import PodInfo
from scheduler.objects.v1 import Pod

if TYPE_CHECKING:
    from scheduler.extensions.wasm.call_context import CallContext
    from scheduler.framework.capabilities import PodEvents, WaitingPods

logger = logging.getLogger(__name__)

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
