"""Images on nodes."""

from __future__ import annotations

import pytest

from scheduler.errors import ObjectError
from scheduler.objects.images import node_images, normalized_image_name
from tests.support.builders import node


def test_every_name_of_an_image_has_its_size_and_the_first_counts():
    each = node(
        "n",
        images=[
            {"names": ["a:1", "a@sha256:0"], "sizeBytes": 10},
            {"names": ["b:1", "a:1"], "sizeBytes": 20},
            {"names": ["c:1"]},
        ],
    )

    assert each.images == {"a:1": 10, "a@sha256:0": 10, "b:1": 20, "c:1": 0}


@pytest.mark.parametrize(
    "status",
    [
        b"{}",
        b'{"status": null}',
        b'{"status": {"images": null}}',
        b'{"status": {"images": [{"names": null}]}}',
    ],
)
def test_a_node_may_have_no_images(status: bytes):
    assert node_images("n", status) == {}


def test_an_invalid_list_of_images_is_an_error_naming_the_node():
    with pytest.raises(ObjectError, match=r"Node n: status\.images: .*names"):
        node_images("n", b'{"status": {"images": [{"names": "a:1"}]}}')


@pytest.mark.parametrize(
    ("name", "normalized"),
    [
        ("a", "a:latest"),
        ("a:1", "a:1"),
        ("r.io:5000/a", "r.io:5000/a:latest"),
        ("r.io:5000/a:1", "r.io:5000/a:1"),
        ("a@sha256:0", "a@sha256:0"),
        ("", ":latest"),
    ],
)
def test_the_default_tag_is_added(name: str, normalized: str):
    assert normalized_image_name(name) == normalized
