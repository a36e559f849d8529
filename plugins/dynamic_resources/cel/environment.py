"""The environment of expressions about devices: its variables and functions."""

from __future__ import annotations

from functools import cache
from typing import Any

from plugins.dynamic_resources.cel.functions import FUNCTIONS


@cache
def environment() -> Any:
    """Return the environment; the library is imported with the first call."""
    from cel_expr_python import cel
    from cel_expr_python.ext.ext_bindings import ExtBindings
    from cel_expr_python.ext.ext_optional import ExtOptional
    from cel_expr_python.ext.ext_strings import ExtStrings

    kind = cel.Type
    types = {
        "bool": kind.BOOL,
        "double": kind.DOUBLE,
        "dyn": kind.DYN,
        "int": kind.INT,
        "list": kind.List(kind.DYN),
        "opaque": kind.BYTES,
        "string": kind.STRING,
    }
    overloads: dict[str, list[Any]] = {}
    for function in FUNCTIONS:
        overload = cel.Overload(
            "_".join((function.name, "member" if function.is_member else "global", *function.parameters)),
            return_type=types[function.result],
            parameters=[types[parameter] for parameter in function.parameters],
            is_member=function.is_member,
            impl=function.call,
        )
        overloads.setdefault(function.name, []).append(overload)
    attributes = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.DYN))
    capacity = kind.Map(kind.STRING, kind.Map(kind.STRING, kind.BYTES))
    return cel.NewEnv(
        variables={
            "device": kind.Map(kind.STRING, kind.DYN),
            "device.driver": kind.STRING,
            "device.allowMultipleAllocations": kind.BOOL,
            "device.attributes": attributes,
            "device.attributes_": attributes,
            "device.capacity": capacity,
            "device.capacity_": capacity,
        },
        extensions=[
            ExtBindings(),
            ExtOptional(),
            ExtStrings(),
            cel.CelExtension(
                "kubernetes", [cel.FunctionDecl(name, alike) for name, alike in overloads.items()]
            ),
        ],
    )
