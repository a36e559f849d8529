"""Pods that are as large as the API server admits, in each of their fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.api import STRATEGIC
from tests.hostile.scenario import scenario
from tests.hostile.scenarios.affinity import judged

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]


@scenario()
async def environments(it: Stage) -> None:
    """200 pending pods with 1.2 MB of environment and 200 KB of annotations each, which change"""
    count = it.n(200, least=3)  # of 1000, an API server may take more than 16 GB
    variables, text = (200, "x" * 6000) if not it.is_small else (20, "x" * 600)

    def made(number: int) -> Json:
        pod = it.pod(f"e-{number}", cpu="99")
        pod["spec"]["containers"][0]["env"] = [
            {"name": f"V{each}", "value": text} for each in range(variables)
        ]
        pod["metadata"]["annotations"] = {"large": text * (variables // 6)}
        return pod

    await it.api.create_all(made(number) for number in range(count))

    async def change(number: int) -> None:
        path = f"/api/v1/namespaces/{it.namespace}/pods/e-{number % count}"
        await it.api.patch(path, {"metadata": {"labels": {"churn": str(number)}}})

    await it.innocents_while(it.n(50, least=10), change)


def _ports(number: int, count: int) -> list[Json]:
    return [
        {
            "containerPort": 1 + each,
            "hostPort": 1 + (number * count + each) % 65_000,
            "hostIP": f"10.0.{each % 8}.1",
        }
        for each in range(count)
    ]


@scenario()
async def large_fields(it: Stage) -> None:
    """Pods with 10,000 tolerations, 5000 scheduling gates, 1 MB of nodeSelector, 5000 host ports and 1000 ephemeral containers"""
    tolerations = [
        {"key": f"t{number}", "operator": "Exists", "effect": "NoSchedule"} for number in range(it.n(10_000))
    ]
    gates = [{"name": f"gate.io/g{number}"} for number in range(it.n(5000))]
    selector = {f"never.io/k{number}": "v" * 40 for number in range(it.n(20_000))}
    ports = it.n(5000)
    for number in range(it.n(50, least=2)):
        await it.api.create(it.pod(f"tolerant-{number}", tolerations=tolerations))
        await it.api.create(it.pod(f"gated-{number}", schedulingGates=gates))
        await it.api.create(it.pod(f"selects-{number}", nodeSelector=selector))
        for name, on in ((f"ports-{number}", ""), (f"bound-ports-{number}", it.node(number))):
            pod = it.pod(name, on=on)
            pod["spec"]["hostNetwork"] = False
            pod["spec"]["containers"][0]["ports"] = _ports(number, ports)
            await it.api.create(pod)
    if not it.is_small:  # the simulated API server has no pods/ephemeralcontainers
        more = [{"name": f"e{number}", "image": "x", "env": []} for number in range(1000)]
        path = f"/api/v1/namespaces/{it.namespace}/pods/bound-ports-0/ephemeralcontainers"
        await it.api.patch(path, {"spec": {"ephemeralContainers": more}}, STRATEGIC)
    await it.innocents()
    it.expect(await it.wait_for("selects-0", judged, 60), "a pod with a large nodeSelector is not judged")
    it.expect(await it.wait_for("ports-0", judged, 60), "a pod with many host ports is not judged")
