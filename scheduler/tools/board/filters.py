"""Which pods and nodes a viewer wants to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scheduler.tools.board.object_details import owner_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from typing import Self

    from scheduler.objects.pod import PodInfo
    from scheduler.tools.board.subject import Subject

_NODES_A_STEP: Final = 500
_MOST_VALUES: Final = 50
"""Nodes can be grouped by labels with at most this number of values."""


class LabelFilter(NamedTuple):
    """Requirements for labels; all must hold.

    Attributes:
        requirements: key, and the value that the label must have, or None if any value is enough.
    """

    requirements: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse `key=value,key`, as kubectl does."""
        parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
        return cls(
            tuple((key.strip(), value.lstrip("=").strip() if sign else None) for key, sign, value in parts)
        )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the requirements."""
        return all(
            key in labels if value is None else labels.get(key) == value for key, value in self.requirements
        )


class PodFilter(NamedTuple):
    """Which pods are wanted; "" is any.

    Attributes:
        namespace: their namespace.
        owner: a part of their controller, `Kind/name`.
        labels: their labels.
    """

    namespace: str = ""
    owner: str = ""
    labels: LabelFilter = LabelFilter()

    def matches(self, pod: PodInfo) -> bool:
        """Return whether a pod is wanted."""
        return (
            self.namespace in {"", pod.namespace}
            and (not self.owner or self.owner in owner_of(pod))
            and self.labels.matches(pod.labels)
        )


EVERY_POD: Final = PodFilter()


def node_labels(subject: Subject, wanted: LabelFilter, by: str) -> Generator[None, None, dict[str, Any]]:
    """Return the nodes with some labels, in steps.

    Returns:
        As JSON values: `keys`, the labels by which nodes can be grouped, and `nodes`, the name of each wanted node -> its
        value of the label `by`.
    """
    nodes = list(subject.parts.cache.snapshot().nodes)
    found: dict[str, str] = {}
    values: dict[str, set[str]] = {}
    for place, node in enumerate(nodes):
        if place % _NODES_A_STEP == 0:
            yield
        for key, value in node.labels.items():
            known = values.setdefault(key, set())
            if len(known) <= _MOST_VALUES:
                known.add(value)
        if wanted.matches(node.labels):
            found[node.name] = node.labels.get(by, "")
    keys = sorted(
        key
        for key, known in values.items()
        if len(known) <= _MOST_VALUES and (len(known) > 1 or len(nodes) > 1)
    )
    return {"keys": keys, "nodes": found}
