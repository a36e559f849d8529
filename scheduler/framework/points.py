"""The extension points of the scheduling framework, in the order of a pod's scheduling."""

from __future__ import annotations

from enum import Enum


class ExtensionPoint(Enum):
    """An extension point; the value is its key under `plugins` in a profile.

    Attributes:
        metric_name: the label of this point in kube-scheduler's metrics, as in `PreFilter`.

    Source:
        kube-scheduler v1.36, staging/src/k8s.io/kube-scheduler/config/v1/types.go, Plugins.
    """

    PRE_ENQUEUE = "preEnqueue"
    QUEUE_SORT = "queueSort"
    PRE_FILTER = "preFilter"
    FILTER = "filter"
    POST_FILTER = "postFilter"
    PRE_SCORE = "preScore"
    SCORE = "score"
    PLACEMENT_GENERATE = "placementGenerate"
    PLACEMENT_SCORE = "placementScore"
    RESERVE = "reserve"
    PERMIT = "permit"
    PRE_BIND = "preBind"
    BIND = "bind"
    POST_BIND = "postBind"

    def __init__(self, key: str) -> None:
        self.metric_name = key[0].upper() + key[1:]
