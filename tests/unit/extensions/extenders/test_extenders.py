"""Extenders: the calls of one, the order of the calls, and the combination of the responses."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiohttp import web

from scheduler.configuration.types import Extender, ManagedResource
from scheduler.extensions.extender_wire import ExtenderError
from scheduler.extensions.extenders import LEFT_OUT, Extenders, HttpExtender
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.status import Code
from scheduler.objects.wording import Duration
from scheduler.urls import shown_url
from tests.support.builders import node, pod
from tests.support.extender_server import Hangs, scripted_extender
from tests.support.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Snapshot
    from tests.support.extender_server import ScriptedExtender

MIB = 1024 * 1024


@asynccontextmanager
async def very_long() -> AsyncIterator[str]:
    """Serve a response that is very long."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(64):
            await answer.write(b" " * MIB)
        return answer

    runner = web.ServerRunner(web.Server(handle))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield site.name
    finally:
        await runner.cleanup()


def asking(url: str) -> HttpExtender:
    return HttpExtender(
        Extender(url_prefix=url, filter_verb="filter", node_cache_capable=True), "extenders[0]"
    )


async def test_a_very_long_response_is_an_error_and_not_read_to_the_end() -> None:
    async with very_long() as url:
        extender = asking(url)
        with pytest.raises(ExtenderError, match=r"the response has more than 1\d{6} bytes"):
            await extender.filter(pod("web"), [node("n1")])
        await extender.close()


async def test_a_stored_error_retains_nothing_of_the_response() -> None:
    async with very_long() as url:
        extender = asking(url)
        with pytest.raises(ExtenderError) as caught:
            await extender.filter(pod("web"), [node("n1")])
        await extender.close()

    error: BaseException | None = caught.value
    kept = 0
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            pieces = [each for each in frame.f_locals.values() if isinstance(each, list)]
            kept += sum(len(piece) for each in pieces for piece in each if isinstance(piece, bytes))
            kept += sum(len(each) for each in frame.f_locals.values() if isinstance(each, bytes))
        error = error.__cause__
    assert kept < MIB


async def test_a_response_may_repeat_the_names_of_its_request_with_reasons() -> None:
    names = [f"n{number}" for number in range(10_000)]
    answer = {"NodeNames": names, "FailedNodes": dict.fromkeys(names, "x" * 500)}
    async with scripted_extender({"filter": answer}) as server:
        extender = asking(server.url)
        found = await extender.filter(pod("web"), [node(name) for name in names])
        assert len(found.failed) == len(names)
        await extender.close()


POD = pod("web")
FAILURES: dict[str, Any] = {
    "an HTTP error": (500, "failed ask with extender at URL {url}/ask, code 500"),
    "no JSON": (b"oops", 'answered what is no JSON: "oops"'),
    "another type": ("oops", 'answered "oops", expected '),
    "silence": (Hangs, "POST {url}/ask: no answer within 0.2 s"),
}


class Heard:
    def __init__(self) -> None:
        self.failures: list[tuple[str, str, str]] = []
        self.fatal: list[bool] = []

    def extender_failed(
        self, extender: str, verb: str, pod: PodInfo, error: ExtenderError, *, is_fatal: bool
    ) -> None:
        self.failures.append((verb, pod.key, str(error)))
        self.fatal.append(is_fatal)


@asynccontextmanager
async def chain_of(
    *extenders: tuple[dict[str, Any], dict[str, Any]],
) -> AsyncIterator[tuple[Extenders, list[ScriptedExtender], Heard]]:
    """Serve extenders, each (responses, further settings), and yield the chain that calls them."""
    heard = Heard()
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(scripted_extender(answers)) for answers, _ in extenders]
        settings = [
            Extender(
                **{"url_prefix": server.url, "node_cache_capable": True, "weight": 1, **more},
            )
            for server, (_, more) in zip(served, extenders, strict=True)
        ]
        chain = Extenders(settings, heard)
        stack.push_async_callback(chain.close)
        yield chain, served, heard


def three_nodes() -> Snapshot:
    return snapshot_of("n1", "n2", "n3", pods=[pod("old", node="n1", uid="uid-old")])


FILTER = {"filter_verb": "ask"}
RANK = {"prioritize_verb": "ask"}


async def filtered(chain: Extenders) -> tuple[list[int], Diagnosis]:
    snapshot = three_nodes()
    diagnosis = Diagnosis.blank(3)
    rows = await chain.filter(POD, snapshot, snapshot.all_rows, diagnosis)
    assert diagnosis.feasible.tolist() == rows.tolist()
    return rows.tolist(), diagnosis


