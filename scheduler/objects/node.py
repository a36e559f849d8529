"""A node with values derived from it, and its container images."""

from __future__ import annotations

import re
from functools import cached_property
from sys import intern
from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import ObjectError
from scheduler.objects.caches import PARSED, Remembered
from scheduler.objects.meta import ApiStruct
from scheduler.objects.resources import node_allocatable
from scheduler.objects.v1 import Node, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scheduler.objects.v1 import Taint


class _ContainerImage(ApiStruct, frozen=True):
    """v1.ContainerImage."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class _Status(ApiStruct, frozen=True):
    images: tuple[_ContainerImage, ...] | None = None


class _Node(ApiStruct, frozen=True):
    status: _Status | None = None


_IMAGES = msgspec.json.Decoder(_Node)


class _StatusWithImages(NodeStatus, frozen=True):
    images: tuple[_ContainerImage, ...] | None = None


class _NodeWithImages(Node, frozen=True):
    status: _StatusWithImages = _StatusWithImages()


_NODE = msgspec.json.Decoder(_NodeWithImages)


def node_with_images(raw: bytes) -> tuple[Node, dict[str, int]]:
    """Decode a node, and its images.

    Raises:
        ValueError: as a decoder of msgspec.
    """
    found = _NODE.decode(raw)
    status = found.status
    kept = NodeStatus(status.allocatable, status.conditions, status.addresses, status.declared_features)
    return Node(found.metadata, found.spec, kept), _shared(status.images or ())


def _node_images(node_name: str, raw: bytes) -> dict[str, int]:
    """Decode the images on a node.

    Raises:
        ObjectError: the list cannot be decoded.
    """
    try:
        status = _IMAGES.decode(raw).status
    except ValueError as error:
        raise ObjectError("Node", node_name, "status.images", str(error)) from error
    return _shared((status and status.images) or ())


_SIZES: Remembered[int, int] = Remembered()
_LISTS: Remembered[tuple[tuple[str, int], ...], dict[str, int]] = Remembered()
_IMAGE_CHARACTERS: Final = 16
"""What an image adds to the size of an entry of `_LISTS`, in characters; its name is stored once for all lists."""


def _shared(images: Iterable[_ContainerImage]) -> dict[str, int]:
    """Return the names of images, each with its size in bytes; the first size of a name counts.

    A node may list a hundred names, and a cluster has the same ones on thousands of nodes: names, sizes and equal lists are
    shared.
    """
    sizes: dict[str, int] = {}
    for image in images:
        size = _SIZES.get(image.size_bytes)
        if size is None:
            size = _SIZES.keep(image.size_bytes, image.size_bytes, 0)
        for name in image.names or ():
            sizes.setdefault(intern(name), size)
    content = tuple(sizes.items())
    known = _LISTS.get(content)
    return _LISTS.keep(content, sizes, _IMAGE_CHARACTERS * len(sizes)) if known is None else known


_BETWEEN_PIECES: Final = b"},{"
"""The separator of the pieces. It is mostly between two elements of a list, such as the images."""
_MOST_CUTS: Final = 1024
"""Maximum number of cuts. Each piece takes 40 bytes besides its text, so very short pieces would take more memory than they save."""
_PIECES: Remembered[bytes, bytes] = Remembered()


def _shared_pieces(raw: bytes) -> tuple[bytes, ...]:
    """Cut the JSON of a node into pieces that nodes share: most of it is images, managedFields and conditions."""
    known = _PIECES.get
    return tuple(
        [
            known(piece) or _PIECES.keep(piece, piece, len(piece) // PARSED)
            for piece in raw.split(_BETWEEN_PIECES, _MOST_CUTS)
        ]
    )


def normalized_image_name(name: str) -> str:
    """Return an image name as nodes report it: with the default tag if it has none.

    Source:
        kube-scheduler v1.36, plugins/imagelocality/image_locality.go, normalizedImageName.
    """
    return f"{name}:latest" if name.rfind(":") <= name.rfind("/") else name


class NodeObject:
    """A node, with values that scheduling derives from it. Immutable: an update is a new NodeObject.

    Attributes:
        node: the decoded object.

    Args:
        raw: its JSON from the API server.
        images: the images, if they are decoded already; otherwise they are decoded on request.
    """

    __slots__ = ("__dict__", "_images", "_pieces", "node")

    def __init__(self, node: Node, raw: bytes, *, images: dict[str, int] | None = None) -> None:
        self.node = node
        self._pieces = _shared_pieces(raw)
        self._images = images

    @property
    def raw(self) -> bytes:
        """Its JSON from the API server."""
        return _BETWEEN_PIECES.join(self._pieces)

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.node.metadata.annotations

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.node.spec.taints

    @property
    def unschedulable(self) -> bool:
        return self.node.spec.unschedulable

    @property
    def disables_resize_preemption(self) -> bool:
        """Whether no pod is preempted for the resize of another pod on the node."""
        policy = self.node.spec.pod_preemption_policy
        return policy is not None and bool(policy.disable_resize_preemption)

    @property
    def declared_features(self) -> frozenset[str]:
        """The names of the features that the node declares."""
        return frozenset(self.node.status.declared_features)

    @cached_property
    def allocatable(self) -> Mapping[str, int]:
        """Resource name -> total amount for pods: milliCPU, bytes or a count."""
        return node_allocatable(self.node)

    @property
    def images(self) -> Mapping[str, int]:
        """The names of the container images on the node -> size in bytes.

        Raises:
            ObjectError: the list cannot be decoded.
        """
        if self._images is None:
            self._images = _node_images(self.name, self.raw)
        return self._images

    @cached_property
    def object(self) -> Mapping[str, Any]:
        """The whole object from the API server."""
        return msgspec.json.decode(self.raw)  # type: ignore[no-any-return]

    def heartbeat(self, raw: bytes, resource_version: str) -> NodeObject | None:
        """Return the next version if it is a heartbeat that is recognized without decoding, else None.

        Args:
            raw: the next version's JSON.
            resource_version: the next version's resourceVersion.
        """
        metadata = self.node.metadata
        before = _marked(self.raw, metadata.resource_version)
        if before is None or before != _marked(raw, resource_version):
            return None
        metadata = msgspec.structs.replace(metadata, resource_version=resource_version)
        found = NodeObject(msgspec.structs.replace(self.node, metadata=metadata), raw, images=self._images)
        if "allocatable" in self.__dict__:
            found.allocatable = self.allocatable
        return found

    def is_heartbeat_of(self, earlier: NodeObject) -> bool:
        """Return whether an earlier version differs only by a heartbeat: the times at which conditions were confirmed."""
        if self.node.status is earlier.node.status:  # made by `heartbeat`
            return True
        try:
            return _without_heartbeat(self.raw) == _without_heartbeat(earlier.raw)
        except (msgspec.DecodeError, RecursionError):
            return False  # an unusual encoding; treated as a change

    def __repr__(self) -> str:
        return f"NodeObject({self.name})"


def _marked(raw: bytes, resource_version: str) -> tuple[bytes, bytes, list[bytes]] | None:
    """Return a node's bytes without the fields that a heartbeat changes; None if they are not in Go's form.

    A key before an object or a list is not a label, annotation or resource, so its first occurrence is the
    right one; a key inside a string has a backslash before its quotes.
    """
    metadata, found, rest = raw.partition(b'"managedFields":[')
    if not found:
        metadata, found, rest = raw.partition(b',"spec":{')
    version = b'"resourceVersion":"%b"' % resource_version.encode()
    spec, status_key, status = rest.partition(b',"status":{')
    if not (found and status_key) or metadata.count(version) != 1:
        return None
    if b"managedFields" in found:
        fields, key, spec = spec.partition(b',"spec":{')
        if not (key and fields.endswith(b"}]}")):  # the end of the metadata
            return None
    parts = status.split(b'"lastHeartbeatTime":"')
    for number in range(1, len(parts)):
        if _TIME.match(parts[number]) is None:
            return None
        parts[number] = parts[number][_TIME_LENGTH:]
    return metadata.replace(version, b""), spec, parts


def _without_heartbeat(raw: bytes) -> object:
    """Return comparable parts of a node, without the fields that a heartbeat changes."""
    parts = _PARTS.decode(raw)
    metadata, status = parts.metadata, parts.status
    for name in _CHANGES_ALWAYS:
        metadata.pop(name, None)
    conditions = _CONDITIONS.decode(status.pop("conditions", b"[]"))
    for condition in conditions:
        condition.pop("lastHeartbeatTime", None)
    return parts.spec, metadata, status, conditions


class _Parts(msgspec.Struct):
    metadata: dict[str, msgspec.Raw] = {}
    spec: msgspec.Raw = msgspec.Raw()
    status: dict[str, msgspec.Raw] = {}


_TIME = re.compile(rb'[0-9-]{10}T[0-9:]{8}Z"')
_TIME_LENGTH = 20
_CHANGES_ALWAYS = ("resourceVersion", "managedFields")
_PARTS = msgspec.json.Decoder(_Parts)
_CONDITIONS = msgspec.json.Decoder(list[dict[str, Any]])
