"""The explanation of a plugin for its rejection of many nodes, and the changes of the pod or of other objects that would end it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from scheduler.objects.pod import PodInfo
    from scheduler.snapshot import Rows


class Change(NamedTuple):
    """The smallest change after which a plugin no longer rejects a pod on one node.

    Attributes:
        row: the node's row.
        text: a clause that continues "It would fit if", as in "its cpu request were 2 or less".
        pod: the pod as it then is for the plugin. A change of the node has the pod that does not need this change.
    """

    row: int
    text: str
    pod: PodInfo


@dataclass(frozen=True, slots=True)
class Remedy:
    """One way to end the rejections of a plugin.

    The scheduler evaluates `relaxed` on all nodes, and then asks for the smallest change among the nodes that fit.

    Attributes:
        relaxed: the pod without the requirement that the plugin rejects it for; it keeps its other requirements.
        change: returns the smallest change for one of some rows; None if there is none that makes sense.
        without: the name of the plugin, if the change is one of an object that only this plugin reads, such as a quota:
            the pod is then evaluated without the plugin, and `change` computes what the plugin needs. "" for other changes.
        ended: (row, pod) pairs of pods on nodes: the pod is evaluated as if these had ended.
    """

    relaxed: PodInfo
    change: Callable[[Rows], Change | None]
    without: str = ""
    ended: Sequence[tuple[int, PodInfo]] = ()


@dataclass(frozen=True, slots=True)
class NodesExplanation:
    """Why a plugin rejects many nodes.

    Attributes:
        summary: one sentence about these nodes together, such as the largest free amount; "" if there is none.
        remedies: the possible ways to end the rejections, the smallest first.
    """

    summary: str = ""
    remedies: Sequence[Remedy] = ()
