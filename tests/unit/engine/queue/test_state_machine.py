"""Random sequences of changes: the queue must behave like the slow and obvious model."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.engine.queue import Place
from scheduler.framework.events import ASSIGNED_POD_DELETE, NODE_ADD, UNSCHEDULABLE_TIMEOUT, pod_changes
from tests.support.builders import node, pod
from tests.unit.engine.queue.cluster import CSI_NODE_ADD, NODE_LABEL, NODE_TAINT, PVC_ADD, REGISTERED, Cluster
from tests.unit.engine.queue.slow_queue import FLUSH, INITIAL, MOST, SlowPod, SlowQueue

if TYPE_CHECKING:
    from scheduler.framework import ClusterEvent
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo

ALL_NAMES = "abcd"
NAMES = st.sampled_from(ALL_NAMES)
PLUGINS = st.sets(st.sampled_from(sorted(set(REGISTERED) - {"Hold", "Curfew", "Gates"})), max_size=3)
NODES = [node(f"n{size}", labels={"size": str(size)}) for size in range(3)]
SPECS = st.fixed_dictionaries(
    {
        "priority": st.integers(0, 2),
        "labels": st.fixed_dictionaries({"size": st.sampled_from("012")}),
        "gates": st.sampled_from([[], [], [], ["one"], ["one", "two"]]),
    }
)
PODS: dict[tuple[str, str], PodInfo] = {}  # decoded once, for speed


def a_pod(name: str, spec: dict[str, object]) -> PodInfo:
    key = (name, repr(spec))
    if key not in PODS:
        PODS[key] = pod(name, **spec)
    return PODS[key]


def uid(name: str) -> str:
    return f"uid-of-default-{name}"


HINTS = logging.getLogger("scheduler.engine.queue.hints")


class QueueMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        HINTS.disabled = True  # Broken would fill the output
        self.cluster = Cluster(
            initial_backoff_seconds=INITIAL, max_backoff_seconds=MOST, max_in_unschedulable_seconds=FLUSH
        )
        self.queue = self.cluster.queue
        self.slow = SlowQueue(self.refused_by)

    def refused_by(self, each: PodInfo) -> str | None:
        if each.pod.spec.scheduling_gates:
            return "Gates"
        if each.uid in self.cluster.held:
            return "Hold"
        return "Curfew" if each.uid in self.cluster.under_curfew else None

    def what_was_done(self) -> object:
        return dict(self.cluster.asked), [self.queue.history(uid(name)) for name in ALL_NAMES]

    @property
    def now(self) -> float:
        return self.cluster.clock.now

    @rule(name=NAMES, spec=SPECS)
    def add(self, name: str, spec: dict[str, object]) -> None:
        new = a_pod(name, spec)
        self.queue.add(new)
        self.slow.add(new, self.now)

    @rule(name=NAMES, spec=SPECS)
    def update(self, name: str, spec: dict[str, object]) -> None:
        known = self.slow.pods.get(uid(name))
        new = a_pod(name, spec)
        old = known.newest or known.pod if known else new
        self.queue.update(old, new, pod_changes(old, new))
        self.slow.update(old, new, self.now)

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.queue.delete(a_pod(name, {}))
        self.slow.delete(uid(name))

    @rule()
    def pop(self) -> None:
        may = {each.pod.uid: each for each in self.slow.may_pop()}
        queued = self.queue.pop()
        if queued is None:
            assert not may
            return
        assert queued.pod.uid in may, f"{queued.pod} was popped, expected one of {may}"
        self.slow.pop(may[queued.pod.uid])

    @precondition(lambda self: self.slow.at("in flight"))
    @rule(data=st.data(), rejectors=PLUGINS, pending=PLUGINS)
    def come_back(self, data: st.DataObject, rejectors: set[str], pending: set[str]) -> None:
        self.take_back(data.draw(st.sampled_from(self.slow.at("in flight"))), rejectors, pending & rejectors)

    @precondition(lambda self: self.slow.may_pop() or self.slow.at("in flight"))
    @rule(rejectors=PLUGINS, pending=PLUGINS)
    def everything_fails(self, rejectors: set[str], pending: set[str]) -> None:
        """Move pods to the interesting places."""
        for _ in range(len(self.slow.may_pop())):
            self.pop()
        for each in self.slow.at("in flight"):
            self.take_back(each, rejectors, pending & rejectors)

    def take_back(self, each: SlowPod, rejectors: set[str], pending: set[str]) -> None:
        queued = self.queue.get(each.pod.uid)
        place = self.queue.add_unschedulable(
            queued, unschedulable_plugins=rejectors, pending_plugins=pending, is_error=not rejectors
        )
        self.slow.come_back(each, rejectors, pending, self.now)
        assert place is self.queue.place_of(each.pod.uid)

    @precondition(lambda self: self.slow.at("in flight"))
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        each = data.draw(st.sampled_from(self.slow.at("in flight")))
        self.queue.done(each.pod.uid)
        del self.slow.pods[each.pod.uid]

    @rule(
        event=st.sampled_from(
            [NODE_ADD, NODE_TAINT, NODE_LABEL, PVC_ADD, CSI_NODE_ADD, UNSCHEDULABLE_TIMEOUT]
        ),
        which=st.sampled_from(NODES),
    )
    def happen(self, event: ClusterEvent, which: NodeObject) -> None:
        new = None if event.is_wildcard else which
        self.queue.move_all(event, None, new)
        self.slow.happen(event, None, new, self.now)

    @rule(spared=NAMES)
    def happen_with_a_pre_check(self, spared: str) -> None:
        gone = a_pod("gone", {})
        self.queue.move_all(ASSIGNED_POD_DELETE, gone, gone, lambda each: each.name != spared)
        self.slow.happen(ASSIGNED_POD_DELETE, gone, gone, self.now, spared=[uid(spared)])

    @rule(name=NAMES)
    def activate(self, name: str) -> None:
        self.queue.activate([uid(name)])
        self.slow.activate(uid(name), self.now)

    @rule(name=NAMES, who=st.sampled_from(["held", "under_curfew"]))
    def change_its_mind(self, name: str, who: str) -> None:
        getattr(self.cluster, who).symmetric_difference_update({uid(name)})

    @rule(seconds=st.sampled_from([0.25, 1.0, 1.75, 4.0, 11.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.cluster.clock.advance(seconds)

    @rule()
    def sleep_until_the_deadline(self) -> None:
        deadline = self.queue.next_deadline(self.now)
        if deadline is not None:
            self.cluster.clock.now = deadline
            before = self.what_was_done()
            self.flush()
            assert self.what_was_done() != before, "there was nothing to do at the deadline"

    @rule()
    def flush(self) -> None:
        self.queue.flush(self.now)
        self.slow.flush(self.now)

    @invariant()
    def always(self) -> None:
        self.queue.check()
        uids = [each.pod.uid for each in self.queue.pods()]
        found = {uid: self.queue.place_of(uid).value for uid in uids}
        assert found == {each.pod.uid: each.place for each in self.slow.pods.values()}
        for each in self.slow.pods.values():
            queued = self.queue.get(each.pod.uid)
            assert queued.pod is each.pod
            assert (queued.timestamp, queued.attempts) == (each.timestamp, each.attempts)
            assert queued.was_flushed_from_unschedulable == each.flushed
            assert (queued.unschedulable_count, queued.consecutive_errors_count) == (
                each.rejections,
                each.errors,
            )
            assert queued.unschedulable_plugins == each.rejectors
            assert queued.pending_plugins == each.pending
        for place in (Place.ACTIVE, Place.BACKOFF, Place.UNSCHEDULABLE, Place.GATED):
            assert self.queue.count(place) == len(self.slow.at(place.value))
        assert self.queue.next_deadline(self.now) == self.slow.next_deadline(self.now)

    def teardown(self) -> None:
        """Every pod that is neither gated nor in flight is tried in the end, without further events."""
        HINTS.disabled = False
        if not hasattr(self, "queue"):
            return
        self.cluster.held.clear()
        self.cluster.under_curfew.clear()
        waiting = {
            each.pod.uid
            for each in self.slow.at("active", "backoff", "unschedulable")
            if not each.pod.pod.spec.scheduling_gates or each.place != "unschedulable"
        }
        self.cluster.clock.advance(FLUSH + MOST + 2)
        self.queue.flush(self.now)
        tried = set()
        while (queued := self.queue.pop()) is not None:
            tried.add(queued.pod.uid)
        assert waiting <= tried, f"{waiting - tried} sleep for ever"


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(max_examples=100, stateful_step_count=60, deadline=None, derandomize=True)
