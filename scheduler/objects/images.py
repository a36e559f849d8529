"""Container images on nodes.

A node may list a hundred image names, and a cluster has the same names on thousands of nodes. So they are
decoded only on request, and each name is stored once.
"""

from __future__ import annotations

import sys

import msgspec

from scheduler.errors import ObjectError
from scheduler.objects.meta import ApiStruct


class _ContainerImage(ApiStruct, frozen=True):
    """v1.ContainerImage."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class _Status(ApiStruct, frozen=True):
    images: tuple[_ContainerImage, ...] | None = None


class _Node(ApiStruct, frozen=True):
    status: _Status | None = None


_NODE = msgspec.json.Decoder(_Node)


def node_images(node_name: str, raw: bytes) -> dict[str, int]:
    """Return the names of the images on a node, each with its size in bytes; the first size of a name counts.

    Args:
        node_name: name of the node, for errors.
        raw: the Node's JSON.

    Raises:
        ObjectError: the list cannot be decoded.
    """
    try:
        status = _NODE.decode(raw).status
    except ValueError as error:
        raise ObjectError("Node", node_name, "status.images", str(error)) from error
    images: dict[str, int] = {}
    for image in (status and status.images) or ():
        for name in image.names or ():
            images.setdefault(sys.intern(name), image.size_bytes)
    return images


def normalized_image_name(name: str) -> str:
    """Return an image name as nodes report it: with the default tag if it has none.

    Source:
        kube-scheduler v1.36, plugins/imagelocality/image_locality.go, normalizedImageName.
    """
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name
