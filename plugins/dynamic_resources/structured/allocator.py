"""Gives claims devices on a node, or says why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from scheduler.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugins.dynamic_resources.structured.allocated import AllocatedDevices
    from plugins.dynamic_resources.structured.inventory import Inventory
    from scheduler.objects.dynamic_resources import AllocationResult, DeviceClass, ResourceClaim
    from scheduler.snapshot import Rows, Snapshot, UInt16s


class AllocationError(SchedulerError):
    """Something is wrong with a claim, a class or a slice: the whole attempt fails, in the words of the error."""


class InvalidPoolsError(SchedulerError):
    """Nothing fits this node, and some pool there is broken: the node alone is refused, in the words of the error."""


class OutOfTimeError(SchedulerError):
    """The search took too long."""


class Refusal(NamedTuple):
    """Why claims cannot be given devices on a node.

    Attributes:
        words: upstream's.
        is_error: whether the attempt fails, or this node alone is refused.
    """

    words: str
    is_error: bool


class Node(Protocol):
    """What is read of a node: a NodeObject or a NodeInfo will do."""

    @property
    def name(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...


class Allocator:
    """Gives claims devices; made for one pod, asked about many nodes.

    Args:
        inventory: all devices.
        allocated: what is taken of them; it may not change while this allocator is asked.
        device_class: returns a class by its name, None where there is none.
        out_of_time: asked now and then during a search, which ends when it says True.
    """

    def __init__(
        self,
        inventory: Inventory,
        allocated: AllocatedDevices,
        device_class: Callable[[str], DeviceClass | None],
        *,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> None:
        self._inventory = inventory
        self._allocated = allocated
        self._device_class = device_class
        self._out_of_time = out_of_time

    def allocate(self, node: Node, claims: Sequence[ResourceClaim]) -> tuple[AllocationResult, ...] | None:
        """Return what each claim can be given on a node, in their order; None if not all can be given something.

        The same node, claims and state give the same devices; only the ids of shares are new each time.

        Raises:
            AllocationError: a selector that cannot be evaluated, a class that is not there, more than 32 devices.
            InvalidPoolsError: not all can be given something, and there are pools that are broken.
            OutOfTimeError: see the class.
        """
        raise NotImplementedError

    def judge(
        self, snapshot: Snapshot, rows: Rows, claims: Sequence[ResourceClaim]
    ) -> tuple[UInt16s, tuple[Refusal | None, ...]]:
        """Say of many nodes whether the claims can be given devices there.

        Returns:
            index: (n_nodes,), a place in the table for each of `rows`, 0 elsewhere.
            table: None, at place 0, is yes; others why not.
        """
        raise NotImplementedError
