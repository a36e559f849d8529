"""Prefers the cheapest feasible node.

Prices are in a ConfigMap: instance type -> price per hour. A node's own label `example.com/price` takes precedence. A
node without a known price counts as the most expensive.
"""

from typing import ClassVar

import numpy as np

from scheduler.framework import MAX_NODE_SCORE, Needs, PluginArgs, ScorePlugin

TYPE = "node.kubernetes.io/instance-type"
PRICE = "example.com/price"
CONFIG_MAPS = "v1/configmaps"


class CheapestNodeArgs(PluginArgs):
    config_map: str = "kube-system/node-prices"


class CheapestNode(ScorePlugin):
    name = "CheapestNode"
    api_version = 1
    Args: ClassVar = CheapestNodeArgs
    needs = Needs(kinds=frozenset({CONFIG_MAPS}))

    def __init__(self, *, args: CheapestNodeArgs):
        self._config_map = args.config_map

    def score(self, state, pod, snapshot, feasible):
        prices = snapshot.objects(CONFIG_MAPS).get(self._config_map, {}).get("data") or {}
        of_type = snapshot.label(TYPE).measure(lambda kind: micro(prices.get(kind)))
        own = snapshot.label(PRICE).measure(micro)
        return np.where(own >= 0, own, of_type)

    def normalize(self, state, pod, scores, feasible):
        price = scores[feasible]
        known = price[price >= 0]
        result = np.zeros_like(scores)
        if known.size == 0:
            return result
        low, high = known.min(), known.max()
        score = np.where(price >= 0, MAX_NODE_SCORE * (high - price) // max(high - low, 1), 0)
        result[feasible] = score if high > low else np.where(price >= 0, MAX_NODE_SCORE, 0)
        return result


def micro(price):
    """Return a price in millionths, or -1 if it is not a price."""
    try:
        number = float(price)
    except (TypeError, ValueError):
        return -1
    return round(number * 1_000_000) if 0 <= number < 1_000_000 else -1
