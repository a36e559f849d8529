"""Selectors of devices: expressions of the Common Expression Language, in the environment of Kubernetes.

They are evaluated by cel-expr-python, the C++ implementation. It is 50 MB, so it is imported for the first expression
only. Kubernetes' additions to the language are implemented in plain Python: see `functions`.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, and
    staging/src/k8s.io/apiserver/pkg/cel, environment and library.
"""

from plugins.dynamic_resources.cel.selector import (
    CelAttribute,
    CelDevice,
    CELError,
    CelExpression,
    CelSelector,
    DeviceInput,
    derived_attribute,
    is_clear,
    selector,
    values_of,
)

__all__ = [
    "CELError",
    "CelAttribute",
    "CelDevice",
    "CelExpression",
    "CelSelector",
    "DeviceInput",
    "derived_attribute",
    "is_clear",
    "selector",
    "values_of",
]
