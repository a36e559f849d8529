"""The scenarios, by subject; importing this registers all of them."""

from importlib import import_module

from tests.hostile.scenario import SCENARIOS

SUBJECTS = (
    "affinity",
    "devices",
    "expressions",
    "groups",
    "queues",
    "volumes",
    "pods",
    "nominations",
    "nodes",
    "profiles",
    "leases",
    "connections",
    "configuration",
    "extenders",
    "floods",
    "churn",
    "large_pods",
    "proxies",
)

for subject in SUBJECTS:
    import_module(f"{__name__}.{subject}")

__all__ = ["SCENARIOS"]
