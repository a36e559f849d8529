"""Allows pods that need a licence only on nodes with a free licence.

A node has its number of seats in the annotation `example.com/licences`. A pod that uses a seat has the label
`example.com/licence: "yes"`. An optional licence server reports seats in use outside of the cluster: {"node name": seats}.
"""

import json
from typing import ClassVar

from scheduler.framework import (
    ActionType,
    ClusterEvent,
    EventResource,
    EventWithHint,
    FilterPlugin,
    HttpGet,
    PluginArgs,
    Status,
)

SEATS = "example.com/licences"
LABEL = "example.com/licence"


class LicenceArgs(PluginArgs):
    server: str = ""  # URL; "" for no server
    refresh_seconds: float = 30.0


class FreeLicence(FilterPlugin):
    name = "FreeLicence"
    api_version = 1
    Args: ClassVar = LicenceArgs

    def __init__(self, *, args: LicenceArgs, web: HttpGet):
        self._server, self._web = args.server, web
        self._taken = {}  # node name -> seats in use outside of the cluster
        self._version = 0
        self.refresh_seconds = args.refresh_seconds if args.server else None

    def signature(self, pod):
        return pod.labels.get(LABEL) == "yes"

    def version(self):
        return self._version  # a refresh invalidates cached results

    def events(self):
        seats = ClusterEvent(EventResource.NODE, ActionType.ADD | ActionType.UPDATE_NODE_ANNOTATION)
        leaving = ClusterEvent(EventResource.POD, ActionType.DELETE)
        return [EventWithHint(seats), EventWithHint(leaving)]

    async def refresh(self):
        taken = json.loads(await self._web.http_get(self._server))
        if taken != self._taken:
            self._taken, self._version = taken, self._version + 1

    def filter_node(self, state, pod, node):
        if pod.labels.get(LABEL) != "yes":
            return None
        seats = node.annotations.get(SEATS, "0")
        if not seats.isdecimal():
            return Status.unschedulable(f"node(s) had a malformed {SEATS}", resolvable=False)
        used = self._taken.get(node.name, 0) + sum(each.labels.get(LABEL) == "yes" for each in node.pods)
        return None if used < int(seats) else Status.unschedulable("node(s) had no free licence")

    def why(self, pod, snapshot, node):
        if node is None:
            return None
        holders = [each.key for each in node.pods if each.labels.get(LABEL) == "yes"]
        outside = self._taken.get(node.name, 0)
        return [
            f"of {node.annotations.get(SEATS, 'no')} licences {outside} are taken outside, the others by {', '.join(holders)}",
            "what would help: one of them given back",
        ]
