"""Admission of planned pods by the API server: a dry run, which creates nothing.

The answer includes what only the API server knows: quotas, defaults of LimitRanges, overhead of RuntimeClasses, webhooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from scheduler.errors import ApiError
from scheduler.kube.client.resources import PODS
from scheduler.kube.http.request import Request

if TYPE_CHECKING:
    from scheduler.kube.client.connection import ApiConnection
    from scheduler.tools.whatif.start_preview import Planned

    Object = dict[str, Any]

_ITS_OWN: Final = ("affinity", "hostname", "subdomain", "volumes")
"""Fields in which the pods of one workload may differ; only one of these pods is sent."""
_NO_ANSWER: Final = 0
_MAY_NOT: Final = 'cannot create resource "pods"'


async def admit(connection: ApiConnection, planned: Planned, *, knows_all: bool) -> str:
    """Replace a workload's pods by the pods that the API server would admit, or note why it would reject them.

    Args:
        connection: to the API server.
        planned: the workload; its `pods` and `problem` are changed.
        knows_all: whether all objects that admission reads exist in the cluster.

    Returns:
        Why the API server was not asked, or why its answer does not count; "" if it does.

    Raises:
        ApiError: no answer.
    """
    if not planned.pods:
        return ""
    first = planned.pods[0]
    asked = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _identity(first),
        "spec": _as_written(first["spec"]),
    }
    path = PODS.path(planned.namespace)
    request = Request("POST", path, msgspec.json.encode(asked), params={"dryRun": "All"})
    try:
        answer = await connection.send(request)
    except ApiError as error:
        if error.status == _NO_ANSWER:
            raise
        message = error.message.removeprefix(f"{request}: {error.status}: ")
        if not knows_all or _MAY_NOT in message:
            return message
        planned.problem = message
        planned.pods = []
        return ""
    written, spec = _as_written(first["spec"]), msgspec.json.decode(answer.body)["spec"]
    planned.pods = [{**pod, "spec": _admitted(pod["spec"], written, spec)} for pod in planned.pods]
    return ""


def _identity(pod: Object) -> Object:
    metadata = pod["metadata"]
    kept = {key: metadata[key] for key in ("namespace", "labels", "annotations") if key in metadata}
    return {**kept, "generateName": f"{metadata['name']}-"}


def _as_written(spec: Object) -> Object:
    """Return a pod's spec without the fields that the API server sets and rejects in requests."""
    return {key: value for key, value in spec.items() if key not in {"priority", "preemptionPolicy"}}


def _admitted(own: Object, asked: Object, answered: Object) -> dict[str, Any]:
    spec = dict(answered)
    for name in _ITS_OWN:
        if own.get(name) != asked.get(name):
            spec.pop(name, None)
            spec |= {name: own[name]} if name in own else {}
    return spec
