"""PodMonitor and PrometheusRule for the simulated API server: the fields our manifests use, and no others.

Written from the Prometheus operator's API reference. A field that is misspelt, of the wrong type or of the wrong place is
refused, as its own definitions refuse it; whether the operator acts on what is left is for a real cluster to say.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
DURATION: Schema = {
    "type": "string",
    "pattern": r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}


def _struct(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


_ENDPOINT = _struct(
    port=TEXT,
    path=TEXT,
    scheme={"type": "string", "enum": ["http", "https", "HTTP", "HTTPS"]},
    interval=DURATION,
    tlsConfig=_struct(insecureSkipVerify={"type": "boolean"}),
    authorization=_struct(type=TEXT, credentials=_struct("key", name=TEXT, key=TEXT)),
    relabelings=_list(_struct(targetLabel=TEXT, replacement=TEXT)),
)
_RULE = _struct(
    "expr",
    alert=TEXT,
    expr={"x-kubernetes-int-or-string": True},
    **{"for": DURATION},
    labels=TEXTS,
    annotations=TEXTS,
)


def _definition(kind: str, plural: str, spec: Schema) -> dict[str, Any]:
    schema = _struct("spec", spec=spec)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.monitoring.coreos.com"},
        "spec": {
            "group": "monitoring.coreos.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }


DEFINITIONS = [
    _definition(
        "PodMonitor",
        "podmonitors",
        _struct(
            "selector",
            selector=_struct(matchLabels=TEXTS),
            podMetricsEndpoints=_list(_ENDPOINT),
        ),
    ),
    _definition(
        "PrometheusRule",
        "prometheusrules",
        _struct(groups=_list(_struct("name", name=TEXT, rules=_list(_RULE)))),
    ),
]
