from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from plugins.image_locality import ImageLocality
from scheduler.engine.runtime.adapters import scores_of
from scheduler.engine.state.cache import Cache
from scheduler.framework import CycleState
from scheduler.testing.fakes import FakeFeatures
from tests.support.builders import node, pod
from tests.support.clusters import cluster
from tests.unit.plugins.plugin_calls import made, scores

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scheduler.objects.node import NodeObject

MIB = 1024 * 1024


def having(name: str, **sizes_mib: int) -> Any:
    images = [{"names": [f"{image}:latest"], "sizeBytes": size * MIB} for image, size in sizes_mib.items()]
    return node(name, images=images)


def running(*images: str, **fields: Any) -> Any:
    return pod("p", containers=[{"name": image, "image": image} for image in images], **fields)


def test_larger_present_images_score_higher():
    nodes = cluster(having("both", a=500, b=1000), having("small", a=500, x=9999), having("none"))

    # Of 3 nodes, 2 have a and 1 has b; 23 MiB score nothing, 2 * 1000 MiB the maximum.
    assert scores(made(ImageLocality), running("a", "b"), nodes) == {
        "both": (500 * 2 // 3 + 1000 // 3 - 23) * 100 // (2000 - 23),
        "small": (500 * 2 // 3 - 23) * 100 // (2000 - 23),
        "none": 0,
    }


@pytest.mark.parametrize(
    ("size_mib", "score"),
    [(0, 0), (22, 0), (23, 0), (33, 1), (1000, 100), (9999, 100)],
    ids=["nothing", "below the lowest", "the lowest", "a little", "the highest", "above the highest"],
)
def test_sizes_count_between_two_thresholds(size_mib: int, score: int):
    assert scores(made(ImageLocality), running("a"), cluster(having("n", a=size_mib))) == {"n": score}


def test_an_image_on_few_nodes_counts_less():
    nodes = cluster(having("has-it", a=1000), *(having(f"n{number}") for number in range(3)))

    assert scores(made(ImageLocality), running("a"), nodes)["has-it"] == (250 - 23) * 100 // (1000 - 23)


def test_init_containers_are_counted_in_both_sums():
    nodes = cluster(having("n", a=1000))
    init = [{"name": "i", "image": "a"}]

    assert scores(made(ImageLocality), running("b", initContainers=init), nodes) == {
        "n": (1000 - 23) * 100 // (2000 - 23)
    }


@pytest.mark.parametrize(
    ("version", "score"),
    [
        pytest.param("1.35", 0, id="1.35 ignores them"),
        pytest.param("1.36", (500 - 23) * 100 // (1000 - 23), id="1.36 counts their sizes"),
        pytest.param("1.37", (500 - 23) * 100 // (2000 - 23), id="1.37 also raises the threshold"),
    ],
)
def test_the_version_decides_how_image_volumes_count(version: str, score: int):
    nodes = cluster(having("n", a=500))
    volumes = [{"name": "v", "image": {"reference": "a"}}, {"name": "w"}]

    found = scores(ImageLocality(features=FakeFeatures(version)), running("b", volumes=volumes), nodes)

    assert found == {"n": score}


def test_a_pod_with_volumes_only_scores_as_in_upstream():
    nodes = cluster(having("has-it", a=500), having("none"))
    volumes = [{"name": "v", "image": {"reference": "a"}}]

    assert scores(made(ImageLocality), running(volumes=volumes), nodes) == {"has-it": 100, "none": 0}


def scored(cache: Cache) -> dict[str, int]:
    snapshot = cache.snapshot()
    found = scores_of(made(ImageLocality), CycleState(), running("a"), snapshot, snapshot.all_rows)
    assert found is not None
    return {each.name: int(found[row]) for row, each in enumerate(cache.table.nodes)}


def test_an_image_with_a_new_size_counts_with_it_if_one_node_has_it():
    cache = Cache()
    cache.add_node(having("n", a=100))
    assert scored(cache) == {"n": (100 - 23) * 100 // (1000 - 23)}

    cache.add_node(having("n", a=500))
    assert scored(cache) == {"n": (500 - 23) * 100 // (1000 - 23)}


def test_an_image_has_the_size_of_the_first_node_that_had_it():
    cache = Cache()
    cache.add_node(having("early"))
    cache.add_node(having("late", a=500))
    cache.snapshot().image("other:latest")  # from here on the columns of the image are kept
    cache.add_node(having("early", a=900))

    assert scored(cache) == dict.fromkeys(("early", "late"), (500 - 23) * 100 // (1000 - 23))


@pytest.mark.parametrize("seed", range(20))
def test_very_many_images_score_as_a_few_do(seed: int, monkeypatch: pytest.MonkeyPatch):
    random = Random(seed)
    names = [f"i{number}" for number in range(20)]
    nodes = cluster(
        *(
            having(f"n{row}", **{name: random.randrange(900) for name in random.sample(names, 5)})
            for row in range(9)
        )
    )
    wanted = pod(
        "p", containers=[{"name": f"c{number}", "image": random.choice(names)} for number in range(15)]
    )
    expected = scores(made(ImageLocality), wanted, nodes)

    monkeypatch.setattr("plugins.image_locality._FEW", 0)

    assert scores(made(ImageLocality), wanted, nodes) == expected


@pytest.mark.parametrize("count", [50, 500])
def test_each_node_is_read_once_for_all_images_of_a_pod(count: int, monkeypatch: pytest.MonkeyPatch):
    looked = []

    def counted(node: NodeObject) -> Mapping[str, int]:
        looked.append(node.name)
        return node.images

    nodes = cluster(
        *(having(f"n{row}", **{f"i{number}": 100 for number in range(count)}) for row in range(10))
    )
    snapshot = nodes.snapshot()
    monkeypatch.setattr("scheduler.snapshot.images._images", counted)

    made(ImageLocality).score(
        CycleState(), running(*(f"i{number}" for number in range(count))), snapshot, snapshot.all_rows
    )

    assert len(looked) <= 2 * snapshot.n_nodes
