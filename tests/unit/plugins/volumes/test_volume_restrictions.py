from __future__ import annotations

from typing import Any

import pytest

from plugins.volumes import volume_restrictions
from plugins.volumes.volume_restrictions import VolumeRestrictions
from scheduler.framework import SKIP, ActionType, CycleState, EventResource, NeedsTime
from scheduler.loop_work import run_to_end
from scheduler.testing.fakes import FakeTimeSlice
from scheduler.testing.samples import claim, mounted
from tests.support.builders import pod
from tests.support.counted_labels import lines_run
from tests.unit.plugins.plugin_calls import made, requeues
from tests.unit.plugins.volumes.clusters import cluster_of, judged, refusals

DISK = "Unschedulable: node(s) had no available disk"
ONE_POD = (
    "Unschedulable: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)

RWOP = claim("data", modes=["ReadWriteOncePod"])
RWO = claim("data")


def disk(kind: str, **fields: Any) -> list[dict[str, Any]]:
    return [{"name": "v", kind: fields}]


def gce(name: str = "d", **fields: Any) -> list[dict[str, Any]]:
    return disk("gcePersistentDisk", pdName=name, **fields)


def rbd(*monitors: str, pool: str = "rbd", image: str = "i", **fields: Any) -> list[dict[str, Any]]:
    return disk("rbd", monitors=list(monitors), pool=pool, image=image, **fields)


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="no volumes"),
        pytest.param(disk("emptyDir"), id="files"),
        pytest.param(disk("azureDisk", diskURI="d"), id="an unchecked disk"),
        pytest.param(disk("ephemeral"), id="a claim of its own"),
        pytest.param(mounted("data"), id="a claim that is free"),
    ],
)
def test_a_pod_with_unshared_volumes_is_skipped(volumes: Any):
    table = cluster_of(RWOP, pods=(pod("on-a", node="a", volumes=mounted("other")),))

    assert judged(made(VolumeRestrictions), pod("p", volumes=volumes), table) is SKIP


@pytest.mark.parametrize(
    ("wanted", "there", "conflict"),
    [
        pytest.param(gce(), gce(), True, id="gce: both write"),
        pytest.param(gce(readOnly=True), gce(), True, id="gce: the other writes"),
        pytest.param(gce(), gce(readOnly=True), True, id="gce: this one writes"),
        pytest.param(gce(readOnly=True), gce(readOnly=True), False, id="gce: both read only"),
        pytest.param(gce(), gce("e"), False, id="gce: another disk"),
        pytest.param(
            disk("awsElasticBlockStore", volumeID="d", readOnly=True),
            disk("awsElasticBlockStore", volumeID="d", readOnly=True),
            True,
            id="ebs: never shared",
        ),
        pytest.param(
            disk("awsElasticBlockStore", volumeID="d"), gce("d"), False, id="another kind of the same name"
        ),
        pytest.param(
            disk("iscsi", iqn="d", targetPortal="x"),
            disk("iscsi", iqn="d", targetPortal="y"),
            True,
            id="iscsi: one iqn",
        ),
        pytest.param(
            disk("iscsi", iqn="d", readOnly=True),
            disk("iscsi", iqn="d", readOnly=True),
            False,
            id="iscsi: both read only",
        ),
        pytest.param(rbd("a", "b"), rbd("b", "c"), True, id="rbd: one monitor in common"),
        pytest.param(rbd("a"), rbd("b"), False, id="rbd: no monitor in common"),
        pytest.param(rbd(), rbd(), False, id="rbd: no monitors"),
        pytest.param(rbd("a"), rbd("a", pool="p"), False, id="rbd: another pool"),
        pytest.param(rbd("a"), rbd("a", image="j"), False, id="rbd: another image"),
        pytest.param(rbd("a", readOnly=True), rbd("a", readOnly=True), False, id="rbd: both read only"),
        pytest.param([*gce("e"), *gce("d")], [*gce("f"), *gce("d")], True, id="one of several"),
    ],
)
def test_a_node_where_the_same_disk_is_in_use_is_rejected(wanted: Any, there: Any, conflict: bool):
    table = cluster_of(pods=(pod("on-a", node="a", namespace="other", volumes=there),))

    found = judged(made(VolumeRestrictions), pod("p", volumes=wanted), table)

    assert found == ({"a": DISK} if conflict else {})


