"""SchedulerProfiles: many, broken ones, and ones that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.hostile.scenario import scenario

if TYPE_CHECKING:
    from tests.hostile.stage import Stage

Json = dict[str, Any]

_VERSION, _KIND = "custom-scheduler.io/v1alpha1", "SchedulerProfile"


def profile(name: str, **spec: Any) -> Json:
    body = {"schedulerName": name, **spec}
    return {"apiVersion": _VERSION, "kind": _KIND, "metadata": {"name": name}, "spec": body}


@scenario(
    starts=False, is_ours=True, definitions=("schedulerprofiles",), logged=frozenset({"Profile rejected"})
)
async def scheduler_profiles(it: Stage) -> None:
    """200 SchedulerProfiles, half of them wrong, one of which changes all the time"""
    await it.start(flags=("--scheduler-profiles",))
    wrong = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "None"}}}]
    names = [f"{it.scenario.name}-{number}" for number in range(it.n(200, least=4))]
    for number, name in enumerate(names):
        await it.api.create(profile(name, **({"pluginConfig": wrong} if number % 2 else {})))
    collection = await it.api.collection(_VERSION, _KIND, "")

    async def change(number: int) -> None:
        weights = {"score": {"enabled": [{"name": "ImageLocality", "weight": 1 + number % 9}]}}
        await it.api.patch(f"{collection}/{names[0]}", {"spec": {"plugins": weights}})

    await it.innocents_while(5, change, 20)