async def scored(
    chain: Extenders, rows: Sequence[int] = (0, 1, 2), totals: Sequence[int] = (0, 0, 0)
) -> dict[str, list[int]]:
    """Return extender -> the weighted scores of rows, which have these totals from plugins."""
    snapshot = three_nodes()
    found = await chain.scores(POD, snapshot, snapshot.all_rows[[*rows]], lambda: np.array(totals)[[*rows]])
    return {name: scores.tolist() for name, scores in found.items()}


async def test_each_filter_evaluates_the_result_of_the_previous_one() -> None:
    first = {"ask": {"NodeNames": ["n3", "n1"], "FailedNodes": {"n2": "too warm"}}}
    second = {"ask": {"NodeNames": ["n3"], "FailedAndUnresolvableNodes": {"n1": "no licence"}}}
    async with chain_of((first, FILTER), (second, FILTER)) as (chain, served, _):
        rows, diagnosis = await filtered(chain)
        assert rows == [2]
        assert served[1].asked[0][1]["NodeNames"] == ["n1", "n3"]
    assert diagnosis.outcome_of(1) == ("Extender", (Code.UNSCHEDULABLE, ("too warm",)))
    assert diagnosis.outcome_of(0) == ("Extender", (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("no licence",)))
    assert diagnosis.unschedulable_plugins == {"Extender"}


async def test_an_unresolvable_rejection_takes_precedence() -> None:
    both = {"ask": {"NodeNames": [], "FailedNodes": {"n1": "a"}, "FailedAndUnresolvableNodes": {"n1": "b"}}}
    async with chain_of((both, FILTER)) as (chain, _, _):
        _, diagnosis = await filtered(chain)
    assert diagnosis.outcome_of(0) == ("Extender", (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("b",)))
    assert diagnosis.outcome_of(2) == ("Extender", (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (LEFT_OUT,)))


async def test_an_extender_is_not_called_without_nodes() -> None:
    async with chain_of(({"ask": {"NodeNames": []}}, FILTER), ({"ask": {}}, FILTER)) as (chain, served, _):
        assert (await filtered(chain))[0] == []
        assert served[1].asked == []


async def test_whole_nodes_are_sent_to_an_extender_without_a_node_cache() -> None:
    answer = {"ask": lambda said: {"Nodes": {"items": said["Nodes"]["items"][:1]}}}
    async with chain_of((answer, {**FILTER, "node_cache_capable": False})) as (chain, served, _):
        assert (await filtered(chain))[0] == [0]
        assert served[0].asked[0][1]["NodeNames"] is None


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not ignorable"])
async def test_a_filter_that_fails_ends_the_attempt_unless_it_is_ignorable(
    failure: tuple[Any, str], ignorable: bool
) -> None:
    answer, problem = failure
    settings = {**FILTER, "ignorable": ignorable, "http_timeout": Duration(200_000_000)}
    script = {"ask": answer() if isinstance(answer, type) else answer}
    async with chain_of((script, settings)) as (chain, served, heard):
        expected = f'extender "{served[0].url}": {problem.format(url=served[0].url)}'
        if ignorable:
            assert (await filtered(chain))[0] == [0, 1, 2]
        else:
            with pytest.raises(ExtenderError, match="extender"):
                await filtered(chain)
        ((verb, key, error),) = heard.failures
    assert (verb, key) == ("filter", "default/web")
    assert heard.fatal == [not ignorable]
    assert error.startswith(expected)


async def test_an_unreachable_extender_is_named() -> None:
    chain = Extenders([Extender(url_prefix="http://127.0.0.1:1/", **FILTER)], Heard())
    with pytest.raises(
        ExtenderError, match=r'^extender "http://127.0.0.1:1/": POST http://127.0.0.1:1/ask: '
    ):
        await filtered(chain)
    await chain.close()


@pytest.mark.parametrize("host", ["double..dot", f"{'long' * 16}.example", "user:€@127.0.0.1:1"])
def test_an_invalid_url_is_reported(host: str) -> None:
    url, heard = f"http://{host}", Heard()

    async def ask() -> None:
        settings = Extender(url_prefix=url, ignorable=True, weight=1, **FILTER, **RANK)
        chain = Extenders([settings], heard)
        rows, _ = await filtered(chain)
        assert rows == [0, 1, 2]
        assert await scored(chain) == {}
        await chain.close()

    asyncio.run(ask())  # names are resolved in a thread, which virtual time does not wait for
    shown = shown_url(url)
    reported = f'extender "{shown}": POST {shown}/ask: '
    assert [verb for verb, _, problem in heard.failures if problem.startswith(reported)] == [
        "filter",
        "prioritize",
    ]


