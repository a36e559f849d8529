"""Our plugins as an extender, called by recorded requests and by our own daemon, in virtual time over real HTTP."""

from __future__ import annotations

import asyncio
import io
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from scheduler.daemon.app.extender.pages import ExtenderAddress
from scheduler.daemon.app.extender.snippet import snippet
from scheduler.daemon.server.extender import LONGEST_REQUEST_BYTES, Callers
from scheduler.errors import ConfigurationError
from scheduler.framework import (
    FilterPlugin,
    Outcomes,
    PermitPlugin,
    PostBindPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
)
from scheduler.tools.simulator.faults import binds, requests
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster
from tests.support.extender_service import extender_service
from tests.unit.daemon.metrics.exposition import families
from tests.unit.extensions.extenders.test_serving import ASKED, POD

if TYPE_CHECKING:
    from pathlib import Path

    from scheduler.framework import CycleState, NodeInfo
    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows, Snapshot
    from tests.support.daemon_harness import Cluster

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def only(*enabled: str) -> str:
    """Return a configuration whose one profile has these plugins and no others."""
    return HEAD + "profiles:\n" + profile("licences", *enabled)


def profile(name: str, *enabled: str) -> str:
    names = ", ".join(f"{{name: {each}}}" for each in ("PrioritySort", "DefaultBinder", *enabled))
    return f"- schedulerName: {name}\n  plugins: {{multiPoint: {{disabled: [{{name: '*'}}], enabled: [{names}]}}}}\n"


class OneEach(FilterPlugin):
    """One pod that wants a licence on each node."""

    name = "OneEach"
    api_version = 1

    def filter_node(self, _state: CycleState, pod: PodInfo, node: NodeInfo) -> Status | None:
        holders = [each.name for each in node.pods if "licence" in each.pod.metadata.labels]
        if holders and "licence" in pod.pod.metadata.labels:
            return Status.unschedulable(f"the licence is taken by {holders[0]}")
        return None


def licensed(name: str, **fields: Any) -> dict[str, Any]:
    return pod_object(name, labels={"licence": "cad"}, scheduler_name="default-scheduler", **fields)


def stored(it: Cluster, pod: dict[str, Any]) -> dict[str, Any]:
    """Create a pod and return it as the API server has it."""
    it.add_pods(pod)
    return it.pod(pod["metadata"]["name"])


LICENCES = {"plugins": {"OneEach": OneEach}}


