"""Plugins of users in a running daemon: their effects, and the effects of their errors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from scheduler.engine.runtime import calls
from scheduler.framework import (
    FilterPlugin,
    Outcomes,
    PostFilterPlugin,
    PreBindPlugin,
    ReservePlugin,
    ScorePlugin,
    Status,
)
from tests.support import virtual_time
from tests.support.builders import node_object, pod_object
from tests.support.daemon_harness import cluster

if TYPE_CHECKING:
    from collections.abc import Callable

    from scheduler.snapshot import Snapshot

EXAMPLES = Path(__file__).parents[3] / "manifests" / "examples"


def profile(*plugins: str) -> str:
    enabled = "".join(f"\n      - name: {plugin}\n        weight: 10" for plugin in plugins)
    return f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: custom-scheduler
  plugins:
    multiPoint:
      enabled:{enabled}
"""


def nodes_chosen(folder: Path, configuration: str) -> set[str]:
    async def scenario() -> set[str]:
        async with cluster(folder) as it, it.daemon(configuration):
            it.add_nodes(*(node_object(f"large-{n}", cpu="64") for n in range(3)))
            it.add_nodes(*(node_object(f"small-{n}", cpu="8") for n in range(3)))
            it.add_pods(*(pod_object(f"pod-{n}", cpu="100m") for n in range(12)))
            await it.until(lambda: all(pod["spec"].get("nodeName") for pod in it.pods()))
            return {pod["spec"]["nodeName"] for pod in it.pods()}

    return virtual_time.run(scenario())


def test_the_plugin_file_of_the_readme_moves_pods_to_the_small_nodes(tmp_path: Path) -> None:
    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()

    without = nodes_chosen(tmp_path / "without", "")
    with_it = nodes_chosen(tmp_path / "with", profile(str(EXAMPLES / "prefer_small_nodes.py")))

    assert any(name.startswith("large") for name in without)
    assert with_it <= {"small-0", "small-1", "small-2"}


def failing(name: str, base: type, method: str, wrong: Any, right: Any = None, **others: Any) -> type:
    """Return a plugin whose method does something wrong in its first two calls."""

    def does(self: Any, _state: Any, _pod: Any, *about: Any) -> Any:
        type(self).times -= 1
        return wrong(*about) if type(self).times >= 0 else right(*about) if right else None

    return type(name, (base,), {"name": name, "api_version": 1, "times": 2, method: does, **others})


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise error

    return fail


class CancelledPreBind(PreBindPlugin):
    name = "CancelledPreBind"
    api_version = 1
    times = 2

    async def pre_bind(self, state, pod, node_name):  # type: ignore[no-untyped-def]  # noqa: ANN001
        if type(self).times:
            type(self).times -= 1
            await cancelled()


async def cancelled() -> None:
    asked = asyncio.ensure_future(asyncio.sleep(10))
    asked.cancel()
    await asked


def all_pass(snapshot: Snapshot, _: object) -> Outcomes:
    return Outcomes.all_pass(snapshot.n_nodes)


def too_few(snapshot: Snapshot, _: object) -> Outcomes:
    return Outcomes.all_pass(snapshot.n_nodes - 1)


def ones(snapshot: Snapshot, _: object) -> Any:
    return np.ones(snapshot.n_nodes, dtype=np.int64)


def floats(snapshot: Snapshot, _: object) -> Any:
    return np.ones(snapshot.n_nodes)


NOT_UTF_8 = "no licence in caf\udce9"


