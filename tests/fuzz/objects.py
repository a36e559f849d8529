"""Generated objects in all processing steps: decoded, counted, evaluated and removed.

Any object is decoded or refused with one kind of error, in bounded time, and leaves nothing behind.
"""

from __future__ import annotations

import time
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

import msgspec

from scheduler.configuration.load import parse
from scheduler.daemon.app.needs import needs_of, trimmed
from scheduler.engine.cycle.scheduling import schedule_pod
from scheduler.engine.state.cache import Cache
from scheduler.errors import ObjectError, SchedulerError
from scheduler.kube.client.wire import decode_watch_event
from scheduler.objects import protobuf
from scheduler.objects.decode import STRUCTS, decode_node, decode_object, decode_pod, outline_pod
from scheduler.snapshot import TermKind
from tests.support.builders import node, pod
from tests.support.offline_capabilities import frameworks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scheduler.engine.cycle.attempt import Decision
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

PROFILE = '{"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}'
SECONDS = 1.0
"""Of CPU for one object, far more than any of a few kilobytes should take."""


class Scene:
    """A small cluster with the default profile."""

    def __init__(self) -> None:
        self.cache = Cache()
        (self._framework,) = frameworks(parse(PROFILE)).values()
        self._needs = needs_of([self._framework])
        for kind in self._needs.kinds:
            self.cache.table.watch_kind(kind)
        for number, zone in enumerate("aab"):
            labels = {"topology.kubernetes.io/zone": zone, "kubernetes.io/hostname": f"n{number}"}
            self.cache.add_node(node(f"n{number}", cpu="4", memory="8Gi", labels=labels, images=[]))
        self.cache.add_pod(pod("there", node="n0", cpu="1", labels={"app": "a"}))
        self.innocent = pod("innocent", cpu="1", labels={"app": "a"})
        self._usual = self._state()

    def try_pod(self, found: PodInfo) -> None:
        """Decide a pod, then put it on a node and decide another beside it, then take it out."""
        self._decide(found)
        if found.uid == "there":
            return
        bound = found if found.node_name else found.placed_on("n1")
        self.cache.add_pod(trimmed(bound, self._needs))
        self._decide(self.innocent)
        self.cache.check()
        self.cache.remove_pod(found.uid)
        self._expect_usual()

    def try_node(self, found: NodeObject) -> None:
        """Have a node for a while."""
        if self.cache.table.row_of(found.name) is not None:
            return
        self.cache.add_node(found)
        self._decide(self.innocent)
        self.cache.remove_node(found.name)
        self._expect_usual()

    def _decide(self, found: PodInfo) -> Decision:
        decision = schedule_pod(
            self._framework, found, self.cache.table.snapshot(), nominated={}, random=Random(1)
        )
        error = decision.status.error
        assert error is None or isinstance(error, SchedulerError), repr(error)
        decision.diagnosis.message()
        return decision

    def _state(self) -> tuple[object, ...]:
        table = self.cache.table
        label = table.label("topology.kubernetes.io/zone")
        return (
            [each.name for each in table.nodes],
            {name: table.requested(name).tolist() for name in ("cpu", "memory", "ephemeral-storage")},
            sorted(table.resources()),
            sorted(table.overdrawn()),
            [label.values[code] for code in label.codes],
            [table.indexed_ports(row) for row in range(table.n_nodes)],
            [
                len(list(table.affinity_terms(kind).matching("default", {"app": "a"}, {}).amounts()))
                for kind in TermKind
            ],
            len(table.storage().rows()),
        )

    def _expect_usual(self) -> None:
        now = self._state()
        assert now == self._usual, f"left behind: {now}"


def try_json(scene: Scene, raw: bytes) -> None:
    """Take bytes for an object of each kind, as a watch brings them."""
    began = time.process_time()
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        raw = decode_watch_event(b'{"type":"ADDED","object":' + raw + b"}").object
    for decode, use in (
        (decode_pod, scene.try_pod),
        (decode_node, scene.try_node),
        *((_as(kind), None) for kind in ("v1/services", *STRUCTS)),
    ):
        try:
            found = decode(raw)
        except ObjectError as error:
            if error.found is not None:
                outline_pod(error.found)
        else:
            if use is not None:
                use(found)
    took = time.process_time() - began
    assert took < SECONDS, f"took {took:.1f} s"


def _as(kind: str) -> Callable[[bytes], Mapping[str, object]]:
    return lambda raw: decode_object(raw, STRUCTS.get(kind))


def try_protobuf(scene: Scene, raw: bytes) -> None:
    """Take bytes for a Pod and a Node in protobuf; what can be read is tried as JSON as well."""
    for kind in ("Pod", "Node"):
        began = time.process_time()
        try:
            found = protobuf.decode("v1", kind, raw)
        except (LookupError, ValueError):
            continue
        finally:
            assert time.process_time() - began < SECONDS
        try_json(scene, msgspec.json.encode(found))
