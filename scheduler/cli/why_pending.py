"""Lists all pending pods, by cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.cli.why_output import show_waiting
from scheduler.kube.client.resources import PODS
from scheduler.objects.decode import decode_pod
from scheduler.tools.whatif.evaluation import is_pending
from scheduler.tools.whatif.live_cluster import read_objects
from scheduler.tools.whatif.pending_by_cause import by_cause

if TYPE_CHECKING:
    from scheduler.cli.why_lookup import Lookup


async def look_at_pending(look: Lookup) -> None:
    """Show the messages of the schedulers about pending pods, in all namespaces unless one is given.

    Raises:
        SchedulerError: the pods cannot be read.
    """
    async with look.connect() as (connection, _):
        pods = await read_objects(
            connection, PODS, decode_pod, {"fieldSelector": "spec.nodeName="}, namespace=look.namespace or ""
        )
    show_waiting(by_cause(filter(is_pending, pods.values())), as_json=look.as_json)