@pytest.mark.parametrize(
    ("mine", "theirs", "shared"), [(True, True, 0), (True, False, 1), (False, True, 1), (False, False, 1)]
)
def test_an_image_conflicts_if_one_of_the_pods_writes(mine: bool, theirs: bool, shared: int):
    wanted, there = (pod("p", volumes=rbd("m", readOnly=read_only)) for read_only in (mine, theirs))

    assert len({*volume_restrictions._Disks(wanted).shared_with(there)}) == shared


def test_a_missing_claim_rejects_the_pod():
    found = judged(made(VolumeRestrictions), pod("p", volumes=mounted("data", "nowhere")), cluster_of(RWO))

    assert found == 'UnschedulableAndUnresolvable: persistentvolumeclaim "nowhere" not found'


@pytest.mark.parametrize(
    ("data", "user", "refused"),
    [
        pytest.param(RWOP, pod("u", node="a", volumes=mounted("data")), True, id="for one pod, in use"),
        pytest.param(RWO, pod("u", node="a", volumes=mounted("data")), False, id="for one node"),
        pytest.param(
            RWOP, pod("u", node="a", namespace="x", volumes=mounted("data")), False, id="of another namespace"
        ),
        pytest.param(RWOP, pod("u", node="a", volumes=mounted("other")), False, id="another claim"),
        pytest.param(
            claim("u-v", modes=["ReadWriteOncePod"]),
            pod("u", node="a", volumes=[{"name": "v", "ephemeral": {}}]),
            False,
            id="created for another pod, which upstream does not count",
        ),
    ],
)
def test_a_claim_for_one_pod_is_rejected_everywhere_while_it_is_in_use(data: Any, user: Any, refused: bool):
    wants = pod("p", volumes=mounted(data["metadata"]["name"]))

    found = judged(made(VolumeRestrictions), wants, cluster_of(data, pods=(user,)))

    assert found == ({"a": ONE_POD, "b": ONE_POD} if refused else SKIP)


def test_the_disk_is_the_first_of_two_reasons():
    volumes = [*mounted("data"), *gce()]
    table = cluster_of(RWOP, pods=(pod("on-a", node="a", volumes=volumes),))

    assert judged(made(VolumeRestrictions), pod("p", volumes=volumes), table) == {"a": DISK, "b": ONE_POD}


def test_the_node_of_a_removed_pod_with_the_claim_is_free():
    user = pod("user", node="b", volumes=mounted("data"))
    wants, table = pod("p", volumes=mounted("data")), cluster_of(RWOP, pods=(user,))
    snapshot, state, plugin = table.snapshot(), CycleState(), made(VolumeRestrictions)
    plugin.pre_filter(state, wants, snapshot)
    twin = state.clone()

    plugin.remove_pods(twin, wants, [(1, user)], snapshot)

    assert refusals(plugin, twin, wants, snapshot) == {"a": ONE_POD}
    assert refusals(plugin, state, wants, snapshot) == {"a": ONE_POD, "b": ONE_POD}
    plugin.add_pods(twin, wants, [(1, user)], snapshot)
    assert refusals(plugin, twin, wants, snapshot) == {"a": ONE_POD, "b": ONE_POD}


def test_added_and_removed_pods_are_counted_by_the_name_of_the_claim():
    """Upstream compares names only; so a deleted pod frees the claim of another namespace."""
    user, other = (
        pod(name, node="a", namespace=namespace, volumes=mounted("data"))
        for name, namespace in (("user", "default"), ("other", "x"))
    )
    wants, table = pod("p", volumes=mounted("data")), cluster_of(RWOP, pods=(user, other))
    snapshot, state, plugin = table.snapshot(), CycleState(), made(VolumeRestrictions)
    plugin.pre_filter(state, wants, snapshot)

    plugin.remove_pods(state, wants, [(0, other)], snapshot)

    assert refusals(plugin, state, wants, snapshot) == {"b": ONE_POD}


