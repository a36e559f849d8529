"""ImageLocality as a loop over one node, from reading image_locality.go and the cache's image states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given

from plugins.image_locality import ImageLocality
from scheduler.configuration.feature_gates import VERSIONS
from scheduler.testing.fakes import FakeFeatures
from tests.reference.go import divide, to_int64, wrap
from tests.reference.one_node import scored
from tests.support.clusters import Cluster, wild_clusters, wild_pods

if TYPE_CHECKING:
    from scheduler.objects.pod import PodInfo

MB = 1024 * 1024


def normalized(name: str) -> str:
    return name + ":latest" if name.rfind(":") <= name.rfind("/") else name


def rank(pod: PodInfo, node_images: list[set[str]], sizes: dict[str, int], row: int, version: str) -> int:
    spec = pod.object["spec"]
    total = 0
    names = [container["image"] for container in [*spec["initContainers"], *spec["containers"]]]
    of_volumes = [volume["image"]["reference"] for volume in spec["volumes"] if "image" in volume]
    names += of_volumes if version >= "1.36" else []
    for name in map(normalized, names):
        if name in node_images[row]:
            holders = sum(name in images for images in node_images)
            spread = float(holders) / float(len(node_images))
            total = wrap(total + to_int64(float(sizes[name]) * spread))
    counted = len(spec["initContainers"]) + len(spec["containers"])
    highest = 1000 * MB * (counted + (len(of_volumes) if version >= "1.37" else 0))
    if total < 23 * MB:
        total = 23 * MB
    elif total > highest:
        total = highest
    return divide(100 * (total - 23 * MB), highest - 23 * MB)


@given(wild_clusters("images"), wild_pods("images"))
def test_the_score_is_that_of_the_reference_loop(cluster: Cluster, pod: PodInfo):
    sizes: dict[str, int] = {}  # as the first node has it
    node_images: list[set[str]] = []
    for node in cluster.nodes:
        node_images.append(set())
        for image in node.object["status"]["images"]:
            for name in image["names"]:
                sizes.setdefault(name, image["sizeBytes"])
                node_images[-1].add(name)

    for version in VERSIONS:
        found = scored(ImageLocality(features=FakeFeatures(version)), pod, cluster.snapshot())

        rows = range(len(cluster.nodes))
        assert found == [rank(pod, node_images, sizes, row, version) for row in rows]
