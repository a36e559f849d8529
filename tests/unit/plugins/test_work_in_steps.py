"""Thousands of Queues and ElasticQuotas are read in steps, and take effect only together."""

from __future__ import annotations

import sys
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from plugins import work_in_steps
from plugins.quotas import elastic_quotas, queues
from plugins.quotas.elastic_quotas import Quotas
from plugins.quotas.queues import Queues
from scheduler.framework import CycleState, NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.snapshot import ObjectStore
from tests.support import virtual_time
from tests.support.builders import pod
from tests.unit.plugins.quotas import test_capacity_scheduling, test_fair_queues

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from plugins.work_in_steps import ObjectsInSteps

MANY = 2000


def queue(number: int, most: int = 1) -> tuple[str, dict[str, Any]]:
    spec = {"namespaces": [f"ns{number}"], "max": {"cpu": most}}
    return f"q{number}", {"metadata": {"name": f"q{number}"}, "spec": spec}


def quota(number: int, most: int = 1) -> tuple[str, dict[str, Any]]:
    made = test_capacity_scheduling.quota(f"ns{number}", most, most, name="e")
    return f"ns{number}/e", made


KINDS = pytest.mark.parametrize(("make", "one"), [(Queues, queue), (Quotas, quota)], ids=["queues", "quotas"])


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the objects that were read."""
    found: list[str] = []
    for module in (queues, elastic_quotas):
        read_one: Any = module._read_one

        def noted(first: Any, second: Any, read_one: Any = read_one) -> Any:
            found.append(first if isinstance(first, str) else second)
            return read_one(first, second)

        monkeypatch.setattr(module, "_read_one", noted)
    return found


def meaning(known: ObjectsInSteps) -> object:
    """Return the combined result."""
    return known.tree if isinstance(known, Queues) else known.by_namespace  # type: ignore[attr-defined]


def said_of(known: Any, number: int) -> object:
    """Return the cpu limits of a namespace; None if it is unknown."""
    if isinstance(known, Quotas):
        found = known.by_namespace.get(f"ns{number}")
        return None if found is None or found.max is None else found.max["cpu"]
    name = known.tree.queue_of(pod("p", namespace=f"ns{number}"))
    return known.tree.queues[known.tree.place(name)].max["cpu"] if name else None


@KINDS
def test_each_step_reads_a_few_objects_and_the_old_state_is_used_until_the_last(
    make: Callable[[], Any], one: Any, reads: list[str]
) -> None:
    objects, known = ObjectStore(), make()
    objects.update([one(number) for number in range(MANY)])
    before, last, steps = meaning(known), 0, 0
    for _ in known.reading(objects):
        assert len(reads) - last <= 64
        last, steps = len(reads), steps + 1
        if last < MANY:
            assert meaning(known) is before, "nobody decides by half of them"
    assert sorted(reads) == sorted(objects)
    assert steps >= MANY / 64
    assert [said_of(known, number) for number in (0, MANY - 1)] == [1000, 1000]


def test_a_change_among_many_queues_is_processed_in_steps_and_read_once(reads: list[str]) -> None:
    objects, known = ObjectStore(), Queues()
    objects.update([queue(number) for number in range(MANY)])
    run_to_end(known.reading(objects))
    reads.clear()
    objects.update([queue(7, most=3)])
    assert known.look_at(objects), "there is more to do than to read one object"
    assert said_of(known, 7) == 1000
    assert sum(1 for _ in known.reading(objects)) >= MANY / work_in_steps.SETTLED_A_STEP
    assert said_of(known, 7) == 3000
    assert len(reads) == 1


def test_a_change_among_many_quotas_is_read_and_processed_at_once(reads: list[str]) -> None:
    objects, known = ObjectStore(), Quotas()
    objects.update([quota(number) for number in range(MANY)])
    run_to_end(known.reading(objects))
    reads.clear()
    objects.update([quota(7, most=3)])
    assert not known.look_at(objects)
    assert said_of(known, 7) == 3000
    assert known.guaranteed["cpu"] == 1000 * (MANY + 2)
    assert len(reads) == 1


def test_only_the_oldest_of_many_quotas_in_a_namespace_is_used() -> None:
    def in_ns(number: int, most: int = 1) -> tuple[str, dict[str, Any]]:
        created = f"2026-03-{1 + number % 28:02}T08:00:00Z"
        made = test_capacity_scheduling.quota("ns", most, most, name=f"e{number:04}", created=created)
        return f"ns/e{number:04}", made

    objects, known = ObjectStore(), Quotas()
    objects.update([in_ns(number) for number in range(MANY)])
    run_to_end(known.reading(objects))
    before = known.by_namespace
    for number in range(1, 28):
        objects.update([in_ns(number, most=number)])
        assert not known.look_at(objects)
    assert known.by_namespace is before
    assert known.holders == {"ns": "ns/e0000"}

    del objects["ns/e0000"]
    known.look_at(objects)
    assert known.holders == {"ns": "ns/e0028"}
    objects.update([in_ns(0, most=5)])
    known.look_at(objects)
    assert (known.holders, known.guaranteed["cpu"]) == ({"ns": "ns/e0000"}, 5000)


@KINDS
def test_changes_during_a_read_are_read_too_and_two_readers_share_the_work(
    make: Callable[[], Any], one: Any, reads: list[str]
) -> None:
    objects, known = ObjectStore(), make()
    objects.update([one(number) for number in range(MANY)])
    first, second = known.reading(objects), known.reading(objects)
    for step in count():
        if step == 10:
            objects.update([one(3, most=5), one(MANY, most=6)])
            del objects[one(4)[0]]
        ended = [next(each, "over") == "over" for each in (first, second)]
        if all(ended):
            break
    assert [said_of(known, number) for number in (3, 4, 5, MANY)] == [5000, None, 1000, 6000]
    assert len(reads) <= MANY + 3
    assert not known.look_at(objects)


@KINDS
def test_endless_changes_do_not_delay_the_end_of_a_read(make: Callable[[], Any], one: Any) -> None:
    objects, known = ObjectStore(), make()
    objects.update([one(number) for number in range(MANY)])
    most = 0
    for most, _ in enumerate(known.reading(objects)):
        objects.update([one(7, most=1 + most % 5)])
        assert most < 10 * MANY / 64, "it goes on for ever"
    assert said_of(known, 8) == 1000


def test_a_pod_of_one_of_thousands_of_queues_waits_until_all_are_read() -> None:
    world = test_fair_queues.World({f"ns{number}": {"max": {"cpu": "1"}} for number in range(MANY)})
    web = pod("web", namespace="ns1999", cpu="2")
    with pytest.raises(NeedsTime) as needs:
        world.plugin.pre_filter(CycleState(), web, world.cache.snapshot())
    run_to_end(needs.value.steps)
    assert "queue ns1999 has 0 of its max 1 cpu" in world.pre_filter(web)


def test_a_pod_of_one_of_thousands_of_quotas_waits_until_all_are_read() -> None:
    world = test_capacity_scheduling.World(quotas=[quota(number)[1] for number in range(MANY)])
    web = pod("web", namespace="ns1999", cpu="2")
    with pytest.raises(NeedsTime) as needs:
        world.plugin.pre_filter(CycleState(), web, world.cache.snapshot())
    run_to_end(needs.value.steps)
    answer = world.plugin.pre_filter(CycleState(), web, world.cache.snapshot())
    assert answer is not None
    assert "ElasticQuota ns1999 is more than Max" in answer.message


def test_a_pod_without_a_quota_does_not_wait_for_the_thousands_of_others() -> None:
    world = test_capacity_scheduling.World(quotas=[quota(number)[1] for number in range(MANY)])
    assert world.pre_filter(pod("web", namespace="free", cpu="2")) == ""


def test_a_pod_without_a_quota_preempts_by_all_quotas_that_exist() -> None:
    placed = pod("placed", namespace="ns1999", cpu="4", node="n")
    world = test_capacity_scheduling.World([quota(number)[1] for number in range(MANY)], [placed])
    web = pod("web", namespace="free", cpu="2", priority=5)
    with pytest.raises(NeedsTime) as needs:
        world.preempt(web)
    run_to_end(needs.value.steps)
    status, _ = world.preempt(web)
    assert not status.is_success
    assert world.preemptions.started == []


def test_a_deleted_quota_that_is_still_to_be_read_limits_no_pod() -> None:
    world = test_capacity_scheduling.World([quota(number)[1] for number in range(MANY)])
    virtual_time.run(world.plugin.refresh())
    for number in range(MANY // 2, MANY):
        del world.objects[f"ns{number}/e"]
    assert world.pre_filter(pod("web", namespace="ns1999", cpu="2")) == ""


def test_thousands_of_quotas_are_read_in_the_background() -> None:
    world = test_capacity_scheduling.World(quotas=[quota(number)[1] for number in range(MANY)])
    virtual_time.run(world.plugin.refresh())
    web = pod("p", namespace="ns1999", cpu="2")
    assert "ElasticQuota ns1999 is more than Max" in world.pre_filter(web)


@pytest.mark.parametrize("changes", [MANY, 1], ids=["the first time", "after a change"])
def test_no_step_settles_more_than_some_hundred_queues(changes: int) -> None:
    objects, known = ObjectStore(), Queues()
    objects.update(
        [(f"p{number}", {"metadata": {"name": f"p{number}"}, "spec": {}}) for number in range(50)]
        + [in_tree(number) for number in range(MANY)]
    )
    if changes < MANY:
        run_to_end(known.reading(objects))
        objects.update([in_tree(number, most=3) for number in range(changes)])
    lines = lines_by_step(known.reading(objects))
    assert len(lines) > MANY / work_in_steps.SETTLED_A_STEP
    assert max(lines) <= 25 * work_in_steps.SETTLED_A_STEP, "this would be some milliseconds"


def in_tree(number: int, most: int = 1) -> tuple[str, dict[str, Any]]:
    name, made = queue(number, most)
    made["spec"] |= {"parent": f"p{number % 50}", "min": {"cpu": 1}}
    return name, made


def lines_by_step(steps: Generator[None, None, None]) -> list[int]:
    """Return how many lines of Python each step executes."""
    found: list[int] = []

    def count_line(_frame: object, event: str, _argument: object) -> Any:
        found[-1] += event == "line"
        return count_line

    before = sys.gettrace()
    while True:
        found.append(0)
        sys.settrace(count_line)
        try:
            is_over = next(steps, "over") == "over"
        finally:
            sys.settrace(before)
        if is_over:
            return found


def test_a_pod_waits_once_for_any_number_of_queue_changes() -> None:
    world = test_fair_queues.World({f"ns{number}": {"max": {"cpu": "1"}} for number in range(MANY)})
    web = pod("web", namespace="ns1999", cpu="2")
    with pytest.raises(NeedsTime) as needs:
        world.plugin.pre_filter(CycleState(), web, world.cache.snapshot())
    run_to_end(needs.value.steps)
    world.apply("another", max={"cpu": "3"})
    assert "queue ns1999 has 0 of its max 1 cpu" in world.pre_filter(web)
    with pytest.raises(NeedsTime):  # the next attempt
        world.pre_filter(web)


def test_thousands_of_queues_are_read_in_the_background_without_pods() -> None:
    world = test_fair_queues.World({f"ns{number}": {"max": {"cpu": "1"}} for number in range(MANY)})
    virtual_time.run(world.plugin.refresh())
    assert len(run_to_end(world.plugin.report())) == MANY
