"""Extenders in the cycles: called at the right point, with a frozen cluster, and without blocking other work."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.configuration.types import Extender
from scheduler.engine.cycle.explanation import explain
from scheduler.extensions.extenders import Extenders
from scheduler.framework import FilterPlugin, Outcomes, ScorePlugin
from scheduler.objects.wording import Duration
from tests.support.builders import node, pod
from tests.support.extender_server import Hangs, scripted_extender
from tests.unit.engine.cycle.cluster import PROFILE, Cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from scheduler.extensions.extender_wire import ExtenderError
    from scheduler.objects.pod import PodInfo
    from tests.support.extender_server import ScriptedExtender

SECOND = 10**9


class OnePerNode(FilterPlugin):
    name = "OnePerNode"

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Outcomes:
        return Outcomes.reject(snapshot.pod_count > 0, "node(s) were taken")


class Favourite(ScorePlugin):
    name = "Favourite"

    def score(self, state: Any, pod: Any, snapshot: Any, feasible: Any) -> Any:
        return np.array([50 if name == "n1" else 0 for name in snapshot.names], dtype=np.int64)


class Heard:
    def __init__(self) -> None:
        self.failures: list[str] = []

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        self.failures.append(f"{pod.name} {verb}")


@asynccontextmanager
async def extended(
    cluster: Cluster, answers: dict[str, Any], **settings: Any
) -> AsyncIterator[tuple[ScriptedExtender, Heard]]:
    """Run a scheduler with one extender."""
    heard = Heard()
    async with scripted_extender(answers) as extender:
        given = {"node_cache_capable": True, "weight": 1, "http_timeout": Duration(SECOND), **settings}
        verbs = {f"{verb}_verb": verb for verb in answers}
        extenders = Extenders([Extender(url_prefix=extender.url, **{**verbs, **given})], heard)
        cluster.profiles.swap({PROFILE: cluster.framework}, extenders)
        try:
            async with cluster.running():
                yield extender, heard
        finally:
            await extenders.close()


async def test_an_extender_chooses_among_the_feasible_nodes() -> None:
    cluster = Cluster(OnePerNode(), Favourite(), nodes=("n1", "n2", "n3"))
    answers = {"filter": {"NodeNames": ["n2", "n3"]}, "prioritize": [{"Host": "n3", "Score": 6}]}
    async with extended(cluster, answers) as (extender, _):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.node_of("web"))
        assert cluster.node_of("web") == "n3"
        filtered, ranked = (said["NodeNames"] for _, said in extender.asked)
        assert (filtered, ranked) == (["n1", "n2", "n3"], ["n2", "n3"])
    scores = cluster.counts.decisions[0].scores
    assert scores is not None
    assert {name: array.tolist() for name, array in scores.by_plugin.items()} == {
        "Favourite": [0, 0],
        extender.url: [0, 60],
    }
    assert scores.total.tolist() == [0, 60]


async def test_negative_totals_are_compared_and_explained() -> None:
    cluster = Cluster(Favourite(), nodes=("n1", "n2"))
    answers = {"prioritize": [{"Host": "n1", "Score": -9}, {"Host": "n2", "Score": -1}]}
    async with extended(cluster, answers) as (extender, _):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.node_of("web"))
    decision = cluster.counts.decisions[0]
    explained = explain(decision, ["n1", "n2"])
    assert explained["best"] == [decision.node_name] == ["n2"]
    assert explained["nodes"] == {
        "n1": {"feasible": True, "scores": {"Favourite": 50, extender.url: -90}, "total": -40},
        "n2": {"feasible": True, "scores": {"Favourite": 0, extender.url: -10}, "total": -10},
    }


async def test_a_pod_that_an_extender_rejects_waits_with_the_reason() -> None:
    cluster = Cluster(nodes=("n1", "n2"))
    answers = {"filter": {"NodeNames": [], "FailedNodes": {"n1": "no licence", "n2": "no licence"}}}
    async with extended(cluster, answers):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.notes("web"))
    assert cluster.notes("web") == ["0/2 nodes are available: 2 no licence."]
    assert cluster.counts.decisions[0].diagnosis.unschedulable_plugins == {"Extender"}


async def test_a_failed_extender_request_is_retried() -> None:
    cluster = Cluster()
    answers: dict[str, Any] = {"filter": 500}
    async with extended(cluster, answers) as (extender, heard):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.notes("web"))
        answers["filter"] = {"NodeNames": ["n1"]}
        await cluster.until(lambda: cluster.node_of("web"))
    reported = (
        f'extender "{extender.url}": failed filter with extender at URL {extender.url}/filter, code 500'
    )
    assert cluster.notes("web") == [reported]
    assert heard.failures == ["web filter"]


async def test_nothing_changes_during_an_extender_request() -> None:
    cluster = Cluster(OnePerNode(), nodes=("n1", "n2"))
    seen: list[int] = []
    hangs = Hangs()

    async def meddle() -> None:
        await cluster.until(lambda: hangs_asked)
        cluster.api.create(pod("foreign", scheduler_name="other", node="n2"))
        await asyncio.sleep(0.2)
        seen.append(int(cluster.cache.snapshot().pod_count.sum()))
        hangs.until.set()

    hangs_asked: list[Any] = []

    def ask(said: Any) -> Any:
        hangs_asked.append(said)
        return hangs if len(hangs_asked) == 1 else {"NodeNames": said["NodeNames"]}

    async with extended(cluster, {"filter": ask}, ignorable=True):
        meddling = asyncio.create_task(meddle())
        cluster.api.create(pod("web"))
        await meddling
        assert seen == [0]
        await cluster.until(lambda: cluster.cache.snapshot().pod_count.sum() > 0)


async def test_bindings_continue_during_an_extender_request() -> None:
    cluster = Cluster(OnePerNode(), nodes=("n1", "n2"))
    cluster.api.bind_seconds = 0.1
    hangs = Hangs()

    def ask(said: Any) -> Any:
        return hangs if said["Pod"]["metadata"]["name"] == "slow" else {"NodeNames": said["NodeNames"]}

    async with extended(cluster, {"filter": ask}, http_timeout=Duration(60 * SECOND)):
        cluster.api.create(pod("quick"))
        cluster.api.create(pod("slow"))
        await cluster.until(lambda: cluster.node_of("quick"), seconds=5)
        assert not cluster.node_of("slow")
        hangs.until.set()


async def test_a_binding_that_fails_during_an_extender_request_is_undone_afterwards() -> None:
    cluster = Cluster(OnePerNode(), nodes=("n1",))
    cluster.api.bind_seconds = 0.1
    cluster.api.answers = [RuntimeError("broken")]
    hangs = Hangs()
    counted: list[int] = []

    def ask(said: Any) -> Any:
        if said["Pod"]["metadata"]["name"] == "slow" and not hangs.until.is_set():
            return hangs
        return {"NodeNames": said["NodeNames"]}

    async with extended(cluster, {"filter": ask}, http_timeout=Duration(2 * SECOND)):
        cluster.nodes.on_add(node("n2"))
        cluster.api.create(pod("quick"))
        cluster.api.create(pod("slow"))
        await cluster.until(lambda: cluster.api.binds)
        await asyncio.sleep(1)
        counted.append(int(cluster.cache.snapshot().pod_count.sum()))
        hangs.until.set()
        await cluster.until(lambda: cluster.node_of("quick") and cluster.node_of("slow"))
    assert counted == [1]


async def test_an_extender_binds_in_place_of_the_plugins() -> None:
    cluster = Cluster(nodes=("n1", "n2"))

    def bind(said: Any) -> Any:
        key = f"{said['PodNamespace']}/{said['PodName']}"
        assert cluster.api.pods[key].uid == said["PodUID"]
        cluster.api.update(cluster.api.pods[key].placed_on(said["Node"]))
        return {}

    async with extended(cluster, {"bind": bind}):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.notes("web", "Scheduled"))
    assert cluster.node_of("web")
    assert cluster.api.binds == []


async def test_a_binding_with_a_lost_response_is_looked_up() -> None:
    cluster = Cluster()

    def bind(said: Any) -> Any:
        key = f"{said['PodNamespace']}/{said['PodName']}"
        cluster.api.update(cluster.api.pods[key].placed_on(said["Node"]))
        return 500

    async with extended(cluster, {"bind": bind}) as (_, heard):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.notes("web", "Scheduled"))
    assert heard.failures == ["web bind"]
    assert cluster.notes("web") == []


async def test_plugins_bind_where_an_ignorable_extender_cannot() -> None:
    cluster = Cluster()
    async with extended(cluster, {"bind": {"Error": "out of order"}}, ignorable=True):
        cluster.api.create(pod("web"))
        await cluster.until(lambda: cluster.node_of("web"))
    assert cluster.api.binds == [("web", "n1")]