@pytest.mark.parametrize(
    ("plugin", "expected"),
    [
        pytest.param(failing("Raising", FilterPlugin, "filter_node", raising(KeyError("licence"))), '"Raising" filter plugin: KeyError', id="a filter that raises"),
        pytest.param(failing("Short", FilterPlugin, "filter", too_few, all_pass), '"Short" filter plugin: ValueError: Outcomes.index is uint16 (2,)', id="a short array"),
        pytest.param(failing("Float", ScorePlugin, "score", floats, ones), 'Score plugins: plugin "Float" failed with: ValueError: score returns int64 (2,)', id="scores of another type"),
        pytest.param(failing("Huge", ScorePlugin, "score_node", lambda _: 101, lambda _: 1), 'plugin "Huge" returns an invalid score 101, it should in the range of [0, 100]', id="a score out of range"),
        pytest.param(failing("Reserves", ReservePlugin, "reserve", raising(RuntimeError("no reservation today")), unreserve=raising(RuntimeError("nor can it be undone"))), 'Reserve plugin "Reserves": RuntimeError: no reservation', id="a reserve that raises"),
        pytest.param(failing("Half", FilterPlugin, "filter_node", lambda _: Status.unschedulable(NOT_UTF_8)), "TypeError: reasons are strings, as in", id="a reason that cannot be encoded"),
        pytest.param(failing("HalfReserve", ReservePlugin, "reserve", raising(RuntimeError(NOT_UTF_8)), unreserve=lambda *_: None), "RuntimeError: no licence in caf?", id="an error that cannot be encoded"),
        pytest.param(failing("Cancelled", FilterPlugin, "filter_node", raising(asyncio.CancelledError("as the result of a cancelled task"))), '"Cancelled" filter plugin: CancelledError: as the result', id="a filter that is cancelled"),
        pytest.param(failing("Exiting", ScorePlugin, "score_node", raising(SystemExit(3)), lambda _: 1), 'Score plugins: plugin "Exiting" failed with: SystemExit: 3', id="a score that exits"),
        pytest.param(CancelledPreBind, 'PreBind plugin "CancelledPreBind": CancelledError: ', id="a cancelled pre-bind"),
    ],
)  # fmt: skip
async def test_a_plugin_that_fails_is_named_on_the_pod_and_the_pod_is_bound_once_it_works(
    tmp_path: Path, plugin: type, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest-xdist cannot send what is logged here: the traceback has the half of a character.
    monkeypatch.setattr(calls.logger, "disabled", True)

    plugin.times = 2
    plugins = {plugin.name: plugin}
    async with cluster(tmp_path) as it, it.daemon(profile(plugin.name), plugins=plugins) as daemon:
        it.add_nodes(node_object("n1"), node_object("n2"))
        await it.until(lambda: daemon.parts.cache.table.n_nodes == 2)
        it.add_pods(pod_object("web", cpu="1"), pod_object("other", cpu="1"))

        await it.until(lambda: it.condition("web").get("reason") == "SchedulerError")
        message = it.condition("web")["message"]
        await it.until(lambda: it.node_of("web") and it.node_of("other"))
        await it.until(lambda: daemon.parts.cache.counts()["assumed_pods"] == 0)

        assert expected in message
        daemon.parts.cache.check()
        daemon.parts.queue.check()
        assert not list(daemon.parts.queue.pods())


class Never(FilterPlugin):
    name = "Never"
    api_version = 1

    def filter_node(self, state, pod, node):  # type: ignore[no-untyped-def]  # noqa: ANN001
        return Status.unschedulable(f"node {node.name} has no free licence")


async def test_a_rejection_by_a_plugin_of_the_user_keeps_its_message(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, it.daemon(profile("Never"), plugins={"Never": Never}):
        it.add_nodes(node_object("n1"))
        it.add_pods(pod_object("web", cpu="1"))

        await it.until(lambda: it.condition("web"))

        reported = "0/1 nodes are available: 1 node n1 has no free licence."
        assert it.condition("web")["message"].startswith(
            f"{reported} no new claims to deallocate, preemption: "
        )


class CancelledPostFilter(PostFilterPlugin):
    name = "CancelledPostFilter"
    api_version = 1
    refresh_seconds = 1.0
    refreshed = 0

    async def post_filter(self, state, pod, snapshot, diagnosis):  # type: ignore[no-untyped-def]  # noqa: ANN001
        await cancelled()

    async def refresh(self) -> None:
        type(self).refreshed += 1
        await cancelled()


async def test_a_cancelled_await_of_a_plugin_ends_nothing_else(tmp_path: Path) -> None:
    plugins = {"CancelledPostFilter": CancelledPostFilter}
    async with cluster(tmp_path) as it, it.daemon(profile(*plugins), plugins=plugins):
        it.add_nodes(node_object("n1", cpu="1"))
        it.add_pods(pod_object("large", cpu="2"))
        await it.until(lambda: it.notes("large", "FailedScheduling"))
        assert "0/1 nodes are available: 1 Insufficient cpu." in it.notes("large", "FailedScheduling")[0]
        it.add_pods(pod_object("small", cpu="100m"))
        await it.until(lambda: it.node_of("small"))
        await it.until(lambda: CancelledPostFilter.refreshed > 2)
