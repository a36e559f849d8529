"""Whatever happens to the candidates and their requests, no two of them lead at the same time."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.tools.simulator.faults import requests
from tests.support import frozen_processes as freezing
from tests.unit.kube.client.candidates import LEASE_SECONDS, candidates

if TYPE_CHECKING:
    from tests.unit.kube.client.candidates import Candidate, Candidates

COUNT = 3
STEP_SECONDS = 0.25

seconds = st.floats(0.0, 30.0)
troubles = st.one_of(
    st.tuples(st.just("freeze"), st.integers(0, COUNT - 1), seconds),
    st.tuples(st.just("refuse"), st.sampled_from(["get", "update", "watch"]), seconds),
    st.tuples(st.just("lose"), st.sampled_from(["get", "update"]), seconds),
    st.tuples(st.just("delay"), st.floats(0.0, 12.0), seconds),
    st.tuples(st.just("stall"), st.just(0), seconds),
    st.tuples(st.just("annotate"), st.just(0), seconds),
    st.tuples(st.just("wait"), st.just(0), seconds),
)


async def make_trouble(they: Candidates, all_of_them: list[Candidate], what: str, which: object) -> object:
    faults = they.server.faults
    match what:
        case "freeze":
            assert isinstance(which, int)
            all_of_them[which].freezer.freeze()
            return all_of_them[which].freezer
        case "refuse":
            return faults.refuse(500, requests(resource="leases", verb=str(which)))
        case "lose":
            return faults.lose_answers(requests(resource="leases", verb=str(which)))
        case "delay":
            return faults.delay((0.0, float(str(which))), requests(resource="leases"))
        case "stall":
            return faults.stall_watches(requests(resource="leases"))
        case "annotate" if they.lease:
            they.write({}, annotations={"a": they.lease["metadata"]["resourceVersion"]})
    return None


@settings(max_examples=30)
@given(st.lists(troubles, max_size=12))
def test_at_most_one_candidate_leads_and_after_faults_one_does(plan: list[tuple[str, object, float]]):
    async def scenario(folder: str) -> None:
        async with candidates(Path(folder)) as they, AsyncExitStack() as stack:
            all_of_them = [
                await stack.enter_async_context(they.candidate(f"candidate-{number}", seed=number))
                for number in range(COUNT)
            ]

            async def live(duration: float) -> None:
                end = asyncio.get_running_loop().time() + duration
                while asyncio.get_running_loop().time() < end:
                    leading = [each.elector.identity for each in all_of_them if each.elector.is_leading()]
                    assert len(leading) <= 1, leading
                    await asyncio.sleep(STEP_SECONDS)

            await live(1.0)
            for what, which, duration in plan:
                trouble = await make_trouble(they, all_of_them, what, which)
                await live(duration)
                if isinstance(trouble, freezing.Freezer):
                    trouble.thaw()
                elif trouble is not None:
                    they.server.faults.clear()
                await live(0.5)
            await live(LEASE_SECONDS + 12.0 + 5.0)  # 12: the longest delay

            assert len([each for each in all_of_them if each.elector.is_leading()]) == 1

    with tempfile.TemporaryDirectory() as folder:
        freezing.run(scenario(folder))