async def test_priorities_are_weighted_and_brought_to_the_scale_of_plugins() -> None:
    first = {
        "ask": [{"Host": "n1", "Score": 10}, {"Host": "n3", "Score": 1}, {"Host": "unknown", "Score": 9}]
    }
    second = {"ask": [{"Host": "n3", "Score": 5}]}
    async with chain_of((first, {**RANK, "weight": 3}), (second, RANK)) as (chain, served, _):
        assert await scored(chain, rows=(0, 2)) == {served[0].url: [300, 30], served[1].url: [0, 50]}


async def test_all_priorities_are_requested_concurrently() -> None:
    hangs = Hangs()  # the first answers only after the second was called

    def second(_: Any) -> Any:
        hangs.until.set()
        return [{"Host": "n1", "Score": 2}]

    settings = {**RANK, "http_timeout": Duration(10**9)}
    async with chain_of(({"ask": hangs}, settings), ({"ask": second}, settings)) as (chain, served, heard):
        assert await scored(chain) == {served[1].url: [20, 0, 0]}
        assert heard.failures == [
            ("prioritize", "default/web", f'extender "{served[0].url}": answered {{}}, expected a list')
        ]


async def test_invalid_priorities_of_an_extender_are_ignored() -> None:
    lying = {"ask": [{"Host": "n1", "Score": "99"}]}
    honest = {"ask": [{"Host": "n2", "Score": 1}]}
    async with chain_of((lying, RANK), (honest, RANK)) as (chain, served, heard):
        assert await scored(chain) == {served[1].url: [0, 10, 0]}
    assert heard.failures[0][2].endswith('answered "99" at [0].Score, expected an integer')
    assert heard.fatal == [False]


async def test_priorities_have_no_range() -> None:
    """kube-scheduler 1.36, schedule_one.go, prioritizeNodes: the score times the weight times 10, without a check."""
    answer = {"ask": [{"Host": "n1", "Score": 50}, {"Host": "n2", "Score": -3}]}
    async with chain_of((answer, {**RANK, "weight": 10})) as (chain, served, heard):
        assert await scored(chain) == {served[0].url: [5000, -300, 0]}
        assert heard.failures == []