async def test_pods_on_nodes_are_counted_as_the_watch_shows_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        it.add_pods(licensed("first", node="a"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            answer = await asked.post("filter", {"Pod": licensed("next"), "NodeNames": ["a", "b"]})
            assert answer["NodeNames"] == ["b"]
            assert answer["FailedNodes"] == {"a": "the licence is taken by first"}
            it.server.store.delete("pods", "first", grace_period_seconds=0)
            await it.until(lambda: asked.service.parts.pods.get("default/first") is None)
            assert await asked.passes(licensed("next"), "a", "b") == ["a", "b"]


class Counting(FilterPlugin):
    """Counts the nodes that it is shown."""

    name = "Counting"
    api_version = 1
    shown: ClassVar[list[int]] = []

    def filter(self, _state: CycleState, _pod: PodInfo, snapshot: Snapshot, rows: Rows) -> Outcomes:
        self.shown.append(len(rows))
        return Outcomes.all_pass(snapshot.n_nodes)


class Endless(FilterPlugin, ScorePlugin):
    """Goes on and on for pods that are evil: at Filter, or else at Score."""

    name = "Endless"
    api_version = 1

    def filter_node(self, _state: CycleState, pod: PodInfo, _node: NodeInfo) -> None:
        while pod.labels.get("evil") == "filter":
            pass

    def score_node(self, _state: CycleState, pod: PodInfo, _node: NodeInfo) -> int:
        while pod.labels.get("evil") == "score":
            pass
        return 1


@pytest.mark.run(by=asyncio.run)
async def test_an_endless_plugin_is_stopped_and_the_next_request_is_answered(tmp_path: Path) -> None:
    configuration = "attemptBudget: 50ms\n" + only("Endless")

    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, configuration, plugins={"Endless": Endless}) as asked:
            asked.service.parts.budget.take_clock()
            evil = stored(it, pod_object("evil", labels={"evil": "filter"}, scheduler_name="licences"))
            said = {"Pod": evil, "NodeNames": ["a"]}
            good = pod_object("good")
            stopped = "over budget: stopped: more than 0.05s had passed"
            error = f'profile licences: running "Endless" filter plugin: {stopped}'

            assert (await asked.post("filter", said))["Error"] == error
            assert await asked.passes(good, "a") == ["a"]
            assert await asked.bind(evil, "a") == error
            assert await asked.passes(good, "a") == ["a"]
            victims = {"Pod": evil, "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "1"}]}}}
            assert await asked.answer("POST", "preempt", victims) == (500, f"{error}\n")
            assert await asked.passes(good, "a") == ["a"]
            evil["metadata"]["labels"]["evil"] = "score"
            error = f'profile licences: running Score plugins: plugin "Endless" failed with: {stopped}'
            assert await asked.answer("POST", "prioritize", said) == (500, f"{error}\n")
            assert await asked.passes(good, "a") == ["a"]
            asked.service.parts.budget.give_clock_back()


async def test_a_pod_is_counted_from_its_binding_on_and_a_second_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        known = Callers(token=b"secret")  # strangers' next requests wait for a moment
        async with extender_service(it, only("OneEach"), callers=known, **LICENCES) as asked:
            pods = [stored(it, licensed(name)) for name in ("first", "second")]
            # Both were filtered before either was bound, as kube-scheduler does it.
            assert [await asked.passes(pod, "a") for pod in pods] == [["a"], ["a"]]
            errors = await asyncio.gather(*(asked.bind(pod, "a") for pod in pods))
            assert sorted(errors) == [
                "",
                "node a cannot run pod default/second any more: the licence is taken by first",
            ]
            assert (it.node_of("first"), it.node_of("second")) == ("a", "")
            asked.service.parts.cache.check()
            assert await asked.bind(pods[1], "b") == ""
            assert it.node_of("second") == "b"


async def test_a_binding_that_the_api_server_refuses_is_reported_and_forgotten(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            pod = stored(it, licensed("gated", gates=["wait"]))
            assert "gated" in await asked.bind(pod, "a")
            assert asked.service.parts.cache.counts()["assumed_pods"] == 0
            assert await asked.passes(licensed("next"), "a") == ["a"]


async def test_invalid_bindings_are_refused_with_a_message(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            pod = stored(it, licensed("web"))
            assert "node(s) were not known" in await asked.bind(pod, "nowhere")
            other = {**pod, "metadata": {**pod["metadata"], "uid": "of-another"}}
            assert "has been replaced" in await asked.bind(other, "a")
            assert await asked.bind(pod, "a") == ""
            assert await asked.bind(pod, "a") == ""  # a repetition finds it done
            await it.until(lambda: asked.service.parts.pods.get("default/web").node_name)  # type: ignore[union-attr]
            assert await asked.bind(pod, "b") == "pod default/web is bound to node a, not to b"
            gone = licensed("gone")
            assert await asked.bind(gone, "a") == "pod default/gone is gone"
            asked.service.parts.cache.check()


async def test_a_terminating_or_finished_pod_is_not_bound(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            going = stored(it, {**licensed("going"), "metadata": finalized("going")})
            it.server.store.delete("pods", "going")
            await it.until(
                lambda: (pod := asked.service.parts.pods.get("default/going")) and pod.is_terminating
            )
            assert await asked.bind(going, "a") == "pod default/going is being deleted"
            ended = stored(it, licensed("ended"))
            it.server.store.patch("pods", "ended", {"status": {"phase": "Failed"}}, subresource="status")
            await asyncio.sleep(1)
            assert await asked.bind(ended, "a") == "pod default/ended has ended"


def finalized(name: str) -> dict[str, Any]:
    return {**licensed(name)["metadata"], "finalizers": ["example.com/wait"]}


async def test_one_pod_is_bound_once_at_a_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            pod = stored(it, licensed("web"))
            it.server.faults.delay(1.0, binds)
            errors = await asyncio.gather(asked.bind(pod, "a"), asked.bind(pod, "b"))
            assert sorted(errors) == ["", "pod default/web is being bound already"]
            asked.service.parts.cache.check()


async def test_a_bind_with_a_lost_response_is_found_to_have_taken_effect(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            pod = stored(it, licensed("web"))
            it.server.faults.lose_answers(times=1)
            assert await asked.bind(pod, "a") == ""
            assert it.node_of("web") == "a"


class Books(PreFilterPlugin, ReservePlugin, PreBindPlugin, PermitPlugin, PostBindPlugin):
    """Notes what it is asked; PreBind fails for pods labelled so."""

    name = "Books"
    api_version = 1
    said: list[str] = []  # noqa: RUF012 - of one test

    def pre_filter(self, state: CycleState, _pod: PodInfo, snapshot: Snapshot) -> None:
        state.write(self.name, sum(len(list(snapshot.pods_on(row))) for row in range(snapshot.n_nodes)))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        beside = state.read(self.name, int)
        self.said.append(f"reserve {pod.name} on {node_name} beside {beside}")

    def unreserve(self, _state: CycleState, pod: PodInfo, _node_name: str) -> None:
        self.said.append(f"unreserve {pod.name}")

    def permit(self, _state: CycleState, pod: PodInfo, _node_name: str) -> None:
        self.said.append(f"permit {pod.name}")

    async def pre_bind(self, _state: CycleState, pod: PodInfo, _node_name: str) -> Status | None:
        self.said.append(f"pre_bind {pod.name}")
        return Status.unschedulable("no disk") if "bad" in pod.pod.metadata.labels else None

    async def post_bind(self, _state: CycleState, pod: PodInfo, _node_name: str) -> None:
        self.said.append(f"post_bind {pod.name}")


async def test_binding_runs_the_profile_from_reserve_on_and_undoes_it_if_it_fails(tmp_path: Path) -> None:
    Books.said.clear()
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, only("Books"), plugins={"Books": Books}) as asked:
            assert await asked.bind(stored(it, pod_object("good")), "a") == ""
            error = await asked.bind(stored(it, pod_object("bad", labels={"bad": ""})), "a")
            assert error == "pod default/bad: no disk"
            assert it.node_of("bad") == ""
            assert Books.said == [
                "reserve good on a beside 0", "pre_bind good", "post_bind good", "reserve bad on a beside 1", "pre_bind bad", "unreserve bad",
            ]  # fmt: skip
            await it.until(
                lambda: asked.service.parts.cache.counts() == {"nodes": 1, "pods": 1, "assumed_pods": 0}
            )


async def test_capacity_that_kube_scheduler_preempted_for_a_pod_is_kept_for_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a", cpu="1"))
        async with extender_service(it, only("NodeResourcesFit")) as asked:
            urgent = stored(it, licensed("urgent", cpu="1", priority=10))
            status = {"status": {"nominatedNodeName": "a"}}
            it.server.store.patch("pods", "urgent", status, subresource="status")
            await it.until(lambda: asked.service.parts.pods.get("default/urgent"))
            await it.until(
                lambda: asked.service.parts.pods.get("default/urgent").pod.status.nominated_node_name
            )  # type: ignore[union-attr]
            assert await asked.passes(licensed("lesser", cpu="1"), "a") == []
            assert await asked.passes(urgent, "a") == ["a"]


SEVERAL = HEAD + "profiles:\n" + profile("open") + profile("strict", "OneEach")


async def test_a_request_uses_the_profile_of_the_pod_or_the_named_one(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        it.add_pods(licensed("first", node="a"))
        mine = {
            name: licensed("x") | {"spec": {"schedulerName": name}} for name in ("open", "strict", "other")
        }
        async with extender_service(it, SEVERAL, **LICENCES) as asked:
            assert await asked.passes(mine["open"], "a") == ["a"]
            assert await asked.passes(mine["strict"], "a") == []
            answer = await asked.post("filter", {"Pod": mine["other"], "NodeNames": ["a"]})
            assert answer["Error"] == (
                "pod default/x: spec.schedulerName is other, the profiles of the extender are open, strict; "
                "give it --profile to evaluate all pods with one of them"
            )
        async with extender_service(it, SEVERAL, profile="strict", **LICENCES) as asked:
            assert [await asked.passes(pod, "a") for pod in mine.values()] == [[], [], []]
        with pytest.raises(ConfigurationError, match=r"--profile: there is no absent; there is open, strict"):
            async with extender_service(it, SEVERAL, profile="absent", **LICENCES):
                raise AssertionError("it was served")


async def test_requests_fail_until_the_cluster_is_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        it.server.faults.refuse(500, requests(resource="nodes"), times=3)
        async with extender_service(it, only("OneEach"), waits=False, **LICENCES) as asked:
            said = {"Pod": licensed("x"), "NodeNames": ["a"]}
            reported = "the extender has not read the cluster yet, or its plugins their data"
            assert (await asked.post("filter", said))["Error"] == reported
            assert await asked.answer("POST", "prioritize", said) == (500, f"{reported}\n")
            assert (await asked.answer("GET", "readyz"))[0] == 500
            assert (await asked.answer("GET", "healthz"))[0] == 200
            await it.until(lambda: asked.service.has_synced)
            assert (await asked.answer("GET", "readyz"))[0] == 200
            assert await asked.passes(licensed("x"), "a") == ["a"]
            asked.stop.set()
            assert (await asked.answer("GET", "readyz"))[0] == 500


class Late(FilterPlugin):
    """Knows after a while which node is good."""

    name = "Late"
    api_version = 1
    refresh_seconds = 60.0
    seconds = 3.0
    good = ""

    async def refresh(self) -> None:
        await asyncio.sleep(self.seconds)
        self.good = "b"

    def filter_node(self, _state: CycleState, _pod: PodInfo, node: NodeInfo) -> Status | None:
        return None if node.name == self.good else Status.unschedulable("not good")


class VeryLate(Late):
    """Does not come to know it in time."""

    seconds = 1000.0


async def test_requests_wait_a_bounded_time_for_the_data_of_plugins(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b"))
        for plugin, waits, passing in ((Late, 3, ["b"]), (VeryLate, 10, [])):
            began = asyncio.get_running_loop().time()
            async with extender_service(it, only("Late"), plugins={"Late": plugin}) as asked:
                assert asyncio.get_running_loop().time() - began == pytest.approx(waits, abs=0.5)
                assert await asked.passes(licensed("x"), "a", "b") == passing


async def test_odd_requests_are_refused_with_a_message_and_counted(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"))
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            whole = {
                "Pod": licensed("x"),
                "Nodes": {"metadata": {}, "items": [node_object("a")]},
                "NodeNames": None,
            }
            answer = await asked.post("filter", whole)
            assert "set nodeCacheCapable: true" in answer["Error"]
            assert answer["NodeNames"] is None
            status, text = await asked.answer("POST", "prioritize", whole)
            assert (status, "set nodeCacheCapable: true" in text) == (400, True)
            assert "is no JSON object" in (await asked.post("filter", b"<html>"))["Error"]
            assert "is no JSON object" in (await asked.post("bind", b""))["Error"]
            assert (await asked.answer("POST", "preempt", b"{}"))[0] == 400
            huge = io.BytesIO(b" " * (LONGEST_REQUEST_BYTES + 1))
            assert "set nodeCacheCapable: true" in (await asked.post("filter", huge))["Error"]
            assert await asked.answer("GET", "filter") == (405, "filter takes POST\n")
            for method in ("POST", "GET"):
                assert await asked.answer(method, "predicates") == (
                    404,
                    "there is filter, prioritize, preempt, bind\n",
                )
            assert await asked.passes(licensed("x"), "a", "gone") == ["a"]
            _, text = await asked.answer("GET", "metrics")
            shown = families(text)
            for verb, result, number in (
                ("filter", "invalid", 3),
                ("filter", "success", 1),
                ("bind", "invalid", 1),
                ("prioritize", "invalid", 1),
            ):
                name = "custom_scheduler_extender_requests_total"
                assert shown[name].series[f'{name}{{result="{result}",verb="{verb}"}}'] == number
            name = "custom_scheduler_extender_request_duration_seconds"
            assert shown[name].series[f'{name}_count{{verb="filter"}}'] == 4
            name = "custom_scheduler_extender_unknown_nodes_total"
            assert shown[name].series[name] == 1


async def test_requests_of_kube_scheduler_get_responses_that_it_can_read(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("node-1"), node_object("node-2", cpu="100m"))
        async with extender_service(it, only("NodeResourcesFit")) as asked:
            assert await asked.answer("POST", "filter", ASKED) == (
                200,
                (
                    '{"Nodes":null,"NodeNames":["node-1"],"FailedNodes":{},'
                    '"FailedAndUnresolvableNodes":{"node-2":"Insufficient cpu"},"Error":""}'
                ),
            )
            status, text = await asked.answer("POST", "prioritize", ASKED)
            assert (status, text) == (200, '[{"Host":"node-1","Score":10},{"Host":"node-2","Score":5}]')
            victims = b'{"Pod":%b,"NodeNameToVictims":null,"NodeNameToMetaVictims":%b}' % (
                POD,
                b'{"node-1":{"Pods":[{"UID":"u"}],"NumPDBViolations":1},"node-2":{"Pods":[{"UID":"v"}]}}',
            )
            assert await asked.answer("POST", "preempt", victims) == (
                200,
                '{"NodeNameToMetaVictims":{"node-1":{"Pods":[{"UID":"u"}],"NumPDBViolations":1}}}',
            )
            bound = b'{"PodName":"a","PodNamespace":"default","PodUID":"u","Node":"node-1"}'
            assert await asked.answer("POST", "bind", bound) == (200, '{"Error":"pod default/a is gone"}')


async def test_a_victim_that_is_named_twice_is_removed_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a", cpu="1"))
        uid = stored(it, pod_object("old", cpu="1", node="a"))["metadata"]["uid"]
        async with extender_service(it, only("NodeResourcesFit")) as asked:
            victims = {"a": {"Pods": [{"UID": uid}, {"UID": uid}], "NumPDBViolations": 0}}
            said = {"Pod": pod_object("web", cpu="1"), "NodeNameToMetaVictims": victims}
            left = {"a": {"Pods": [{"UID": uid}], "NumPDBViolations": 0}}
            assert await asked.post("preempt", said) == {"NodeNameToMetaVictims": left}


async def test_the_bind_verb_is_served_only_if_it_is_enabled(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as it,
        extender_service(it, only("OneEach"), binds=False, **LICENCES) as asked,
    ):
        status, text = await asked.answer("POST", "bind", b"{}")
        assert (status, text) == (
            404,
            "there is filter, prioritize, preempt; bind is served with --bind only\n",
        )


async def test_our_daemon_places_pods_by_the_verdicts_of_the_extender(tmp_path: Path) -> None:
    prefer = tmp_path / "prefer_b.py"
    prefer.write_text(
        "from scheduler.framework import FilterPlugin, ScorePlugin, Status\n\n\n"
        "class PreferB(FilterPlugin, ScorePlugin):\n"
        '    name = "PreferB"\n    api_version = 1\n\n'
        "    def filter_node(self, state, pod, node):\n"
        '        return Status.unschedulable("not a, please") if node.name == "a" else None\n\n'
        "    def score_node(self, state, pod, node):\n"
        '        return 100 if node.name == "b" else 40\n'
    )
    async with cluster(tmp_path) as it:
        it.add_nodes(node_object("a"), node_object("b", cpu="1"), node_object("c"))
        async with extender_service(it, only(str(prefer))) as asked:
            configuration = (
                f"{HEAD}extenders:\n- {{urlPrefix: {asked.url}, filterVerb: filter, prioritizeVerb: prioritize, "
                "bindVerb: bind, preemptVerb: preempt, weight: 10, nodeCacheCapable: true}\n"
            )
            async with it.daemon(configuration):
                it.add_pods(pod_object("web", cpu="500m"))
                await it.until(lambda: it.node_of("web"))
                assert it.node_of("web") == "b"
                it.add_pods(pod_object("second", cpu="800m"))  # b is too small by now
                await it.until(lambda: it.node_of("second"))
                assert it.node_of("second") == "c"
                it.server.store.patch("nodes", "c", {"spec": {"unschedulable": True}})
                it.add_pods(pod_object("third", cpu="800m"))
                await it.until(lambda: it.notes("third", "FailedScheduling"))
                assert "1 not a, please" in it.notes("third", "FailedScheduling")[0]


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        pytest.param(0, 100, id="as kube-scheduler by default"),
        pytest.param(100, 200, id="as the snippet has it"),
    ],
)
async def test_a_filter_gets_all_feasible_nodes_under_the_percentage_of_the_snippet(
    tmp_path: Path, share: int, shown: int
) -> None:
    Counting.shown.clear()
    async with cluster(tmp_path) as it:
        it.add_nodes(*(node_object(f"n{number}") for number in range(200)))
        async with extender_service(it, only("Counting"), plugins={"Counting": Counting}) as asked:
            where = ExtenderAddress("::1", 0, 1, asked.url, answers_anybody=True)
            text = snippet(asked.service.judging, where)
            assert "percentageOfNodesToScore: 100\n" in text
            async with it.daemon(HEAD + text.replace("Score: 100", f"Score: {share}")):
                it.add_pods(pod_object("web"))
                await it.until(lambda: it.node_of("web"))
                assert Counting.shown == [shown]


async def test_our_daemon_preempts_where_the_extender_then_lets_the_pod_fit(tmp_path: Path) -> None:
    async with cluster(tmp_path, kubelet=True) as it:
        it.add_nodes(node_object("a", cpu="1"), node_object("b", cpu="1"))
        # On a the daemon would preempt `rest`, which is less important; but the licence is the other's.
        it.add_pods(
            licensed("holder", node="a", cpu="100m", priority=9),
            pod_object("rest", node="a", cpu="900m"),
            licensed("all-of-b", node="b", cpu="1", priority=9),
        )
        async with extender_service(it, only("OneEach"), **LICENCES) as asked:
            configuration = (
                f"{HEAD}extenders:\n- {{urlPrefix: {asked.url}, preemptVerb: preempt, filterVerb: filter, "
                "nodeCacheCapable: true}\n"
            )
            async with it.daemon(configuration):
                it.add_pods(pod_object("urgent", cpu="900m", priority=100, labels={"licence": "cad"}))
                await it.until(lambda: it.node_of("urgent"), seconds=120)
                assert it.node_of("urgent") == "b"
                assert it.node_of("rest") == "a"
