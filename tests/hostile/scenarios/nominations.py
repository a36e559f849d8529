"""Pods that wait with a nomination while their victims end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario
from tests.hostile.scenarios.groups import priority_class

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

_GRACE_SECONDS = 3600


def _is_running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def _is_nominated(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("nominatedNodeName"))


@scenario()
async def nominated_pods(it: Stage) -> None:
    """4000 pods that preempted pods with an hour of grace and wait with a nomination, and innocent pods"""
    low, high = await priority_class(it, "low", 1), await priority_class(it, "high", 1000)
    count = it.n(4000, least=4)
    names = [f"kept-{number}" for number in range(count)]
    await it.own_nodes(names)
    victims = [
        it.pod(
            f"victim-{number}",
            on=name,
            cpu="3",
            priorityClassName=low,
            terminationGracePeriodSeconds=_GRACE_SECONDS,
        )
        for number, name in enumerate(names)
    ]
    for victim in victims:
        victim["spec"]["containers"][0]["lifecycle"] = {"preStop": {"sleep": {"seconds": _GRACE_SECONDS}}}
    await it.api.create_all(victims)
    if it.is_small:  # its kubelets remove a pod that does not run yet at once, without preStop hooks
        for number in range(count):
            await it.wait_for(f"victim-{number}", _is_running, 60)
    await it.api.create_all(
        it.pod(f"high-{number}", cpu="3", priorityClassName=high, **it.own()) for number in range(count)
    )
    took = await it.wait_for(f"high-{count - 1}", _is_nominated, 120)
    it.expect(took is not None, "the last preemptor has no nomination")
    nominated = await it.pods_where(_is_nominated)
    it.figure(f"{len(nominated)} pods wait with a nomination")
    it.expect(nominated, "no pod waits with a nomination")
    await it.innocents()
    # Pods of lower priority respect the nominations; the capacity that the victims leave is not theirs.
    await it.api.create_all(
        it.pod(f"low-{number}", cpu="2", **it.own()) for number in range(it.n(100, least=2))
    )
    await it.innocents()
    bound = await it.pods_where(
        lambda pod: pod["metadata"]["name"].startswith("low-") and pod["spec"].get("nodeName")
    )
    it.expect(not bound, "a pod of lower priority takes the capacity of a nominated pod")
