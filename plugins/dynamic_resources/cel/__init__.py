"""Selectors of devices: expressions of the Common Expression Language, in the environment of Kubernetes.

They are evaluated by cel-expr-python, the C++ implementation. It is 50 MB, so it is imported for the first expression
only. Kubernetes' additions to the language are implemented in plain Python: see `functions`.

Source:
    kube-scheduler v1.36, staging/src/k8s.io/dynamic-resource-allocation/cel/compile.go, and
    staging/src/k8s.io/apiserver/pkg/cel, environment and library.
"""

from plugins.dynamic_resources.cel.selector import (
    CelDevice,
    CELError,
    CelSelector,
    DeviceInput,
    is_clear,
    selector,
    values_of,
)

__all__ = ["CELError", "CelDevice", "CelSelector", "DeviceInput", "is_clear", "selector", "values_of"]