@pytest.mark.parametrize(
    ("waiting", "gone", "helps"),
    [
        pytest.param(gce(), gce(), True, id="it had the disk"),
        pytest.param(gce(readOnly=True), gce(readOnly=True), False, id="they could have shared it"),
        pytest.param(mounted("data"), mounted("data"), True, id="it had the claim, in any mode"),
        pytest.param(mounted("data"), mounted("other"), False, id="it had another claim"),
        pytest.param(mounted("data"), [], False, id="it had no volumes"),
        pytest.param(rbd("a"), rbd("a"), True, id="it had the image"),
        pytest.param(
            rbd("a"), rbd("b"), True, id="it had the image with another monitor, which is not compared"
        ),
    ],
)
def test_a_deleted_pod_requeues_those_that_want_its_volumes(waiting: Any, gone: Any, helps: bool):
    found = [
        requeues(
            made(VolumeRestrictions),
            EventResource.POD,
            pod("p", volumes=waiting),
            pod("gone", node="n", namespace=namespace, volumes=gone),
            None,
            ActionType.DELETE,
        )
        for namespace in ("default", "other")
    ]

    assert found == [helps, False]


@pytest.mark.parametrize(
    ("added", "helps"),
    [
        pytest.param(claim("data"), True, id="its claim"),
        pytest.param(claim("other"), False, id="another"),
        pytest.param(claim("data", namespace="x"), False, id="of another namespace"),
        pytest.param(claim("p-v1"), False, id="the claim created for it"),
    ],
)
def test_a_new_claim_requeues_its_pod(added: Any, helps: bool):
    waiting = pod("p", volumes=[*mounted("data"), {"name": "v1", "ephemeral": {}}])
    plugin, kind = made(VolumeRestrictions), EventResource.PERSISTENT_VOLUME_CLAIM

    assert requeues(plugin, kind, waiting, None, added, ActionType.ADD) is helps


def test_any_new_node_requeues_a_pod():
    plugin = made(VolumeRestrictions)

    assert requeues(plugin, EventResource.NODE, pod("p"), None, None, ActionType.ADD)


def test_pods_without_storage_are_identical():
    files = pod("p", volumes=[{"name": "t", "projected": {}}])

    assert made(VolumeRestrictions).signature(files) == made(VolumeRestrictions).signature(pod("q")) == ()
    assert made(VolumeRestrictions).signature(pod("r", volumes=mounted("data"))) is None


def test_each_monitor_of_a_disk_costs_a_few_lines_of_python():
    wanted = pod("p", volumes=rbd(*(f"m{number}" for number in range(1000))))
    table = cluster_of(pods=(pod("on-a", node="a", volumes=rbd("m999")),))
    plugin, snapshot, state = made(VolumeRestrictions), table.snapshot(), CycleState()
    plugin.pre_filter(state, wanted, snapshot)

    assert lines_run(lambda: plugin.filter(state, wanted, snapshot, snapshot.all_rows)) < 200


def test_pods_with_many_monitors_are_compared_once_and_in_steps(monkeypatch: pytest.MonkeyPatch):
    def monitors(first: int) -> list[dict[str, Any]]:
        return rbd(*(f"m{number}" for number in range(first, first + 1000)))

    there = [pod(f"on-{number}", node="a", volumes=monitors(number * 1000)) for number in range(9)]
    table, compared = cluster_of(pods=[*there, pod("on-b", node="b", volumes=monitors(9999))]), []
    shared_with = volume_restrictions._Disks.shared_with
    monkeypatch.setattr(
        volume_restrictions._Disks,
        "shared_with",
        lambda disks, other: compared.append(other.name) or shared_with(disks, other),  # type: ignore[func-returns-value]
    )
    slice_ = FakeTimeSlice()
    slice_.slice_seconds, slice_.each_reading = 1.0, 1.0
    plugin, wanted, snapshot = (
        VolumeRestrictions(time_slice=slice_),
        pod("p", volumes=monitors(9000)),
        table.snapshot(),
    )

    with pytest.raises(NeedsTime) as needed:
        plugin.pre_filter(CycleState(), wanted, snapshot)
    assert len(compared) == 1
    run_to_end(needed.value.steps)
    state = CycleState()
    assert plugin.pre_filter(state, wanted, snapshot) is None
    assert refusals(plugin, state, wanted, snapshot) == {"b": DISK}
    assert len(compared) == 10
