"""The builders that plugin authors have too, by the name the repository's own tests know."""

from scheduler.testing.builders import CREATED, node, node_object, pod, pod_object

__all__ = ["CREATED", "node", "node_object", "pod", "pod_object"]
