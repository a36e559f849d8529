"""Several replicas that place pods at the same time: they come and go, and what they share is changed by hand."""

from __future__ import annotations

from typing import ClassVar

import yaml

from tests.faults.actors.actor import Actor
from tests.support.manifests import MANIFESTS

_ASSIGNMENTS = "shardassignments.custom-scheduler.io"
_MOST = 4


class Replicas(Actor):
    """Whoever scales the Deployment, and whoever deletes objects that are not to be deleted."""

    name = "replicas"
    pause_seconds: ClassVar[tuple[float, float]] = (3.0, 30.0)

    def begin(self) -> None:
        definition = yaml.safe_load((MANIFESTS / "crds" / "shardassignments.yaml").read_text())
        self.stage.store.create("customresourcedefinitions.apiextensions.k8s.io", definition)

    async def act(self) -> None:
        draw = self.random.random()
        if draw < 0.45:
            self._join()
        elif draw < 0.9:
            await self._leave()
        elif draw < 0.95:
            self._delete_assignment()
        else:
            self._delete_lease()

    def _join(self) -> None:
        if len(self.stage.lives.running) < _MOST:
            self.tell("one more replica")
            self.stage.lives.begin()

    async def _leave(self) -> None:
        life = self.one_of(self.stage.lives.running)
        if life is not None and len(self.stage.lives.running) > 1:
            self.tell("one replica less")
            await self.stage.lives.end(life, gracefully=self.random.random() < 0.5)

    def _delete_assignment(self) -> None:
        for each in self.stage.store.list(_ASSIGNMENTS):
            self.tell("delete the assignment")
            self.stage.store.delete(_ASSIGNMENTS, each["metadata"]["name"])

    def _delete_lease(self) -> None:
        lease = self.one_of(self.stage.store.list("leases"))
        if lease is not None:
            self.tell(f"delete the Lease {lease['metadata']['name']}")
            self.stage.store.delete("leases", lease["metadata"]["name"], lease["metadata"]["namespace"])

    def calm(self) -> None:
        if not self.stage.lives.running:
            self.stage.lives.begin()
