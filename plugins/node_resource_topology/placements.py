"""In which NUMA zone the containers of a node are.

An agent may write this into the NodeResourceTopology. The containers with exclusive resources are sorted by the hashes of their
names. Each zone has a vector with the places of its containers in this order, except for the zone with the most containers, which
has all others. The object counts the containers, so it is of no use for other ones.

Source:
    numaplacement, version v001: numaplacement.go and leb89/leb89.go.
    scheduler-plugins, pkg/noderesourcetopology/cache/store.go, getNUMAPlacementInfo.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from plugins.node_resource_topology.pod_fingerprint import xxh64

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_HEAD: Final = "npv0v001"
_SEPARATOR: Final = "::"
_ENCODING: Final = "leb89"
_EXPECTED: Final = f"{_HEAD}::ve={_ENCODING}::cc=NUMBER::nn=NUMBER::bn=NUMBER is expected"
_DIGITS: Final = [chr(code) for code in range(ord("!"), ord("~") + 1) if chr(code) not in '"&<>\\']
_VALUES: Final = {digit: value for value, digit in enumerate(_DIGITS)}
_LAST: Final = 64
"""The lower digits end a number; the others have another one after them."""
_CONTAINERS_KEPT: Final = 65_536


class EncodedPlacement(NamedTuple):
    """The zones of containers, as an object has them.

    Attributes:
        n_containers: how many containers there are.
        fullest: the number of the zone that has the containers in no vector.
        vectors: (number of a zone, its vector).
    """

    n_containers: int
    fullest: int
    vectors: tuple[tuple[int, str], ...]


def read_placement(metadata: str, vectors: Mapping[int, str]) -> EncodedPlacement:
    """Return the placement of an object.

    Args:
        metadata: the value of its attribute.
        vectors: number of a zone -> the value of the zone's attribute.

    Raises:
        ValueError: the text is malformed, or contradicts the vectors.
    """
    head, *pairs = metadata[:256].split(_SEPARATOR)
    fields = dict(pair.partition("=")[::2] for pair in pairs)
    numbers = [fields.get(name, "") for name in ("cc", "nn", "bn")]
    is_known = head == _HEAD and fields.keys() == {"ve", "cc", "nn", "bn"} and fields["ve"] == _ENCODING
    if not is_known or not all(each.isascii() and each.isdigit() and len(each) < 8 for each in numbers):
        raise ValueError(f"{_EXPECTED}, was {metadata!r:.80}")
    n_containers, n_zones, fullest = map(int, numbers)
    if fullest >= n_zones:
        raise ValueError(f"bn below nn is expected, was {metadata!r:.80}")
    for zone in vectors:
        if zone == fullest or zone >= n_zones:
            raise ValueError(f"vectors of zones below nn other than bn are expected, was one of node-{zone}")
    return EncodedPlacement(n_containers, fullest, tuple(sorted(vectors.items())))


def zones_of_containers(placement: EncodedPlacement, containers: Collection[int]) -> list[int]:
    """Return the number of the zone of each container, given by its hash; empty if the placement is of others."""
    if len(set(containers)) != placement.n_containers:
        return []
    ordered = sorted(containers)
    found: dict[int, int] = {}
    for zone, vector in placement.vectors:
        for offset in _offsets(vector):
            if offset >= len(ordered) or ordered[offset] in found:
                return []
            found[ordered[offset]] = zone
    return [found.get(container, placement.fullest) for container in containers]


def _offsets(vector: str) -> Iterator[int]:
    """Yield the numbers in a vector, each written as the difference to the one before it; a malformed one ends the vector."""
    total = higher = n_digits = 0
    for digit in vector:
        value = _VALUES.get(digit, len(_DIGITS))
        if value < _LAST:
            total += _LAST * (1 + higher) + value if n_digits else value
            yield total
            higher = n_digits = 0
        elif value < len(_DIGITS) and n_digits < 5:
            higher = higher * (len(_DIGITS) - _LAST) + value - _LAST
            n_digits += 1
        else:
            break
    else:
        if not n_digits:
            return
    yield _MALFORMED


_MALFORMED: Final = 1 << 62
"""A number that no vector can have."""


@lru_cache(maxsize=_CONTAINERS_KEPT)
def container_hash(namespace: str, pod: str, container: str) -> int:
    """Return the hash by which containers are sorted."""
    return xxh64(f"{namespace}\0{pod}\0{container}".encode())
