"""The daemon with HTTP extenders: all in virtual time, over real HTTP."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from scheduler.configuration.load import parse
from scheduler.configuration.overrides import with_leader_election
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.extender_server import Hangs, scripted_extender

if TYPE_CHECKING:
    from pathlib import Path


def configuration(*extenders: str) -> str:
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nextenders:\n"
    return head + "".join(f"- {extender}\n" for extender in extenders)


def asking(url: str, more: str = "") -> str:
    return (
        f"{{urlPrefix: {url}, filterVerb: filter, prioritizeVerb: rank, weight: 10, "
        f"nodeCacheCapable: true, httpTimeout: 1s{more}}}"
    )


def likes(name: str) -> dict[str, Any]:
    return {
        "filter": lambda said: {"NodeNames": said["NodeNames"]},
        "rank": [{"Host": name, "Score": 10}],
    }


FAILURES: dict[str, tuple[Any, str]] = {
    "dead": (503, "failed filter with extender at URL {url}/filter, code 503"),
    "lying about nodes": (
        {"NodeNames": ["nowhere"]},
        'claims a filtered node "nowhere" which is not found in the input node list',
    ),
    "talking nonsense": (b"<html>", 'answered what is no JSON: "<html>"'),
    "hanging": (Hangs, "POST {url}/filter: no answer within 1 s"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("ignorable", [False, True], ids=["needed", "ignorable"])
async def test_a_failing_extender_is_reported_and_nothing_is_stuck(
    failure: tuple[Any, str], ignorable: bool, tmp_path: Path
) -> None:
    answer, problem = failure
    answers: dict[str, Any] = {**likes("b"), "filter": answer() if isinstance(answer, type) else answer}
    more = ", ignorable: true" if ignorable else ""
    async with cluster(tmp_path) as it, scripted_extender(answers) as extender:
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(asking(extender.url, more))) as daemon:
            it.add_pods(pod_object("web"), pod_object("other", scheduler_name="other", node="a"))
            reported = f'extender "{extender.url}": {problem.format(url=extender.url)}'
            if ignorable:
                await it.until(lambda: it.node_of("web"))
                await it.until(lambda: it.notes("web", "ExtenderFailed"))
                assert it.notes("web", "ExtenderFailed")[0] == reported
                assert it.notes("web", "FailedScheduling") == []
            else:
                await it.until(lambda: it.notes("web", "FailedScheduling"))
                assert it.notes("web", "FailedScheduling")[0] == reported
                assert it.notes("web", "ExtenderFailed") == []
                answers.update(likes("b"))
                await it.until(lambda: it.node_of("web"))
            assert it.node_of("web") == "b"
            failed = {"extender": extender.url, "verb": "filter"}
            assert daemon.metrics.registry.get_sample_value(
                "custom_scheduler_extender_failures_total", failed
            )


async def test_scores_outside_0_to_10_count(tmp_path: Path) -> None:
    """kube-scheduler's test TestSchedulerExtender has a score of 50."""
    fond = {**likes("a"), "rank": [{"Host": "a", "Score": 50}]}
    averse = {**likes("b"), "rank": [{"Host": "a", "Score": -30}, {"Host": "b", "Score": 10}]}
    async with (
        cluster(tmp_path) as it,
        scripted_extender(fond) as one,
        scripted_extender(averse) as other,
    ):
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(asking(one.url), asking(other.url))):
            it.add_pods(pod_object("web"))
            await it.until(lambda: it.node_of("web"))
            assert it.node_of("web") == "a"  # 5000 - 3000 for a, 1000 for b, and less than 1000 from plugins
            assert it.notes("web", "ExtenderFailed") == []


async def test_scores_beyond_64_bits_are_reported_and_ignored(tmp_path: Path) -> None:
    lying = {**likes("a"), "rank": [{"Host": "a", "Score": 2**62}]}
    async with (
        cluster(tmp_path) as it,
        scripted_extender(lying) as liar,
        scripted_extender(likes("b")) as honest,
    ):
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(asking(liar.url), asking(honest.url))):
            it.add_pods(pod_object("web"))
            await it.until(lambda: it.notes("web", "ExtenderFailed"))
            assert it.node_of("web") == "b"
            assert f'gave node "a" the weighted score {2**62 * 100}' in it.notes("web", "ExtenderFailed")[0]


async def test_events_during_a_request_to_an_extender_are_not_lost(tmp_path: Path) -> None:
    hangs = Hangs()
    asked: list[Any] = []

    def ask(said: Any) -> Any:
        asked.append(said)
        return hangs if len(asked) == 1 else {"NodeNames": said["NodeNames"]}

    async with cluster(tmp_path) as it, scripted_extender({**likes("late"), "filter": ask}) as extender:
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(asking(extender.url, ", ignorable: true"))) as daemon:
            it.add_pods(pod_object("first"))
            await it.until(lambda: asked)
            it.add_nodes(node_object("late"))
            it.add_pods(pod_object("second"))
            await asyncio.sleep(0.5)
            assert daemon.parts.cache.table.n_nodes == 2
            await it.until(lambda: it.node_of("first") and it.node_of("second"))
            assert it.node_of("second") == "late"
            hangs.until.set()


