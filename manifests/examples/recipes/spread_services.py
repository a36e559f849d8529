"""Prefers the nodes with the fewest pods of the Services that select the pod."""

from scheduler.framework import (
    Code,
    Needs,
    PreScorePlugin,
    ScorePlugin,
    Status,
    default_normalize_score,
)

SERVICES = "v1/services"


class SpreadServices(PreScorePlugin, ScorePlugin):
    name = "SpreadServices"
    api_version = 1
    needs = Needs(kinds=frozenset({SERVICES}))

    def pre_score(self, state, pod, snapshot, feasible):
        services = snapshot.objects(SERVICES).in_namespace(pod.namespace).values()
        selectors = [service["spec"].get("selector") for service in services]
        chosen = [each for each in selectors if each and each.items() <= pod.labels.items()]
        state.write(self.name, chosen)
        return None if chosen else Status(Code.SKIP)

    def score_node(self, state, pod, node):
        selectors = state.read(self.name, list)
        others = [other.labels.items() for other in node.pods if other.namespace == pod.namespace]
        return sum(any(each.items() <= labels for each in selectors) for labels in others)

    def normalize(self, state, pod, scores, feasible):
        return default_normalize_score(scores, feasible, reverse=True)
