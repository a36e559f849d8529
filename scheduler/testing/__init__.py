"""Test kit for authors of plugins.

builders   pod(...), node(...): objects as the API server sends them
snapshots  snapshot_of(node(...), pods=[...]): input of extension points
profile_simulation  ProfileSimulation(node(...), plugins=[Mine]).schedule(pod(...)): your plugin in a whole profile
contract   CHECKS: what must hold for every plugin
fakes      fakes for the capabilities; ManualClock is one of them
"""

from scheduler.testing.builders import cache_of, node, node_object, pod, pod_object, snapshot_of
from scheduler.testing.contract import CHECKS, PluginSubject, subject
from scheduler.testing.fakes import FakeEvents, Fakes, FakeWeb, ManualClock
from scheduler.testing.profile_simulation import ProfileSimulation

__all__ = [
    "CHECKS",
    "FakeEvents",
    "FakeWeb",
    "Fakes",
    "ManualClock",
    "PluginSubject",
    "ProfileSimulation",
    "cache_of",
    "node",
    "node_object",
    "pod",
    "pod_object",
    "snapshot_of",
    "subject",
]
