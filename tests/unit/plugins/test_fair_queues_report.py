"""The reports of FairQueues about queues."""

from __future__ import annotations

import pytest

from plugins.fair_queues.ledger import QueueReport
from scheduler.framework.sliced_work import run_to_end
from tests.unit.plugins.test_fair_queues import TREE, World, incoming, running


def test_a_queue_includes_its_descendants() -> None:
    world = World(TREE, [*running("nlp", 2), *running("vision", 1)])
    world.wait(incoming("nlp", "2"), incoming("shop", "1", name="q"))

    found = run_to_end(world.plugin.report())

    assert {name: its.pending for name, its in found.items()} == {
        "research": 1,
        "nlp": 1,
        "vision": 0,
        "shop": 1,
    }
    assert found["research"] == QueueReport(
        used={"cpu": 3000},
        fair_share={"cpu": 5000},
        used_share=pytest.approx(3 / 12),
        fair_part=pytest.approx(5 / 12),
        pending=1,
    )


def test_errors_of_inactive_queues_are_reported_too() -> None:
    found = run_to_end(
        World({"a": {"parent": "nobody"}, "b": {"min": {"cpu": 2}, "max": {"cpu": 1}}}).plugin.report()
    )

    assert {name: its.fault and its.fault.reason for name, its in found.items()} == {
        "a": "UnknownParent",
        "b": "MinAboveMax",
    }


def test_the_longest_wait_is_that_of_a_pod_that_fits_on_some_node() -> None:
    world = World(TREE, running("shop", 12, priority=10))
    run_to_end(world.plugin.report())  # the queues are read
    world.wait(incoming("nlp", "100", name="huge"))
    world.fakes.clock.advance(70)  # overdue: the share does not keep it back any more
    world.wait(incoming("nlp", "1", name="first"))
    world.fakes.clock.advance(10)
    world.wait(incoming("vision", "1", name="second"))
    world.fakes.clock.advance(10)

    def longest() -> dict[str, float]:
        world.refresh()
        return {name: its.longest_wait_seconds for name, its in run_to_end(world.plugin.report()).items()}

    assert longest() == {"research": 90, "nlp": 90, "vision": 10, "shop": 0}
    world.attempt(incoming("nlp", "100", name="huge"))
    assert longest() == {"research": 20, "nlp": 20, "vision": 10, "shop": 0}
