"""Racks that report noise take no pods, unless the pod says that it does not mind."""

from typing import ClassVar

from scheduler.framework import FilterPlugin, Outcomes, PluginArgs


class QuietRacksArgs(PluginArgs):
    label: str = "example.com/noisy"


class QuietRacks(FilterPlugin):
    name = "QuietRacks"
    api_version = 1
    reads_pods = False
    Args: ClassVar = QuietRacksArgs

    def __init__(self, *, args: QuietRacksArgs):
        self._label = args.label

    def signature(self, pod):
        return pod.labels.get(self._label) == "fine"

    def filter(self, state, pod, snapshot, rows):
        if pod.labels.get(self._label) == "fine":
            return Outcomes.all_pass(snapshot.n_nodes)
        noisy = snapshot.label(self._label).judge(lambda value: value == "yes")
        return Outcomes.reject(noisy, "node(s) were in a noisy rack", resolvable=False)
