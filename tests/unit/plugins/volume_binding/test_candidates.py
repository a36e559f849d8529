"""Candidates for a demand are cached, and updated only where something changed."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.volume_binding import candidates
from plugins.volume_binding.candidates import KeptCandidates, VolumeCandidates, VolumeDemand, VolumeTraits
from plugins.volume_binding.reachability import NONE
from plugins.volumes.storage import VOLUMES
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.snapshot import ClusterTable
from scheduler.testing.samples import claim, only_on, volume, watch_storage
from tests.support.builders import node

HOST = "kubernetes.io/hostname"


def demand(size: str = "1Gi") -> VolumeDemand:
    return VolumeDemand.of(
        typed_object(claim("data", class_name="local", storage=size), PersistentVolumeClaim)
    )


def offered(name: str, host: str, size: str = "1Gi", **spec: Any) -> dict[str, Any]:
    spec = {"capacity": {"storage": size}, "storageClassName": "local", **spec}
    return volume(name, phase="Available", nodeAffinity=only_on(HOST, host), **spec)


class Shelf:
    """Candidates for one demand on nodes n1 and n2; counts how often a volume is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table, self.kept, self.looked_at = ClusterTable(), KeptCandidates(), 0
        for name in ("n1", "n2"):
            self.table.add_node(node(name))
        watch_storage(self.table)
        traits_of = candidates.traits_of

        def counted(each: PersistentVolume) -> VolumeTraits:
            self.looked_at += 1
            return traits_of(each)

        monkeypatch.setattr(candidates, "traits_of", counted)

    def put(self, *volumes: dict[str, Any]) -> None:
        watch_storage(self.table, *volumes)

    def best(self, size: str = "1Gi") -> list[str]:
        """Update, and return the best volume of each node; "" for none."""
        self.looked_at = 0
        wanted = demand(size)
        found = self.volumes(wanted.class_name)
        fitting = run_to_end(found.fitting(wanted, wanted.admits))
        selection = run_to_end(found.select(self.table.snapshot(), fitting))
        numbers = run_to_end(selection.first(found.at_least(wanted.nanos))).tolist()
        return ["" if number == NONE else found.ranked[number][1] for number in numbers]

    def volumes(self, class_name: str) -> VolumeCandidates:
        found = self.kept.volumes(class_name)
        run_to_end(found.follow(self.table.watch_kind(VOLUMES)))
        return found


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    return Shelf(monkeypatch)


def test_identical_pods_evaluate_only_changed_volumes(shelf: Shelf):
    shelf.put(*(offered(f"v{number}", f"n{1 + number % 2}") for number in range(100)))
    assert shelf.best() == ["v0", "v1"]
    assert shelf.looked_at == 100

    assert shelf.best() == ["v0", "v1"]
    assert shelf.looked_at == 0

    shelf.put(offered("v0", "n1", claimRef={"name": "other"}))
    assert shelf.best() == ["v10", "v1"]
    assert shelf.looked_at == 0

    shelf.put(offered("v0", "n1"))
    assert shelf.best() == ["v0", "v1"]
    assert shelf.looked_at == 1


def test_a_reserved_and_released_volume_keeps_its_order(shelf: Shelf):
    shelf.put(offered("small", "n1"), offered("large", "n1", "2Gi"))
    volumes = shelf.table.watch_kind(VOLUMES)
    assert shelf.best()[0] == "small"
    volumes.assume("small", offered("small", "n1", claimRef={"name": "data"}))
    assert shelf.best()[0] == "large"
    volumes.restore("small")

    assert shelf.best()[0] == "small"


CHANGES = [
    pytest.param([offered("new", "n1", "1Gi")], ["new", ""], id="a new volume"),
    pytest.param([offered("old", "n1", "9Gi"), offered("b", "n1", "5Gi")], ["b", ""], id="one that grew"),
    pytest.param([offered("old", "n2", "3Gi")], ["", "old"], id="one that is elsewhere"),
    pytest.param([offered("old", "n1", "512Mi")], ["", ""], id="one that is too small now"),
    pytest.param(
        [offered("old", "n1", "3Gi", storageClassName="other")], ["", ""], id="one of another class"
    ),
]


@pytest.mark.parametrize(("changes", "expected"), CHANGES)
def test_changes_of_any_kind_are_applied(changes: Any, expected: list[str], shelf: Shelf):
    shelf.put(offered("old", "n1", "3Gi"))
    assert shelf.best() == ["old", ""]
    shelf.put(*changes)

    assert shelf.best() == expected


def test_a_deleted_volume_is_no_candidate(shelf: Shelf):
    shelf.put(offered("old", "n1"), offered("other", "n1"))
    assert shelf.best()[0] == "old"
    del shelf.table.watch_kind(VOLUMES)["old"]

    assert shelf.best()[0] == "other"


def test_very_many_changes_cause_a_full_read(shelf: Shelf):
    shelf.put(offered("old", "n1"))
    shelf.best()
    for _ in range(5000):
        shelf.put(offered("busy", "n2"))

    assert shelf.best() == ["old", "busy"]
    assert shelf.looked_at == 2


def test_bound_volumes_of_the_class_add_no_cost_to_a_new_demand(shelf: Shelf):
    shelf.put(*(offered(f"bound-{n}", "n1", claimRef={"name": f"c{n}"}) for n in range(50)))
    shelf.put(offered("free", "n2"))

    assert shelf.best() == ["", "free"]
    assert shelf.looked_at == 1


def test_demands_of_any_size_need_one_read_of_the_volumes(shelf: Shelf):
    shelf.put(*(offered(f"v{number}", "n1", f"{number + 1}Gi") for number in range(100)))
    assert shelf.best("1Gi") == ["v0", ""]

    for size in range(2, 50):
        assert shelf.best(f"{size}Gi") == [f"v{size - 1}", ""]
        assert shelf.looked_at == 0


def test_a_selector_is_evaluated_once_for_volumes_with_the_same_labels(shelf: Shelf):
    shelf.put(*(offered(f"v{number}", "n1", f"{number + 1}Gi") for number in range(100)))
    volumes = shelf.volumes("local")
    asked = []

    for _ in range(2):
        run_to_end(volumes.fitting("anything", lambda traits: bool(asked.append(traits))))

    assert len(asked) == 1


def test_the_least_recently_used_classes_are_dropped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(candidates, "_MOST_CLASSES", 2)
    shelf = Shelf(monkeypatch)
    for name in ("a", "b", "a", "c"):
        shelf.volumes(name)

    assert [name for _, name in shelf.kept._kept] == ["a", "c"]
