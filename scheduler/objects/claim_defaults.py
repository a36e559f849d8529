"""Defaults of ResourceClaims and of the claims in their templates.

Source:
    kube-apiserver v1.36, pkg/apis/resource/v1/defaults.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Object = dict[str, Any]


def default_claim_spec(spec: Object) -> None:
    """Set the defaults of the requests of a claim."""
    for request in spec["devices"].get("requests", ()):
        for asked in (*([request["exactly"]] if "exactly" in request else ()), *alternatives_of(request)):
            if asked.setdefault("allocationMode", "ExactCount") == "ExactCount":
                asked["count"] = asked.get("count") or 1
            for toleration in asked.get("tolerations", ()):
                toleration.setdefault("operator", "Equal")


def alternatives_of(request: Object) -> Sequence[Object]:
    """Return the alternatives of a request; empty if it has none."""
    found: Sequence[Object] = request.get("firstAvailable", ())
    return found
