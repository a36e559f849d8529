"""Claims get the volumes that a match one by one on each node gives, at a cost independent of their number."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from plugins.volume_binding import node_volumes
from plugins.volume_binding.candidates import KeptCandidates
from plugins.volume_binding.matching import match_volumes
from plugins.volume_binding.reachability import Selection
from plugins.volumes.storage import VOLUMES
from scheduler.loop_work import run_to_end
from scheduler.objects.decode import typed_object
from scheduler.objects.storage import PersistentVolumeClaim
from scheduler.testing.samples import claim, only_on, storage_class, volume
from tests.support.builders import node
from tests.support.counted_labels import calls_of
from tests.unit.plugins.volume_binding.small_cluster import HOST, LOCAL, ZONE, Stage, using

MODES = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"]
LOCAL_CLASS = storage_class("local", provisioner=LOCAL)


def offered(random: Random, name: str) -> dict[str, Any]:
    places = [
        {},
        {"nodeAffinity": only_on(ZONE, "a", "b")},
        *({"nodeAffinity": only_on(HOST, f"n{n}")} for n in (1, 2)),
    ]
    return volume(
        name,
        phase="Available",
        labels={"tier": random.choice(["fast", "slow"])},
        storageClassName="local",
        capacity={"storage": f"{random.randint(1, 4)}Gi"},
        accessModes=random.sample(MODES, random.randint(1, 3)),
        **random.choice(places),
    )


def asked(random: Random, name: str) -> dict[str, Any]:
    selectors: list[dict[str, Any]] = [{}, {}, {"selector": {"matchLabels": {"tier": "fast"}}}]
    size = f"{random.randint(1, 3)}Gi"
    return claim(
        name, class_name="local", storage=size, modes=[random.choice(MODES)], **random.choice(selectors)
    )


def one_by_one(claims: list[dict[str, Any]], volumes: list[dict[str, Any]], labels: Any) -> list[str | None]:
    """The volume of each claim on a node with these labels, the smallest claim first."""
    taken: list[str | None] = []
    for each in sorted(claims, key=lambda each: each["spec"]["resources"]["requests"]["storage"]):
        spec = each["spec"]
        wanted = spec.get("selector", {}).get("matchLabels", {}).items()
        will_do = [
            (found["spec"]["capacity"]["storage"], found["metadata"]["name"])
            for found in volumes
            if found["metadata"]["name"] not in taken
            and found["spec"]["capacity"]["storage"] >= spec["resources"]["requests"]["storage"]
            and set(spec["accessModes"]) <= set(found["spec"]["accessModes"])
            and wanted <= found["metadata"]["labels"].items()
            and _is_reached(found, labels)
        ]
        taken.append(min(will_do)[1] if will_do else None)
    return taken


def _is_reached(found: dict[str, Any], labels: Any) -> bool:
    affinity = found["spec"].get("nodeAffinity")
    if affinity is None:
        return True
    (expression,) = affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"]
    return labels.get(expression["key"]) in expression["values"]


@pytest.mark.parametrize("seed", range(60))
def test_claims_matched_together_equal_those_matched_one_by_one(seed: int) -> None:
    random = Random(seed)
    volumes = [offered(random, f"v{number}") for number in range(random.randint(0, 12))]
    claims = [asked(random, f"c{number}") for number in range(random.randint(1, 8))]
    stage = Stage(*volumes)
    snapshot = stage.table.snapshot()

    of_class = KeptCandidates().volumes("local")
    run_to_end(of_class.follow(snapshot.objects(VOLUMES)))
    asking = [typed_object(each, PersistentVolumeClaim) for each in claims]

    found = run_to_end(match_volumes(snapshot, asking, {"local": of_class}))

    assert not isinstance(found, str)
    for row, each in enumerate(snapshot.nodes):
        assert [match.volume_on(row) for match in found] == one_by_one(claims, volumes, each.labels)


@pytest.mark.parametrize("seed", range(60))
def test_volumes_matched_for_one_pod_after_another_equal_those_of_the_first_pod(seed: int) -> None:
    random = Random(seed)
    volumes = [offered(random, f"v{number}") for number in range(random.randint(8, 40))]
    if seed % 4:  # what a claim takes is not searched again on all nodes
        volumes = [each for each in volumes if "nodeAffinity" in each["spec"]]
    claims = [asked(random, f"c{number}") for number in range(random.randint(1, 3))]
    stage, of_class = Stage(*volumes), KeptCandidates().volumes("local")
    away: list[dict[str, Any]] = []
    for _ in range(12):
        snapshot = stage.table.snapshot()
        run_to_end(of_class.follow(snapshot.objects(VOLUMES)))
        some = random.sample(claims, random.randint(1, len(claims)))
        asking = [typed_object(each, PersistentVolumeClaim) for each in some]

        found = run_to_end(match_volumes(snapshot, asking, {"local": of_class}))

        assert not isinstance(found, str)
        ordered = [claims[int(match.claim.metadata.name[1:])] for match in found]
        for row, each in enumerate(snapshot.nodes):
            assert [match.volume_on(row) for match in found] == one_by_one(ordered, volumes, each.labels)
        for _ in range(random.randint(0, 2)):
            if volumes:
                claimed = volumes.pop(random.randrange(len(volumes)))
                stage.show(
                    {**claimed, "spec": {**claimed["spec"], "claimRef": {"namespace": "x", "name": "y"}}}
                )
                away.append(claimed)
        if away and random.random() < 0.2:  # one is released
            volumes.append(away.pop())
            stage.show(volumes[-1])
        if random.random() < 0.1:
            stage.table.update_node(node("n3", labels={ZONE: random.choice("abc")}))
        if random.random() < 0.1:
            volumes.append(offered(random, f"later{random.random()}"))
            stage.show(volumes[-1])


def test_very_many_claims_search_as_often_as_a_node_has_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, random = calls_of(monkeypatch, Selection, "first"), Random(1)
    local = {"capacity": {"storage": "4Gi"}, "accessModes": MODES, "nodeAffinity": only_on(HOST, "n1")}
    stage = Stage(
        LOCAL_CLASS,
        *(
            {**offered(random, f"v{n}"), "spec": volume("v", storageClassName="local", **local)["spec"]}
            for n in range(2)
        ),
    )
    stage.show(claim("data", class_name="local", modes=["ReadWriteOnce"]))

    assert stage.feasible(using(*["data"] * 500)) == set()
    assert len(searches) <= 3


def test_very_many_claims_of_a_class_evaluate_its_topologies_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = calls_of(monkeypatch, Selection, "first")
    comparisons = calls_of(monkeypatch, node_volumes, "nodes_in")
    stage = Stage(storage_class("made", topologies=[{ZONE: ["a"]}]))
    stage.show(*(claim(f"c{number}", class_name="made", storage=f"{number + 1}Gi") for number in range(500)))

    assert stage.feasible(using(*(f"c{number}" for number in range(500)))) == {"n1"}
    assert (len(searches), len(comparisons)) == (0, 1)


def test_volumes_with_the_same_affinity_are_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    comparisons = calls_of(monkeypatch, node_volumes, "nodes_in")
    stage = Stage(*(volume(f"v{number}", nodeAffinity=only_on(ZONE, "b")) for number in range(500)))
    stage.show(*(claim(f"c{number}", f"v{number}") for number in range(500)))

    assert stage.feasible(using(*(f"c{number}" for number in range(500)))) == {"n2"}
    assert len(comparisons) == 1
