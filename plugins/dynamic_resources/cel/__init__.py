"""Selectors of devices: expressions of the Common Expression Language, in the environment that Kubernetes gives them.

They run on cel-expr-python, the C++ implementation. It is 50 MB, so it is imported with the first expression, and not
before. What Kubernetes adds to the language is beside it, in plain Python: see `functions`.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, and
    staging/src/k8s.io/apiserver/pkg/cel, environment and library.
"""

from plugins.dynamic_resources.cel.facts import Fact, is_clear, values_of
from plugins.dynamic_resources.cel.selector import CELError, Selector, Subject, selector

__all__ = ["CELError", "Fact", "Selector", "Subject", "is_clear", "selector", "values_of"]
