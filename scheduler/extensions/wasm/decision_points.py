"""The extension points of a guest that decide on a node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scheduler.extensions.wasm.guest import GuestError
from scheduler.extensions.wasm.guest_plugin import GuestPlugin
from scheduler.extensions.wasm.statuses import NUMBERS, high_and_low
from scheduler.framework.interface import (
    FilterPlugin,
    PostFilterPlugin,
    PostFilterResult,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scheduler.extensions.wasm.call_context import SeenNodes
    from scheduler.framework.cycle_state import CycleState
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.status import Status
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Int64s, NodeInfo, Rows, Snapshot

_OVERRIDE = 1  # the nominating mode that sets or removes the nomination; 0 leaves it unchanged


class GuestPreFilter(GuestPlugin, PreFilterPlugin):
    """`prefilter`, `addpod`, `removepod`."""

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot
    ) -> PreFilterResult | Status | None:
        flight = self._flight(state, pod)
        flight.scene.snapshot = snapshot
        status = self._asked(flight, "prefilter")
        names = flight.scene.node_names
        if names is None or not status.is_success:
            return status
        return PreFilterResult(frozenset(names))

    def add_pods(
        self, state: CycleState, pod: PodInfo, added: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        self._tell("addpod", state, pod, added, snapshot)

    def remove_pods(
        self, state: CycleState, pod: PodInfo, removed: Sequence[tuple[int, PodInfo]], snapshot: Snapshot
    ) -> None:
        self._tell("removepod", state, pod, removed, snapshot)

    def _tell(
        self,
        export: str,
        state: CycleState,
        pod: PodInfo,
        pods: Sequence[tuple[int, PodInfo]],
        snapshot: Snapshot,
    ) -> None:
        if export not in self.guest.exports:
            return
        flight = self._flight(state, pod)
        flight.scene.snapshot = snapshot
        for row, target in pods:
            status = self._status(flight, flight.tell(export, snapshot.name_of(row), target))
            if not status.is_success:
                raise GuestError(
                    f"wasm: {export} of {target.key} returned {status.code.value}: {status.message}"
                )


class GuestFilter(GuestPlugin, FilterPlugin):
    """`filter`."""

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = node.snapshot, node.name
        return self._asked(flight, "filter", _content(node))


class GuestPostFilter(GuestPlugin, PostFilterPlugin):
    """`postfilter`."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, snapshot: Snapshot, diagnosis: Diagnosis
    ) -> PostFilterResult:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = snapshot, ""
        flight.scene.statuses = lambda: _statuses(snapshot, diagnosis)
        mode, number = high_and_low(flight.call("postfilter"))
        name = flight.scene.nominated_node_name if mode == _OVERRIDE else None
        return PostFilterResult(self._status(flight, number), name)


class GuestPreScore(GuestPlugin, PreScorePlugin):
    """`prescore`."""

    def pre_score(self, state: CycleState, pod: PodInfo, snapshot: Snapshot, feasible: Rows) -> Status:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = snapshot, ""
        names = msgspec.json.encode(_names(snapshot, feasible))
        flight.scene.filtered_nodes = lambda: names
        return self._asked(flight, "prescore", names)


class GuestScore(GuestPlugin, ScorePlugin):
    """`score`."""

    def score_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        flight = self._flight(state, pod)
        flight.scene.snapshot, flight.scene.node_name = node.snapshot, node.name
        score, number = high_and_low(flight.call("score", _content(node)))
        status = self._status(flight, number)
        if not status.is_success:
            raise GuestError(f"wasm: score returned {status.code.value}: {status.message}")
        return score


class GuestNormalizeScore(GuestScore):
    """`score` and `normalizescore`."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: Int64s, feasible: Rows) -> Int64s:
        flight = self._flight(state, pod)
        snapshot = flight.scene.snapshot
        assert snapshot is not None, "scores without a snapshot"
        names = _names(snapshot, feasible)
        flight.scene.node_name = ""
        shown = msgspec.json.encode(dict(zip(names, scores[feasible].tolist(), strict=True)))
        flight.scene.scores = lambda: shown
        status = self._asked(flight, "normalizescore", shown)
        if not status.is_success:
            raise GuestError(f"wasm: normalizescore returned {status.code.value}: {status.message}")
        given = _normalized(flight.scene.normalized_scores)
        if not given:
            return scores
        if given.keys() != set(names):
            raise GuestError(
                f"wasm: normalizescore must return a score for each of the {len(names)} nodes of the call, "
                f"returned {len(given)}"
            )
        normalized = scores.copy()
        normalized[feasible] = [given[name] for name in names]
        return normalized


def _names(snapshot: SeenNodes, rows: Rows) -> list[str]:
    nodes = snapshot.nodes
    return [nodes[row].name for row in rows.tolist()]


def _content(node: NodeInfo) -> bytes:
    return node.snapshot.nodes[node.row].raw


def _normalized(content: bytes | None) -> dict[str, int]:
    if not content:
        return {}
    try:
        found: Any = msgspec.json.decode(content, type=dict[str, int] | None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GuestError(f"wasm: normalizescore returned no map of scores: {error}") from error
    return found or {}


def _statuses(snapshot: Snapshot, diagnosis: Diagnosis) -> bytes:
    refused = {
        snapshot.name_of(row): NUMBERS[found[1].code]
        for row in range(snapshot.n_nodes)  # the ABI needs each node separately
        if (found := diagnosis.outcome_of(row)) is not None
    }
    return msgspec.json.encode(refused)
