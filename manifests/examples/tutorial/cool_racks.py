"""Prefers cool racks. Prometheus has the temperature of the air in front of each rack."""

import json
from typing import ClassVar
from urllib.parse import quote

from scheduler.framework import MAX_NODE_SCORE, HttpGet, PluginArgs, ScorePlugin

RACK = "example.com/rack"
QUERY = "max by (rack) (rack_inlet_celsius)"
POINTS_PER_DEGREE = 10


class CoolRacksArgs(PluginArgs):
    prometheus: str = "http://prometheus.monitoring:9090"


class CoolRacks(ScorePlugin):
    name = "CoolRacks"
    api_version = 1
    reads_pods = False
    refresh_seconds = 15.0
    Args: ClassVar = CoolRacksArgs

    def __init__(self, *, args: CoolRacksArgs, web: HttpGet):
        self._url = f"{args.prometheus}/api/v1/query?query={quote(QUERY)}"
        self._web = web
        self._points = {}  # rack -> score
        self._version = 0

    def signature(self, pod):
        return ""  # the score does not depend on the pod

    def version(self):
        return self._version  # a refresh invalidates cached scores

    async def refresh(self):
        answer = json.loads(await self._web.http_get(self._url))
        celsius = {each["metric"]["rack"]: float(each["value"][1]) for each in answer["data"]["result"]}
        coolest = min(celsius.values(), default=0)
        points = {
            rack: max(0, MAX_NODE_SCORE - round((degrees - coolest) * POINTS_PER_DEGREE))
            for rack, degrees in celsius.items()
        }
        if points != self._points:
            self._points, self._version = points, self._version + 1

    def score(self, state, pod, snapshot, feasible):
        return snapshot.label(RACK).measure(lambda rack: self._points.get(rack, 0))