LARGEST = (1 << 63) - 1
# The last digit of the largest total is 7; scores of extenders are multiplied by 10.
TOO_LARGE = {
    "the weighted score": ([{"Host": "n1", "Score": LARGEST}], LARGEST * 10),
    "the lowest score": ([{"Host": "n1", "Score": -LARGEST}], -LARGEST * 10),
    "the sum of two scores": ([{"Host": "n1", "Score": LARGEST // 10}, {"Host": "n1", "Score": 1}], LARGEST // 10 * 10 + 10),
    "the total with plugins": ([{"Host": "n1", "Score": LARGEST // 10}], LARGEST // 10 * 10),
}  # fmt: skip


@pytest.mark.parametrize("case", TOO_LARGE.values(), ids=TOO_LARGE)
async def test_an_extender_fails_if_a_total_exceeds_64_bits(case: tuple[Any, int]) -> None:
    answer, weighted = case
    other = {"ask": [{"Host": "n1", "Score": 2}]}
    async with chain_of(({"ask": answer}, RANK), (other, RANK)) as (chain, served, heard):
        assert await scored(chain, totals=(8, 0, 0)) == {served[1].url: [20, 0, 0]}
        problem = f'gave node "n1" the weighted score {weighted}, with which its total exceeds 64 bits'
        assert heard.failures == [("prioritize", "default/web", f'extender "{served[0].url}": {problem}')]


async def test_an_extender_fails_if_its_score_exceeds_64_bits_after_another_one() -> None:
    first, second = ({"ask": [{"Host": "n1", "Score": LARGEST // 10}]} for _ in range(2))
    async with chain_of((first, RANK), (second, RANK)) as (chain, served, heard):
        assert await scored(chain) == {served[0].url: [LARGEST // 10 * 10, 0, 0]}
        assert len(heard.failures) == 1


async def test_only_pods_that_request_a_managed_resource_are_sent() -> None:
    gpu = ManagedResource(name="example.com/gpu")
    settings = {**FILTER, "managed_resources": (gpu,)}
    limited = {"containers": [{"name": "c", "resources": {"limits": {"example.com/gpu": "1"}}}]}
    in_init = {"initContainers": [{"name": "i", "resources": {"requests": {"example.com/gpu": "1"}}}]}
    async with chain_of(({"ask": {}}, {**settings, "preempt_verb": "preempt"})) as (chain, served, _):
        assert (await filtered(chain))[0] == [0, 1, 2]
        assert served[0].asked == []
        assert not chain.may_change_victims(POD)
        assert chain.may_change_victims(pod("a", requests={"example.com/gpu": "1"}))
        assert chain.may_change_victims(pod("b", **limited))
        assert chain.may_change_victims(pod("c", **in_init))


async def test_the_first_binder_that_works_binds() -> None:
    broken, works = {"bind": {"Error": "no"}}, {"bind": {}}
    bind = {"bind_verb": "bind"}
    ignorable = {**bind, "ignorable": True}
    async with chain_of((broken, ignorable), (works, ignorable)) as (chain, served, heard):
        assert await chain.bind(POD, "n1")
        assert served[1].asked[0][1]["Node"] == "n1"
        assert heard.failures == [("bind", "default/web", f'extender "{served[0].url}": no')]
    async with chain_of((broken, bind)) as (chain, _, _):
        with pytest.raises(ExtenderError, match=r"no$"):
            await chain.bind(POD, "n1")
    async with chain_of((broken, ignorable)) as (chain, _, _):
        assert not await chain.bind(POD, "n1")


PREEMPT = {"preempt_verb": "ask"}


async def victims_of(chain: Extenders) -> dict[str, tuple[list[str], int]]:
    snapshot = three_nodes()
    old = pod("old", node="n1", uid="uid-old")
    found = await chain.preempt(POD, snapshot, {"n1": ([old], 1), "n2": ([], 0)})
    return {name: ([each.name for each in pods], violations) for name, (pods, violations) in found.items()}


async def test_an_extender_may_take_nodes_from_preemption() -> None:
    keeps = {"ask": {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "uid-old"}], "NumPDBViolations": 0}}}}
    nothing: dict[str, Any] = {"ask": {}}
    async with chain_of((keeps, PREEMPT)) as (chain, served, _):
        assert chain.may_change_victims(POD)
        assert await victims_of(chain) == {"n1": (["old"], 0)}
        sent = served[0].asked[0][1]["NodeNameToMetaVictims"]
        assert sent["n1"] == {"Pods": [{"UID": "uid-old"}], "NumPDBViolations": 1}
    async with chain_of((nothing, PREEMPT), (keeps, PREEMPT)) as (chain, served, _):
        assert await victims_of(chain) == {}
        assert served[1].asked == []


LIES = {
    "an unknown node": ({"n9": {"Pods": [{"UID": "x"}]}}, 'claims to preempt on unknown node "n9"'),
    "a pod from elsewhere": (
        {"n2": {"Pods": [{"UID": "uid-old"}]}},
        "claims to preempt pod (UID: uid-old) on node: n2, but the pod is not found on that node",
    ),
    "no victims": ({"n1": {"Pods": []}}, 'expected at least one victim pod on node "n1"'),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES)
async def test_invalid_victims_are_refused(lie: tuple[Any, str]) -> None:
    answer, problem = lie
    async with chain_of(({"ask": {"NodeNameToMetaVictims": answer}}, PREEMPT)) as (chain, served, heard):
        with pytest.raises(ExtenderError) as caught:
            await victims_of(chain)
        assert str(caught.value) == f'extender "{served[0].url}": {problem}'
        assert heard.failures[0][0] == "preempt"


async def test_an_ignorable_extender_without_victims_only_removes_the_node() -> None:
    answer = {"ask": {"NodeNameToMetaVictims": {"n1": {"Pods": []}}}}
    async with chain_of((answer, {**PREEMPT, "ignorable": True})) as (chain, _, _):
        assert await victims_of(chain) == {}


def test_an_empty_list_of_extenders_has_no_chain() -> None:
    assert not Extenders([], Heard())


async def test_ignorable_extenders_are_called_after_all_others() -> None:
    first: dict[str, Any] = {"ask": {"NodeNames": ["n1", "n2"]}}
    second: dict[str, Any] = {"ask": {"NodeNames": ["n1"]}}
    async with chain_of((first, {**FILTER, "ignorable": True}), (second, FILTER)) as (chain, served, _):
        assert (await filtered(chain))[0] == [0]
        assert served[1].asked[0][1]["NodeNames"] == ["n1", "n2", "n3"]
        assert served[0].asked[0][1]["NodeNames"] == ["n1"]
