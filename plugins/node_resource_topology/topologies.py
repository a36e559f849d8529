"""The newest NodeResourceTopology of each node."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from plugins.node_resource_topology.topology_objects import NODE_TOPOLOGIES, NodeTopology, read_topology
from plugins.node_resource_topology.zone_table import ZoneTable
from plugins.work_in_steps import ObjectsInSteps

if TYPE_CHECKING:
    from collections.abc import Generator

    from scheduler.framework import ClusterObjects

logger = logging.getLogger(__name__)


class Topologies(ObjectsInSteps):
    """Reads the objects; all plugins of a scheduler share the result.

    Attributes:
        table: the zones of all nodes.
        newest: node name -> content of its object.
        followers: a node name is added to each of them when its object changes.
        tables: `table`, and the tables of followers.
    """

    read_a_step = 8
    few = 16

    def __init__(self) -> None:
        super().__init__()
        self.table = ZoneTable()
        self.newest: dict[str, NodeTopology] = {}
        self.followers: list[dict[str, None]] = []
        self.tables = [self.table]
        self._invalid: dict[str, str] = {}  # node name -> why its object does not count at all
        self._may_be_gone: list[str] = []

    @classmethod
    def of(cls, objects: ClusterObjects) -> Topologies:
        """Return what all plugins of a scheduler share."""
        return objects.objects(NODE_TOPOLOGIES).companion(cls, cls)

    def follow(self, table: ZoneTable) -> dict[str, None]:
        """Return a new follower with a table of its own; it has the names of all nodes with an object."""
        follower = dict.fromkeys(self.newest)
        self.followers.append(follower)
        self.tables.append(table)
        return follower

    def problems_of(self, node_name: str) -> tuple[str, ...]:
        """Return what is invalid in the object of a node."""
        if node_name in self._invalid:
            return (self._invalid[node_name],)
        found = self.newest.get(node_name)
        return () if found is None else found.problems

    @property
    def n_invalid(self) -> int:
        """The number of objects with an invalid field."""
        return len(self._invalid) + sum(1 for each in self.newest.values() if each.problems)

    @property
    def n_stale(self) -> int:
        """The number of nodes whose data are not used."""
        return sum(int(np.count_nonzero(table.is_stale)) for table in self.tables)

    def forget(self) -> None:
        self._may_be_gone = [*self.newest, *self._invalid]

    def read(self, key: str) -> bool:
        obj, before, problems = self._objects.get(key), self.newest.get(key), self.problems_of(key)
        found = None if obj is None else read_topology(obj)
        if found is not None and found == before:
            return False  # such as after a heartbeat of the agent
        self._invalid.pop(key, None)
        if isinstance(found, NodeTopology):
            self.newest[key] = found
            self.table.put(key, found)
        else:
            self.newest.pop(key, None)
            self.table.remove(key)
            if found is not None:
                self._invalid[key] = found
        if self.problems_of(key) not in {(), problems}:
            logger.warning(
                "NodeResourceTopology is invalid",
                extra={"node": key, "error": "; ".join(self.problems_of(key))},
            )
        for follower in self.followers:
            follower[key] = None
        return False

    def settle(self) -> Generator[None, None, None]:
        """Remove nodes whose objects were deleted while changes were not recorded."""
        while self._may_be_gone:
            for key in self._may_be_gone[-self.read_a_step :]:
                if key not in self._objects:
                    self.read(key)
            del self._may_be_gone[-self.read_a_step :]
            yield
