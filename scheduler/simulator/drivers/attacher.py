"""Simulates external attachers: marks volumes as attached.

Source:
    github.com/kubernetes-csi/external-attacher, pkg/controller/csi_handler.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.simulator.controllers.attachments import ATTACHMENTS
from scheduler.simulator.controllers.controller import QueueController

if TYPE_CHECKING:
    from scheduler.simulator.apimachinery.objects import Object


class Attacher(QueueController):
    """The external attachers of all drivers."""

    resources = (ATTACHMENTS,)

    def observe(self, resource: str, type_: str, obj: Object) -> None:
        if type_ == "ADDED" and not obj["status"]["attached"]:
            self.enqueue(obj["metadata"]["name"])

    def reconcile(self, key: str) -> None:
        if self.store.find(ATTACHMENTS, key) is not None:
            self.store.patch(ATTACHMENTS, key, {"status": {"attached": True}}, subresource="status")
