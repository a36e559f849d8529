"""Asks a plugin and its slow version about all sorts of pods, and demands the same answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.framework import SKIP, CycleState
from tests.reference.cluster_events import random_labels
from tests.reference.one_node import verdicts
from tests.reference.topology_spread import ParseError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from scheduler.framework import Status
    from scheduler.objects.pod import PodInfo
    from tests.reference.cluster_events import EventfulCluster


class Judge:
    """Asks both, and demands the same answer.

    Args:
        random: decides what is asked.
        cluster: what it is asked about.
        fast: the plugin.
        slow: its slow version.
        errors: how the answers of PreFilter and PreScore to a faulty pod begin, `CODE: MESSAGE`.

    Attributes:
        seen: what was met.
    """

    def __init__(
        self, random: Random, cluster: EventfulCluster, fast: Any, slow: Any, errors: tuple[str, str]
    ) -> None:
        self._random = random
        self._cluster = cluster
        self._fast, self._slow = fast, slow
        self._errors = errors
        self.seen: set[str] = set()

    def follow(self, pods: Sequence[PodInfo], *, events: int, asked: int) -> None:
        """Let much happen to the cluster, and ask about some of the pods after each event."""
        story = []
        for _ in range(events):
            story.append(self._cluster.happens())
            for pod in self._random.sample(pods, asked):
                try:
                    self.compare(pod)
                except AssertionError as error:
                    error.add_note("\n".join([*story[-10:], f"{pod}: {pod.pod.spec}"]))
                    raise

    def compare(self, pod: PodInfo) -> None:
        self._compare_filter(pod)
        self._compare_score(pod)

    def _expected(self, answer: Status | None, error: str, ask: Any, *about: Any) -> Any:
        """Return the slow version's state; None if it skips the pod or the pod is faulty, as the answer must say."""
        try:
            expected = ask(*about)
        except ParseError:
            assert answer is not None
            assert f"{answer.code.value}: {answer.message}".startswith(error)
            self.seen.add("faulty")
            return None
        if expected is None:
            assert answer is SKIP
            self.seen.add(f"{ask.__name__} skipped")
        else:
            assert answer is None
        return expected

    def _compare_filter(self, pod: PodInfo) -> None:
        fast, slow, random = self._fast, self._slow, self._random
        snapshot, state = self._cluster.snapshot, CycleState()
        answer = fast.pre_filter(state, pod, snapshot)
        expected = self._expected(answer, self._errors[0], slow.pre_filter, pod)
        if expected is None:
            return
        nodes = snapshot.nodes
        found = verdicts(fast.filter(state, pod, snapshot, snapshot.all_rows))
        assert found == [slow.filter(expected, pod, node) for node in nodes]
        self.seen.update(text for code, reasons in found for text in (code, *reasons))

        # On each row some pods go, and some of them or new ones come: all rows at once, each by itself.
        rows = range(snapshot.n_nodes)
        gone = [(row, each) for row in rows for each in snapshot.pods_on(row) if random.random() < 0.6]
        back = [pair for pair in gone if random.random() < 0.4]
        new = [
            (row, self._cluster.pending_pod(labels=random_labels(random)))
            for row in rows
            if random.random() < 0.4
        ]
        clone, each_row = state.clone(), [expected.clone() for _ in nodes]
        for pairs, sign in ((gone, -1), (back, 1), (new, 1)):
            change = fast.remove_pods if sign < 0 else fast.add_pods
            change(clone, pod, pairs, snapshot)
            for row, changed in pairs:
                slow.update_with_pod(each_row[row], changed, pod, nodes[row], sign)
            after = verdicts(fast.filter(clone, pod, snapshot, snapshot.all_rows))
            assert after == [
                slow.filter(its_state, pod, node) for its_state, node in zip(each_row, nodes, strict=True)
            ]
            self.seen.update("changed" for _ in range(after != found))
        assert verdicts(fast.filter(state, pod, snapshot, snapshot.all_rows)) == found

    def _compare_score(self, pod: PodInfo) -> None:
        fast, slow = self._fast, self._slow
        snapshot, state = self._cluster.snapshot, CycleState()
        feasible = np.array(
            [row for row in range(snapshot.n_nodes) if self._random.random() < 0.8], dtype=np.intp
        )
        nodes = [snapshot.nodes[row] for row in feasible]
        answer = fast.pre_score(state, pod, snapshot, feasible)
        expected = self._expected(answer, self._errors[1], slow.pre_score, pod, nodes)
        if expected is None:
            return
        raw = {node.name: slow.score(expected, pod, node) for node in nodes}
        scores = fast.score(state, pod, snapshot, feasible)
        assert {node.name: scores[row] for row, node in zip(feasible, nodes, strict=True)} == raw
        normalized = fast.normalize(state, pod, scores, feasible)
        assert {node.name: normalized[row] for row, node in zip(feasible, nodes, strict=True)} == (
            slow.normalize(expected, raw)
        )
        self.seen.add("scored apart" if len(set(raw.values())) > 1 else "scored")
