"""The plugin on a small cluster: nodes, devices and claims in a table, an API server, and fakes for the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from plugins.dynamic_resources.plugin import DynamicResources
from scheduler.configuration.profile_plugins import decode_args
from scheduler.daemon.app.capabilities import TableObjects
from scheduler.engine.runtime.adapters import outcomes_of, scores_of
from scheduler.framework import CycleState, Status
from scheduler.snapshot import ClusterTable
from scheduler.testing.devices import watch_devices
from scheduler.testing.fakes import FakeBackground, FakeFeatures, Fakes, FakeSleep
from tests.unit.plugins.dynamic_resources.claims_api import ClaimsApi

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.framework import Outcome, PodGroup
    from scheduler.objects.node import NodeObject
    from scheduler.objects.pod import PodInfo


class PatientBackground(FakeBackground):
    """Tolerates work that a test never runs."""

    def __del__(self) -> None:
        for work in self.started:
            work.close()


class Kit:
    """One cluster, and the plugin of one or more profiles on it.

    Args:
        objects: nodes, and objects of resource.k8s.io; their claims are in the API server too.
        features: what is on; the default version by default.
        args: the arguments of the plugin, in the configuration's spelling.
    """

    def __init__(
        self, *objects: NodeObject | Mapping[str, Any], features: FakeFeatures | None = None, **args: Any
    ) -> None:
        self.features = features or FakeFeatures()
        self.table = ClusterTable()
        others = [each for each in objects if isinstance(each, dict)]
        for each in objects:
            if not isinstance(each, dict):
                self.table.add_node(each)  # type: ignore[arg-type]
        watch_devices(self.table, *others)
        self.api = ClaimsApi(*(each for each in others if each["kind"] == "ResourceClaim"))
        self.fakes = Fakes()
        self.fakes.background = PatientBackground()
        self.plugin = self.another(**args)

    def another(self, **args: Any) -> DynamicResources:
        """Return the plugin instance of another profile."""
        fakes = self.fakes
        return DynamicResources(
            args=decode_args(DynamicResources.Args, args, plugin="DynamicResources", path="args"),
            objects=TableObjects(self.table),
            writes=self.api,
            reads=self.api,
            sleep=FakeSleep(fakes.clock),
            clock=fakes.clock,
            background=fakes.background,
            activator=fakes.activator,
            assumed=fakes.assumed_pods,
            events=fakes.events,
            happenings=fakes.happenings,
            locks=fakes.keyed_lock,
            time_slice=fakes.time_slice,
            metrics=fakes.metrics,
            features=self.features,
            members=fakes.pod_groups,
        )

    def begin(self, pod: PodInfo, group: PodGroup | None = None) -> Attempt:
        """Begin an attempt at a pod or at a group with PreFilter."""
        return Attempt(self, pod, group)

    def watch_shows(self, *keys: str) -> None:
        """Update the watched claims from the API server; a claim that does not exist there is deleted."""
        store = self.table.watch_kind("resource.k8s.io/v1/resourceclaims")
        for key in keys:
            if key in self.api.claims:
                store[key] = msgspec.json.decode(msgspec.json.encode(self.api.claims[key]))
            else:
                store.pop(key, None)


class Attempt:
    """One attempt at a pod, by extension points.

    Attributes:
        state: the cycle's state.
        pre_filter: the result of PreFilter.
    """

    def __init__(self, kit: Kit, pod: PodInfo, group: PodGroup | None = None) -> None:
        self.kit = kit
        self.pod = pod
        self.state = CycleState()
        self.state.group = group
        self.pre_filter: Status | None = kit.plugin.pre_filter(self.state, pod, kit.table.snapshot())

    def filter(self) -> dict[str, Outcome]:
        """Return node -> the result of Filter."""
        snapshot = self.kit.table.snapshot()
        outcomes = outcomes_of(self.kit.plugin, self.state, self.pod, snapshot, snapshot.all_rows)
        return {name: outcomes.of(row) for row, name in enumerate(snapshot.names)}

    def reasons(self) -> dict[str, str]:
        """Return node -> the reason of its rejection, for rejected nodes."""
        return {name: outcome.reasons[0] for name, outcome in self.filter().items() if outcome.reasons}

    def scores(self) -> dict[str, int]:
        """Return node -> its score."""
        snapshot = self.kit.table.snapshot()
        scores = scores_of(self.kit.plugin, self.state, self.pod, snapshot, snapshot.all_rows)
        return dict(zip(snapshot.names, scores.tolist(), strict=True))

    def post_filter(self) -> Status:
        from scheduler.framework import Diagnosis

        snapshot = self.kit.table.snapshot()
        blank = Diagnosis.blank(snapshot.n_nodes)
        return self.kit.plugin.post_filter(self.state, self.pod, snapshot, blank).status

    def reserve(self, node: str) -> Status | None:
        return self.kit.plugin.reserve(self.state, self.pod, node)

    def unreserve(self, node: str) -> None:
        self.kit.plugin.unreserve(self.state, self.pod, node)

    async def pre_bind(self, node: str) -> Status | None:
        return await self.kit.plugin.pre_bind(self.state, self.pod, node)


def placed(kit: Kit, pod: PodInfo, node: str, group: PodGroup | None = None) -> Attempt:
    """Run the attempt at a pod up to the end of Reserve."""
    attempt = kit.begin(pod, group)
    assert attempt.pre_filter is None, attempt.pre_filter
    assert node not in attempt.reasons()
    assert attempt.reserve(node) is None
    return attempt