async def test_an_extended_resource_may_be_left_to_the_extender_that_manages_it(tmp_path: Path) -> None:
    managed = "{name: example.com/licence, ignoredByScheduler: true}"
    async with cluster(tmp_path) as it, scripted_extender(likes("b")) as extender:
        it.add_nodes(node_object("a"), node_object("b"))
        settings = asking(extender.url, f", managedResources: [{managed}]")
        async with it.daemon(configuration(settings)):
            licensed = {"limits": {"example.com/licence": "1"}, "requests": {"example.com/licence": "1"}}
            container = {"name": "c", "image": "nginx", "resources": licensed}
            it.add_pods(pod_object("plain"), pod_object("licensed", containers=[container]))
            await it.until(lambda: it.node_of("plain") and it.node_of("licensed"))
            assert it.node_of("licensed") == "b"
            assert [said["Pod"]["metadata"]["name"] for _, said in extender.asked] == ["licensed"] * 2


async def test_other_extenders_are_applied_without_a_restart(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        scripted_extender(likes("a")) as one,
        scripted_extender(likes("b")) as two,
    ):
        it.add_nodes(node_object("a"), node_object("b"))
        async with it.daemon(configuration(asking(one.url))) as daemon:
            it.add_pods(pod_object("first"))
            await it.until(lambda: it.node_of("first"))
            other = with_leader_election(parse(configuration(asking(two.url))), leader_elect=False)
            assert await daemon.reload(other) == ()
            it.add_pods(pod_object("second"))
            await it.until(lambda: it.node_of("second"))
            assert (it.node_of("first"), it.node_of("second")) == ("a", "b")


async def test_an_extender_removes_nodes_from_preemption(tmp_path: Path) -> None:
    def spare_a(said: Any) -> Any:
        victims = said["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {name: victims[name] for name in victims if name != "a"}}

    async with cluster(tmp_path, kubelet=True) as it, scripted_extender({"preempt": spare_a}) as extender:
        it.add_nodes(node_object("a", cpu="1"), node_object("b", cpu="1"))
        it.add_pods(pod_object("on-a", cpu="1", node="a"), pod_object("on-b", cpu="1", node="b", priority=5))
        settings = f"{{urlPrefix: {extender.url}, preemptVerb: preempt, nodeCacheCapable: true}}"
        async with it.daemon(configuration(settings)):
            it.add_pods(pod_object("important", cpu="1", priority=10))
            await it.until(lambda: it.node_of("important"))
            assert it.node_of("important") == "b"  # without a say it would have been a: its pod matters less
            names = {pod["metadata"]["name"] for pod in it.pods()}
            assert names == {"on-a", "important"}
            assert extender.asked[0][1]["NodeNameToMetaVictims"].keys() == {"a", "b"}


async def test_an_extender_without_a_pod_cache_gets_whole_victims_also_after_a_reload(
    tmp_path: Path,
) -> None:
    def all_may_go(said: Any) -> Any:
        return {
            "NodeNameToMetaVictims": {
                name: {"Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]]}
                for name, victims in said["NodeNameToVictims"].items()
            }
        }

    async with cluster(tmp_path, kubelet=True) as it, scripted_extender({"preempt": all_may_go}) as extender:
        it.add_nodes(node_object("a", cpu="1"))
        it.add_pods(pod_object("victim", cpu="1", node="a", annotations={"example.com/cost": "7"}))
        async with it.daemon() as daemon:
            await it.until(lambda: it.pod("victim")["status"]["phase"] == "Running")
            await daemon.reload(parse(configuration(f"{{urlPrefix: {extender.url}, preemptVerb: preempt}}")))
            whole = it.pod("victim")
            it.add_pods(pod_object("important", cpu="1", priority=10))
            await it.until(lambda: it.node_of("important"))

        (sent,) = extender.asked[0][1]["NodeNameToVictims"]["a"]["Pods"]
        assert sent["metadata"]["annotations"] == {"example.com/cost": "7"}
        assert sent["spec"] == whole["spec"]
        assert sent["status"]["phase"] == "Running"


async def test_an_extender_that_fails_keeps_pods_from_being_preempted(tmp_path: Path) -> None:
    answers: dict[str, Any] = {"preempt": 500}
    async with cluster(tmp_path, kubelet=True) as it, scripted_extender(answers) as extender:
        it.add_nodes(node_object("a", cpu="1"))
        it.add_pods(pod_object("on-a", cpu="800m", node="a"), pod_object("small", cpu="100m", node="a"))
        settings = f"{{urlPrefix: {extender.url}, preemptVerb: preempt, nodeCacheCapable: true}}"
        async with it.daemon(configuration(settings)):
            it.add_pods(pod_object("important", cpu="1", priority=10))
            await it.until(lambda: it.notes("important", "FailedScheduling"))
            assert (
                f'extender "{extender.url}": failed preempt' in it.notes("important", "FailedScheduling")[0]
            )
            assert "deletionTimestamp" not in it.pod("on-a")["metadata"]
            answers["preempt"] = lambda said: {"NodeNameToMetaVictims": said["NodeNameToMetaVictims"]}
            it.server.store.delete("pods", "small")  # too little, but worth another try
            await it.until(lambda: it.node_of("important"))


async def test_a_pod_rejected_by_an_extender_is_retried_after_any_change(tmp_path: Path) -> None:
    refusing = {**likes("a"), "filter": {"NodeNames": [], "FailedNodes": {"a": "not now"}}}
    async with cluster(tmp_path) as it, scripted_extender(refusing) as extender:
        it.add_nodes(node_object("a"))
        async with it.daemon(configuration(asking(extender.url))):
            it.add_pods(pod_object("web"))
            await it.until(lambda: "not now" in it.condition("web").get("message", ""))
            refusing.update(likes("a"))
            # A change that no plugin of the profile has asked for.
            it.server.store.patch("nodes", "a", {"metadata": {"annotations": {"turn": "2"}}})
            await it.until(lambda: it.node_of("web") == "a", seconds=30.0)
